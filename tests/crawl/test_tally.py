"""The note in a crawl's progress line: pace of the last minute, and outcomes."""

from __future__ import annotations

import pytest

from webtext.crawl.fetch.run import Tally


def test_the_note_has_the_pace_of_the_last_minute_and_all_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("webtext.crawl.fetch.run.time.monotonic", lambda: now)
    tally = Tally()
    for _ in range(200):
        now += 0.5
        note = tally.add("fetched", 2**20)
    for _ in range(600):  # after a quiet minute, the pace is current, and the counts cover the entire run
        now += 0.1
        tally.add("failed", 0)
    assert note.startswith("2.0 links/s, 2.00 MiB/s")
    assert note.endswith("199 fetched"), "made at most a second ago"
    assert tally.note().startswith("10.0 links/s, 0.0")
    assert tally.note().endswith("600 failed, 200 fetched")


def test_the_note_is_made_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.crawl.fetch.run.time.monotonic", lambda: 1000.0)
    tally = Tally()
    assert tally.add("fetched", 1) is tally.add("refused", 1)
