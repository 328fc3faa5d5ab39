"""The processes of one run: one alone, or as many as `torchrun` started (gloo between CPUs, NCCL between GPUs)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

from webtext.base.errors import ConfigError, EnvironmentError_, WebtextError
from webtext.train.heartbeat import GO_ON, Heartbeat, watched
from webtext.train.rendezvous import attempt_store

T = TypeVar("T")
_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@dataclass(frozen=True, slots=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    device: torch.device
    heartbeat: Heartbeat | None = None

    @property
    def is_main(self) -> bool:
        """Whether this process writes and talks."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            self.enter("waits for the others")
            distributed.all_reduce(value)
        return value

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in their order."""
        values = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            self.sum(torch.zeros(1, device=self.device))

    def enter(self, what: str, step: int | None = None) -> None:
        """Every process begins `what`: where one hangs, it is said to do so as it `what`."""
        if self.heartbeat is not None:
            self.heartbeat.enter(what, step)

    def count_rounds(self, counts: bool) -> None:
        """Whether a process that comes no further is taken to hang."""
        if self.heartbeat is not None:
            self.heartbeat.counts = counts

    def advance(self) -> None:
        """A part of that is done."""
        if self.heartbeat is not None:
            self.heartbeat.advance()


@contextlib.contextmanager
def join_world(device: str, hang_timeout: float | None = None) -> Iterator[World]:
    """The world that the environment describes: torchrun's RANK, LOCAL_RANK and WORLD_SIZE, or this process alone.

    A process of several that comes no further for `hang_timeout` seconds is named, and all end (`heartbeat.py`).
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise EnvironmentError_("device is 'cuda' and torch sees no GPU", "set device = 'auto' or 'cpu'")
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        rank, size, local = (int(os.environ.get(name, d)) for name, d in _ENVIRONMENT.items())
    except ValueError as error:
        raise ConfigError(f"RANK, WORLD_SIZE and LOCAL_RANK are no whole numbers ({error})", "use torchrun") from None
    place = torch.device(kind, local) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(place)
    if size == 1 or distributed.is_initialized():
        yield World(rank, size, place)
        return
    store = attempt_store(rank, size)
    # torch's own limit is the second: it cannot say which process hangs
    timeout = None if hang_timeout is None else timedelta(seconds=2 * hang_timeout)
    backend = "nccl" if kind == "cuda" else "gloo"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_lost_process_is_an_error())
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        stack.callback(distributed.destroy_process_group)
        heartbeat = Heartbeat(rank, size, store.clone())  # type: ignore[attr-defined]  # its thread waits for no other's answer
        if hang_timeout is not None:
            stack.enter_context(watched(heartbeat, hang_timeout))
        yield World(rank, size, place, heartbeat)


@contextlib.contextmanager
def _lost_process_is_an_error() -> Iterator[None]:
    """What gloo and NCCL say where a process ended, or did not answer, as an error that tells where the cause stands."""
    try:
        yield
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if not isinstance(error, distributed.DistError) and "/gloo/" not in said:
            raise
        said = re.sub(r"^.*/gloo/\S+\] |\. This is typically.*$", "", said)
        raise WebtextError(f"lost another process of the run: {said[:150]}", _WHO_ENDED, GO_ON) from error


_WHO_ENDED = "what it said itself, or torchrun's report, tells which one ended first"
