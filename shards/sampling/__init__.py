"""Deterministic training samples from token shards."""
