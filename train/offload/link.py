"""Asynchronous copies between host and device, in order for each direction, while the device computes.

`load` and `store` return before the copy is made; the user of its result waits for the returned `Event`. A load starts
when `after` has happened on the host and earlier computing no longer uses its target; a store starts when its source is
computed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """The end of a copy."""

    def wait(self) -> None:
        """Make work that is queued from now on wait for this copy."""

    def done(self) -> None:
        """Block the host until this copy has finished."""


class Link(Protocol):
    """A connection between host and device."""

    def load(self, target: Tensor, source: Tensor, after: Future[None] | None = None) -> Event:
        """Copy host memory to the device."""

    def store(self, target: Tensor, source: Tensor) -> Event:
        """Copy device memory to the host."""

    def computed(self, what: str) -> None:
        """Called after each "forward" or "backward" of a layer for a microbatch, which take time on a modelled link."""

    def seconds(self) -> float:
        """Return the time by the device's clock, after all queued computing has finished."""


class CudaLink:
    """A GPU's two copy engines: one stream for each direction. Host memory should be pinned."""

    def __init__(self, device: torch.device) -> None:
        self._streams = {way: torch.cuda.Stream(device) for way in ("load", "store")}  # type: ignore[no-untyped-call]

    def load(self, target: Tensor, source: Tensor, after: Future[None] | None = None) -> Event:  # noqa: D102 - see Link
        if after is not None:
            after.result()
        return self._copy("load", target, source)

    def store(self, target: Tensor, source: Tensor) -> Event:  # noqa: D102 - see Link
        return self._copy("store", target, source)

    def _copy(self, way: str, target: Tensor, source: Tensor) -> Event:
        stream = self._streams[way]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            (target if target.is_cuda else source).record_stream(stream)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        return _CudaEvent(event)

    def computed(self, what: str) -> None:  # noqa: D102 - see Link
        pass

    def seconds(self) -> float:  # noqa: D102 - see Link
        torch.cuda.synchronize()
        return time.perf_counter()


class _CudaEvent:
    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self.event)

    def done(self) -> None:
        self.event.synchronize()


class ThreadLink:
    """One thread for each direction, slowed down to `bandwidth` (bytes per second) and `latency` (seconds) if given."""

    def __init__(self, bandwidth: float | None = None, latency: float = 0.0) -> None:
        self.bandwidth, self.latency = bandwidth, latency
        self._ways = {way: ThreadPoolExecutor(1, thread_name_prefix=f"webtext-{way}") for way in ("load", "store")}
        self.stalled_seconds = self.copied_seconds = 0.0

    def load(self, target: Tensor, source: Tensor, after: Future[None] | None = None) -> Event:  # noqa: D102 - see Link
        return _FutureEvent(self._ways["load"].submit(self._copy, target, source, after), self)

    def store(self, target: Tensor, source: Tensor) -> Event:  # noqa: D102 - see Link
        return _FutureEvent(self._ways["store"].submit(self._copy, target, source), self)

    def _copy(self, target: Tensor, source: Tensor, after: Future[None] | None = None) -> None:
        if after is not None:
            after.result()
        started = time.perf_counter()
        with torch.no_grad():
            target.copy_(source)
        if self.bandwidth is not None:
            seconds = self.latency + target.nbytes / self.bandwidth
            time.sleep(max(0.0, seconds - (time.perf_counter() - started)))
        self.copied_seconds += time.perf_counter() - started

    def computed(self, what: str) -> None:  # noqa: D102 - see Link
        pass

    def seconds(self) -> float:  # noqa: D102 - see Link
        return time.perf_counter()


class _FutureEvent:
    def __init__(self, future: Future[None], link: ThreadLink) -> None:
        self.future, self._link = future, link

    def wait(self) -> None:
        started = time.perf_counter()
        self.future.result()
        self._link.stalled_seconds += time.perf_counter() - started

    done = wait


class ModelledLink:
    """A link and a device with a simulated clock: copies and computing take the time that was configured.

    Everything is done immediately in the caller's thread, so `now` depends only on the order of the calls.
    """

    def __init__(self, bandwidth: float, latency: float, seconds: Mapping[str, float]) -> None:
        self.bandwidth, self.latency, self.seconds_of = bandwidth, latency, seconds
        self.restart()

    def restart(self) -> None:
        """Set the clock to zero."""
        self.now = self.stalled_seconds = self.copied_seconds = 0.0
        self._free_at = {"load": 0.0, "store": 0.0}

    def load(self, target: Tensor, source: Tensor, after: Future[None] | None = None) -> Event:  # noqa: D102 - see Link
        if after is not None:
            after.result()
        return self._copy("load", target, source)

    def store(self, target: Tensor, source: Tensor) -> Event:  # noqa: D102 - see Link
        return self._copy("store", target, source)

    def _copy(self, way: str, target: Tensor, source: Tensor) -> Event:
        with torch.no_grad():
            target.copy_(source)
        seconds = self.latency + target.nbytes / self.bandwidth
        self.copied_seconds += seconds
        self._free_at[way] = max(self.now, self._free_at[way]) + seconds
        return _ModelledEvent(self, self._free_at[way])

    def computed(self, what: str) -> None:  # noqa: D102 - see Link
        self.now += self.seconds_of[what]

    def seconds(self) -> float:  # noqa: D102 - see Link
        return self.now


class _ModelledEvent:
    def __init__(self, link: ModelledLink, at: float) -> None:
        self._link, self._at = link, at

    def wait(self) -> None:
        stall = max(0.0, self._at - self._link.now)
        self._link.stalled_seconds += stall
        self._link.now += stall

    done = wait
