"""Special tokens in text are plain text unless they are allowed, in str and bytes, for every encoding method."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

NAMES = ["<|endoftext|>", "<a>", "<a>b", "é!"]
texts = st.lists(st.sampled_from([*NAMES, "<a", ">", "b", " dog", "é", "\n", "\ud83d", "<|end"]), max_size=12).map(
    "".join
)
allowed_sets = st.sampled_from(["all", (), ("<a>",), frozenset({"<a>b", "<|endoftext|>"}), ["é!", "<a>"]])


@pytest.fixture(scope="module", params=["gpt2", r"\s?\w+|\W"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(["the dog <a>b été"] * 3, 300, request.param, special_tokens=NAMES)


def test_special_tokens_in_text_are_text_unless_allowed(small: Tokenizer) -> None:
    text = "a<|endoftext|>b"
    eot = small.eot_id
    assert eot not in small.encode(text)
    assert small.decode(small.encode(text)) == text
    for allowed in ("all", {"<|endoftext|>"}, ["<|endoftext|>"]):
        assert small.encode(text, allowed_special=allowed) == [*small.encode("a"), eot, *small.encode("b")]  # type: ignore[arg-type]
    assert small.encode_with_offsets(text, "all")[1] == [(0, 1), (1, 14), (14, 15)]
    assert small.decode(small.encode(text, "all")) == text


@settings(max_examples=50)
@given(texts, allowed_sets)
def test_a_text_is_cut_at_special_tokens_the_longest_first(
    tokenizer: Tokenizer, text: str, allowed: str | list[str]
) -> None:
    names = sorted(NAMES if allowed == "all" else allowed, key=lambda name: -len(name))
    expected: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, names)) or '(?!)'})", text):
        expected += [tokenizer.special_tokens[part]] if part in names else tokenizer.encode(part)
    assert tokenizer.encode(text, allowed) == expected  # type: ignore[arg-type]


@given(st.lists(texts, max_size=5), allowed_sets)
def test_every_way_to_encode_agrees(tokenizer: Tokenizer, many: list[str], allowed: str | list[str]) -> None:
    expected = [tokenizer.encode(text, allowed) for text in many]  # type: ignore[arg-type]
    data = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() for text in many]
    for batch in (many, data):
        assert tokenizer.encode_batch(batch, allowed_special=allowed) == expected  # type: ignore[arg-type]
        tokens, offsets = tokenizer.encode_flat(batch, 2, allowed)  # type: ignore[arg-type]
        assert [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)] == expected
        for text, ids in zip(batch, expected, strict=True):
            assert tokenizer.encode(text, allowed) == tokenizer.encode_numpy(text, allowed).tolist() == ids  # type: ignore[arg-type]
            assert tokenizer.encode_with_offsets(text, allowed)[0] == ids  # type: ignore[arg-type]
            assert tokenizer.count(text, allowed) == len(ids)  # type: ignore[arg-type]


def test_any_number_of_sets_may_be_allowed_one_after_the_other() -> None:
    names = [f"<{index}>" for index in range(300)]
    tokenizer = Tokenizer.train([], special_tokens=names)
    for index, name in enumerate(names):
        assert tokenizer.encode(name, [name]) == [256 + index]
    assert len(tokenizer._special._finders) <= 64
    assert tokenizer.encode("".join(names), "all") == list(range(256, 556))
    assert tokenizer.encode("<7>", tokenizer.special_tokens) == [263]


def test_names_of_special_tokens_are_not_expressions() -> None:
    tokenizer = Tokenizer.train([], special_tokens=["<.*>", "( ", "\n"])
    assert tokenizer.encode("<.*>( \n", "all") == [256, 257, 258]
    assert tokenizer.count("<ab>", "all") == 4


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({"<|endoftxt|>"}, "no special token '<|endoftxt|>'\ndid you mean '<|endoftext|>'"),
        ("<|endoftext|>", "allowed_special is '<|endoftext|>' (str)\nexpected a list of names"),
        ([1], "allowed_special is [1] (list)"),
        (5, "allowed_special is 5"),
        (iter(["<|endoftext|>"]), "allowed_special is <list_iterator"),
        (["<|endoftext|>", "x"], "no special token 'x'"),
    ],
)
def test_an_unknown_special_token_is_an_error(small: Tokenizer, allowed: object, message: str) -> None:
    for encode in (small.encode, small.count, small.encode_numpy, small.encode_with_offsets):
        with pytest.raises(ConfigError, match=re.escape(message)):
            encode("x", allowed_special=allowed)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=re.escape(message)):
        small._encode_stream(allowed)  # type: ignore[arg-type]


def test_a_disallowed_special_token_is_an_error_that_names_it(small: Tokenizer) -> None:
    message = re.escape("text 1 contains the special token '<|endoftext|>' at position 2\nname it in allowed_special")
    for text in ("a <|endoftext|>", b"a <|endoftext|>"):
        for encode in (small.encode_batch, small.encode_flat, small.encode_arrow):
            with pytest.raises(InputError, match=message):
                encode(["a", text], disallowed_special="all")
            assert encode(["a", text], disallowed_special="all", allowed_special="all") is not None
        for encode in (small.encode, small.encode_numpy):
            with pytest.raises(InputError, match="text 0 contains the special token"):
                encode(text, disallowed_special=["<|endoftext|>"])
    assert small.encode("a <|endoftext|", disallowed_special="all") == small.encode("a <|endoftext|")


@pytest.mark.parametrize("allowed", [set(), "all", {"<a>"}, {"<b>"}])
@pytest.mark.parametrize("disallowed", [(), "all", {"<a>"}, {"<b>", "<c>"}])
@pytest.mark.parametrize("text", ["x", "<a>", "x<a><b>", "<c><a>"])
def test_tiktoken_rejects_the_same_texts(allowed: Any, disallowed: Any, text: str) -> None:
    ours = Tokenizer.train([], special_tokens=["<a>", "<b>", "<c>"])
    theirs = ours.to_tiktoken()
    try:
        expected = theirs.encode(text, allowed_special=allowed, disallowed_special=disallowed)
    except ValueError:
        with pytest.raises(InputError, match="contains the special token"):
            ours.encode(text, allowed, disallowed)
    else:
        assert ours.encode(text, allowed, disallowed) == expected


def test_an_unknown_disallowed_token_is_an_error(small: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="no special token '<x>'"):
        small.encode("x", disallowed_special=["<x>"])
    with pytest.raises(ConfigError, match="disallowed_special is '<x>'"):
        small.encode("x", disallowed_special="<x>")
