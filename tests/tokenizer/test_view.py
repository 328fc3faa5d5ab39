"""Views of tokens: different bytes look different, and no text controls a terminal or becomes markup."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.app.main import run
from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.show.overview import facts, overview, safe
from webtext.tokenizer.show.view import MAX_IN_NOTEBOOK, page
from webtext.tokenizer.show.visible import shown_bytes

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = (
    "<script>alert('&\"')</script><img src=x onerror=alert(1)>\"'--></style><!-- "
    "\x1b[31mred\x1b]0;title\x07\x1bP\x9b2J\r\b\x00 \u202eevil\u202c \u2066x\u2069 \u200b\u200d\ufeff \u2028\u2029 "
    "a\u0301 \u00ad \U000e0041 \ue000 \ud7fb \u2423 \\x41 \\\\"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([HOSTILE, "the dog <|endoftext|> and the dog\n\n"] * 3, vocab_size=320)


def test_str_has_bars_between_tokens_and_a_line_per_line(tokenizer: Tokenizer) -> None:
    assert str(tokenizer.view("the dog\n\nthe x")) == "the|␣dog|\\n|\\n\nthe|␣|x".replace("|\\n|\\n\n", "|\\n\n\\n\n")
    assert str(tokenizer.view("")) == ""


def test_a_view_is_a_sequence_of_tokens(tokenizer: Tokenizer) -> None:
    view = tokenizer.view("the dog<|endoftext|>", allowed_special="all")
    assert view.ids == [token.id for token in view] == tokenizer.encode("the dog<|endoftext|>", "all")
    assert [token.is_special for token in view] == [False, False, True]
    assert (len(view), view[0].bytes, view.n_bytes) == (3, b"the", 20)
    assert tokenizer.view(b"\xff\xc3").n_characters == 2
    assert view.summary() == "3 tokens, 20 characters, 20 bytes, 6.67 bytes per token"


_SHORT = {r"\\": "\\", "␣": " ", r"\n": "\n", r"\r": "\r", r"\t": "\t"}


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_shown_bytes_are_printable_and_distinguishable(data: bytes) -> None:
    r"""No control, bidi or zero-width character and no blank is left; reversing the escapes restores the bytes."""
    shown = shown_bytes(data)
    assert all(unicodedata.category(character)[0] not in "CZ" for character in shown)

    def undo(found: re.Match[str]) -> str:
        escape = found.group()
        if escape in _SHORT:
            return _SHORT[escape]
        code = int(escape[2:], 16)
        return chr(0xDC00 + code) if escape[1] == "x" and code >= 0x80 else chr(code)

    text = re.sub(r"\\\\|␣|\\[nrt]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}", undo, shown)
    assert text.encode("utf-8", "surrogateescape") == data


def test_a_terminal_gets_colours_and_no_other_controls(tokenizer: Tokenizer) -> None:
    view = tokenizer.view(HOSTILE + "the dog\nthe<|endoftext|>", "all")
    coloured = view.coloured()
    plain = re.sub(r"\x1b\[(1;)?30;48;5;\d+m|\x1b\[0m", "", coloured)
    assert all(character == "\n" or unicodedata.category(character)[0] not in "CZ" for character in plain)
    backgrounds = re.findall(r"48;5;(\d+)", coloured)
    assert len(backgrounds) == len(view)
    assert all(left != right for left, right in zip(backgrounds, backgrounds[1:], strict=False))
    assert coloured.count("\x1b[1;30") == 1


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.spans: list[str] = []
        self._in_span = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "span":
            self.spans.append("")
            self._in_span = True

    def handle_endtag(self, tag: str) -> None:
        self._in_span &= tag != "span"

    def handle_data(self, data: str) -> None:
        if self._in_span:
            self.spans[-1] += data


def test_html_contains_every_token_as_text_and_no_other_tags(tokenizer: Tokenizer) -> None:
    view = tokenizer.view(HOSTILE)
    for html in (view._repr_html_(), page(view, facts(tokenizer._vocabulary, tokenizer.hash))):
        parsed = _Tags(html)
        assert parsed.spans == [token.text for token in view]
        assert "script" not in parsed.tags
        assert "img" not in parsed.tags
        assert not {name for name in parsed.attributes if name.startswith("on")}
        assert not [
            character for character in html if unicodedata.category(character) in ("Cc", "Cf") and character != "\n"
        ]
    assert f'title="id {view.ids[0]}, 1 bytes: 3c"' in view._repr_html_()


def test_a_long_view_is_cut_in_a_notebook_and_says_so(tokenizer: Tokenizer) -> None:
    view = tokenizer.view("=1" * MAX_IN_NOTEBOOK)
    assert len(_Tags(view._repr_html_()).spans) == MAX_IN_NOTEBOOK
    assert f"… and {len(view) - MAX_IN_NOTEBOOK:,} more tokens" in view._repr_html_()


NASTY = "<|\x1b[2J</td><script>\u202e|>"


def test_a_tokenizer_shows_its_properties() -> None:
    tokenizer = Tokenizer.train(["x"], vocab_size=257, special_tokens=[NASTY])
    line, html = repr(tokenizer), tokenizer._repr_html_()
    assert line == (
        "<Tokenizer: size 257, pattern gpt2, Unicode 16.0.0, special tokens <|\\x1b[2J</td><script>\\u202e|> 256, "
        f"hash {tokenizer.hash[:12]}>"
    )
    assert _Tags(html).tags == ["table", *["tr", "th", "td"] * 5]
    assert tokenizer.hash in html
    many = Tokenizer.train(["x"], vocab_size=266, special_tokens=[f"<{n}>" for n in range(10)])
    assert "<0> 256, <1> 257, <2> 258, <3> 259 and 6 more" in repr(many)
    assert safe("a \\p{L}") == "a \\p{L}"


def test_the_overview_names_oddities() -> None:
    """'abc' (258) is unreachable: 'bc' merges first."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"bc", b"", b"abc"]
    odd = Tokenizer(Vocabulary(tokens=tokens, merges=[(98, 99)], special_tokens={"<x>": 300}))
    found = overview(odd._vocabulary)
    assert (found["vocab_size"], found["n_text_tokens"], found["n_unused_ids"]) == (301, 258, 42)
    assert (found["rules"], found["n_merges"], found["unreachable"]) == ("merges", 1, [258])
    assert found["longest"][0] == {"id": 258, "bytes": "616263", "text": "abc"}
    assert found["remarks"][1] == "1 token that no text produces: 258 b'abc'"


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
    assert json.loads(capsys.readouterr().out)["unreachable"] == []


