"""One process of `test_parallelize.py`: trains a tiny GPT-2 on several meshes, and writes what each step gave.

python parallel_child.py RANK WORLD_SIZE FOLDER STEPS LAYERS RUN ...

A RUN is "MESH SCHEDULE DTYPE WINDOWS [CHECKPOINTING [OPTIMIZER [offloaded]]]".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import torch
from small_runs import joined_ranks
from torch import Tensor

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.data.windows import WindowRules, Windows
from webtext.train.engine import Engine
from webtext.train.model.initialization import drawn
from webtext.train.parallel.parallelize import ParallelModel

CONFIG = GPT2Config(n_head=4, n_embd=32, context=16, vocab_size=250)
EOT = 7
BATCH, MICROBATCH = 16, 2
MAX_NORM = 0.5
RULES = {
    "plain": WindowRules(),
    "masks": WindowRules(masks=True, eot_id=EOT),
    "pads": WindowRules(pads=True, eot_id=EOT),
}
CPU = torch.device("cpu")


def tokens_of(seed: int, *shape: int) -> Tensor:
    """Return token ids of which about every eighth is an end-of-text, but no row's first."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(CONFIG.vocab_size, shape, generator=generator)
    tokens[..., 1:][torch.rand(tokens[..., 1:].shape, generator=generator) < 0.12] = EOT
    return tokens


def batch_of(step: int) -> Tensor:
    """Return the token ids of a step over all data ranks, [BATCH, context + 1]."""
    return tokens_of(step, BATCH, CONFIG.context + 1)


def held_out(limit: int | None = None) -> Windows:
    """Eleven windows, three of them short: a number that no number of processes divides."""
    streams = [tokens_of(100 + n, n).numpy().astype(np.uint16) for n in (40, 9, 65, 21)]
    return Windows(streams, context=CONFIG.context, stride=None, limit=limit)


def made_model(n_layer: int, dtype: torch.dtype, activation_checkpointing: str = "none") -> GPT2:
    """Return a model whose parameters are float32 if it computes in bfloat16."""
    model = GPT2(replace(CONFIG, n_layer=n_layer)).to(torch.promote_types(dtype, torch.float32))
    model.activation_checkpointing = activation_checkpointing == "full"
    return model


def bits(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def train(engine: Engine, steps: int, optimizer_name: str = "adamw") -> list[dict[str, object]]:
    """Loss, gradient norm and what this process holds after each step; last the held-out losses.

    At ten times this rate AdamW makes 1e-12 in a gradient norm of the last bits of float64, in 20 steps.
    """
    parameters = engine.parameters
    optimizer = engine.make_optimizer(TrainSettings.of(optimizer=optimizer_name, learning_rate=1e-3))
    rows: list[dict[str, object]] = []
    for step in range(steps):
        batch = batch_of(step)
        share = len(batch) // engine.n_data
        parts = batch[engine.data_rank * share : (engine.data_rank + 1) * share].split(min(MICROBATCH, share))
        loss = engine.forward_backward(iter(parts), len(parts))
        norm = engine.gradient_norm()
        engine.update(optimizer, MAX_NORM, norm, torch.tensor(0.0))
        engine.parameters_changed()
        held = [(name, bits(p)) for name, p in parameters.items()]
        rows.append({"loss": loss.item(), "norm": norm.item(), "held": held})
    for limit in (None, 1):
        rows.append({"held out": engine.total_loss(held_out(limit), 2)})
    return rows


def main() -> None:
    with joined_ranks() as (rank, _, folder, (steps, n_layer, *runs)):
        for run in runs:
            mesh, schedule, name, windows, *how = run.split()
            dtype = getattr(torch, name)
            with torch.device("meta"):
                model = made_model(int(n_layer), dtype, *how[:1])
            settings = TrainSettings.of(mesh=mesh, pipeline_schedule=schedule, offload="offloaded" in how)
            engine = ParallelModel(model, settings, RULES[windows], CPU, dtype, drawn(model.config, 0))
            rows = train(engine, int(steps), *how[1:2])
            assert {p.dtype for p in engine.parameters.values()} == {torch.promote_types(dtype, torch.float32)}
            (folder / f"{run}.{rank}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
