"""Compressed files to lines of bytes, with several processes per file if possible."""
