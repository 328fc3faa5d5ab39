"""One of several gloo processes that make runs of `train_model`, one after another. See test_mesh_runs.

python mesh_child.py RANK WORLD_SIZE FOLDER RUNS    RUNS: JSON, [[tokens, out, settings], ...]
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import torch
from torch import distributed

from webtext.base.run import Run
from webtext.train import TrainSettings, train_model


def main() -> None:
    rank, world_size, folder = sys.argv[1:4]
    torch.set_num_threads(1)
    os.environ |= {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank}
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=int(rank),
        world_size=int(world_size),
        timeout=timedelta(minutes=5),
    )
    try:
        for tokens, out, settings in json.loads(sys.argv[4]):
            train_model(tokens, out, TrainSettings(**settings), Run.quiet())
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
