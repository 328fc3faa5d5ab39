"""Arguments of the wrong type or out of range raise our errors: what was passed, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import WebtextError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.train.counts import PieceCounts

TEXTS = ["low lower lowest"] * 3
BASE = Tokenizer.train(["abc"], vocab_size=259)


def train(texts: Any = TEXTS, **options: Any) -> Tokenizer:
    return Tokenizer.train(texts, **({"vocab_size": 270} | options))


BAD: dict[str, tuple[Callable[[Tokenizer, Path], object], str]] = {
    "vocab_size text": (lambda tok, at: train(vocab_size="300"), r"vocab_size is '300' \(str\)\nexpected an integer"),
    "vocab_size None": (lambda tok, at: train(vocab_size=None), "vocab_size is None"),
    "vocab_size float": (lambda tok, at: train(vocab_size=300.0), r"vocab_size is 300.0 \(float\)"),
    "vocab_size bool": (lambda tok, at: train(vocab_size=True), "vocab_size is True"),
    "vocab_size small": (lambda tok, at: train(vocab_size=3), "vocab_size is 3\nexpected 256 or more"),
    "vocab_size 256": (lambda tok, at: train(vocab_size=256), "vocab_size is 256\nexpected 257 or more"),
    "vocab_size huge": (lambda tok, at: train(vocab_size=1 << 22), "less than 4,194,304"),
    "min_frequency 0": (lambda tok, at: train(min_frequency=0), "min_frequency is 0"),
    "max_token_length 1": (
        lambda tok, at: train(max_token_length=1),
        "max_token_length is 1\nexpected 2 bytes or more",
    ),
    "threads 0": (lambda tok, at: train(threads=0), "threads is 0"),
    "base is larger": (lambda tok, at: train(vocab_size=258, base=BASE), "expected 259 or more \\(the ids of the base"),
    "base and pattern": (lambda tok, at: train(pattern=r"\w+", base=BASE), "base has the pattern 'gpt2'"),
    "base and special": (lambda tok, at: train(special_tokens=["<|pad|>"], base=BASE), "base has no special token"),
    "special_tokens None": (lambda tok, at: train(special_tokens=None), "None\nexpected a list of names; .* for no"),
    "special_tokens text": (lambda tok, at: train(special_tokens="<a>"), "special_tokens is '<a>'"),
    "special_tokens bytes": (lambda tok, at: train(special_tokens=b"<a>"), "special_tokens is b'<a>'"),
    "special_tokens ints": (lambda tok, at: train(special_tokens=[1]), r"a special token is 1 \(int\)"),
    "special_tokens lists": (lambda tok, at: train(special_tokens=[[]]), r"a special token is \[\]"),
    "texts None": (lambda tok, at: train(None), "texts is None\nexpected a list of str or bytes"),
    "texts int": (lambda tok, at: train(5), r"texts is 5 \(int\)"),
    "texts str": (lambda tok, at: train("abc"), "texts is one string"),
    "texts of ints": (lambda tok, at: train([1]), r"text 0 is 1 \(int\)"),
    "pattern None": (lambda tok, at: train(pattern=None), "the pattern is None"),
    "pattern bytes": (lambda tok, at: train(pattern=b"a"), r"the pattern is b'a' \(bytes\)"),
    "threads text": (lambda tok, at: train(threads="2"), r"threads is '2' \(str\)"),
    "threads bool": (lambda tok, at: train(threads=True), "threads is True"),
    "threads huge": (lambda tok, at: tok.encode_batch(["a"], threads=2**40), "expected 1 to 65,536"),
    "min_frequency text": (lambda tok, at: train(min_frequency="1"), "min_frequency is '1'"),
    "min_frequency float": (lambda tok, at: train(min_frequency=1.5), "min_frequency is 1.5"),
    "min_frequency huge": (lambda tok, at: train(min_frequency=2**70), "min_frequency is 1180591620717411303424"),
    "max_token_length": (lambda tok, at: train(max_token_length="5"), "max_token_length is '5'"),
    "base": (lambda tok, at: train(base="x"), r"base is 'x' \(str\)\nexpected a Tokenizer"),
    "load None": (lambda tok, at: Tokenizer.load(None), "the path is None"),  # type: ignore[arg-type]
    "load bytes": (lambda tok, at: Tokenizer.load(b"x"), "the path is b'x'"),  # type: ignore[arg-type]
    "save int": (lambda tok, at: tok.save(5), "the path is 5"),  # type: ignore[arg-type]
    "load special_tokens": (
        lambda tok, at: (tok.save(at / "t.json"), Tokenizer.load(at / "t.json", special_tokens=5)),  # type: ignore[arg-type]
        "special_tokens is 5",
    ),
    "allowed_special": (lambda tok, at: tok.encode("a", [[]]), r"allowed_special is \[\[\]\]"),  # type: ignore[list-item]
    "decode errors": (lambda tok, at: tok.decode([1], errors=None), "errors is None"),  # type: ignore[arg-type]
    "decode_stream errors": (lambda tok, at: tok.decode_stream(None), "errors is None"),  # type: ignore[arg-type]
    "counts memory": (lambda tok, at: PieceCounts(max_memory="5"), "max_memory is '5'"),  # type: ignore[arg-type]
    "counts weight": (lambda tok, at: PieceCounts().add(["a"], weight=1.5), "weight is 1.5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_is_an_error_that_names_it(name: str, small: Tokenizer, tmp_path: Path) -> None:
    call, message = BAD[name]
    with pytest.raises(WebtextError, match=message) as caught:
        call(small, tmp_path)
    assert 2 <= len(caught.value.lines) <= 3
    assert not any(tmp_path.iterdir()) or name == "load special_tokens"


def test_integers_of_numpy_are_integers() -> None:
    trained = train(vocab_size=np.int64(262), threads=np.int32(1), min_frequency=np.uint8(1))
    assert trained.hash == train(vocab_size=262).hash
