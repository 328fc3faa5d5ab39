"""A device that computes nothing: meta tensors, on streams whose order is known, in memory of a limited size.

    with SimulatedDevice() as device:
        model = OffloadedModel(model, Link(torch.device("meta"), device), ...)
        ...
    assert device.races == []

An operation on a meta tensor is the device's, and belongs to the stream on which it is queued; all others are the
host's. Each stream, the host and its thread have a vector clock (Fidge 1988; Mattern 1989): how many operations of each
other one are certain to be over. Two operations race if one of them writes what the other uses, and neither is certain
to be over before the other begins. Memory is freed and used again in the order of the computing stream, like that of
torch's allocator. The host's thread does nothing before its result is asked for.

What is launched, and what waits, is as in `counted_device.py`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from counted_device import CountedDevice, is_view, tensors_of, written
from torch import Tensor

COMPUTING, HOST, THREAD = "computing", "host", "thread"
Clock = dict[str, int]


@dataclass
class Access:
    """Bytes [begin, end) of a storage, used by operation number `tick` of `actor`."""

    actor: str
    tick: int
    begin: int
    end: int
    writes: bool
    name: str


@dataclass
class Copy:
    """A copy over the link: its host memory as (storage, first byte), its number on its stream, and what it waits for."""

    way: str
    host: tuple[int, int]
    n_bytes: int
    tick: int
    after: Clock


def joined(a: Mapping[str, int], b: Mapping[str, int]) -> Clock:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {*a, *b}}


class SimulatedDevice(CountedDevice):
    """Also the device's module, like `torch.cuda`: `Stream`, `Event` and `stream`."""

    def __init__(self, capacity: int = 1 << 50) -> None:
        super().__init__()
        self.capacity, self.used_bytes, self.peak_bytes = capacity, 0, 0
        self.races: list[str] = []
        self.copies: list[Copy] = []
        self.n_waits = 0
        self._clocks: dict[str, Clock] = {}
        self._stream, self._host = COMPUTING, HOST
        self._accesses: dict[int, list[Access]] = {}
        self._sizes: dict[int, int] = {}
        self._n_streams = 0

    def Stream(self) -> str:  # noqa: N802 - the name in torch.cuda
        self._n_streams += 1
        return f"stream {self._n_streams}"

    def Event(self) -> Event:  # noqa: N802 - the name in torch.cuda
        return Event(self)

    def set_device(self, device: torch.device) -> None:
        """There is one."""

    @contextlib.contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self._stream = self._stream, stream
        yield
        self._stream = before

    def clock(self, actor: str) -> Clock:
        return self._clocks.get(actor, {})

    def join(self, actor: str, clock: Clock) -> None:
        self._clocks[actor] = joined(self.clock(actor), clock)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        used = tensors_of((args, kwargs))
        is_copy = func is torch.ops.aten.copy_.default and len({tensor.is_meta for tensor in used}) == 2
        result = used[0] if is_copy else func(*args, **kwargs)
        made = tensors_of(result)
        if is_view(func) or not (used or made):
            return result
        self.count(func, args, kwargs, made)
        actor = self._stream if any(tensor.is_meta for tensor in (*used, *made)) else self._host
        if actor == self._stream:
            self.join(actor, self.clock(self._host))
        after = dict(self.clock(actor))
        tick = after.get(actor, 0) + 1
        self.join(actor, {actor: tick})
        changed = {id(tensor) for tensor in written(func, args, kwargs)}
        for tensor in (*used, *made):
            if tensor.untyped_storage()._cdata not in self._accesses:
                self._begin(tensor, is_new=all(tensor is not other for other in used))
        for tensor in used:
            self._use(tensor, Access(actor, tick, *_span(tensor), id(tensor) in changed, str(func)))
        if is_copy:
            way, host = ("load", used[1]) if used[0].is_meta else ("store", used[0])
            place = (host.untyped_storage()._cdata, _span(host)[0])
            self.copies.append(Copy(way, place, host.nbytes, tick, after))
        return result

    def _begin(self, tensor: Tensor, *, is_new: bool) -> None:
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, storage.nbytes()
        self._accesses[key] = []
        if tensor.is_meta and is_new:
            if self.used_bytes + n_bytes > self.capacity:
                raise torch.OutOfMemoryError(f"{n_bytes:,} bytes do not fit: {self.used_bytes:,} are in use")
            self.used_bytes += n_bytes
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
            self._sizes[key] = n_bytes
            now = self.clock(COMPUTING).get(COMPUTING, 0)
            self._accesses[key] = [Access(COMPUTING, now, 0, n_bytes, True, "the allocator")]
        weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key: int) -> None:
        accesses = self._accesses.pop(key)
        if key in self._sizes:
            n_bytes = self._sizes.pop(key)
            self.used_bytes -= n_bytes
            self._check(accesses, Access(COMPUTING, 0, 0, n_bytes, True, "the allocator"))

    def _use(self, tensor: Tensor, access: Access) -> None:
        accesses = self._accesses[tensor.untyped_storage()._cdata]
        self._check(accesses, access)
        if access.writes:  # whatever comes after this is after those, or has raced already
            accesses[:] = [a for a in accesses if a.begin < access.begin or a.end > access.end]
        accesses.append(access)

    def _check(self, earlier: list[Access], access: Access) -> None:
        clock = self.clock(access.actor)
        for other in earlier:
            overlaps = other.begin < access.end and access.begin < other.end
            if overlaps and (other.writes or access.writes) and other.tick > clock.get(other.actor, 0):
                self.races.append(f"{access.actor} {access.name} after {other.actor} {other.name}")

    def host_thread(self, *args: Any, **kwargs: Any) -> HostThread:
        """In place of a ThreadPoolExecutor of one thread."""
        return HostThread(self)

    @contextlib.contextmanager
    def in_thread(self, clock: Clock) -> Iterator[None]:
        before, self._host = self._host, THREAD
        self.join(THREAD, clock)
        yield
        self._host = before


@dataclass
class Event:
    device: SimulatedDevice
    clock: Clock = field(default_factory=dict)

    def record(self) -> None:
        self.clock = joined(self.device.clock(self.device._stream), self.device.clock(self.device._host))

    def wait(self) -> None:
        self.device.join(self.device._stream, self.clock)

    def synchronize(self) -> None:
        self.device.n_waits += self.device._host == HOST
        self.device.join(self.device._host, self.clock)


class HostThread:
    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.tasks: list[Task] = []
        self.done: list[Task] = []

    def submit(self, work: Callable[..., Any], *args: Any) -> Task:
        self.tasks.append(Task(self, lambda: work(*args), dict(self.device.clock(self.device._host))))
        return self.tasks[-1]


@dataclass(eq=False)
class Task:
    thread: HostThread
    work: Callable[[], Any]
    clock: Clock

    def result(self) -> None:
        while self not in self.thread.done:
            task = self.thread.tasks.pop(0)
            with self.thread.device.in_thread(task.clock):
                task.work()
            task.clock = dict(self.thread.device.clock(THREAD))
            self.thread.done.append(task)
        self.thread.device.join(self.thread.device._host, self.clock)


def _span(tensor: Tensor) -> tuple[int, int]:
    """The bytes from its first to its last element."""
    if tensor.numel() == 0:
        return 0, 0
    first = tensor.storage_offset()
    last = first + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.itemsize, (last + 1) * tensor.itemsize
