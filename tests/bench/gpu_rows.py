"""The rows of `bench_gpu.py`: each function measures one in a process of its own, and returns its columns."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import functools
import gc
import hashlib
import json
import math
import os
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_gpu import ROWS, SAME_LOSS
from torch import Tensor, distributed, nn
from torch.autograd import DeviceType
from torch.nn.attention import sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from train_peers import nanogpt_model

from webtext.base.console import Console
from webtext.base.parts.partset import Attachment, Part
from webtext.base.parts.recipe import Recipe, with_check
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine
from webtext.shards.shardfile import ShardWriter
from webtext.train.data.batches import TokenBatches
from webtext.train.data.sources import make_sampler, open_sources
from webtext.train.data.windows import Windows
from webtext.train.distributed import join_world
from webtext.train.footprint import memory_of
from webtext.train.mesh import MeshShape
from webtext.train.model.attention import preferred_kernels
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, drawn, initialize
from webtext.train.model.sample import sample_batch
from webtext.train.optimizer.optimizer import Reading, is_fault, make_optimizer
from webtext.train.run.loop import make_recipe, train_model
from webtext.train.run.memory import is_out_of_memory
from webtext.train.run.meter import data_sheet_peak, memory_bytes
from webtext.train.run.trainer import Trainer
from webtext.train.settings import SampleSettings, TrainSettings
from webtext.train.shape import GPT2Config

STEP_SECONDS = 5.0
DEVICE_GIB, GIB = 8.0, 2**30
Row = dict[str, Any]
Step = Callable[[], Reading]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a row is measured: the folder of its files, whether at toy size on the CPU, nanoGPT's checkout, and tokens."""

    work: Path
    toy: bool
    nanogpt: str
    given_tokens: str

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.toy else "cuda")

    @property
    def tokens(self) -> str:
        """The token set that was given, or one of random documents of about 600 tokens, made once."""
        if self.given_tokens:
            return self.given_tokens
        folder = self.work / "tokens"
        if not folder.exists():
            write_tokens(folder, *((512, 20_000) if self.toy else (50_257, 60_000_000)))
        return str(folder)

    def settings(self, model: str, **more: Any) -> TrainSettings:
        values = {"model": model, "device": "cuda", "batch_size": 512, "microbatch_size": 64, "warmup_steps": 0}
        values |= {"dtype": "bfloat16", **more}
        if self.toy:
            values |= {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 32, "batch_size": 4}
            values |= {"microbatch_size": 2, "device": "cpu", "dtype": "float32"}
        return TrainSettings.of(**values)


