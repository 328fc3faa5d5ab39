"""A device's memory that does not suffice, as an error that says what would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from webtext.base.errors import EnvironmentError_
from webtext.train.distributed import World
from webtext.train.plan import max_microbatch
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


@contextlib.contextmanager
def memory_is_an_error(config: GPT2Config, settings: TrainSettings, world: World) -> Iterator[None]:
    """torch's OutOfMemoryError as EnvironmentError_, with the largest smaller microbatch that divides and, by plan, fits."""
    try:
        yield
    except torch.OutOfMemoryError:
        microbatch, _ = settings.accumulation(world.size)
        most = microbatch - 1
        if world.device.type == "cuda":
            n_bytes = torch.cuda.get_device_properties(world.device).total_memory
            most = min(most, max_microbatch(config, settings, world.size, n_bytes) or 1)
        share = settings.first_batch_size // world.size
        smaller = [size for size in range(1, most + 1) if share % size == 0]
        choices = [f"microbatch_size = {smaller[-1]}"] if smaller else ["a smaller model or context"]
        if not settings.activation_checkpointing:
            choices.append("activation_checkpointing = true")
        raise EnvironmentError_(
            f"microbatches of {microbatch} sequences do not fit the device's memory",
            f"choose {' or '.join(choices)}; 'webtext train plan' counts what a run takes",
        ) from None
