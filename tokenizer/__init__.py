"""Byte-level BPE whose merges never cross character categories: train, encode, decode."""
