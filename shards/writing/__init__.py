"""Writes token shards."""
