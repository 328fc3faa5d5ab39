"""One process of `test_parallelize.py`: trains a tiny GPT-2 on several meshes, and writes what each step gave.

python parallel_child.py RANK WORLD_SIZE FOLDER STEPS "MESH SCHEDULE DTYPE" ...
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from webtext.train import GPT2, GPT2Config
from webtext.train.parallel.mesh import MeshShape
from webtext.train.parallel.parallelize import ParallelModel

CONFIG = GPT2Config(n_layer=8, n_head=4, n_embd=32, context=16, vocab_size=250)
BATCH, MICROBATCH = 16, 2
MAX_NORM = 0.5


def batch_of(step: int) -> Tensor:
    """The token ids of a step over all data ranks, [BATCH, context + 1]."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context + 1), generator=generator)


def made_model(dtype: torch.dtype) -> GPT2:
    torch.manual_seed(0)
    return GPT2(CONFIG).to(dtype)


def bits(tensor: Tensor) -> str:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return hashlib.sha256(local.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def train(mesh: str, schedule: str, dtype: torch.dtype, steps: int) -> list[dict[str, object]]:
    shape = MeshShape.parse(mesh)
    share = BATCH // shape.n_data
    micro = min(MICROBATCH, share)
    device = torch.device("cpu")
    model = ParallelModel(made_model(dtype), shape, device, schedule=schedule, n_microbatches=share // micro)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    mine = slice(model.data_rank * share, (model.data_rank + 1) * share)
    rows: list[dict[str, object]] = []
    for step in range(steps):
        loss = model.forward_backward(batch_of(step)[mine].split(micro))
        norm = model.clip_gradients(MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        held = [(name, str(getattr(p, "placements", "")), bits(p)) for name, p in model.named_parameters()]
        rows.append({"loss": loss.item(), "norm": norm.item(), "held": held})
    return rows


def main() -> None:
    rank, world_size, folder, steps = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world_size, timeout=timedelta(minutes=5)
    )
    try:
        for run in sys.argv[5:]:
            mesh, schedule, dtype = run.split()
            rows = train(mesh, schedule, getattr(torch, dtype), steps)
            (folder / f"{run}.{rank}.json").write_text(json.dumps(rows))
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
