"""Servers that waste time: every exchange ends at its deadline, or earlier if it is too slow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import HEAD

pytestmark = pytest.mark.usefixtures("wire")


def test_servers_that_never_finish_are_cut_off_at_the_deadline(outcomes: Any) -> None:
    """Without a deadline they would continue for ten minutes, or forever."""
    plan = {"never answers": hostile.silence, "drips headers": hostile.header_drip, "drips": hostile.body_drip}
    begun = time.monotonic()
    rows = outcomes(plan, **hostile.IN_A_SECOND)
    assert {row["reason"] for row in rows.values()} == {"timed_out"}
    assert time.monotonic() - begun < 120, "three deadlines of a second, and a minute for a busy machine to see each"


def test_a_body_below_the_minimum_rate_ends_before_the_deadline(outcomes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stalls(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n<html>")
        await asyncio.sleep(600)

    async def slow_but_steady(writer: asyncio.StreamWriter) -> None:
        """Send a body a hundred times faster than the minimum rate, so that a busy machine is fast enough."""
        writer.write(HEAD + b"Content-Length: 11000\r\n\r\n" + b"x" * 1000)
        for _ in range(10):
            await asyncio.sleep(0.1)
            writer.write(b"x" * 1000)
            await writer.drain()

    monkeypatch.setattr("webtext.crawl.exchange.body.RATE_SECONDS", 0.4)
    plan = {"drips": hostile.body_drip, "stalls": stalls, "slow but steady": slow_but_steady}
    rows = outcomes(plan, min_rate=100.0)
    assert [row["reason"] for row in rows.values()] == ["too_slow", "too_slow", None]
    assert rows["drips"]["cause"] == "fewer than 100 bytes per second"


def test_broken_connections_are_counted_as_failed(outcomes: Any) -> None:
    rows = outcomes({"after the headers": hostile.close_after_headers, "reset in the body": hostile.reset})
    assert {row["reason"] for row in rows.values()} == {"connection_failed"}
    assert all(row["cause"] for row in rows.values())
