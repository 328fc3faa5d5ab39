"""How well a step uses the machine: model FLOP/s compared with a measured peak, and the memory it took.

The peak is what torch's own matrix product reaches on this device, in the run's dtype and with its number of threads,
not a data sheet's or another machine's number. A busy machine shows a lower peak, so the best of several is taken.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from webtext.base.run import peak_bytes
from webtext.train.distributed import World
from webtext.train.shape import GPT2Config

TRIES = 5
WIDTH_OF_PRODUCT = {"cpu": 1024, "cuda": 8192}  # on a CPU 1024 reaches full speed in a few milliseconds


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a step over all processes. `mfu_ratio` is model FLOP/s divided by the sum of the processes' peaks."""

    tokens_per_second: float
    mfu_ratio: float
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens/s, MFU {self.mfu_ratio:.0%}, {self.memory_bytes / 2**30:.1f} GiB"


class Meter:
    """Measures the steps of one run; MFU as in PaLM's appendix B (`GPT2Config.flops_per_token`)."""

    def __init__(self, config: GPT2Config, world: World, dtype: torch.dtype) -> None:
        self.device = world.device
        self.peak_flops = world.size * peak_flops(world.device, dtype, torch.get_num_threads())
        self._flops_per_token = config.flops_per_token

    def measure(self, n_tokens: int, seconds: float) -> Speed:
        """Return the speed of `n_tokens` tokens, over all processes, in `seconds`."""
        rate = n_tokens / seconds
        mfu_ratio = rate * self._flops_per_token / self.peak_flops
        return Speed(round(rate, 1), round(mfu_ratio, 4), memory_bytes(self.device))


@functools.cache
def peak_flops(
    device: torch.device, dtype: torch.dtype, threads: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the FLOP/s of this device's matrix products, measured once; `threads` is torch's number of threads.

    The numbers are random, as in a run: a GPU draws less power for equal ones and is faster than it is in training.
    """
    width = WIDTH_OF_PRODUCT[device.type]
    generator = torch.Generator(device).manual_seed(0)  # leaves the run's own random numbers unchanged
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
    """Return the peak memory so far: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_bytes()
