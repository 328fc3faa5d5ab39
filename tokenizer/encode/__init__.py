"""Variants of encoding: special tokens, streams, offsets, splitting, padding, patterns without a scanner."""
