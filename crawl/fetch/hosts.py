"""Politeness: one request at a time per host and per address, with a pause between the end of one and the next.

Many hosts share one server, so the pause applies to the address too. A host's own request (`Crawl-delay`,
`Retry-After`) applies to the host only. A host's delay adapts: it doubles when the host fails or says that it is busy,
is at least as long as the last answer took, and halves back with each quick answer. A host that only fails is given up,
and one that only says that it is busy first rests. So does an address where connections only time out while others answer:
each of its hosts would have to wait for that, so that thousands of hosts of a dead server would take days.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from webtext.crawl.fetch.clock_file import FORGOTTEN_SECONDS, ClockFile, NotedClock
from webtext.crawl.pages.reasons import HOST_ASKED_TO_WAIT, HOST_KEPT_FAILING
from webtext.crawl.pages.visit import FetchRefused

MAX_CRAWL_DELAY = 30.0  # the longest Crawl-delay to obey; like Nutch, skip pages of sites that ask for more
MAX_DELAY = 60.0  # the longest delay, in seconds, for a host that is slow, busy or does not answer
MAX_HOST_FAILURES = 10  # in a row, after which a host is given up
FIRST_BACKOFF = 1.0  # the shortest delay, in seconds, after a host's first failure
SHORT_WAIT = 0.5  # seconds: shorter waits are over before a new process has started, and are not recorded
CLOCKS_KEPT = 100_000  # 500 bytes each; more only while their hosts must be left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast hosts are asked and when they are given up."""

    delay: float
    concurrency: int = 64
    max_delay: float = MAX_DELAY
    max_pause: float = 600.0
    max_host_failures: int = MAX_HOST_FAILURES


