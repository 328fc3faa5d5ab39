"""Byte-level BPE whose merges never cross character categories: training, encoding and decoding."""

from __future__ import annotations

from webtext.tokenizer.tokenizer import Tokenizer
from webtext.tokenizer.vocabulary import Vocabulary

__all__ = ["Tokenizer", "Vocabulary"]
