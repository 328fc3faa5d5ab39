"""The meter by worked numbers; no test asks how fast this machine is."""

from __future__ import annotations

import pytest
import torch

from webtext.train.resilience.distributed import World
from webtext.train.run import meter
from webtext.train.run.meter import Meter, Speed, memory_bytes, peak_flops, product_flops
from webtext.train.shape import GPT2Config

CPU = torch.device("cpu")


def test_mfu_is_the_models_operations_over_the_peaks_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 tokens per second of 855,166,464 FLOP each, on two processes of 1e12 FLOP/s: 42.76 %."""
    monkeypatch.setattr(meter, "peak_flops", lambda *_: 1e12)
    monkeypatch.setattr(meter, "memory_bytes", lambda _: 3 * 2**29)
    speed = Meter(GPT2Config.named("124M"), World(0, 2, CPU), torch.bfloat16).measure(2000, 2.0)
    assert speed == Speed(tokens_per_second=1000.0, mfu_ratio=0.4276, memory_bytes=3 * 2**29)
    assert str(speed) == "1,000 tokens/s, MFU 43%, 1.5 GiB"


def test_the_peak_is_measured_once_for_a_device_a_dtype_and_a_number_of_threads() -> None:
    first = peak_flops(CPU, torch.float32, 1)
    assert first > 0
    assert peak_flops(CPU, torch.float32, 1) == first


def test_the_peak_is_measured_on_random_numbers_without_drawing_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of ones make a GPU look faster, because its power depends on the bits that change."""
    factors: list[torch.Tensor] = []
    monkeypatch.setattr(torch, "mm", lambda a, b, out: factors.extend((a, b)))
    before = torch.get_rng_state()
    product_flops(CPU, torch.bfloat16, 64)
    assert all(0.9 < matrix.float().std() < 1.1 for matrix in factors)
    assert not torch.equal(factors[0], factors[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_memory_of_a_process_is_that_of_its_peak() -> None:
    before = memory_bytes(CPU)
    held = torch.ones(2**26)
    assert memory_bytes(CPU) >= max(before, held.nbytes)
