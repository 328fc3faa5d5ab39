"""Progress: a live bar on a terminal, known and unknown totals, and silent progress that still counts."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from webtext.base import progress as progress_module
from webtext.base.progress import Lines, Progress, _duration

SHOW_A_BAR = """
from webtext.base.console import Console
console = Console({mode!r})
with console.progress({total}, "crawl.fetch", "links") as progress:
    for _ in range(3):
        progress.advance(note="2 pages")
console.result({{"links": 3}}, "3 links")
"""


def on_a_terminal(code: str) -> tuple[str, str]:
    """Run code in a Python whose stderr is a terminal; return what the terminal received, and stdout."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
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


def test_on_a_terminal_a_bar_is_drawn_and_stays_when_it_is_full() -> None:
    shown, stdout = on_a_terminal(SHOW_A_BAR.format(mode="human", total=3))
    last = next(line for line in reversed(re.split(r"[\r\n]", shown)) if "links" in line)
    assert "crawl.fetch" in last
    assert "3/3 links" in last
    assert "2 pages" in last
    assert "\x1b[" in shown  # it moves the cursor: it is live
    assert stdout == "3 links\n"


def test_a_bar_without_a_total_counts() -> None:
    shown, _ = on_a_terminal(SHOW_A_BAR.format(mode="human", total=None))
    assert "3/? links" in shown


@pytest.mark.parametrize("mode", ["json", "quiet"])
def test_under_json_and_quiet_a_terminal_is_sent_nothing(mode: str) -> None:
    shown, stdout = on_a_terminal(SHOW_A_BAR.format(mode=mode, total=3))
    assert shown == ""
    assert stdout == ('{"links": 3}\n' if mode == "json" else "")


def test_a_line_without_a_total_shows_no_remaining_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    lines = Lines(None, "read", "posts")
    now[0] = 30.0
    lines.advance(1500)
    assert capsys.readouterr().err == "read: 1,500 posts after 0:30\n"


def test_a_count_above_the_total_shows_no_remaining_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
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
    silent = Progress(5)
    silent.advance()
    silent.advance(3, "note")
    assert silent.done == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90_061, "25:01:01")],
)
def test_durations_read_as_a_clock(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
