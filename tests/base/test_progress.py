"""Progress: a live panel on a terminal, lines in a log, events for programs, and silent progress that still counts."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from webtext.base import console as console_module
from webtext.base.console import Events, Lines, Progress, _duration

SHOW_A_PANEL = """
from webtext.base.console import Console
console = Console({mode!r})
with console.progress({total}, "crawl.fetch", "links") as progress:
    for _ in range(3):
        progress.at(1000)
        progress.advance(1, "2 pages", pages=2)
console.result({{"links": 3}}, "3 links")
"""


def on_a_terminal(code: str, columns: int = 120, term: str = "xterm") -> tuple[str, str]:
    """Run code in a Python whose stderr is a terminal; return what the terminal received, and stdout."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": term, "COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    stdout, _ = process.communicate(timeout=300)
    assert process.returncode == 0, shown.decode()
    return shown.decode(), stdout


def last_lines(shown: str) -> list[str]:
    """Return the lines that stay on the terminal."""
    last = re.split(r"\x1b\[2K", shown)[-1]
    return [line.rstrip() for line in re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", last).splitlines()]


def test_on_a_terminal_a_panel_is_drawn_and_stays_with_the_last_figures() -> None:
    shown, stdout = on_a_terminal(SHOW_A_PANEL.format(mode="human", total=3))
    line = r"crawl.fetch ━{20} 3 of 3 links after 0:0\d, 0:00 left · 1,000 records, [\d,]+ per second · 2 pages"
    assert re.fullmatch(line, last_lines(shown)[0])
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor is hidden, and shown at the end
    assert stdout == "3 links\n"


def test_a_step_within_a_stage_leaves_no_line() -> None:
    shown, stdout = on_a_terminal(
        SHOW_A_PANEL.format(mode="human", total=3).replace("crawl.fetch", "clean.dedup: sign")
    )
    assert "clean.dedup: sign" in shown
    assert last_lines(shown) in ([], [""])
    assert stdout == "3 links\n"


def test_a_panel_without_a_total_counts() -> None:
    shown, _ = on_a_terminal(SHOW_A_PANEL.format(mode="human", total=None))
    assert " 3 links after 0:0" in last_lines(shown)[0]


def test_a_narrow_terminal_has_no_line_that_wraps() -> None:
    shown, _ = on_a_terminal(SHOW_A_PANEL.format(mode="human", total=3).replace("2 pages", 99 * "x"), columns=40)
    (line, *_) = last_lines(shown)
    assert len(line) == 40
    assert line.endswith("…")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    shown, _ = on_a_terminal(SHOW_A_PANEL.format(mode="human", total=3), term="dumb")
    assert shown == ""  # a short run is silent


def test_an_error_leaves_the_cursor_visible_and_a_hostile_label_commands_nothing() -> None:
    code = SHOW_A_PANEL.format(mode="human", total=3).replace("crawl.fetch", "\\x1b[31m[bold]")
    code = code.replace("progress.at(1000)", "raise SystemExit")
    shown, _ = on_a_terminal(code)
    assert "\x1b[31m" not in shown
    assert "\\x1b[31m[bold]" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


def test_a_note_with_escape_characters_commands_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    note = r"title \x1b[2J\x9b2J\u202e"
    shown, _ = on_a_terminal(SHOW_A_PANEL.format(mode="human", total=3).replace("2 pages", note))
    assert last_lines(shown)[0].endswith(f" · {note}")
    lines = Lines(None, "read", "posts")
    lines._interval = 0.0
    lines.advance(1, "\x1b[2J")
    assert "\x1b" not in capsys.readouterr().err


def test_a_result_during_a_panel_goes_to_stdout_alone() -> None:
    code = SHOW_A_PANEL.format(mode="human", total=3).replace("progress.at(1000)", "console.result({}, 'a result')")
    shown, stdout = on_a_terminal(code)
    assert "a result" not in shown
    assert stdout == 3 * "a result\n" + "3 links\n"


def test_a_message_during_a_panel_is_sent_as_it_is() -> None:
    """Wrapped at a word or coloured, a path could not be copied."""
    message = "resuming from '" + 9 * "/a path" + "' 12"
    code = SHOW_A_PANEL.format(mode="human", total=3).replace("progress.at(1000)", f'console.say("{message}")')
    assert message in on_a_terminal(code, columns=40)[0]


def test_a_step_within_a_step_has_lines_of_its_own() -> None:
    code = """
from webtext.base.console import Console
console = Console()
with console.progress(100, "tokenizer train", "%") as outer, console.progress(2, "tokenizer.count", "parts") as inner:
    outer._bars.refresh()
    inner.advance(2)
    inner._bars.refresh()
    outer.advance(100)
"""
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", on_a_terminal(code)[0])
    rows = [row for row in re.split(r"[\r\n]+", shown) if row]
    assert all(row.count("tokenizer") == 1 for row in rows), rows
    assert re.match(r"tokenizer train .* 100 of 100 %", rows[-1])


def test_an_event_with_a_number_that_json_lacks_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    events = Events(3, "train", "steps")
    events.advance(1, loss=float("nan"), tokens_per_second=float("inf"))
    events.close()
    event = json.loads(capsys.readouterr().err, parse_constant=pytest.fail)
    assert event["loss"] is event["tokens_per_second"] is None


def test_quietly_a_terminal_is_sent_nothing() -> None:
    assert on_a_terminal(SHOW_A_PANEL.format(mode="quiet", total=3)) == ("", "")


def test_under_json_progress_is_events_on_stderr() -> None:
    shown, stdout = on_a_terminal(SHOW_A_PANEL.format(mode="json", total=3))
    event = json.loads(shown.splitlines()[-1])
    assert event.pop("seconds") >= 0
    of = {"event": "end", "label": "crawl.fetch", "unit": "links"}
    assert event == of | {"done": 3, "total": 3, "records": 1000, "seconds_left": 0.0, "pages": 2}
    assert stdout == '{"links": 3}\n'


def test_the_time_left_counts_from_where_an_earlier_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    progress = Progress(100, "train", "steps", begun=80)
    assert (progress.done, progress.seconds_left) == (80, None)
    now[0] = 10.0
    progress.advance(5)
    assert progress.seconds_left == 30.0


def test_the_speed_is_that_of_the_last_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    progress = Progress(None, "read", "parts")
    for second in range(1, 101):
        now[0] = second
        progress.at(1000 * second if second <= 50 else 50_000 + 10 * (second - 50))
    assert progress.records_per_second == pytest.approx(10.0)


def test_a_line_without_a_total_shows_no_remaining_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    lines = Lines(None, "read", "posts")
    now[0] = 30.0
    lines.advance(1500)
    assert capsys.readouterr().err == "read: 1,500 posts after 0:30\n"


def test_a_count_above_the_total_shows_no_remaining_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    lines = Lines(2, "read", "posts")
    now[0] = 31.0
    lines.advance(3)
    assert capsys.readouterr().err == "read: 3 of 2 posts after 0:31\n"


def test_a_short_run_in_a_log_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(3, "read", "posts")
    for _ in range(3):
        lines.advance()
    lines.close()
    assert lines.done == 3
    assert capsys.readouterr().err == ""


def test_silence_counts_all_the_same() -> None:
    silent = Progress(5, "read", "posts")
    silent.advance()
    silent.advance(3, "note")
    assert silent.done == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90_061, "25:01:01")],
)
def test_durations_read_as_a_clock(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
