"""nanoGPT's configuration file, which runs among train.py's globals: rates of its README's example for a CPU.

What it has no option for is replaced here: autocast on a CPU, the seed, and more than one checkpoint.
"""

import os

import shape
import torch

n_layer, n_head, n_embd, block_size = shape.N_LAYER, shape.N_HEAD, shape.N_EMBD, shape.CONTEXT
batch_size, gradient_accumulation_steps, bias = shape.BATCH_SIZE, 1, True
device, dtype, eval_iters = "cpu", "bfloat16", 1  # nothing reads its evaluations
learning_rate, min_lr, beta2, warmup_iters = 1e-3, 1e-4, 0.99, 100
seed = 0
nullcontext = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
torch.manual_seed = lambda first, plain=torch.manual_seed: plain(first + seed)
torch.save = lambda made, path, plain=torch.save: plain(made["model"], f"{os.path.dirname(path)}/{made['iter_num']}.pt")
