"""Readers of WARC and ARC files."""