def write_tokens(folder: Path, vocab_size: int, n_tokens: int) -> None:
    """Write a sealed token set of both splits. Its table of documents, which training never reads, is an empty file."""
    facts: Row = {"vocab_size": vocab_size, "eot_id": vocab_size - 1, "tokenizer_hash": "0" * 64}
    generator, files = np.random.default_rng(0), []
    folder.mkdir()
    for split, n in (("train", n_tokens), ("validation", n_tokens // 10)):
        path = folder / f"{split}-00000.tok"
        with ShardWriter(path, **facts) as shard:
            tokens = np.power(vocab_size - 1, generator.random(n, np.float32)).astype(np.uint16)  # frequency 1 / id
            for document in np.split(tokens, np.sort(generator.integers(n, size=n // 600))):
                shard.append(document)
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(Attachment(path.name, path.stat().st_size, sha256, shard.in_manifest()))
    sizes: Row = {"generation": 1, "records": 0, "bytes": 0, "sha256": "", "record_digest": "", "key": ""}
    part = Part(name="part-00000.parquet", attachments=tuple(files), **sizes)
    (folder / part.name).touch()
    recipe = Recipe(stage="shards.pack", code_version=1, settings=facts).to_json()
    manifest = {
        "format": 1,
        "kind": "tokens",
        "recipe": recipe,
        "parents": [],
        "generation": 1,
        "parts": [part.to_json()],
    }
    (folder / "manifest.json").write_text(json.dumps(with_check(manifest)))


@contextlib.contextmanager
def trainer_of(place: Place, settings: TrainSettings) -> Iterator[Trainer]:
    """Yield a run's Trainer, whose steps the caller makes."""
    sources = open_sources(place.tokens)
    values = repeated(settings.config(sources[0].train.vocab_size))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(settings.machine.deterministic)
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(join_world(settings.device))
        if world.device.type == "cuda":  # as in a run
            stack.enter_context(sdpa_kernel(preferred_kernels(world.device), set_priority=True))
        recipe, folder = make_recipe(settings, sources), place.work / "model"
        yield Trainer(settings, recipe, sources, folder, world, Console("quiet"), values=values)


def repeated(config: GPT2Config) -> Values:
    """Return initial values that are the same in all layers, so they are drawn only once."""
    once = functools.cache(drawn(config, 0))
    return lambda name, shape: once(re.sub(r"\.[0-9]+\.", ".0.", name), tuple(shape))


def model_of(place: Place, config: GPT2Config) -> GPT2:
    """Return the model of other trainers' rows, on the CPU, with the same initial values."""
    with torch.device("meta"):
        model = GPT2(config)
    initialize(model.to_empty(device="cpu"), repeated(dataclasses.replace(config, vocab_size=vocab_size(place))))
    return model


def vocab_size(place: Place) -> int:
    return open_sources(place.tokens)[0].train.vocab_size


def steps_of(trainer: Trainer) -> Step:
    """Return a function that queues a step of a run."""
    engine, device, batches = trainer.engine, trainer.world.device, iter(trainer.batches)
    n, max_norm = trainer.settings.accumulation(engine.n_data)[1], trainer.settings.optimizer.max_grad_norm

    def step() -> Reading:
        mean = engine.forward_backward((next(batches).to(device, non_blocking=True) for _ in range(n)), n)
        norm = engine.gradient_norm()
        engine.update(trainer.optimizer, max_norm, norm, is_fault(mean, norm, (1e9, 1e9)))
        return Reading(torch.stack([mean, norm]))

    return step


def plain_steps(
    place: Place, settings: TrainSettings, optimizer: torch.optim.Optimizer, loss_of: Callable[..., Tensor]
) -> Step:
    """Return a step as other trainers make it, on the batches of a run: accumulate, clip, update."""
    size, sources = settings.microbatch_size, open_sources(place.tokens)
    sampler, n = make_sampler(sources, settings, batch_size=size), settings.batch_size // size
    batches = iter(TokenBatches(sampler, pin_memory=not place.toy))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def step() -> Reading:
        total = torch.zeros((), device=place.device)
        for _ in range(n):
            tokens_bt = next(batches).to(place.device, non_blocking=True)
            loss = loss_of(tokens_bt[:, :-1].contiguous(), tokens_bt[:, 1:].contiguous()) / n
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return Reading(total[None])

    return step


def speed(place: Place, settings: TrainSettings, step: Step) -> Row:
    """Make steps for `STEP_SECONDS`; the first two aren't timed, because they compile and allocate.

    As in a run, a step is queued before the result of the one before is read.
    """
    seconds, results, began, end = [], [], time.perf_counter(), math.inf
    queued = [step()]
    while len(results) < (3 if place.toy else 5) or time.perf_counter() < end:
        queued.append(step())
        results.append(queued.pop(0).read())
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        if len(results) == 2:
            end = began + (0.0 if place.toy else STEP_SECONDS)
    queued.pop().read()
    config, median = settings.config(vocab_size(place)), statistics.median(seconds[2:])
    rate = settings.batch_size * settings.context / median
    peak = None if place.toy else data_sheet_peak(torch.cuda.get_device_name())
    return {
        "parameters": config.n_parameters,
        "microbatch": f"{settings.microbatch_size} of {settings.batch_size}",
        "tokens_per_second": rate,
        "milliseconds": 1e3 * median,
        "peak_ratio": peak and rate * config.flops_per_token / peak,
        "memory_gib": memory_bytes(place.device) / GIB,
        "first_step_seconds": seconds[0],
        "results": results[:3],
    }


def fitting(place: Place, settings: TrainSettings, attempt: Callable[[TrainSettings], Row]) -> Row:
    """Return `attempt` with the largest microbatch: halved until the plan's estimate fits the memory."""
    size = settings.microbatch_size
    if not place.toy:
        config, free = settings.config(vocab_size(place)), 0.9 * torch.cuda.mem_get_info()[0]
        while size > 1 and memory_of(config, settings, MeshShape(), size).total > free:
            size //= 2
    return halving(dataclasses.replace(settings, microbatch_size=size), attempt)


def halving(settings: TrainSettings, attempt: Callable[[TrainSettings], Row]) -> Row:
    """Return `attempt`, with microbatches halved until it gets the memory it needs."""
    try:
        return attempt(settings)
    except RuntimeError as error:
        if not is_out_of_memory(error) or settings.microbatch_size == 1:
            raise
    gc.collect()  # after `except`, whose traceback keeps the tensors
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return halving(dataclasses.replace(settings, microbatch_size=settings.microbatch_size // 2), attempt)


def training(place: Place, model: str, **more: Any) -> Row:
    """Steps of a run with these settings."""

    def attempt(settings: TrainSettings) -> Row:
        with trainer_of(place, settings) as trainer:
            return {**speed(place, settings, steps_of(trainer)), "compiled": trainer.record.environment["compiled"]}

    return fitting(place, place.settings(model, **more), attempt)


def repeated_training(place: Place) -> Row:
    """Steps of a deterministic run, twice: are losses and gradient norms equal, bit for bit?"""
    settings = place.settings("124M", deterministic=True, microbatch_size=16)
    rows = []
    for _ in range(2):
        with trainer_of(place, settings) as trainer:
            rows.append(speed(place, settings, steps_of(trainer)))
    return {**rows[0], "repeated_bit_for_bit": rows[0]["results"] == rows[1]["results"]}


def nanogpt(place: Place) -> Row:
    """Steps of nanoGPT: its model, compiled, and its optimizer, with its vocabulary padded to 50,304 as shipped."""
    if not place.nanogpt:
        raise SystemExit("name a checkout of nanoGPT with --nanogpt")
    torch.set_float32_matmul_precision("high")  # as its train.py does

    def attempt(settings: TrainSettings) -> Row:
        config = settings.config(vocab_size(place))
        padded = dataclasses.replace(config, vocab_size=config.padded_vocab_size)
        model_of(place, padded).to_huggingface(place.work / "weights")
        model, optimizer = nanogpt_model(place.nanogpt, place.work / "weights", padded, place.device)
        runs = model if place.toy else torch.compile(model)

        def loss_of(tokens_bt: Tensor, targets_bt: Tensor) -> Tensor:
            with torch.autocast(place.device.type, torch.bfloat16, enabled=not place.toy):
                return runs(tokens_bt, targets_bt)[1]  # type: ignore[no-any-return]

        return speed(place, settings, plain_steps(place, settings, optimizer, loss_of))

    return fitting(place, place.settings("124M"), attempt)


def offloaded(place: Place) -> Row:
    """Steps of an offloaded run; for one of them, how long the device computes, the link copies, and both at once."""
    settings = place.settings("1558M", offload=True, microbatch_size=8, batch_size=64)
    if not place.toy:
        torch.cuda.set_per_process_memory_fraction(
            DEVICE_GIB * 2**30 / torch.cuda.get_device_properties(0).total_memory
        )
    with trainer_of(place, settings) as trainer:
        step = steps_of(trainer)
        row = speed(place, settings, step)
        spans, seconds = profiled(place, step)
    copies = merged([span for name, *span in spans if name.startswith("Memcpy")])
    computing = merged([span for name, *span in spans if not name.startswith("Mem")])
    both = length(copies) + length(computing) - length(merged([*copies, *computing]))
    shares = {"computing_ratio": length(computing), "copying_ratio": length(copies), "both_ratio": both}
    return {**row, **{name: busy / 1e6 / seconds for name, busy in shares.items()}}


class Loss(nn.Module):
    """A model whose forward pass is its loss, to which FSDP2 can add its hooks."""

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_bt: Tensor, targets_bt: Tensor) -> Tensor:
        return self.model.loss(tokens_bt, targets_bt)


def fsdp2(place: Place) -> Row:
    """Steps of the same model under FSDP2's CPU offload, with as little device memory and full checkpointing."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    if not place.toy:
        share = DEVICE_GIB * GIB / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
    backend = "gloo" if place.toy else "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)

    def attempt(settings: TrainSettings) -> Row:
        model = model_of(place, settings.config(vocab_size(place)))
        model.activation_checkpointing = True
        policies: Row = {
            "mesh": init_device_mesh(place.device.type, (1,)),
            "mp_policy": MixedPrecisionPolicy() if place.toy else MixedPrecisionPolicy(torch.bfloat16, torch.float32),
            "offload_policy": CPUOffloadPolicy(pin_memory=not place.toy),
        }
        for block in model.blocks:
            fully_shard(block, **policies)
        loss_of = fully_shard(Loss(model), **policies)
        optimizer = make_optimizer(dict(model.named_parameters()), settings)
        return speed(place, settings, plain_steps(place, settings, optimizer, loss_of))

    row = halving(place.settings("1558M", batch_size=64, microbatch_size=16), attempt)
    distributed.destroy_process_group()
    return row


def kernels(place: Place, model: str) -> Row:
    """A profile of a step of one microbatch: the ten most expensive kernels, all launches, and the time without any."""

    def attempt(settings: TrainSettings) -> Row:
        with trainer_of(place, dataclasses.replace(settings, batch_size=settings.microbatch_size)) as trainer:
            step = steps_of(trainer)
            for _ in range(3):
                step().read()
            spans, seconds = profiled(place, step)
        times: dict[str, list[float]] = {}
        for name, start, end in spans:
            times.setdefault(name, []).append(end - start)
        total = sum(map(sum, times.values()))
        first = sorted(times.items(), key=lambda item: -sum(item[1]))[:10]
        rows = [{"kernel": name[:100], "calls": len(t), "time_ratio": sum(t) / total} for name, t in first]
        busy = length(merged([span for _, *span in spans])) / 1e6 / seconds
        microbatch = {"microbatch": settings.microbatch_size, "milliseconds": 1e3 * seconds}
        return {**microbatch, "launches": len(spans), "busy_ratio": busy, "kernels": rows}

    return fitting(place, place.settings(model), attempt)


def profiled(place: Place, step: Step) -> tuple[list[tuple[str, float, float]], float]:
    """Return (name, start, end), in microseconds, of all that the device did in one step, and the step's seconds."""
    kind = DeviceType.CPU if place.toy else DeviceType.CUDA
    step().read()
    with profile(activities=[ProfilerActivity.CPU if place.toy else ProfilerActivity.CUDA]) as found:
        began = time.perf_counter()
        step().read()
        seconds = time.perf_counter() - began
    events = [e for e in found.events() or () if e.device_type == kind and not e.is_user_annotation]
    return [(e.name, e.time_range.start, e.time_range.end) for e in events], seconds


def merged(spans: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the union of intervals, in order."""
    union: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def length(union: Sequence[tuple[float, float]]) -> float:
    return sum(end - start for start, end in union)


def product_flops(device: torch.device, width: int) -> float:
    """Return the FLOP/s of bfloat16 products, of random numbers: for equal ones a GPU draws less power and is faster."""
    a, b = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(6):  # the first one warms up
        began = time.perf_counter()
        torch.mm(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return 2 * width**3 / min(seconds[1:])


def card(place: Place) -> Row:
    """The card itself: matrix products in bfloat16, and pinned copies to and from it."""
    flops = product_flops(place.device, 256 if place.toy else 8192)
    host = torch.ones(1 << (10 if place.toy else 30), dtype=torch.uint8, pin_memory=not place.toy)
    device, rates = torch.empty_like(host, device=place.device), {}
    for name, target, source in (("to_device", device, host), ("to_host", host, device)):
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            target.copy_(source)
            seconds.append(time.perf_counter() - began)
        rates[f"{name}_gb_per_second"] = host.nbytes / min(seconds) / 1e9
    return {"cuda": torch.version.cuda, "product_tflops": flops / 1e12, **rates}


def evaluation(place: Place) -> Row:
    """Held-out loss as during a run, in windows without overlap and in windows with a quarter of new tokens."""
    streams, rates = open_sources(place.tokens)[0].validation.streams(), {}
    with trainer_of(place, place.settings("124M")) as trainer:
        for stride in (trainer.config.context, trainer.config.context // 4):
            for limit in (16, 32 if place.toy else 512):  # the first one warms up
                windows = Windows(streams, context=trainer.config.context, stride=stride, limit=limit)
                began = time.perf_counter()
                _, n_scored = trainer.engine.total_loss(windows, 16)
            rates[f"scored_tokens_per_second_at_stride_{stride}"] = n_scored / (time.perf_counter() - began)
    return rates


def sampling(place: Place) -> Row:
    """Texts drawn from a run's model, one and 64 at once."""
    rates = {}
    with trainer_of(place, place.settings("124M")) as trainer, torch.compiler.set_stance("force_eager"):
        model = trainer.engine.model.eval()  # type: ignore[attr-defined]
        for n_texts in (1, 64):
            for n_tokens in (4, 8 if place.toy else 256):  # the first one warms up
                began = time.perf_counter()
                for _ in sample_batch(model, [[0]] * n_texts, SampleSettings(max_tokens=n_tokens)):
                    pass
            rates[f"tokens_per_second_of_{n_texts}"] = n_texts * n_tokens / (time.perf_counter() - began)
    return rates


def losses_of_devices(place: Place) -> Row:
    """300 steps of a small model on this device, in the dtype of training, and on the CPU in float32: the same losses?"""
    size = {"n_layer": 4, "n_head": 4, "n_embd": 256, "context": 128, "batch_size": 8, "microbatch_size": 8}
    rows: list[list[float]] = []
    answer: Row = {}
    for device, dtype in (("cpu", "float32"), (place.device.type, "auto")):
        settings = place.settings("124M", **size | {"device": device, "dtype": dtype})
        with trainer_of(place, settings) as trainer:
            step, began = steps_of(trainer), time.perf_counter()
            rows.append([step().read()[0] for _ in range(20 if place.toy else 300)])
        answer[f"seconds_on_{device}"] = time.perf_counter() - began
    differences = [mine - theirs for theirs, mine in zip(*rows, strict=True)]
    if abs(differences[0]) > 0.01 or abs(statistics.mean(differences[-100:])) > SAME_LOSS:
        raise SystemExit(f"losses on {place.device.type}: {rows[1][::30]}, on the CPU: {rows[0][::30]}")
    ends = {"first_loss": rows[1][0], "last_100": statistics.mean(rows[1][-100:])}
    last = statistics.mean(differences[-100:])
    return {**answer, **ends, "first_difference": differences[0], "last_100_difference": last}


def saver(place: Place) -> Row:
    """Two checkpoints: seconds until the tensors are copied, which an update waits for, and until all is on the disk."""
    row: Row = {}
    with trainer_of(place, place.settings("124M", batch_size=32, microbatch_size=32)) as trainer:
        steps_of(trainer)().read()
        with trainer.saver as saver:
            for n, which in enumerate(("first", "second")):  # the first one allocates and pins host memory
                began = time.perf_counter()
                saver.begin(n, trainer._tensors(), {})
                saver.wait_until_staged()
                row[f"{which}_copied_seconds"] = time.perf_counter() - began
                saver.finish()
                row[f"{which}_saved_seconds"] = time.perf_counter() - began
        return {**row, "gib": sum(tensor.nbytes for tensor in trainer._tensors().values()) / GIB}


def resumed(place: Place) -> Row:
    """`train run` for four steps, and again in two halves: are losses and weights equal, bit for bit?"""
    size = {"batch_size": 16, "microbatch_size": 8, "eval_windows": 16}
    whole = place.settings("124M", steps=4, deterministic=True, **size)
    half = dataclasses.replace(whole, checkpoint=dataclasses.replace(whole.checkpoint, stop_at_step=2))
    run = Run(LocalEngine(1), Console("quiet"))
    results = []
    for name, parts in (("whole", [whole]), ("halves", [half, whole])):
        for settings in parts:
            result = train_model(place.tokens, str(place.work / name), settings, run)
        weights = {path.name: path.read_bytes() for path in Path(result.checkpoint).glob("*.safetensors")}
        results.append((weights, result.loss, result.validation_loss))
    return {"resumed_bit_for_bit": results[0] == results[1], "loss": result.loss, "mfu_ratio": result.mfu_ratio}


def main() -> None:
    """Measure rows one after the other in this process; write each row's JSON and print it."""
    parser = argparse.ArgumentParser(description="Measure rows. bench_gpu.py starts this program for each of its rows.")
    parser.add_argument("folder", type=Path, help="where the rows' tokens and results are written")
    parser.add_argument("size", choices=("toy", "full"))
    parser.add_argument("checkout", help="nanoGPT's folder, or nothing")
    parser.add_argument("tokens", help="a token set, or nothing")
    parser.add_argument("rows", choices=ROWS, nargs="+", metavar="ROW", help=", ".join(ROWS))
    given = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # says where a row stands that takes too long
    place = Place(given.folder, given.size == "toy", given.checkout, given.tokens)
    for name in given.rows:
        function, arguments = ROWS[name]
        answer = globals()[function](place, **arguments)
        (given.folder / f"{name}.json").write_text(json.dumps(answer))
        print(name, json.dumps(answer), flush=True)
        gc.collect()
        torch.compiler.reset()
        if not place.toy:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
