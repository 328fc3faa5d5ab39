"""Messages go to stderr, data goes to stdout."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest

from webtext.base import console as console_module
from webtext.base.console import Console, funnel_text
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts


def use(mode: str) -> None:
    console = Console(mode)  # type: ignore[arg-type]
    console.say("talk")
    console.warn("beware")
    with console.progress(2, "fetch", "pages") as progress:
        progress.advance()
        progress.advance()
        assert progress.done == 2
    console.result({"kept": 2}, "kept 2")
    console.error(InputError("a part was altered", "make it again"))


@pytest.mark.parametrize(("mode", "out"), [("human", "one two\n"), ("json", ""), ("quiet", "")])
def test_an_answer_in_pieces_is_shown_as_it_comes_and_returned_whole(
    mode: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []

    def pieces() -> Iterator[str]:
        for piece in ("one ", "two"):
            yield piece
            shown.append(capsys.readouterr().out)

    assert Console(mode).stream(pieces()) == "one two"  # type: ignore[arg-type]
    assert "".join([*shown, capsys.readouterr().out]) == out
    assert shown == (["one ", "two"] if mode == "human" else ["", ""])


@pytest.mark.parametrize(
    ("mode", "out", "err"),
    [
        ("human", "kept 2\n", "talk\nwarning: beware\nerror: a part was altered\n  make it again\n"),
        ("json", '{"kept": 2}\n', "warning: beware\nerror: a part was altered\n  make it again\n"),
        ("quiet", "", "warning: beware\nerror: a part was altered\n  make it again\n"),
    ],
)
def test_each_mode_prints_what_it_should_where_it_should(
    mode: str, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    use(mode)
    captured = capsys.readouterr()
    said = "".join(line for line in captured.err.splitlines(keepends=True) if mode != "json" or line[0] != "{")
    assert (captured.out, said) == (out, err)


def test_json_is_one_object_that_parses_and_keeps_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    Console("json").result({"title": "Käse\n"}, "")
    assert json.loads(capsys.readouterr().out) == {"title": "Käse\n"}


def test_elsewhere_than_on_a_terminal_progress_is_a_plain_line_every_30_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    lines = console_module.Lines(100, "fetch", "pages")
    for second in range(61):
        now[0] = float(second)
        lines.advance(note="3 a second")
    assert capsys.readouterr().err == (
        "fetch: 31 of 100 pages after 0:30, 1:07 left · 3 a second\n"
        "fetch: 61 of 100 pages after 1:00, 0:38 left · 3 a second\n"
    )


HOSTILE = "title\x1b]0;owned\x07 \x9b2J \u202eevil\r\n\tend"
SHOWN = "title\\x1b]0;owned\\x07 \\x9b2J \\u202eevil\\r\n\tend"


def test_control_characters_never_reach_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr they are always escaped; data on stdout only if it is a terminal, so that files are exact."""
    console = Console()
    console.say(HOSTILE)
    console.warn(HOSTILE)
    console.error(InputError(HOSTILE))
    assert capsys.readouterr().err == f"{SHOWN}\nwarning: {SHOWN}\nerror: {SHOWN}\n"
    console.result({}, HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.result({}, HOSTILE)
    console.stream([HOSTILE])
    assert capsys.readouterr().out == f"{SHOWN}\n{SHOWN}\n"
    Console("json").result({"a": "\x9b2J"}, "")
    assert capsys.readouterr().out == '{"a": "\\u009b2J"}\n'


def test_a_funnel_reads_as_a_table() -> None:
    counts = Counts(5, 3, {"over_18": 1}, {"invalid_json": 1}).to_json()
    assert funnel_text("links", counts).splitlines() == [
        "links",
        "  in                               5",
        "  kept                             3",
        "  dropped: over_18                 1",
        "  failed: invalid_json             1",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_what_stdout_cannot_encode_is_escaped_and_json_stays_json(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"out": "bad \udcff name, 日本, 😀, é"}
    for mode in ("json", "human"):
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding))
        Console(mode).result(value, value["out"])  # type: ignore[arg-type]
        said = raw.getvalue().decode(encoding)
        assert json.loads(said) == value if mode == "json" else "bad \\udcff name" in said
