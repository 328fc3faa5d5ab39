"""Held-out loss of the same small GPT-2 after the same steps in nanoGPT and in webtext: does bfloat16 cost anything?

    python tests/bench/bench_loss.py                                     # errors of gradients only
    python tests/bench/bench_loss.py ../nanoGPT en.txt.xz --out losses   # ten minutes of CPU time per run

Each seed gives initial values and an order of batches, from which every trainer makes a run of 10M parameters, on one
thread. nanoGPT computes under autocast, which keeps norms and the residual stream in float32. It gets GELU in its tanh
form here, so that all first losses are equal. webtext keeps them in bfloat16, or with "float32 stream" as autocast does.
The loss is that of the final weights on held-out text, in float32. Differences are from nanoGPT with the same seed, with
Student's interval of 95 %. Finished runs stay in `--out`, so several processes can share the work, and a rerun prints all.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import lzma
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from arguments import parser
from scipy.stats import t as student
from torch import Tensor, nn
from train_peers import CPU, Trainer, nanogpt_model, plain_step, webtext

from webtext.tokenizer import Tokenizer
from webtext.train.model.cross_entropy import linear_cross_entropy
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters
from webtext.train.optimizer.optimizer import make_optimizer
from webtext.train.optimizer.schedule import learning_rate
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

CONFIG = GPT2Config(n_layer=8, n_head=5, n_embd=320, context=128, vocab_size=2048)
BATCH, HELD_OUT, SAME_LOSS, DTYPE = 2, 256, 2e-2, torch.bfloat16
TRAINERS = ("nanoGPT", "webtext", "webtext, float32 stream")


def trainer_of(name: str, weights: Path, inputs: Tensor, targets: Tensor, checkout: str) -> Trainer:
    """Return a trainer with the weights of a folder."""
    if name == "webtext":
        return webtext(weights, CONFIG, inputs, targets, DTYPE)
    if name == "nanoGPT":
        model, optimizer = nanogpt_model(checkout, weights, CONFIG, CPU)
        for block in model.transformer.h:  # type: ignore[union-attr]
            block.mlp.gelu = nn.GELU("tanh")  # type: ignore[union-attr]
        return plain_step(model, optimizer, DTYPE, lambda: model(inputs, targets)[1])
    ours = GPT2.from_huggingface(weights)
    optimizer = make_optimizer(dict(ours.named_parameters()), TrainSettings())
    return plain_step(ours, optimizer, DTYPE, lambda: float32_stream(ours, inputs, targets))


def float32_stream(model: GPT2, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss under autocast; its cross-entropy is as in training."""
    with torch.autocast("cpu", DTYPE):
        hidden_nc, weight_vc = model.hidden(inputs).to(DTYPE).flatten(0, 1), model.token_embedding.weight.to(DTYPE)
    with torch.autocast("cpu", enabled=False):
        return linear_cross_entropy(hidden_nc, weight_vc, targets.flatten(), CONFIG.vocab_size)


def gradient_errors(n_layer: int) -> str:
    """Return errors of gradients relative to float32's, with initial weights, as medians of five random batches."""
    model, errors = GPT2(dataclasses.replace(CONFIG, n_layer=n_layer)), []
    for _ in range(5):
        inputs, targets = torch.randint(CONFIG.vocab_size, (2, BATCH, CONFIG.context))
        gradients = []
        for dtype, loss_of in ((torch.float32, GPT2.loss), (DTYPE, GPT2.loss), (torch.float32, float32_stream)):
            with cast_parameters(model, dtype):
                loss_of(model, inputs, targets).backward()  # type: ignore[no-untyped-call]
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
            model.zero_grad(set_to_none=True)
        errors.append([(each - gradients[0]).norm().item() / gradients[0].norm().item() for each in gradients[1:]])
    ours, stream = (statistics.median(column) for column in zip(*errors, strict=True))
    return f"{n_layer} layers: errors of gradients {ours:.2%}, with a float32 stream {stream:.2%}"


