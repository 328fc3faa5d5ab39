"""One training step of a small GPT-2, against transformers' GPT2LMHeadModel: CPU seconds of one thread, interleaved.

python tests/bench/bench_train.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import transformers

from webtext.train import GPT2, GPT2Config

ROUNDS = 7
CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=128, context=256, vocab_size=4096)


def step_of(model: torch.nn.Module, loss: Callable[[], torch.Tensor], dtype: torch.dtype) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    sizes = {
        "n_layer": CONFIG.n_layer,
        "n_head": CONFIG.n_head,
        "n_embd": CONFIG.n_embd,
        "vocab_size": CONFIG.vocab_size,
    }
    no_dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    ours = GPT2(CONFIG)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, n_positions=CONFIG.context, bos_token_id=0, eos_token_id=0, **no_dropout)
    )
    tokens = torch.randint(CONFIG.vocab_size, (8, CONFIG.context + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    steps = {}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        steps[f"transformers {name}"] = step_of(theirs, lambda: theirs(inputs, labels=inputs).loss, dtype)
        steps[f"webtext {name}"] = step_of(ours, lambda: ours.loss(inputs, targets), dtype)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            started = time.process_time()
            step()
            seconds[name].append(time.process_time() - started)
    rates = {name: inputs.numel() / statistics.median(values) for name, values in seconds.items()}
    for name, rate in rates.items():
        peer = rates[f"transformers {name.split()[1]}"]
        print(f"{name:<24}{rate:>10,.0f} tokens per CPU second  {rate / peer:.2f} times transformers")


if __name__ == "__main__":
    main()