@pytest.mark.parametrize("option", [["--ids"], ["--out", "x.html"]])
def test_inspect_options_for_a_text_need_one(path: str, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "inspect", "--tokenizer", path, *option]) == 2
    assert "--ids and --out need a TEXT" in capsys.readouterr().err


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"needs chromium at '{CHROMIUM}'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_page_and_runs_nothing(
    browser: Any, path: str, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each box shows its own text, the switch shows ids, hostile text is drawn, and nothing is requested."""
    text = HOSTILE + "שלום\nthe dog " * 40
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
    assert run(["tokenizer", "inspect", "-", "--tokenizer", path, "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    shown = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme=scheme)
    address = (tmp_path / "page.html").as_uri()
    asked: list[str] = []
    complaints: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("console", lambda message: complaints.append(message.text))
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("dialog", lambda dialog: complaints.append(dialog.message))
    shown.goto(address)
    assert asked == [address]
    assert complaints == []
    view = Tokenizer.load(path).view(text)
    boxes = shown.locator(".wt-tokens span")
    assert boxes.all_text_contents() == [token.text for token in view]
    first, second = (boxes.nth(place).evaluate("box => getComputedStyle(box).backgroundColor") for place in (0, 1))
    assert first != second
    before = boxes.first.bounding_box()["height"]
    shown.check("#ids")
    assert boxes.first.bounding_box()["height"] > before
    for width in (1000, 380):
        shown.set_viewport_size({"width": width, "height": 800})
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shown.close()
