"""Reads and verifies token shards."""
