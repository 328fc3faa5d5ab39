"""Byte-level BPE whose merges never cross character categories: train, encode, decode."""

from __future__ import annotations

from webtext.tokenizer.tokenizer import Tokenizer
from webtext.tokenizer.vocabulary import Vocabulary

__all__ = ["Tokenizer", "Vocabulary"]
