"""Assign blocks to pipeline stages, and stages to ranks. Without torch.

1f1b         one stage per rank; a backward pass follows each forward pass (Narayanan et al. 2019)
interleaved  two stages per rank, in rounds: a smaller bubble for more messages (Narayanan et al. 2021)
zbv          two stages per rank, in a V; the weights' gradients fill the bubble (Qi et al. 2024)
"""

from __future__ import annotations

from webtext.base.errors import ConfigError

SCHEDULES = ("1f1b", "interleaved", "zbv")


def n_stages(schedule: str, pp: int) -> int:
    """Return the number of stages of all `pp` ranks together."""
    return pp if schedule == "1f1b" or pp == 1 else 2 * pp


def stages_of_rank(schedule: str, rank: int, pp: int) -> list[int]:
    """Return the numbers of a rank's stages."""
    if schedule == "zbv" and pp > 1:
        return [rank, 2 * pp - 1 - rank]
    return list(range(rank, n_stages(schedule, pp), pp))


def rank_of_stage(schedule: str, stage: int, pp: int) -> int:
    """Return the rank of a stage."""
    return next(rank for rank in range(pp) if stage in stages_of_rank(schedule, rank, pp))


def blocks_of_stage(n_layer: int, stages: int, stage: int) -> range:
    """Return a stage's blocks. Left-over blocks go to the stages before the last, which has the output layer too.

    >>> [len(blocks_of_stage(14, 4, stage)) for stage in range(4)]
    [3, 4, 4, 3]
    """
    if n_layer < stages:
        raise ConfigError(f"{n_layer} layers do not fill {stages} pipeline stages", "choose fewer stages")
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
