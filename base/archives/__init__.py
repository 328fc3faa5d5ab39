"""Readers for WARC and ARC files."""
