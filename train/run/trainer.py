"""The training loop of one process: batches, gradients, updates, held-out loss, checkpoints, metrics.

Everything that a step does is a function of the parameters, the optimizer's state and the step's number: the sampler
decides the order of the sequences, and random numbers (dropout) are seeded again at each step from (seed, step, rank).
So a checkpoint needs no generator state, and a resumed run equals one that never stopped.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from webtext.base.console import Console, Progress
from webtext.base.errors import Interrupted, RunFailed
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.train.checkpoint import checkpoint as checkpoints
from webtext.train.checkpoint.checkpoint import MODEL, OPTIMIZER, Checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.data.batches import TokenBatches
from webtext.train.data.sources import Source, make_sampler
from webtext.train.distributed import Termination, World
from webtext.train.metrics import metrics_log
from webtext.train.model.attention import attention_kernel, preferred_kernels
from webtext.train.model.compilation import compile_model, compiles
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, drawn
from webtext.train.model.loss import WindowRules
from webtext.train.model.precision import compute_dtype
from webtext.train.optimizer.optimizer import Reading, compile_update, is_fault, optimizer_tensors, set_learning_rate
from webtext.train.optimizer.schedule import learning_rate, total_tokens
from webtext.train.run.engine import HeldOut, make_engine
from webtext.train.run.guard import Guard
from webtext.train.run.memory import keep_freed_memory, memory_is_an_error
from webtext.train.run.meter import Meter
from webtext.train.settings import TrainSettings

LARGEST_LOSS = 700.0  # its exponential is still finite


@dataclass(frozen=True, slots=True)
class _Queued:
    """An update that the device has yet to make. `reading`: loss, gradient norm, and what `_asked` returns."""

    step: int
    rate: float
    n_tokens: int
    reading: Reading


class Trainer:
    """One run of `settings.steps` steps, or up to `settings.stop_at_step`; `recipe` is stored in its checkpoints.

    Initial `values` are drawn from the seed if none are given.
    """

    def __init__(
        self,
        settings: TrainSettings,
        recipe: Recipe,
        sources: Sequence[Source],
        model_dir: Path,
        world: World,
        console: Console,
        published: Callable[[], None] = lambda: None,
        values: Values | None = None,
    ) -> None:
        if settings.machine.threads is not None:
            torch.set_num_threads(settings.machine.threads)
        if world.device.type == "cpu":
            keep_freed_memory()
        self.settings, self.recipe, self.model_dir = settings, recipe, model_dir
        self.world, self.console, self.published = world, console, published
        with torch.device("meta"):  # the engine allocates this process's part
            model = GPT2(settings.config(sources[0].train.vocab_size))
        model.activation_checkpointing = settings.machine.activation_checkpointing
        model.is_compiled = compiles(settings.machine.compile, world.device, console.say)
        self.is_compiled = model.is_compiled and settings.machine.offload is None  # offloaded, the loss alone is
        if self.is_compiled:
            compile_model(model)
        self.config = model.config
        self.dtype = compute_dtype(settings.dtype, world.device, self.config.n_embd)
        rules = WindowRules.of(settings, sources[0].train.eot_id)
        values = values or drawn(self.config, settings.seed)
        self.engine = make_engine(model, settings, rules, world, self.dtype, values)
        self.optimizer = self.engine.make_optimizer(settings)
        if self.is_compiled:
            compile_update(self.optimizer)
        self.microbatch, self.n_microbatches = settings.accumulation(self.engine.n_data)
        share = {"rank": self.engine.data_rank, "world_size": self.engine.n_data}
        sampler = make_sampler(sources, settings, batch_size=self.microbatch, **share)
        self.batches = TokenBatches(sampler, pin_memory=world.device.type == "cuda")
        self.held_out = HeldOut(sources, sampler.mixture.parts, settings)
        self.guard = Guard(settings)
        self.step = 0
        self.result: dict[str, Any] = dict.fromkeys(("loss", "validation_loss_before", "validation_loss"))
        self.result |= {"tokens": 0, "seconds": 0.0, "skipped_steps": 0, "mfu_ratio": None, "memory_bytes": 0}
        self._measured_at: int | None = None
        self._must_end = self._must_save = False
        self.steps_ahead = 1 if world.device.type == "cuda" else 0
        """Steps that may be queued before the result of an earlier one is read, so that the device never waits."""
        self._queued: deque[_Queued] = deque()
        self.meter = Meter(self.config, world, self.dtype)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Resume where `checkpoint` was written."""
        tensors = self._tensors()
        shapes = {name: torch.empty(t.shape, dtype=t.dtype, device="meta") for name, t in tensors.items()}
        checkpoint.read(tensors, dict(ChainMap(*self.world.gather(shapes))))
        self.engine.parameters_changed()
        self.batches.load_state_dict(checkpoint.state["sampler"])
        self.guard.load_state_dict(checkpoint.state["guard"])
        self.step = checkpoint.step
        self.result = dict(checkpoint.state["result"])
        self.console.say(f"train: resuming from step {self.step:,} ('{checkpoint.path}')")
        was = checkpoint.state["environment"]
        for name, value in self._environment().items():
            if was.get(name) != value:
                self.console.say(f"train: {name} is {value} but was {was.get(name)}: results equal only up to rounding")

    def run(self) -> Checkpoint:
        """Train to the last step and return the last checkpoint. After SIGTERM or Ctrl-C, saves and raises Interrupted."""
        settings = self.settings
        with contextlib.ExitStack() as stack:
            log = metrics_log(self.model_dir, self.step, self.console)
            self._metrics = stack.enter_context(log if self.world.is_main else contextlib.nullcontext())
            self._termination = stack.enter_context(Termination.noticed())
            self._next_batches = stack.enter_context(contextlib.closing(iter(self.batches)))
            self._saver = stack.enter_context(
                CheckpointSaver(
                    self.model_dir,
                    self.world,
                    keep=settings.checkpoint.keep_checkpoints,
                    copies=settings.machine.offload is None,
                    published=self.published,
                )
            )
            if self.world.device.type == "cuda":
                stack.enter_context(sdpa_kernel(preferred_kernels(self.world.device), set_priority=True))
            progress = stack.enter_context(self.console.progress(settings.last_step, "train", "steps", self.step))
            self._announce()
            if self.step == 0:  # the untrained model, with which every later loss is compared
                self._evaluate()
            self._clock = self._saved_at = time.perf_counter()
            while self.step < settings.last_step:
                with memory_is_an_error(self.config, settings, self.world):
                    self._queue_step()
                    while len(self._queued) > (0 if self._is_any_due() or self._must_save else self.steps_ahead):
                        self._settle(self._queued.popleft(), progress)
                self._do_what_is_due()
                if not self._queued:
                    self._clock = time.perf_counter()  # time only the steps, not measurements and checkpoints
            saved = self._saved()
            self._report_best()
        return saved

    def _do_what_is_due(self) -> None:
        settings = self.settings
        if self._is_due(settings.monitor.eval_interval):
            self._evaluate()
        if self._is_due(settings.checkpoint.checkpoint_interval) or self._must_save:
            self._save()
        if self._must_end and self.step < settings.last_step:
            raise Interrupted(
                f"ended by {self._termination.by} after step {self.step:,}, saved as '{self._saved().path}'",
                "rerun the same command to resume",
            )

    def _is_any_due(self) -> bool:
        settings = self.settings
        return self._is_due(settings.monitor.eval_interval) or self._is_due(settings.checkpoint.checkpoint_interval)

    def _is_due(self, interval: int | None) -> bool:
        return self.step == self.settings.last_step or (interval is not None and self.step % interval == 0)

    def _queue_step(self) -> None:
        """Queue one update on the device. On a GPU nothing here waits for it."""
        settings = self.settings
        torch.manual_seed(_seed_of(settings.seed, self.step, self.world.rank))
        if self.engine.updates_early:
            self._allow_update()
        mean = self.engine.forward_backward(self._microbatches(), self.n_microbatches)
        norm = self.engine.gradient_norm()
        asked = self.world.sum(torch.full_like(mean, self._asked()))
        fault = is_fault(mean, norm, self.guard.limits(self.step + 1))
        if not self.engine.updates_early:
            self._allow_update()
        self.engine.update(self.optimizer, settings.optimizer.max_grad_norm, norm, fault)
        rate = learning_rate(settings, self.step)
        self.step += 1
        n_tokens = settings.batch_size * settings.context
        self._queued.append(_Queued(self.step, rate, n_tokens, Reading(torch.stack([mean, norm, asked]))))

    def _asked(self) -> float:
        """Return 1 if this process was asked to end or can't save, and a half if it is process 0 and a save is due."""
        minutes = self.settings.checkpoint.checkpoint_minutes
        is_late = minutes is not None and time.perf_counter() - self._saved_at >= 60 * minutes
        return float(self._termination.asked or self._saver.failed) + (0.5 if is_late and self.world.is_main else 0)

    def _allow_update(self) -> None:
        """Prepare for a change of the parameters: the last save has its copies, and the optimizer its rate."""
        self._saver.wait_until_staged()
        set_learning_rate(self.optimizer, learning_rate(self.settings, self.step))

    def _microbatches(self) -> Iterator[Tensor]:
        for _ in range(self.n_microbatches):
            yield next(self._next_batches).to(self.world.device, non_blocking=True)

    def _settle(self, queued: _Queued, progress: Progress) -> None:
        """Read the result of an update, judge it, log it and show it."""
        loss, norm, asked = queued.reading.read()
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self._must_save = self._must_save or asked > 0  # summed over the processes: all do it after the same step
        self._must_end = self._must_end or asked >= 1
        fault = self.guard.check(queued.step, loss, norm)
        self.result["tokens"] += queued.n_tokens
        self.result["seconds"] += seconds
        row: dict[str, Any] = {"step": queued.step, "tokens": self.result["tokens"], "learning_rate": queued.rate}
        if fault is None:
            self.result["loss"] = loss
            row |= {"loss": loss, "grad_norm": norm}
        else:
            self.result["skipped_steps"] += 1
            row["skipped"] = fault
            report = self.console.warn if self.world.is_main else self.console.say
            report(f"step {queued.step:,} is skipped: {fault}")
        speed = self.meter.measure(queued.n_tokens, seconds)
        overall = self.meter.measure(self.result["tokens"], self.result["seconds"])
        most = max(speed.memory_bytes, self.result["memory_bytes"])
        self.result |= {"mfu_ratio": overall.mfu_ratio, "memory_bytes": most}
        self._log(row | asdict(speed) | {"seconds": round(self.result["seconds"], 3)})
        note = f"loss {loss:.3f}, rate {queued.rate:.2e}, gradient {norm:.2f}, {speed}"
        facts = {name: row[name] for name in ("loss", "grad_norm", "learning_rate", "tokens") if name in row}
        progress.advance(1, note, **facts, tokens_per_second=speed.tokens_per_second)

    def _evaluate(self) -> None:
        losses = self.held_out.losses(self.engine, self.microbatch)
        if not losses:
            return
        mean = self.held_out.mean(losses)
        if not math.isfinite(mean):
            raise RunFailed(
                f"step {self.step:,}: the held-out loss is {mean}",
                "lower learning_rate or lengthen warmup_steps, and use another --out",
            )
        if self.step == 0:
            self.result["validation_loss_before"] = mean
        self.result["validation_loss"] = mean
        self._measured_at = self.step
        perplexity = math.exp(min(mean, LARGEST_LOSS))
        of_sources = {"validation_losses": losses} if len(losses) > 1 else {}
        self._log({"step": self.step, "validation_loss": mean, "perplexity": perplexity, **of_sources})
        each = "".join(f"; '{name}' {loss:.4f}" for name, loss in losses.items()) if of_sources else ""
        self.console.say(f"train: step {self.step:,}: held-out perplexity {perplexity:,.2f} (loss {mean:.4f}{each})")

    def _save(self) -> None:
        self._must_save, self._saved_at = False, time.perf_counter()
        if self._metrics is not None:
            self._metrics.sync()
        state = {
            "recipe": self.recipe.to_json(),
            "sampler": self.batches.state_dict(),
            "guard": self.guard.state_dict(),
            "validation_loss": self.result["validation_loss"] if self._measured_at == self.step else None,
            "result": self.result,
            "environment": self._environment(),
        }
        self._saver.begin(self.step, self.config, self._tensors(), state)

    def _saved(self) -> Checkpoint:
        saved = self._saver.finish()
        assert saved is not None
        return saved

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors that steps change, by name, without copying."""
        # Own names: torch's get_model_state_dict and get_optimizer_state_dict take 110 ms for 196 parameters, in which the
        # run stands still; these take 3 (docs/tried/train.md).
        engine = self.engine
        model = {MODEL + name: engine.stored(name, tensor.detach()) for name, tensor in engine.parameters.items()}
        state = optimizer_tensors(engine.parameters, self.optimizer, engine.stored)
        return model | {OPTIMIZER + name: tensor for name, tensor in state.items()}

    def _report_best(self) -> None:
        best = checkpoints.best_checkpoint(self.model_dir)
        if best is not None and best[0].name != f"step-{self.step:06d}":
            self.console.say(f"train: the lowest held-out loss of a checkpoint is {best[1]:.4f}: '{best[0]}'")

    def _environment(self) -> dict[str, Any]:
        """Return the facts that may change the rounding but nothing else."""
        return {
            "torch": torch.__version__,
            "device": self.world.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "processes": self.world.size,
            **self._mesh(),
            "threads": torch.get_num_threads(),
            "compiled": self.is_compiled,
            "deterministic": self.settings.machine.deterministic,
            **({} if self.settings.machine.offload is None else {"offload": self.settings.machine.offload}),
        }

    def _mesh(self) -> dict[str, str]:
        shape, schedule = self.settings.machine.mesh_shape(self.world.size), self.settings.machine.pipeline_schedule
        return {"mesh": str(shape), **({"pipeline_schedule": schedule} if shape.pp > 1 else {})}

    def _announce(self) -> None:
        config, settings, where = self.config, self.settings, self._environment()
        q_shape = 1, config.n_head, config.context, config.n_embd // config.n_head
        q_bhtd = torch.empty(q_shape, dtype=self.dtype, device=self.world.device)
        kernel = attention_kernel(config, q_bhtd, masks=settings.data.document_masks, compiled=self.is_compiled)
        if kernel == "math" and self.world.device.type == "cuda":
            self.console.warn("attention keeps its scores: no fast kernel of torch computes it; use dtype = 'bfloat16'")
        if (settings.dtype, self.dtype, self.world.device.type) == ("auto", torch.float32, "cuda"):
            self.console.say("train: this GPU has no fast bfloat16; float32 takes more time and memory")
        self.console.say(
            f"train: {config.n_parameters:,} parameters ({config.n_layer} layers of {config.n_embd}, vocabulary "
            f"{config.vocab_size:,}), {settings.steps:,} steps, {total_tokens(settings):,} tokens "
            f"out of {sum(source.n_tokens for source in self.batches.sampler.sources):,}; {where['dtype']} on "
            f"{where['device']} with {kernel} attention, {settings.machine.mesh_shape(self.world.size).processes}"
        )

    def _log(self, row: dict[str, Any]) -> None:
        if self._metrics is not None:
            self._metrics.append(row)


def _seed_of(seed: int, step: int, rank: int) -> int:
    return int(sha256_json([seed, step, rank])[:15], 16)
