"""A text can be cut at a safe position: its two parts have the pieces of the complete text, whatever the pattern."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webtext.tokenizer import _bpe
from webtext.tokenizer.patterns.named import GPT2, REGEXES, cut
from webtext.tokenizer.text import readable

from .conftest import native_pieces

NASTY = st.text(st.sampled_from(list("aBs1 9'/!\n\r\t。京é\u0301\xa0\u3000²Ⅷʰ")), max_size=24)


def safe_places(text: bytes) -> list[int]:
    """Return every position that is the last safe one before some end, inside a character or not."""
    return sorted({_bpe.last_safe_cut(bytearray(text), 0, 0, end) for end in range(len(text) + 1)} - {0})


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("ab cd", [2]),  # between a letter and a blank
        ("12\n", [2]),
        ("ab!\ncd", [4]),  # after the line end, not before it: cl100k joins it to the "!"
        ("中。\n中。\n", [7]),
        ("! ?", []),
        ("a", []),
        ("ab!\n\ncd", []),  # GPT-2's pattern separates the two "\n" if "cd" follows, and joins them at the end
        ("", []),
    ],
)
def test_safe_places_are_those_of_the_rule(text: str, places: list[int]) -> None:
    assert safe_places(text.encode()) == places


@pytest.mark.parametrize("pattern", sorted(REGEXES))
@given(text=NASTY)
@example(text="it's 'S \n's")
@example(text="a/\n/b\n!c \n d")
def test_both_parts_have_the_pieces_of_the_complete_text(pattern: str, text: str) -> None:
    data = text.encode()
    whole = native_pieces(data, pattern)
    for place in safe_places(data):
        assert [*native_pieces(data[:place], pattern), *native_pieces(data[place:], pattern)] == whole, place


@given(text=st.lists(st.sampled_from([b"a", b" ", b"\n", b"!", b"\xff", b"\xe4\xba", b"\xc3\xa9", b"\x80", b"7"])))
def test_invalid_bytes_are_cut_safely_too(text: list[bytes]) -> None:
    data = b"".join(text)
    whole = list(cut(GPT2, readable(data)))
    for place in safe_places(data):
        assert [*cut(GPT2, readable(data[:place])), *cut(GPT2, readable(data[place:]))] == whole


def test_the_last_safe_position_is_between_two_places() -> None:
    text = bytearray(b"one two three")
    places = [(0, 3), (0, 4), (3, 4), (4, 7), (0, 13)]
    assert [_bpe.last_safe_cut(text, 0, at, end) for at, end in places] == [0, 3, 3, 0, 7]
    with pytest.raises(ValueError, match="places must rise in the data"):
        _bpe.last_safe_cut(text, 0, 4, 14)
