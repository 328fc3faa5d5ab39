"""Compressed files to lines of bytes, by several processes where a file allows it."""
