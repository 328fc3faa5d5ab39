"""Held-out loss through pipeline stages equals the complete model's, with a sign of life after each batch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from webtext.train import GPT2, GPT2Config
from webtext.train.data.windows import Windows, total_loss
from webtext.train.model.loss import WindowRules
from webtext.train.parallel.evaluation import StageWalk
from webtext.train.parallel.stage import Stage
from webtext.train.resilience.distributed import World

CPU = torch.device("cpu")
RULES = WindowRules(eot_id=0, masks=False, pads=False)


def test_every_batch_of_a_stage_walk_is_a_sign_of_life_and_the_loss_is_the_complete_models() -> None:
    torch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=40, context=8, n_layer=2, n_head=2, n_embd=16)).double().eval()
    windows = Windows([np.arange(36)], context=8, stride=None)
    batches: list[None] = []
    stages = {i: Stage(model, range(i, i + 1)).eval() for i in range(2)}
    alone = cast(Any, None)  # both stages are on one rank: nothing is sent
    walk = StageWalk(stages, [0, 0], alone, RULES, torch.float64, CPU, lambda: batches.append(None))
    with torch.no_grad():
        loss, n_tokens = walk.total_loss(windows, 2, data_rank=0, n_data=1).tolist()
    assert len(batches) == 3  # five windows, two at a time
    assert (loss, n_tokens) == pytest.approx(total_loss(model, windows, 2, World(0, 1, CPU)), rel=1e-12)