@dataclass(slots=True, eq=False)
class _Clock:
    least: float  # seconds between two requests without failures
    delay: float  # current seconds between two requests
    free_at: float = 0.0
    failures: int = 0  # in a row
    has_rested: bool = False  # since these failures began
    gave_up: str | None = None  # reason in the fetch log
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Hosts:
    """The clocks of all hosts and addresses asked so far; with a clock file, including earlier runs."""

    def __init__(self, pace: Pace, file: ClockFile | None = None) -> None:
        self.pace = pace
        self._file = file
        self._clocks: dict[str, _Clock] = {}
        self._n_kept = CLOCKS_KEPT
        self._answered_at = 0.0  # when any address last did
        # A queue wakes one waiter in constant time. A semaphore's release passes over all waiters that were woken but
        # have not run yet: with thousands of hosts waiting, a tenth of a crawl's CPU time.
        self._slots: asyncio.Queue[None] = asyncio.Queue()
        for _ in range(pace.concurrency):
            self._slots.put_nowait(None)
        if file is not None:
            self._recall(file.read())
            file.begin(self._notes())

    def refusal(self, host: str) -> str | None:
        """Return the fetch log's reason why `host` was given up, or None if it was not."""
        clock = self._clocks.get(host)
        return None if clock is None else clock.gave_up

    def ask_for_delay(self, host: str, crawl_delay: float | None) -> None:
        """Obey the Crawl-delay that `host` asks for, if it is longer than the usual delay."""
        if crawl_delay is not None and crawl_delay > self.pace.delay:
            clock = self._clock(host)
            clock.least = min(crawl_delay, MAX_CRAWL_DELAY)
            clock.delay = max(clock.delay, clock.least)
            clock.free_at = max(clock.free_at, time.monotonic() + clock.delay)
            self._note(host)

    def pause(self, host: str, seconds: float) -> None:
        """Leave `host` alone for `seconds`, as it asked. If that is longer than max_pause, give it up for this run."""
        if seconds <= 0:
            return
        clock = self._clock(host)
        clock.free_at = max(clock.free_at, time.monotonic() + min(seconds, FORGOTTEN_SECONDS))
        if seconds > self.pace.max_pause:
            clock.gave_up = HOST_ASKED_TO_WAIT
        self._note(host)

    def wait(self, host: str) -> float:
        """Return the seconds for which `host` must still be left alone."""
        clock = self._clocks.get(host)
        return 0.0 if clock is None else max(0.0, clock.free_at - time.monotonic())

    def answered(self, host: str, seconds: float) -> None:
        """Register an answer that took `seconds`: the delay recovers, but a host is busy at most half of the time."""
        clock = self._clock(host)
        clock.failures, clock.has_rested = 0, False
        clock.delay = max(clock.least, min(seconds, self.pace.max_delay), clock.delay / 2)

    def failed(self, host: str, *, is_busy: bool = False) -> None:
        """Register a failure: no answer came, or the host said that it is busy.

        After max_host_failures in a row, the host is given up. One that is busy rests for max_pause before that.
        """
        clock = self._clock(host)
        clock.failures += 1
        clock.delay = max(clock.delay, min(max(2 * clock.delay, FIRST_BACKOFF), self.pace.max_delay))
        if clock.failures < self.pace.max_host_failures or clock.gave_up is not None:
            return
        if is_busy and not clock.has_rested:
            clock.has_rested = True
            self.pause(host, self.pace.max_pause)
        else:
            clock.gave_up = HOST_KEPT_FAILING

    def tried(self, address: str, *, is_late: bool = False, has_answered: bool = False) -> None:
        """Register a turn at `address`: whether the connection timed out. One that only does rests, then is given up.

        A time-out counts if another address answered in the meantime. Otherwise this machine may be offline.
        """
        clock = self._clock(name := f"@{address}")
        if has_answered:
            self._answered_at = time.monotonic()
            self.answered(name, 0.0)
        elif is_late and self._answered_at >= clock.free_at - clock.delay:  # since the turn began
            self.failed(name, is_busy=True)

    def turn(self, host: str, address: str) -> Turn:
        """Return a context manager that allows one request to `host` at `address`. A task must not take two at once.

        Entering it waits for the turn, and raises FetchRefused if the host is given up by then.
        """
        return Turn(self, host, f"@{address}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _clock(self, name: str) -> _Clock:
        clock = self._clocks.get(name)
        if clock is None:
            clock = self._clocks[name] = _Clock(self.pace.delay, self.pace.delay)
        return clock

    def _restart(self, *names: str) -> None:
        """Start the pause of these clocks now: at the end of a request, and at its start in case the run is killed."""
        now = time.monotonic()
        for name in names:
            clock = self._clocks[name]
            clock.free_at = max(clock.free_at, now + clock.delay)
        self._note(*names)

    def _note(self, *names: str) -> None:
        if self._file is None:
            return
        now = time.monotonic()
        clocks = [self._clocks[name] for name in names]
        if max([clock.free_at for clock in clocks]) - now <= SHORT_WAIT:
            return
        waits = [(name, clock.free_at - now, clock.delay) for name, clock in zip(names, clocks, strict=True)]
        with contextlib.suppress(OSError):  # a full disk raises an error where pages are written
            if self._file.is_long:
                self._file.begin(self._notes())
            self._file.note(*waits)

    def _notes(self) -> Iterator[NotedClock]:
        now = time.monotonic()
        for name, clock in self._clocks.items():
            if clock.free_at > now or clock.delay > self.pace.delay:
                yield NotedClock(name, clock.free_at - now, clock.delay)

    def _recall(self, notes: list[NotedClock]) -> None:
        now = time.monotonic()
        for noted in notes:
            if noted.wait <= 0 and noted.pace <= self.pace.delay:
                continue
            clock = self._clock(noted.name)
            clock.free_at = now + noted.wait
            clock.delay = max(clock.delay, min(noted.pace, max(self.pace.max_delay, MAX_CRAWL_DELAY)))
            if noted.wait > self.pace.max_pause and not noted.name.startswith("@"):
                clock.gave_up = HOST_ASKED_TO_WAIT

    def _forget_old(self) -> None:
        if len(self._clocks) <= self._n_kept:
            return
        # A clock without a pause is like a new one. Of failed and slow hosts, those asked last are kept: far more than
        # have links in work. The next sweep comes at twice the size, so sweeps stay rare.
        now = time.monotonic()
        kept = {name: clock for name, clock in self._clocks.items() if clock.users or clock.free_at > now}
        odd = [each for each in self._clocks.items() if each[0] not in kept and not self._is_plain(each[1])]
        kept.update(heapq.nlargest(CLOCKS_KEPT // 2, odd, key=lambda each: each[1].free_at))
        self._clocks = kept
        self._n_kept = max(CLOCKS_KEPT, 2 * len(self._clocks))

    def _is_plain(self, clock: _Clock) -> bool:
        return clock.delay <= self.pace.delay and clock.gave_up is None and not clock.failures


class Turn:
    """The context manager of `Hosts.turn`. A class, because contextlib generators, one per lock, cost twice as much."""

    __slots__ = ("_hosts", "_names", "_own", "_shared")

    def __init__(self, hosts: Hosts, *names: str) -> None:
        self._hosts = hosts
        self._names = names
        self._own, self._shared = map(hosts._clock, names)

    async def __aenter__(self) -> None:
        own, shared, slots = self._own, self._shared, self._hosts._slots
        own.users += 1
        shared.users += 1
        held: list[asyncio.Lock] = []
        try:
            # Every task locks its host first, then the address, so no two can wait for each other.
            for clock in (own, shared):
                await clock.lock.acquire()
                held.append(clock.lock)
                if clock.gave_up is None and clock.free_at > time.monotonic():
                    await asyncio.sleep(clock.free_at - time.monotonic())
                if clock.gave_up:
                    raise FetchRefused(clock.gave_up)
            # Last: hosts that share an address would hold all slots while they wait for each other's pauses.
            await slots.get()
            self._hosts._restart(*self._names)
        except BaseException:
            self._leave(held)
            raise

    async def __aexit__(self, *_: object) -> None:
        try:
            self._hosts._restart(*self._names)
        finally:
            self._hosts._slots.put_nowait(None)
            self._leave([self._own.lock, self._shared.lock])

    def _leave(self, held: list[asyncio.Lock]) -> None:
        for each in reversed(held):
            each.release()
        self._own.users -= 1
        self._shared.users -= 1
        self._hosts._forget_old()