def tokens_of(text: Path) -> Tensor:
    """Return the tokens of a text's first 20 MB, by a vocabulary that is made from it."""
    with (lzma.open if text.suffix == ".xz" else open)(text, "rb") as file:
        content = file.read(20_000_000)
    tokenizer = Tokenizer.train([content[:5_000_000]], CONFIG.vocab_size, threads=1)
    return torch.from_numpy(tokenizer.encode_numpy(content).astype(np.int64))


def run(name: str, seed: int, tokens_n: Tensor, n_steps: int, checkout: str) -> dict[str, float]:
    """Return the first loss of a run, and its held-out loss."""
    settings = TrainSettings.of(steps=n_steps, warmup_steps=n_steps // 20, learning_rate=1e-3)
    windows = tokens_n.unfold(0, CONFIG.context + 1, CONFIG.context)
    held_out, rest = windows[-HELD_OUT:], windows[:-HELD_OUT]
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))
    inputs, targets = torch.empty(2, BATCH, CONFIG.context, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        GPT2(CONFIG, seed).to_huggingface(folder)
        trainer = trainer_of(name, Path(folder), inputs, targets, checkout)
    losses, scored = [], []
    for i in range(n_steps):
        picked = rest[order[torch.arange(i * BATCH, (i + 1) * BATCH) % len(order)]]
        inputs.copy_(picked[:, :-1])
        targets.copy_(picked[:, 1:])
        for group in trainer.optimizer.param_groups:
            group.update(lr=learning_rate(settings, i), fused=True, foreach=False)  # the same arithmetic in one pass
        losses.append(trainer.step())
        if i % 100 == 99:
            print(f"{name}, seed {seed}, step {i + 1}: {statistics.mean(losses[-100:]):.4f}", flush=True)
    loss_of = trainer.model if name == "nanoGPT" else trainer.model.loss
    with torch.no_grad():
        for part in held_out.split(16):
            loss = loss_of(part[:, :-1], part[:, 1:].contiguous())  # type: ignore[operator]
            scored.append((loss[1] if name == "nanoGPT" else loss).item())
    return {"first": losses[0], "held out": statistics.mean(scored)}


def main() -> None:
    given = parser(__doc__)
    given.add_argument("nanogpt", nargs="?", help="a checkout of karpathy/nanoGPT")
    given.add_argument("text", nargs="?", type=Path, help="a text file of some megabytes, plain or .xz")
    given.add_argument("--out", type=Path, default=Path("build/losses"), help="of finished runs; default: %(default)s")
    given.add_argument("--steps", type=int, default=2000)
    given.add_argument("--seeds", default="0,1,2")
    given.add_argument("--trainers", default=";".join(TRAINERS), help="default: %(default)s")
    options = given.parse_args()
    torch.set_num_threads(1)
    if options.text is None:
        raise SystemExit(print(gradient_errors(8), gradient_errors(48), sep="\n"))
    options.out.mkdir(parents=True, exist_ok=True)
    tokens_n, differences = tokens_of(options.text), {name: [] for name in TRAINERS}
    for seed, name in itertools.product(options.seeds.split(","), options.trainers.split(";")):
        file, first = (options.out / f"{each}-{seed}-{options.steps}.json" for each in (name, "nanoGPT"))
        if not file.exists():
            file.write_text(json.dumps(run(name, int(seed), tokens_n, options.steps, options.nanogpt)))
        if first.exists():
            mine, theirs = (json.loads(each.read_text()) for each in (file, first))
            assert abs(mine["first"] - theirs["first"]) < SAME_LOSS, f"{name} and nanoGPT begin differently"
            differences[name].append(mine["held out"] - theirs["held out"])
            print(f"{name}, seed {seed}: held-out loss {mine['held out']:.4f}, {differences[name][-1]:+.4f}")
    for name, of_seeds in differences.items():
        if len(of_seeds) > 1:
            half = student.ppf(0.975, len(of_seeds) - 1) * statistics.stdev(of_seeds) / len(of_seeds) ** 0.5
            print(f"{name}: {statistics.mean(of_seeds):+.4f} +- {half:.4f} from nanoGPT")


if __name__ == "__main__":
    main()
