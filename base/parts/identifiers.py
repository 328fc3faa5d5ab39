"""Ids of records and the train/validation split: hashes of the records' content, as lower-case hex.

Imports only hashlib, so that a process can compute a link's id without loading Arrow.
"""

from __future__ import annotations

import hashlib

KEY_DIGITS = 16
ID_HEX_DIGITS = 32  # 128 bits: a collision among 10^12 records has probability below 10^-14

VALIDATION_RATIO = 0.05
"""Share of links held out, as WebText did (GPT-2 model card, 'WebText': 5 % for validation)."""
SPLIT_KEY = b"webtext split 1"
_KEYED = hashlib.blake2b(key=SPLIT_KEY, digest_size=8)


def link_id(url: str) -> str:
    """Return the first 32 hex digits of the SHA-256 of the canonical URL.

    >>> link_id("https://example.com/")
    '0f115db062b7c0dd030b16878c99dea5'
    """
    return hashlib.sha256(url.encode()).hexdigest()[:ID_HEX_DIGITS]


def link_key(identifier: str) -> int:
    """Return the first 64 of a link_id's 128 bits: with 45 M links, one look-up in 4e11 is wrong."""
    return int(identifier[:KEY_DIGITS], 16)


def page_document_id(url: str, date: str, body: bytes) -> str:
    """Return a page's document id: 32 hex digits of SHA-256(url "\\n" date "\\n" SHA-256 of the decoded body).

    `date` is the WARC-Date header as written, `body` the payload without content and transfer encoding.
    """
    return hashlib.sha256(f"{url}\n{date}\n{hashlib.sha256(body).hexdigest()}".encode()).hexdigest()[:ID_HEX_DIGITS]


def text_digest(text: str) -> str:
    """Return the first 32 hex digits of the SHA-256 of the text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]


def split_of(identifier: str, validation_ratio: float = VALIDATION_RATIO) -> str:
    """Return 'train' or 'validation', by a keyed hash of a link_id (or of a document id without a link).

    The split depends only on the identifier, so two builds that share links share their held-out set.
    """
    keyed = _KEYED.copy()
    keyed.update(identifier.encode())
    return "validation" if int.from_bytes(keyed.digest(), "big") < validation_ratio * 2**64 else "train"
