"""How fast a step is: tokens per second, memory, and on a GPU of the table the share of its data sheet's FLOP/s (MFU)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from webtext.base.run import peak_bytes
from webtext.train.distributed import World
from webtext.train.shape import GPT2Config

PEAKS = {  # FLOP/s in dense bfloat16, from NVIDIA's data sheets; where one gives the sparse rate, half of it
    r"\bB200\b": 2250e12,
    r"\bH100 PCIe": 756e12,
    r"\bH[12]00 NVL": 835e12,
    r"\bG?H[12]00\b": 989e12,
    r"\bA100\b": 312e12,
    r"\bL40S\b": 362e12,
    r"\bL4\b": 121e12,
    r"\bA10\b": 125e12,
}


def data_sheet_peak(card: str) -> float | None:
    """Return the dense bfloat16 FLOP/s of a card, by its name in CUDA; None if it isn't in the table."""
    return next((peak for name, peak in PEAKS.items() if re.search(name, card)), None)


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a step over all processes. `mfu_ratio` is model FLOP/s divided by the sum of the GPUs' peaks.

    It is None on a CPU, on a GPU that isn't in PEAKS, and in other dtypes than bfloat16.
    """

    tokens_per_second: float
    mfu_ratio: float | None
    memory_bytes: int

    def __str__(self) -> str:
        mfu = "" if self.mfu_ratio is None else f", MFU {self.mfu_ratio:.0%}"
        return f"{self.tokens_per_second:,.0f} tokens/s{mfu}, {self.memory_bytes / 2**30:.1f} GiB"


class Meter:
    """Measures the steps of one run; MFU as in PaLM's appendix B (`GPT2Config.flops_per_token`)."""

    def __init__(self, config: GPT2Config, world: World, dtype: torch.dtype) -> None:
        self.device = world.device
        has_table = world.device.type == "cuda" and dtype == torch.bfloat16
        peak = data_sheet_peak(torch.cuda.get_device_name(world.device)) if has_table else None
        self.peak_flops = None if peak is None else world.size * peak
        self._flops_per_token = config.flops_per_token

    def measure(self, n_tokens: int, seconds: float) -> Speed:
        """Return the speed of `n_tokens` tokens, over all processes, in `seconds`."""
        rate = n_tokens / seconds
        mfu_ratio = self.peak_flops and round(rate * self._flops_per_token / self.peak_flops, 4)
        return Speed(round(rate, 1), mfu_ratio, memory_bytes(self.device))


def memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_bytes()
