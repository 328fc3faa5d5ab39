"""Conversion between token shards and other projects' token files."""
