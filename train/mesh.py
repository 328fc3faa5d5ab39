"""The mesh of a run: the number of devices for each kind of parallelism, as in `pp=2,dp=2,tp=2`; and its pipeline stages.

The axes are ordered from the slowest links to the fastest: pipeline stages send one activation, replicas one gradient
per step, shards every parameter twice or three times, tensor parallel ranks four activations per layer (Narayanan et
al. 2021, section 3). Schedule 1f1b has one stage per rank, and a backward pass follows each forward pass (Narayanan et
al. 2019); interleaved has two, in rounds: a smaller bubble for more messages (Narayanan et al. 2021). Needs no torch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from webtext.base.errors import ConfigError, did_you_mean

LARGEST_GATHERED = 8 * 2**30
"""Bytes of a model's gathered parameters, in the step's dtype, that ranks with shards keep during a step: a tenth of a
large GPU. Larger models are gathered block by block, for each forward and each backward pass."""
SCHEDULES = ("1f1b", "interleaved")
AXES = ("pp", "dp", "fsdp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshShape:
    """Number of devices along each axis; their product is the number of processes.

    pp: pipeline stages; dp: replicas; fsdp: shards of parameters, gradients and moments (FSDP2; with dp, HSDP); tp: tensor
    parallel ranks, sequence parallel between the layers.
    """

    pp: int = 1
    dp: int = 1
    fsdp: int = 1
    tp: int = 1

    @classmethod
    def parse(cls, text: str) -> MeshShape:
        """Parse a shape like "pp=2,tp=4"; axes that aren't named are 1. ConfigError for any other text.

        >>> MeshShape.parse("pp=2,tp=4").size
        8
        """
        degrees: dict[str, int] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            axis, _, degree = part.partition("=")
            if axis not in AXES:
                raise ConfigError(f"mesh '{text}' has an axis '{axis}'", did_you_mean(axis, AXES))
            if axis in degrees:
                raise ConfigError(f"mesh '{text}' names {axis} twice", "give each axis once")
            if not degree.isascii() or not degree.isdigit() or int(degree) < 1:
                raise ConfigError(f"mesh '{text}' has {axis} = '{degree}'", "it must be a whole number, at least 1")
            degrees[axis] = int(degree)
        return cls(**degrees)

    @property
    def size(self) -> int:
        return math.prod(asdict(self).values())

    @property
    def n_data(self) -> int:
        """Number of data ranks: processes, or groups of them, that read different sequences."""
        return self.dp * self.fsdp

    def __str__(self) -> str:
        return ",".join(f"{axis}={degree}" for axis, degree in asdict(self).items() if degree > 1) or "one process"


def n_stages(schedule: str, pp: int) -> int:
    """Return the number of stages of all `pp` ranks together."""
    return pp if schedule == "1f1b" or pp == 1 else 2 * pp


def stages_of_rank(schedule: str, rank: int, pp: int) -> list[int]:
    """Return the numbers of a rank's stages."""
    return list(range(rank, n_stages(schedule, pp), pp))


def blocks_of_stage(n_layer: int, stages: int, stage: int) -> range:
    """Return a stage's blocks. Left-over blocks go to the stages before the last, which has the output layer too.

    >>> [len(blocks_of_stage(14, 4, stage)) for stage in range(4)]
    [3, 4, 4, 3]
    """
    share, rest = divmod(n_layer, stages)
    first_longer = stages - 1 - rest
    start, stop = (i * share + min(max(i - first_longer, 0), rest) for i in (stage, stage + 1))
    return range(start, stop)


def check_microbatches(schedule: str, n_microbatches: int, pp: int) -> None:
    """Raise ConfigError if a schedule can't divide a step's microbatches among `pp` ranks."""
    if pp > 1 and (n_microbatches < pp or (schedule == "interleaved" and n_microbatches % pp)):
        expected = f"a multiple of {pp}" if schedule == "interleaved" else f"at least {pp}"
        raise ConfigError(
            f"{n_microbatches} microbatches per step do not fill {pp} pipeline stages of schedule '{schedule}'",
            f"choose a batch_size and a microbatch_size that give {expected}",
        )
