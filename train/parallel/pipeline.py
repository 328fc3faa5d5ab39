"""Run the stages of one rank by torch's pipeline schedules; `mesh.py` assigns stages to ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

from webtext.train.mesh import check_microbatches, n_stages
from webtext.train.parallel.stage import Stage

_SCHEDULES: dict[str, Any] = {"1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Pipeline:
    """Runs the microbatches of a step through the stages of all ranks of `group`; `shapes` are their examples."""

    def __init__(
        self,
        stages: dict[int, Stage],
        shapes: dict[int, tuple[Tensor, Tensor]],  # without them torch computes both passes to find them
        schedule: str,
        n_microbatches: int,
        group: ProcessGroup,
        device: torch.device,
    ) -> None:
        pp = group.size()
        check_microbatches(schedule, n_microbatches, pp)
        n = n_stages(schedule, pp)
        parts = [PipelineStage(stage, i, n, device, *shapes[i], group=group) for i, stage in stages.items()]
        self.has_first, self.has_last = 0 in stages, n - 1 in stages
        self.schedule = _SCHEDULES[schedule](
            parts[0] if schedule == "1f1b" else parts,
            n_microbatches,
            loss_fn=lambda loss_1, _: loss_1[0] / n_microbatches,
            scale_grads=False,
        )

    def step(self, tokens_bt: Tensor, documents_bt: Tensor | None, counted_bt: Tensor | None) -> Tensor:
        """Run all microbatches forward and backward; return their mean loss, or zero without the last stage."""
        losses: list[Tensor] = []
        targets_bt = tokens_bt[:, 1:]
        inputs = (tokens_bt[:, :-1],) if self.has_first else ()
        target = targets_bt if self.has_last else None
        given = {"targets_bt": targets_bt, "documents_bt": documents_bt, "counted_bt": counted_bt}
        parts = {name: tensor for name, tensor in given.items() if tensor is not None}  # torch splits each
        self.schedule.step(*inputs, target=target, losses=losses, return_outputs=False, **parts)
        return torch.stack(losses).detach().sum() if losses else torch.zeros((), device=tokens_bt.device)
