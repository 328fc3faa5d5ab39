"""The training loop of one process: batches, gradients, updates, held-out loss, checkpoints, metrics.

Everything that a step does is a function of the parameters, the optimizer's state and the step's number: the sampler
decides the order of the sequences, and a step draws no random numbers. So a resumed run equals one that never stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections import ChainMap, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from webtext.base.console import Console, Progress
from webtext.base.errors import Interrupted
from webtext.base.parts.recipe import Recipe
from webtext.train.checkpoint.checkpoint import MODEL, OPTIMIZER, Checkpoint, best_checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.data.batches import TokenBatches
from webtext.train.data.sources import Source, make_sampler
from webtext.train.data.windows import WindowRules, Windows
from webtext.train.distributed import HANG_TIMEOUT, Termination, World
from webtext.train.engine import Engine
from webtext.train.metrics import metrics_log
from webtext.train.model.attention import preferred_kernels
from webtext.train.model.compilation import compile_model, compiles
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, drawn, initialize
from webtext.train.model.precision import compute_dtype
from webtext.train.optimizer.optimizer import Reading, is_fault, optimizer_tensors, set_learning_rate
from webtext.train.optimizer.schedule import learning_rate
from webtext.train.run.guard import Guard
from webtext.train.run.memory import keep_freed_memory
from webtext.train.run.meter import Record
from webtext.train.settings import TrainSettings

CHECKPOINT_MINUTES = 15.0
"""A run saves at least this often, so that a power cut costs no more."""


def steps_ahead(device: torch.device) -> int:
    """Return how many steps may be queued before the result of an earlier one is read, so that a GPU never waits."""
    return 1 if device.type == "cuda" else 0


def make_engine(
    model: GPT2, settings: TrainSettings, rules: WindowRules, world: World, dtype: torch.dtype, values: Values
) -> Engine:
    """Return the engine for `model`, which gets its `values` there: this process trains all of it, or a part of it."""
    if world.size > 1:
        from webtext.train.parallel.parallelize import ParallelModel

        engine = ParallelModel(model, settings, rules, world.device, dtype, values)
        for group in engine.mesh.get_all_groups():
            group.set_timeout(HANG_TIMEOUT)  # torch's own: 10 minutes with NCCL, 30 with gloo
        return engine
    if settings.machine.offload:
        from webtext.train.offload.engine import OffloadedEngine

        return OffloadedEngine(model, settings, rules, world.device, dtype, values)
    initialize(model.to_empty(device=world.device), values)
    return Engine(model, rules, world.device, dtype)


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
        machine = settings.machine
        if world.device.type == "cpu":
            keep_freed_memory()
        config = settings.config(sources[0].train.vocab_size)
        with torch.device("meta"):  # the engine allocates this process's part
            model = GPT2(config)
        model.activation_checkpointing = machine.activation_checkpointing
        model.is_compiled = compiles(machine.compile, world.device, console.say)
        is_compiled = model.is_compiled and not (machine.offload and world.size == 1)  # there the loss alone is
        if is_compiled:
            compile_model(model)
        dtype = compute_dtype(settings.dtype, world.device, config.n_embd)
        rules = WindowRules.of(settings, sources[0].train.eot_id)
        self.settings, self.recipe, self.world, self.config = settings, recipe, world, config
        self.engine = make_engine(model, settings, rules, world, dtype, values or drawn(config, settings.seed))
        self.optimizer = self.engine.make_optimizer(settings)
        microbatch, _ = settings.accumulation(self.engine.n_data)
        share = {"rank": self.engine.data_rank, "world_size": self.engine.n_data}
        sampler = make_sampler(sources, settings, batch_size=microbatch, **share)
        self.batches = TokenBatches(sampler, pin_memory=world.device.type == "cuda")
        self.held_out: list[tuple[str, Windows, int]] = []
        limit = settings.monitor.eval_windows
        for source, part in zip(sources, sampler.mixture.parts, strict=True):
            windows = Windows(source.validation.streams(), context=settings.context, stride=None, limit=limit)
            if len(windows):
                self.held_out.append((source.name, windows, part))
        self.guard = Guard(settings)
        self.record = Record(config, world, console, environment(settings, world, dtype, compiled=is_compiled))
        keep, copies = settings.checkpoint.keep_checkpoints, not machine.offload
        self.saver = CheckpointSaver(model_dir, world, keep=keep, copies=copies, published=published)
        self.step = 0

    def resume(self, checkpoint: Checkpoint) -> None:
        tensors = self._tensors()
        shapes = {name: torch.empty(t.shape, dtype=t.dtype, device="meta") for name, t in tensors.items()}
        checkpoint.read(tensors, dict(ChainMap(*self.world.gather(shapes))))
        self.engine.parameters_changed()
        self.batches.load_state_dict(checkpoint.state["sampler"])
        self.guard.load_state_dict(checkpoint.state["guard"])
        self.step = checkpoint.step
        self.record.resume(checkpoint)

    def run(self) -> Checkpoint:
        """Train to the last step and return the last checkpoint. After SIGTERM or Ctrl-C, saves and raises Interrupted."""
        settings, queued = self.settings, deque[tuple[int, Reading]]()
        with contextlib.ExitStack() as stack:
            log = metrics_log(self.saver.model_dir, self.step, self.record.console)
            self.record.log = stack.enter_context(log if self.world.is_main else contextlib.nullcontext())
            self._termination = stack.enter_context(Termination.noticed())
            self._next_batches = stack.enter_context(contextlib.closing(iter(self.batches)))
            stack.enter_context(self.saver)
            if self.world.device.type == "cuda":
                stack.enter_context(sdpa_kernel(preferred_kernels(self.world.device), set_priority=True))
            bar = self.record.console.progress(settings.last_step, "train", "steps", self.step)
            progress = stack.enter_context(bar)
            self._announce()
            if self.step == 0:  # the untrained model, with which every later loss is compared
                self._evaluate()
            self.record.start_clock()
            self._saved_at, self._asked = time.perf_counter(), 0.0
            while self.step < settings.last_step:
                queued.append(self._queue_step())
                while len(queued) > (0 if self._is_any_due() else steps_ahead(self.world.device)):
                    self._settle(queued.popleft(), progress)
                self._do_what_is_due()
                if not queued:
                    self.record.start_clock()  # time only the steps, not measurements and checkpoints
            saved = self._saved()
            best = best_checkpoint(self.saver.model_dir)
            if best is not None and best[0].name != saved.path.name:
                self.record.console.say(f"train: lowest held-out loss of a checkpoint: {best[1]:.4f}, '{best[0]}'")
        return saved

    def _do_what_is_due(self) -> None:
        settings, must_end = self.settings, self._asked >= 1
        if self._is_due(settings.monitor.eval_interval):
            self._evaluate()
        if self._is_due(settings.checkpoint.checkpoint_interval) or self._asked:
            self._save()
        if must_end and self.step < settings.last_step:
            raise Interrupted(
                f"ended by {self._termination.by} after step {self.step:,}, saved as '{self._saved().path}'",
                "rerun the same command to resume",
            )

    def _is_any_due(self) -> bool:
        intervals = self.settings.monitor.eval_interval, self.settings.checkpoint.checkpoint_interval
        return self._asked > 0 or any(map(self._is_due, intervals))

    def _is_due(self, interval: int | None) -> bool:
        return self.step == self.settings.last_step or (interval is not None and self.step % interval == 0)

    def _queue_step(self) -> tuple[int, Reading]:
        """Queue one update on the device; return its number, and its loss, gradient norm and the sum of all `_asks`.

        On a GPU nothing here waits for it.
        """
        n, device = self.settings.accumulation(self.engine.n_data)[1], self.world.device
        microbatches = (next(self._next_batches).to(device, non_blocking=True) for _ in range(n))
        mean = self.engine.forward_backward(microbatches, n)
        norm = self.engine.gradient_norm()
        asked = self.world.sum(torch.full_like(mean, self._asks()))
        fault = is_fault(mean, norm, self.guard.limits(self.step + 1))
        self.saver.wait_until_staged()  # the parameters change now
        set_learning_rate(self.optimizer, learning_rate(self.settings, self.step))
        self.engine.update(self.optimizer, self.settings.optimizer.max_grad_norm, norm, fault)
        self.step += 1
        return self.step, Reading(torch.stack([mean, norm, asked]))

    def _asks(self) -> float:
        """Return 1 if this process was asked to end or can't save, and a half if it is process 0 and a save is due."""
        is_late = time.perf_counter() - self._saved_at >= 60 * CHECKPOINT_MINUTES
        return float(self._termination.asked or self.saver.failed) + (0.5 if is_late and self.world.is_main else 0)

    def _settle(self, queued: tuple[int, Reading], progress: Progress) -> None:
        """Read the result of an update, judge it and record it."""
        step, (loss, norm, asked) = queued[0], queued[1].read()
        self._asked = max(self._asked, asked)  # summed over the processes: all do it after the same step
        fault = self.guard.check(step, loss, norm)
        n_tokens, rate = self.settings.batch_size * self.settings.context, learning_rate(self.settings, step - 1)
        self.record.add_step(progress, step, n_tokens, rate, loss, norm, fault)

    def _evaluate(self) -> None:
        """Record the mean held-out loss of each source, and that of all, weighted as in training."""
        losses, weighted = dict[str, float](), 0.0
        for name, windows, part in self.held_out:
            loss, n_tokens = self.engine.total_loss(windows, self.batches.sampler.batch_size)
            losses[name] = loss / n_tokens
            weighted += part * losses[name]
        if losses:
            self.record.add_held_out(self.step, weighted / sum(part for *_, part in self.held_out), losses)

    def _save(self) -> None:
        self._asked, self._saved_at = 0.0, time.perf_counter()
        state = {"config": asdict(self.config), "recipe": self.recipe.to_json(), **self.record.state_dict(self.step)}
        state |= {"sampler": self.batches.state_dict(), "guard": self.guard.state_dict()}
        self.saver.begin(self.step, self._tensors(), state)

    def _saved(self) -> Checkpoint:
        saved = self.saver.finish()
        assert saved is not None
        return saved

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors that steps change, by name, without copying."""
        # Own names: torch's get_model_state_dict and get_optimizer_state_dict take 110 ms for 196 parameters, in which the
        # run stands still; these take 3.
        engine = self.engine
        model = {MODEL + name: engine.stored(name, tensor.detach()) for name, tensor in engine.parameters.items()}
        state = optimizer_tensors(engine.parameters, self.optimizer, engine.stored)
        return model | {OPTIMIZER + name: tensor for name, tensor in state.items()}

    def _announce(self) -> None:
        config, settings, where, console = self.config, self.settings, self.record.environment, self.record.console
        if (settings.dtype, where["dtype"], where["device"]) == ("auto", "float32", "cuda"):
            console.say("train: this GPU has no fast bfloat16; float32 takes more time and memory")
        console.say(
            f"train: {config.n_parameters:,} parameters ({config.n_layer} layers of {config.n_embd}, vocabulary "
            f"{config.vocab_size:,}), {settings.steps:,} steps, {settings.total_tokens:,} tokens "
            f"out of {sum(source.n_tokens for source in self.batches.sampler.sources):,}; {where['dtype']} on "
            f"{where['device']}, {where['mesh']}"
        )


def environment(settings: TrainSettings, world: World, dtype: torch.dtype, *, compiled: bool) -> dict[str, Any]:
    """Return the facts that may change the rounding but nothing else."""
    machine = settings.machine
    shape = machine.mesh_shape(world.size)
    return {
        "torch": torch.__version__,
        "device": world.device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "processes": world.size,
        "mesh": str(shape),
        **({"pipeline_schedule": machine.pipeline_schedule} if shape.pp > 1 else {}),
        "threads": torch.get_num_threads(),
        "compiled": compiled,
        "deterministic": machine.deterministic,
        "offload": machine.offload,
    }
