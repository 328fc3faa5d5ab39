"""Measures that compare tokenizers, and their table."""
