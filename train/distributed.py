"""The processes of one run: one alone, or as many as `torchrun` started (gloo between CPUs, NCCL between GPUs)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

from webtext.base.errors import ConfigError, EnvironmentError_
from webtext.train.rendezvous import attempt_store

T = TypeVar("T")
_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@dataclass(frozen=True, slots=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes and talks."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
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


@contextlib.contextmanager
def join_world(device: str) -> Iterator[World]:
    """The world that the environment describes: torchrun's RANK, LOCAL_RANK and WORLD_SIZE, or this process alone."""
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
    joins = size > 1 and not distributed.is_initialized()
    if joins:
        backend = "nccl" if kind == "cuda" else "gloo"
        distributed.init_process_group(backend, store=attempt_store(rank, size), rank=rank, world_size=size)
    try:
        yield World(rank, size, place)
    finally:
        if joins:
            distributed.destroy_process_group()
