"""The processes of one run: a single one, or all that `torchrun` started (gloo between CPUs, NCCL between GPUs)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
from torch import Tensor, distributed
from torch.distributed.rendezvous import rendezvous

from webtext.base.errors import ConfigError, Interrupted, MachineError, WebtextError

T = TypeVar("T")
_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
_JOINING = timedelta(minutes=5)
HANG_TIMEOUT = timedelta(minutes=20)
"""How long a process waits for another in a collective: longer than hashing a checkpoint or compiling a step takes."""


@dataclass(frozen=True, slots=True)
class World:
    """This process's rank and device, and the operations over all processes of the run."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """Sum `value` over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(value)
        return value

    def gather(self, value: T, group: distributed.ProcessGroup | None = None) -> list[T]:
        """Return the values of all processes, in rank order. `group` is another group of all of them."""
        values = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(values, value, group=group)
        return values

    def together(self, work: Callable[[], T], group: distributed.ProcessGroup | None = None) -> list[T]:
        """Return the results of `work` in all processes, in rank order. If it raises in one, all raise that error."""
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
def join_world(device: str = "auto") -> Iterator[World]:
    """Join the world that the environment describes: torchrun's RANK, LOCAL_RANK and WORLD_SIZE, or this process alone.

    A process that waits `HANG_TIMEOUT` for another in a collective ends with an error, and torchrun ends the others.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise MachineError("device is 'cuda', but torch sees no GPU", "set device = 'auto' or 'cpu'")
    try:
        rank, size, local = (int(os.environ.get(name, d)) for name, d in _ENVIRONMENT.items())
    except ValueError as error:
        raise ConfigError(f"RANK, WORLD_SIZE or LOCAL_RANK is not a whole number ({error})", "use torchrun") from None
    gpu = gpu_of(local, torch.cuda.device_count()) if device != "cpu" and torch.cuda.is_available() else None
    place, backend = (torch.device("cpu"), "gloo") if gpu is None else (gpu, "nccl")
    if gpu is not None:
        torch.cuda.set_device(gpu)
    if size == 1 or distributed.is_initialized():
        yield World(rank, size, place)
        return
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise ConfigError(f"WORLD_SIZE is {size}, but MASTER_ADDR or MASTER_PORT is not set", "use torchrun")
    with lost_process_is_an_error():
        store = _attempt_store(rank, size)
        if gpu is not None:
            require_own_gpus(store, rank, size, f"{socket.gethostname()} {torch.cuda.get_device_properties(gpu).uuid}")
        distributed.init_process_group(
            backend, timeout=HANG_TIMEOUT, world_size=size, rank=rank, store=store, device_id=gpu
        )
        try:
            yield World(rank, size, place)
        finally:
            distributed.destroy_process_group()


def gpu_of(local_rank: int, n_gpus: int) -> torch.device:
    """Return the GPU of a machine's process `local_rank`: the only visible one, as under Slurm, or the GPU of that number."""
    if local_rank >= n_gpus > 1:
        raise MachineError(
            f"process {local_rank} of this machine has no GPU: torch sees {n_gpus}, numbered from 0",
            f"start at most {n_gpus} processes here, or make more GPUs visible by CUDA_VISIBLE_DEVICES",
        )
    return torch.device("cuda", local_rank if n_gpus > 1 else 0)


def require_own_gpus(store: distributed.Store, rank: int, size: int, gpu: str) -> None:  # type: ignore[name-defined]
    """Publish in `store` which GPU this process has; MachineError if another one has it too, which NCCL doesn't support."""
    store.set(f"gpu of {rank}", gpu)
    others = [each for each in range(size) if each != rank and store.get(f"gpu of {each}").decode() == gpu]
    if others:
        raise MachineError(
            f"processes {rank} and {others[0]} of the run have the same GPU ({gpu})",
            "start one process per GPU, or give each its own by CUDA_VISIBLE_DEVICES; parts of one GPU (MIG) don't count",
        )


def _attempt_store(rank: int, size: int) -> distributed.Store:  # type: ignore[name-defined]
    """Return the store by which processes find each other, without the addresses of an earlier attempt.

    When torchrun restarts all processes, it keeps the store (torch 2.13), except with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
    """
    store, _, _ = next(rendezvous("env://", rank, size, timeout=_JOINING))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store
    return distributed.PrefixStore(f"webtext/{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)  # type: ignore[attr-defined]


@contextlib.contextmanager
def lost_process_is_an_error() -> Iterator[None]:
    """Turn errors of gloo and NCCL about a process that ended or doesn't answer into one that says where to look."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and not re.search("/gloo/|pair closure", str(error)):
            raise
        message = re.sub(r"^.*/gloo/\S+\] |\. This is typically.*$", "", " ".join(str(error).split()))
        who = "its own output or torchrun's report shows which one ended first"
        resume = "rerun the same command to resume from the last checkpoint, or let 'torchrun --max-restarts N' do it"
        raise WebtextError(f"lost another process of the run: {message[:150]}", who, resume) from error


UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"  # an environment variable of the processes that torchrun starts
STOPPING = b"\nending after the current step, with a checkpoint; Ctrl-C again ends at once\n"
STOPPED = b"error: interrupted again\n  rerun the same command to resume from the last checkpoint\n"


class Termination:
    """Whether this process was asked to end: by SIGTERM, which batch systems send, or by Ctrl-C, whose second ends it."""

    asked = False
    by = "SIGTERM"  # the signal to this process, or to another one of the run

    def _ask(self, number: int, _: object) -> None:
        self.asked = True
        if number == signal.SIGTERM:
            return
        is_second, self.by = self.by == "Ctrl-C", "Ctrl-C"
        with contextlib.suppress(OSError):
            os.write(2, STOPPED if is_second else STOPPING)  # sys.stderr may be in the middle of a write
        if is_second:
            os._exit(Interrupted.exit_code)  # without waiting for a save in progress or for other processes

    @classmethod
    @contextlib.contextmanager
    def noticed(cls) -> Iterator[Termination]:
        """Make both set `asked` until the block ends, except outside the main thread, where no handler can be set.

        Ctrl-C stays ignored where it was, as by a shell's background jobs. After Interrupted, SIGTERM is ignored: torchrun
        sends it to all others as soon as one process has ended, although they are about to end in the same way.
        """
        termination = cls()
        if threading.current_thread() is not threading.main_thread():
            yield termination
            return
        after = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        signal.signal(signal.SIGTERM, termination._ask)
        if after[signal.SIGINT] != signal.SIG_IGN:
            signal.signal(signal.SIGINT, termination._ask)
        try:
            yield termination
        except Interrupted:
            if UNDER_TORCHRUN in os.environ:
                after[signal.SIGTERM] = signal.SIG_IGN
            raise
        finally:
            for number, handler in after.items():
                signal.signal(number, handler)
