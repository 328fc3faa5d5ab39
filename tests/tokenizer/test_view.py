"""Views of tokens: different bytes look different, and no text controls a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.app.main import run
from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.view import TokenView, overview, safe, shown_bytes, view

HOSTILE = (
    "<script>alert('&\"')</script><img src=x onerror=alert(1)>\"'--></style><!-- "
    "\x1b[31mred\x1b]0;title\x07\x1bP\x9b2J\r\b\x00 \u202eevil\u202c \u2066x\u2069 \u200b\u200d\ufeff \u2028\u2029 "
    "a\u0301 \u00ad \U000e0041 \ue000 \ud7fb \u2423 \\x41 \\\\"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([HOSTILE, "the dog <|endoftext|> and the dog\n\n"] * 3, vocab_size=320)


def shown(tokenizer: Tokenizer, text: str | bytes, allowed: str = "") -> TokenView:
    return view(tokenizer._vocabulary, tokenizer.encode(text, allowed or ()))  # type: ignore[arg-type]


def test_str_has_bars_between_tokens_and_a_line_per_line(tokenizer: Tokenizer) -> None:
    assert str(shown(tokenizer, "the dog\n\nthe x")) == "the|␣dog|\\n|\\n\nthe|␣|x".replace("|\\n|\\n\n", "|\\n\n\\n\n")
    assert str(shown(tokenizer, "")) == ""


def test_a_view_knows_its_tokens_and_their_sizes(tokenizer: Tokenizer) -> None:
    found = shown(tokenizer, "the dog<|endoftext|>", "all")
    assert [token.id for token in found.tokens] == tokenizer.encode("the dog<|endoftext|>", "all")
    assert [token.is_special for token in found.tokens] == [False, False, True]
    assert (len(found), found.tokens[0].bytes, found.n_bytes) == (3, b"the", 20)
    assert shown(tokenizer, b"\xff\xc3").n_characters == 2
    assert found.summary() == "3 tokens, 20 characters, 20 bytes, 6.67 bytes per token"


_SHORT = {r"\\": "\\", "␣": " ", r"\n": "\n", r"\r": "\r", r"\t": "\t"}


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_shown_bytes_are_printable_and_distinguishable(data: bytes) -> None:
    r"""No control, bidi or zero-width character and no blank is left; reversing the escapes restores the bytes."""
    visible = shown_bytes(data)
    assert all(unicodedata.category(character)[0] not in "CZ" for character in visible)

    def undo(found: re.Match[str]) -> str:
        escape = found.group()
        if escape in _SHORT:
            return _SHORT[escape]
        code = int(escape[2:], 16)
        return chr(0xDC00 + code) if escape[1] == "x" and code >= 0x80 else chr(code)

    text = re.sub(r"\\\\|␣|\\[nrt]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}", undo, visible)
    assert text.encode("utf-8", "surrogateescape") == data


def test_a_terminal_gets_colours_and_no_other_controls(tokenizer: Tokenizer) -> None:
    found = shown(tokenizer, HOSTILE + "the dog\nthe<|endoftext|>", "all")
    coloured = found.coloured()
    plain = re.sub(r"\x1b\[(1;)?30;48;5;\d+m|\x1b\[0m", "", coloured)
    assert all(character == "\n" or unicodedata.category(character)[0] not in "CZ" for character in plain)
    backgrounds = re.findall(r"48;5;(\d+)", coloured)
    assert len(backgrounds) == len(found)
    assert all(left != right for left, right in zip(backgrounds, backgrounds[1:], strict=False))
    assert coloured.count("\x1b[1;30") == 1


NASTY = "<|\x1b[2J</td><script>\u202e|>"


def test_a_tokenizer_shows_its_properties() -> None:
    tokenizer = Tokenizer.train(["x"], vocab_size=257, special_tokens=[NASTY])
    assert repr(tokenizer) == (
        "<Tokenizer: size 257, pattern gpt2, Unicode 16.0.0, special tokens <|\\x1b[2J</td><script>\\u202e|> 256, "
        f"hash {tokenizer.hash[:12]}>"
    )
    many = Tokenizer.train(["x"], vocab_size=266, special_tokens=[f"<{n}>" for n in range(10)])
    assert "<0> 256, <1> 257, <2> 258, <3> 259 and 6 more" in repr(many)
    assert safe("a \\p{L}") == "a \\p{L}"


def test_the_overview_counts_tokens_and_merges_and_names_the_longest() -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"bc", b"", b"abc"]
    odd = Tokenizer(Vocabulary(tokens=tokens, merges=[(98, 99)], special_tokens={"<x>": 300}))
    found = overview(odd._vocabulary)
    assert (found["vocab_size"], found["n_text_tokens"], found["rules"], found["n_merges"]) == (301, 258, "merges", 1)
    assert found["longest"][0] == {"id": 258, "bytes": "616263", "text": "abc"}


# The verb


@pytest.fixture
def path(tokenizer: Tokenizer, tmp_path: Path) -> str:
    tokenizer.save(tmp_path / "tokenizer.json")
    return str(tmp_path / "tokenizer.json")


def test_inspect_without_a_text_shows_the_tokenizers_properties(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "inspect", "--tokenizer", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("size        320 ids: 319 tokens of text, 1 special")
    assert lines[1:3] == ["pattern     gpt2", "Unicode     16.0.0"]
    assert "special     319 <|endoftext|>" in lines
    assert run(["tokenizer", "inspect", "--tokenizer", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_text_tokens"] == 319


def test_ids_need_a_text(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "inspect", "--tokenizer", path, "--ids"]) == 2
    assert "--ids needs a TEXT" in capsys.readouterr().err


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variable", "value"), [("", ""), ("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_only_for_terminals_that_want_them(
    path: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if variable:
        monkeypatch.setenv(variable, value)
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    assert run(["tokenizer", "inspect", "the dog", "--tokenizer", path]) == 0
    assert ("\x1b[" in screen.getvalue()) == (not variable)
    assert ("the|␣dog" in screen.getvalue()) == bool(variable)
