"""How well a step uses the machine: model FLOP/s against a peak that is measured, and the memory it took.

The peak is what torch's own matrix product reaches on this device, in the dtype of the run, with its number of threads: no
data sheet's number, and no other machine's. A busy machine shows a lower one, so the best of several is taken.
"""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from webtext.train.distributed import World
from webtext.train.flops import flops_per_token
from webtext.train.shape import GPT2Config

TRIES = 5
WIDTH_OF_PRODUCT = {"cpu": 1024, "cuda": 8192}  # on a CPU it is enough for the speed, and takes some milliseconds
SMALL_WIDTH = {"cpu": 1024, "cuda": 4096}
"""Of a product among the steps of a run, whose device may be nearly full: a quarter of the memory, 96 MiB in bfloat16."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a step reached, over all processes. `mfu_ratio` is model FLOPs a second over all their peaks together."""

    tokens_per_second: float
    mfu_ratio: float
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens/s, MFU {self.mfu_ratio:.0%}, {self.memory_bytes / 2**30:.1f} GiB"


class Meter:
    """Measures the steps of one run; MFU as in PaLM's appendix B (`flops.py`)."""

    def __init__(self, config: GPT2Config, world: World, dtype: torch.dtype) -> None:
        self.device = world.device
        self.peak_flops = world.size * peak_flops(world.device, dtype, torch.get_num_threads())
        self._flops_per_token = flops_per_token(config)

    def measure(self, n_tokens: int, seconds: float) -> Speed:
        """The speed of so many tokens, of all processes, in so many seconds."""
        rate = n_tokens / seconds
        mfu_ratio = rate * self._flops_per_token / self.peak_flops
        return Speed(round(rate, 1), round(mfu_ratio, 4), memory_bytes(self.device))


@functools.cache
def peak_flops(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """FLOP/s of this device's matrix products, measured once; `threads` is torch's number of them."""
    return product_flops(device, dtype, WIDTH_OF_PRODUCT[device.type])


def product_flops(
    device: torch.device, dtype: torch.dtype, width: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """FLOP/s of one square matrix product of that width, the best of several, by the seconds of `clock`.

    Of random numbers, as in a run: a GPU draws less power for equal ones, and computes faster than it would in training.
    """
    generator = torch.Generator(device).manual_seed(0)  # the run's own random numbers stay as they are
    a, b = (torch.randn(width, width, generator=generator, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    seconds = []
    for _ in range(TRIES + 1):  # the first one warms up
        started = clock()
        torch.mm(a, b, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - started)
    return 2 * width**3 / min(seconds[1:])


def memory_bytes(device: torch.device) -> int:
    """The most memory so far: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
