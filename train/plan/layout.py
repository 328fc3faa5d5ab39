"""Layouts: a mesh with the microbatch, the schedule and the recomputation of a run on it; and all layouts of a run.

Arithmetic only, without torch. `footprint.py` computes a layout's memory, `cost.py` its time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webtext.base.errors import ConfigError
from webtext.train.mesh import SCHEDULES, MeshShape, blocks_of_stage, n_stages, stages_of_rank
from webtext.train.parallel.refusal import check_trainable
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is spread over devices. `n_microbatches` counts what one device computes in a step."""

    shape: MeshShape
    microbatch: int
    n_microbatches: int
    schedule: str = "1f1b"
    activation_checkpointing: str = "none"

    @classmethod
    def of(cls, settings: TrainSettings, shape: MeshShape, microbatch: int | None = None) -> Layout:
        """Return the layout of a run with these settings, or another microbatch; `MeshShape()` is one device."""
        microbatch = microbatch or settings.accumulation(shape.n_data)[0]
        return cls(
            shape=shape,
            microbatch=microbatch,
            n_microbatches=settings.batch_size // (shape.n_data * microbatch),
            schedule=settings.machine.pipeline_schedule if shape.pp > 1 else SCHEDULES[0],
            activation_checkpointing=settings.machine.activation_checkpointing,
        )

    @property
    def flags(self) -> str:
        """The options for `train run`."""
        mesh = f"--mesh {self.shape} " if self.shape.size > 1 else ""
        schedule = f" --pipeline-schedule {self.schedule}" if self.shape.pp > 1 else ""
        how = self.activation_checkpointing
        recomputes = "" if how == "none" else f" --activation-checkpointing {how}"
        return f"{mesh}--microbatch-size {self.microbatch}{schedule}{recomputes}"

    @property
    def chunks(self) -> int:
        """Number of stages on each rank."""
        return n_stages(self.schedule, self.shape.pp) // self.shape.pp

    def blocks(self, config: GPT2Config, rank: int) -> int:
        """Return the number of blocks in all stages of a rank of the pipeline."""
        n, pp = n_stages(self.schedule, self.shape.pp), self.shape.pp
        return sum(len(blocks_of_stage(config.n_layer, n, i)) for i in stages_of_rank(self.schedule, rank, pp))

    @property
    def fullest_ranks(self) -> set[int]:
        """The ranks of the pipeline among which the fullest and the slowest are."""
        return {0, 1, self.shape.pp // 2, self.shape.pp - 1} & set(range(self.shape.pp))

    def ends(self, rank: int) -> tuple[bool, bool]:
        """Return whether a rank of the pipeline has the first stage, and whether it has the last."""
        stages = stages_of_rank(self.schedule, rank, self.shape.pp)
        return 0 in stages, n_stages(self.schedule, self.shape.pp) - 1 in stages

    def in_flight(self, rank: int) -> float:
        """Return the largest number of microbatches whose activations a rank stores, in units of all of its stages.

        1f1b: one for each stage from this one to the last. Interleaved: the warm-up of 2 (p - r - 1) + (v - 1) p
        chunks, and one more (Narayanan et al. 2021, section 2.2, and Megatron-LM's schedule). ZB-V: 2 p half stages (Qi
        et al. 2024, section 6).
        """
        pp, chunks = self.shape.pp, self.chunks
        if self.schedule == "interleaved":
            stored = 2 * (pp - rank - 1) + (chunks - 1) * pp + 1
        else:
            stored = chunks * pp if self.schedule == "zbv" else pp - rank
        return min(stored / chunks, self.n_microbatches)


def meshes(config: GPT2Config, n_sequences: int, devices: int, devices_per_node: int) -> Iterator[MeshShape]:
    """Yield all meshes of `devices` devices that divide a batch of `n_sequences` and leave no stage empty.

    tp never exceeds a node: every layer waits for its collectives, and links between nodes are slower (Narayanan et al.
    2021, takeaway 1).
    """
    for tp, pp, fsdp in itertools.product(divisors(devices), repeat=3):
        dp, rest = divmod(devices, tp * pp * fsdp)
        is_mesh = rest == 0 and min(devices, devices_per_node) % tp == 0 and pp <= config.n_layer
        if is_mesh and n_sequences % (dp * fsdp) == 0:
            yield MeshShape(pp=pp, dp=dp, fsdp=fsdp, tp=tp)


def layouts(config: GPT2Config, settings: TrainSettings, shape: MeshShape) -> Iterator[Layout]:
    """Yield all trainable layouts on a mesh: microbatches that divide a device's share, schedules, and checkpointing.

    Kinds of checkpointing begin with the one in the settings, followed by those that keep less.
    """
    mesh = str(shape) if shape.size > 1 else None
    kinds = ACTIVATION_CHECKPOINTING[ACTIVATION_CHECKPOINTING.index(settings.machine.activation_checkpointing) :]
    schedules = SCHEDULES if shape.pp > 1 else SCHEDULES[:1]
    microbatches = divisors(settings.first_batch_size // shape.n_data)
    for microbatch, schedule, how in itertools.product(microbatches, schedules, kinds):
        try:  # not by `changed`, which checks every setting's type: a plan tries thousands of layouts
            machine = replace(settings.machine, mesh=mesh, pipeline_schedule=schedule, activation_checkpointing=how)
            chosen = replace(settings, microbatch_size=microbatch, machine=machine)
            check_trainable(config, chosen, shape.size)
        except ConfigError:
            continue
        yield Layout.of(chosen, shape)


def divisors(n: int) -> list[int]:
    """Return the divisors of n in increasing order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]
