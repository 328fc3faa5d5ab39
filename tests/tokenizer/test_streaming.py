"""Streaming: the joined results equal encoding or decoding at once, however the input is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

from .conftest import CORPORA

SPECIAL = ["<|endoftext|>", "<a>", "<a>b"]
PATTERNS = ["gpt2", "cl100k", "o200k", "llama3", "qwen2", r"\s?\w+|\W"]
_texts = st.text(max_size=40)
_plain = st.text(alphabet="the dog's 123!/\n é東😀\t\r\u0301\xa0LL", max_size=60)
_words = st.text(alphabet="do é", max_size=30)
_special = st.lists(st.sampled_from(["<|endoftext|>", "<a>", "<a>b", "<a", ">", "b", " x", "<|end", "é", "\n"])).map(
    "".join
)
texts = _texts | _plain | _special | _words


@pytest.fixture(scope="module", params=PATTERNS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    corpus = ["the dog's 12 dogs!\n\n été dog dog é été <a>b <|endoftext|>"] * 3
    return Tokenizer.train(corpus, 300, request.param, special_tokens=SPECIAL)


def chunks(text: Sequence[str] | bytes, cuts: list[int]) -> list[str | bytes]:
    """Cut the text at positions in any order, modulo its length."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in zip(places, places[1:], strict=False)]  # type: ignore[misc]


def streamed(tokenizer: Tokenizer, parts: Sequence[bytes], allowed: str | list[str]) -> list[int]:
    stream = tokenizer._encode_stream(allowed)  # type: ignore[arg-type]
    return np.concatenate([*(stream.push(part) for part in parts), stream.finish()]).tolist()


@settings(max_examples=50)
@given(
    texts.map(str.encode) | st.binary(max_size=40),
    st.lists(st.integers(0, 300), max_size=6),
    st.sampled_from([[], ["<a>"], "all"]),
)
def test_chunks_of_bytes_may_cut_characters(
    tokenizer: Tokenizer, data: bytes, cuts: list[int], allowed: str | list[str]
) -> None:
    assert streamed(tokenizer, chunks(data, cuts), allowed) == tokenizer.encode(data, allowed)  # type: ignore[arg-type]


def test_one_character_at_a_time(tokenizer: Tokenizer) -> None:
    text = "The dog's\r\n\n 12 dogs <a>b<a> <|endoftext|>\n\nx 😀 \t!".encode()
    for allowed in ([], ["<a>"], "all"):
        assert streamed(tokenizer, chunks(text, [*range(len(text))]), allowed) == tokenizer.encode(text, allowed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("step", [7, 1000, 1 << 16])
def test_real_text_streams_in_little_memory(
    trained: Tokenizer, corpus_slice: Callable[[str], str], name: str, step: int
) -> None:
    """The most text held back in a measurement was 6 KB besides the chunk, for tables of code and Chinese prose."""
    text = corpus_slice(name)[: 30_000 * (1 if step == 7 else 10)].encode()
    stream = trained._encode_stream()
    ids: list[int] = []
    for place in range(0, len(text), step):
        ids += stream.push(text[place : place + step]).tolist()
        assert len(stream._buffer) < 20_000
    assert ids + stream.finish().tolist() == trained.encode(text)


def test_words_come_out_as_soon_as_a_blank_follows(trained: Tokenizer) -> None:
    stream = trained._encode_stream()
    assert stream.push(b"Hello wor").tolist() == trained.encode("Hello")
    assert stream.push(b"ld").tolist() == []
    assert (stream.push(b" ").tolist(), bytes(stream._buffer)) == (trained.encode(" world"), b" ")
    assert stream.finish().tolist() == trained.encode(" ")
    assert stream.finish().tolist() == []


def test_a_stream_returns_arrays(trained: Tokenizer) -> None:
    stream = trained._encode_stream("all")
    arrays = [stream.push(b"Hello wor"), stream.push(b"ld <|endoftext|>"), stream.finish()]
    assert {array.dtype for array in arrays} == {np.dtype(np.uint16)}
    assert np.concatenate(arrays).tolist() == trained.encode("Hello world <|endoftext|>", "all")


def test_a_special_token_over_many_chunks_is_one_id(trained: Tokenizer) -> None:
    stream = trained._encode_stream("all")
    assert [stream.push(bytes([byte])).tolist() for byte in b"a<|endoftext|>"][:-1] == [[]] * 13
    assert stream.finish().tolist() == []
    assert streamed(trained, [b"a<|endo", b"ftext|>b"], "all") == [64, trained.eot_id, 65]
    assert streamed(trained, [b"a<|endo", b"ftext|>b"], []) == trained.encode("a<|endoftext|>b")


def test_a_million_letters_in_small_chunks_take_linear_time(trained: Tokenizer) -> None:
    """Each push scans only the new text, not all that is held back; quadratic time would be 2.5e9 bytes here."""
    assert streamed(trained, [b"a" * 200] * 5_000, "all") == trained.encode("a" * 1_000_000)


# Decoding


@given(texts, st.integers(1, 4))
def test_decoding_never_shows_half_a_character(small: Tokenizer, text: str, step: int) -> None:
    ids = small.encode(text)
    stream = small.decode_stream()
    shown = [stream.push(ids[place : place + step]) for place in range(0, len(ids), step)]
    assert "".join(shown) == text
    assert stream.finish() == ""


@given(
    st.lists(st.integers(0, 399)),
    st.lists(st.integers(0, 60), max_size=5),
    st.sampled_from(["replace", "ignore", "backslashreplace", "surrogateescape"]),
)
def test_any_ids_decode_in_parts_as_at_once(small: Tokenizer, ids: list[int], cuts: list[int], errors: str) -> None:
    stream = small.decode_stream(errors)
    parts = chunks(ids, cuts)  # type: ignore[arg-type]
    assert "".join([stream.push(part) for part in parts]) + stream.finish() == small.decode(ids, errors)


def test_decoding_one_id_at_a_time_waits_for_the_character(trained: Tokenizer) -> None:
    ids = trained.encode("😀")
    assert len(ids) > 1
    stream = trained.decode_stream()
    assert [stream.push(id_) for id_ in ids] == [""] * (len(ids) - 1) + ["😀"]
    assert [stream.push(ids[0]), stream.finish()] == ["", "�"]
    assert stream.push(trained.encode("a")) == "a"
    assert stream.push(trained.encode_numpy("b")[0]) + stream.push(trained.encode_numpy("cd")) == "bcd"


def test_strict_decoding_raises_and_starts_again(trained: Tokenizer) -> None:
    stream = trained.decode_stream("strict")
    stream.push(trained.encode("😀")[:1])
    with pytest.raises(UnicodeDecodeError):
        stream.finish()
    assert stream.push(np.array(trained.encode("ok"))) + stream.finish() == "ok"
    with pytest.raises(ConfigError, match="errors is 'strikt'"):
        trained.decode_stream("strikt")
    with pytest.raises(InputError, match="unknown token id 70000"):
        stream.push(70_000)
