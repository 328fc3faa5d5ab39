"""Sampling from a small GPT-2, compared with transformers' generate with its cache: tokens per CPU second, one thread.

python tests/bench/bench_sample.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial

import torch
import transformers
from arguments import parser
from resources import cpu_seconds_in_turn

from webtext.train import GPT2, GPT2Config
from webtext.train.model.sample import sample_batch
from webtext.train.settings import SampleSettings

ROUNDS = 3
CONFIG = GPT2Config(n_layer=4, n_head=4, n_embd=256, context=512, vocab_size=4096)
N_TOKENS = 256
GREEDY = SampleSettings(max_tokens=N_TOKENS, temperature=0.0)


@torch.no_grad()
def read_anew(model: GPT2, prompts: list[list[int]]) -> list[list[int]]:
    rows = torch.tensor(prompts)
    for _ in range(N_TOKENS):
        rows = torch.cat([rows, model.next_logits(rows).argmax(1, keepdim=True)], dim=1)
    return rows[:, 1:].tolist()


def main() -> None:
    parser(__doc__).parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    ours = GPT2(CONFIG).eval()
    with tempfile.TemporaryDirectory() as folder:
        ours.to_huggingface(folder)
        theirs = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    how = {"max_new_tokens": N_TOKENS, "min_new_tokens": N_TOKENS, "do_sample": False, "pad_token_id": 0}

    def drawn_by_theirs(prompts: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(prompts)
        return theirs.generate(ids, attention_mask=torch.ones_like(ids), **how)[:, 1:].tolist()

    def drawn_by_ours(prompts: list[list[int]]) -> list[list[int]]:
        return [list(row) for row in zip(*sample_batch(ours, prompts, GREEDY), strict=True)]  # type: ignore[arg-type]

    samplers: dict[str, Callable[[list[list[int]]], list[list[int]]]] = {
        "webtext": drawn_by_ours,
        "webtext without a cache": lambda prompts: read_anew(ours, prompts),
        "transformers": drawn_by_theirs,
    }
    for n_texts in (1, 8):
        prompts = [[i] for i in range(1, n_texts + 1)]
        runs = {name: partial(sample, prompts) for name, sample in samplers.items()}
        for name, seconds in cpu_seconds_in_turn(runs, ROUNDS).items():
            print(f"{n_texts} texts  {name:<25}{n_texts * N_TOKENS / seconds:>9,.0f} tokens per CPU second")


if __name__ == "__main__":
    main()
