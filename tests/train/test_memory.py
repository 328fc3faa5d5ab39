"""Out of memory: what the error says would fit. The device's size is faked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from webtext.base.errors import MachineError
from webtext.train import TrainSettings
from webtext.train.distributed import World
from webtext.train.footprint import memory_of
from webtext.train.mesh import MeshShape
from webtext.train.run.memory import memory_is_an_error, warn_if_too_large

SETTINGS = TrainSettings(batch_size=24, microbatch_size=24)
CONFIG = SETTINGS.config(50_257)


def advice(settings: TrainSettings, world: World) -> str:
    with pytest.raises(MachineError) as caught, memory_is_an_error(CONFIG, settings, world):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert f"microbatches of {settings.microbatch_size} sequences do not fit" in caught.value.lines[0]
    return caught.value.lines[1].partition(";")[0]


@pytest.mark.parametrize(("fits", "expected"), [(8, 8), (7, 6), (20, 12), (24, 12), (0, 1)])
def test_on_a_gpu_the_largest_that_fits_and_divides_is_named(
    fits: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all fits by the estimate, something it doesn't count took the rest, so the next smaller one is named."""
    least = memory_of(CONFIG, SETTINGS, MeshShape(), 1).total - 1
    size = SimpleNamespace(total_memory=memory_of(CONFIG, SETTINGS, MeshShape(), fits).total if fits else least)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: size)
    said = advice(SETTINGS, World(0, 1, torch.device("cuda", 0)))
    assert said == f"choose microbatch_size = {expected} or activation_checkpointing = true"


def test_when_one_sequence_is_too_much_the_model_or_context_must_be_smaller() -> None:
    least = TrainSettings.of(batch_size=24, microbatch_size=1, activation_checkpointing=True)
    assert advice(least, World(0, 1, torch.device("cpu"))) == "choose a smaller model or context"


def test_no_warning_advises_the_microbatch_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.train.run.memory.memory_bytes", lambda world: 1)
    for size, advised in ((24, "choose microbatch_size = 1 or"), (1, "choose a smaller model or context or")):
        warnings: list[str] = []
        settings, console = TrainSettings(batch_size=24, microbatch_size=size), SimpleNamespace(warn=warnings.append)
        warn_if_too_large(CONFIG, settings, World(0, 1, torch.device("cpu")), console)  # type: ignore[arg-type]
        assert advised in warnings[0]
        assert f"choose microbatch_size = {size} " not in warnings[0]


def test_a_warning_counts_what_the_device_of_the_run_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `auto` a plan is for a GPU, whose flex attention keeps no mask, but a CPU keeps a matrix per sequence."""
    settings = TrainSettings.of(batch_size=4, microbatch_size=4, documents="masked")
    on_gpu = memory_of(CONFIG, settings, MeshShape()).total
    monkeypatch.setattr("webtext.train.run.memory.memory_bytes", lambda world: on_gpu)
    for device, n_warnings in (("cuda", 0), ("cpu", 1)):
        warnings: list[str] = []
        console = SimpleNamespace(warn=warnings.append)
        warn_if_too_large(CONFIG, settings, World(0, 1, torch.device(device)), console)  # type: ignore[arg-type]
        assert len(warnings) == n_warnings
    assert warnings[0].startswith("a process is estimated to take ")
    assert ": choose microbatch_size = " in warnings[0]
