"""One trainer in its own process, for `bench_train.py`; it makes a step for each line of input."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from arguments import words
from torch import Tensor, nn
from torch.nn import functional

from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters
from webtext.train.run.meter import memory_bytes
from webtext.train.shape import GPT2Config

VOCAB_SIZE = 50_304  # nanoGPT's, which no trainer has to pad
CPU = torch.device("cpu")
WARM_UP = 2
NO_TOKEN = -1
ROWS = {
    "small": (GPT2Config(n_layer=6, n_head=6, n_embd=384, context=256, vocab_size=VOCAB_SIZE), 8),
    "124M": (GPT2Config.named("124M", vocab_size=VOCAB_SIZE), 1),
}
Step = Callable[[], float]


class Missing(Exception):
    """The trainer is not available."""


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A model, its optimizer, and a function that makes a step on the current values of the inputs and targets."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Step


def webtext(
    weights: Path,
    config: GPT2Config,
    inputs: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    *,
    masks: bool = False,
    computes_twice: bool = False,
) -> Trainer:
    """webtext's step, from the trainer's parts. Document masks don't change the loss: a window has one document."""
    from webtext.train.data.windows import documents_of
    from webtext.train.optimizer.optimizer import Reading, gradient_norm, is_fault, make_optimizer, update
    from webtext.train.run.memory import keep_freed_memory
    from webtext.train.settings import TrainSettings

    keep_freed_memory()
    model = GPT2.from_huggingface(weights).train()
    model.activation_checkpointing = computes_twice
    optimizer = make_optimizer(dict(model.named_parameters()), TrainSettings())

    def step() -> float:
        with cast_parameters(model, dtype):
            loss = model.loss(inputs, targets, documents_of(inputs, NO_TOKEN) if masks else None)
            loss.backward()
        norm = gradient_norm(model)
        update(optimizer, norm, 1.0, is_fault(loss, norm, (1e9, 1e9)))
        optimizer.zero_grad(set_to_none=True)
        return Reading(torch.stack([loss.detach(), norm])).read()[0]

    return Trainer(model, optimizer, step)


def nanogpt(
    weights: Path, config: GPT2Config, inputs: Tensor, targets: Tensor, dtype: torch.dtype, *, compiles: bool
) -> Trainer:
    """nanoGPT's model and optimizer, with the steps of its training loop."""
    if not sys.argv[5]:
        raise Missing("name a checkout with --nanogpt")
    model, optimizer = nanogpt_model(sys.argv[5], weights, config, CPU)
    runs = torch.compile(model) if compiles else model
    return plain_step(model, optimizer, dtype, lambda: runs(inputs, targets)[1])


def nanogpt_model(
    checkout: str, weights: Path, config: GPT2Config, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return nanoGPT's model with the weights of a Hugging Face folder, and its optimizer."""
    from safetensors.torch import load_file

    sys.path.insert(0, checkout)
    theirs = importlib.import_module("model")
    shape = {"n_layer": config.n_layer, "n_head": config.n_head, "n_embd": config.n_embd}
    more = {"block_size": config.context, "vocab_size": config.vocab_size, "dropout": 0.0, "bias": True}
    tensors = load_file(weights / "model.safetensors")
    projections = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # Hugging Face stores them transposed
    tensors = {name: t.t() if name.endswith(projections) else t for name, t in tensors.items()}
    with contextlib.redirect_stdout(sys.stderr):  # nanoGPT prints to stdout
        model = theirs.GPT(theirs.GPTConfig(**shape, **more))
        model.load_state_dict({**tensors, "lm_head.weight": tensors["transformer.wte.weight"]})
        optimizer = model.to(device).configure_optimizers(0.1, 6e-4, (0.9, 0.95), device.type)
    return model, optimizer


def huggingface(weights: Path, config: GPT2Config, inputs: Tensor, targets: Tensor, dtype: torch.dtype) -> Trainer:
    """transformers' GPT2LMHeadModel, with the fused AdamW that its Trainer uses."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise Missing(str(error)) from None
    model = transformers.GPT2LMHeadModel.from_pretrained(weights, dtype=torch.float32).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)

    def loss_of() -> Tensor:
        return functional.cross_entropy(model(inputs).logits.flatten(0, 1).float(), targets.flatten())

    return plain_step(model, optimizer, dtype, loss_of)


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, dtype: torch.dtype, loss_of: Callable[[], Tensor]
) -> Trainer:
    """Return a trainer whose step is: forward under autocast, backward, clip, update."""

    def step() -> float:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return Trainer(model, optimizer, step)


# Name -> how its step is made, and its dtype; all are the same model, whose loss must be equal.
PEERS: dict[str, tuple[Callable[..., Trainer], torch.dtype]] = {
    "webtext bfloat16": (webtext, torch.bfloat16),
    "webtext, document masks": (lambda *a: webtext(*a, masks=True), torch.bfloat16),
    "webtext, checkpointing": (lambda *a: webtext(*a, computes_twice=True), torch.bfloat16),
    "nanoGPT as shipped (float32)": (lambda *a: nanogpt(*a, compiles=False), torch.float32),
    "nanoGPT autocast + compile": (lambda *a: nanogpt(*a, compiles=True), torch.bfloat16),
    "transformers autocast": (huggingface, torch.bfloat16),
}


def begin(name: str, row: str, weights: Path) -> tuple[Step, dict[str, Any]]:
    """Return the step, after some warm-up steps, and information about it, such as its first loss."""
    make, dtype = PEERS[name]
    config, batch_size = ROWS[row]
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(config.vocab_size, (batch_size, config.context + 1), generator=generator)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    exact = None
    if make is webtext:
        exact = GPT2.from_huggingface(weights).log_likelihood(tokens).mean().neg().item()
    started = time.perf_counter()
    step = make(weights, config, inputs, targets, dtype).step
    losses = [step() for _ in range(WARM_UP)]
    note = f"   (ready after {time.perf_counter() - started:,.0f} s)"
    known = {"loss": losses[0], "float32": exact, "note": note}
    return step, {**known, "dtype": str(dtype).removeprefix("torch.")}


def main() -> None:
    name, row, weights, threads, _ = words(__doc__, "name", "row", "weights", "threads", "nanogpt")
    torch.set_num_threads(int(threads))
    step: Step | None = None
    for line in sys.stdin:
        answer: dict[str, Any]
        if line.strip() == "begin":
            try:
                step, answer = begin(name, row, Path(weights))
            except Missing as error:
                answer = {"missing": str(error)}
        elif line.strip() == "memory":
            answer = {"memory": memory_bytes(CPU)}
        else:
            assert step is not None
            started, cpu = time.perf_counter(), time.process_time()
            step()
            answer = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
