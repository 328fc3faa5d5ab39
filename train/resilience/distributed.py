"""The processes of one run: a single one, or all that `torchrun` started (gloo between CPUs, NCCL between GPUs)."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar, cast

import torch
from torch import Tensor, distributed

from webtext.base.errors import ConfigError, MachineError, WebtextError
from webtext.train.resilience.heartbeat import RESUME, Beat, Heartbeat, watched
from webtext.train.resilience.rendezvous import attempt_store

T = TypeVar("T")
_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@dataclass(frozen=True, slots=True)
class World:
    """This process's rank and device, and the operations over all processes of the run."""

    rank: int
    size: int
    device: torch.device
    progress: Beat = field(default_factory=Beat)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """Sum `value` over all processes, in place."""
        if self.size > 1:
            self.progress.enter("waits for the others")
            distributed.all_reduce(value)
        return value

    def gather(self, value: T, group: distributed.ProcessGroup | None = None) -> list[T]:
        """Return the values of all processes, in rank order. `group` is another group of all of them."""
        values = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(values, value, group=group)
        return values

    def together(self, work: Callable[[], T], group: distributed.ProcessGroup | None = None) -> list[T]:
        """Return what `work` returns in each process, in rank order. If it raises in one, all raise that error."""
        result: T | Exception
        try:
            result = work()
        except Exception as error:
            result = error
        results = self.gather(result, group)
        for each in results:
            if isinstance(each, Exception):
                raise each
        return cast(list[T], results)


@contextlib.contextmanager
def join_world(device: str, hang_timeout: float | None = None) -> Iterator[World]:
    """Join the world that the environment describes: torchrun's RANK, LOCAL_RANK and WORLD_SIZE, or this process alone.

    If one of several processes makes no progress for `hang_timeout` seconds, an error names it and all end
    (`heartbeat.py`).
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise MachineError("device is 'cuda', but torch sees no GPU", "set device = 'auto' or 'cpu'")
    try:
        rank, size, local = (int(os.environ.get(name, d)) for name, d in _ENVIRONMENT.items())
    except ValueError as error:
        raise ConfigError(f"RANK, WORLD_SIZE or LOCAL_RANK is not a whole number ({error})", "use torchrun") from None
    gpu = torch.device("cuda", local) if device != "cpu" and torch.cuda.is_available() else None
    place, backend = (torch.device("cpu"), "gloo") if gpu is None else (gpu, "nccl")
    if gpu is not None:
        torch.cuda.set_device(gpu)
    if size == 1 or distributed.is_initialized():
        yield World(rank, size, place)
        return
    # torch's own limit comes second, because it cannot say which process hangs
    timeout = None if hang_timeout is None else timedelta(seconds=2 * hang_timeout)
    with _lost_process_is_an_error(), contextlib.ExitStack() as stack:
        store = attempt_store(rank, size)
        distributed.init_process_group(backend, timeout=timeout, world_size=size, rank=rank, store=store, device_id=gpu)
        stack.callback(distributed.destroy_process_group)
        progress = Beat(rank, os.getpid(), socket.gethostname())
        if hang_timeout is not None:
            heartbeat = Heartbeat(progress, size, store.clone())  # type: ignore[attr-defined]  # its own connection
            stack.enter_context(watched(heartbeat, hang_timeout))
        yield World(rank, size, place, progress)


@contextlib.contextmanager
def _lost_process_is_an_error() -> Iterator[None]:
    """Turn what gloo and NCCL raise when a process ends or doesn't answer into an error that says where to look."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "/gloo/" not in str(error):
            raise
        message = re.sub(r"^.*/gloo/\S+\] |\. This is typically.*$", "", " ".join(str(error).split()))
        who = "its own output or torchrun's report shows which one ended first"
        raise WebtextError(f"lost another process of the run: {message[:150]}", who, RESUME) from error
