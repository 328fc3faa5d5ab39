"""Ids and splits: golden values that must never change, because builds of different years share them."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.identifiers import VALIDATION_RATIO, link_id, page_document_id, split_of, text_digest

N = 20_000


def test_ids_are_what_their_definition_says() -> None:
    """Computed here with hashlib only, from the definitions in the docstrings."""
    url, date, body = "https://example.com/ü", "2017-01-01T00:00:00Z", b"<p>hello"
    assert link_id(url) == hashlib.sha256(url.encode()).hexdigest()[:32]
    inner = hashlib.sha256(body).hexdigest()
    assert page_document_id(url, date, body) == hashlib.sha256(f"{url}\n{date}\n{inner}".encode()).hexdigest()[:32]
    assert text_digest("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()[:32]


def test_golden_ids_and_splits_never_change() -> None:
    assert link_id("https://example.com/") == "0f115db062b7c0dd030b16878c99dea5"
    assert page_document_id("http://a/", "2017-01-01T00:00:00Z", b"x") == GOLDEN_DOCUMENT
    held_out = [i for i in range(100) if split_of(link_id(f"https://example.com/{i}")) == "validation"]
    assert held_out == GOLDEN_HELD_OUT


GOLDEN_DOCUMENT = "9d115bbcfb7887dadc48c076d82c92e5"
GOLDEN_HELD_OUT = [4, 20, 30, 32, 58, 64, 65, 86]


def test_one_link_in_twenty_is_held_out() -> None:
    """1,000 of 20,000 are expected; the binomial's standard deviation is 30.8, and five of them are 154."""
    n = sum(split_of(link_id(f"http://host-{i % 97}.example/{i}")) == "validation" for i in range(N))
    assert VALIDATION_RATIO == 0.05
    assert abs(n - N * VALIDATION_RATIO) < 154


@given(identifier=st.text(max_size=40), low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_larger_ratio_also_holds_out_what_a_smaller_one_does(identifier: str, low: float, high: float) -> None:
    """So a build can hold out more and still contain the held-out set of a build that holds out less."""
    low, high = sorted((low, high))
    assert not (split_of(identifier, low) == "validation" and split_of(identifier, high) == "train")
    assert split_of(identifier, 0.0) == "train"
    assert split_of(identifier, 1.0) == "validation"


def test_the_split_is_keyed_and_so_independent_of_the_order_of_ids() -> None:
    smallest = sorted(link_id(f"http://example.com/{i}") for i in range(N))[: N // 20]
    n = sum(split_of(identifier) == "validation" for identifier in smallest)
    assert 10 < n < 100  # 50 expected among a thousand, not all of them


def test_ids_are_known_without_arrow() -> None:
    code = "import sys, webtext.base.parts.identifiers; print('pyarrow' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
