"""The settings of training, evaluation and sampling: `[train]` and its sections. Needs no torch.

Defaults that the GPT-2 paper doesn't give (its learning rates were "manually tuned") follow GPT-3, whose code base it
shares: Brown et al. 2020, table 2.1 and appendix B, the 125M column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from webtext.base.config import from_table, options, setting
from webtext.base.errors import ConfigError, did_you_mean
from webtext.train.mesh import SCHEDULES, MeshShape, check_microbatches, n_stages
from webtext.train.shape import GPT2Config

WORDS = {
    "dtype": ("auto", "float32", "bfloat16"),
    "device": ("auto", "cpu", "cuda"),
    "compile": ("auto", "on", "off"),
    "optimizer": ("adamw", "muon"),
    "schedule": ("cosine", "wsd"),
    "documents": ("joined", "masked", "padded"),
    "pipeline_schedule": SCHEDULES,
}
"""The values of settings that are words."""
BOUNDS: Mapping[tuple[str, ...], tuple[str, Callable[[Any], bool]]] = {
    (
        *("batch_size", "microbatch_size", "steps", "context", "eval_interval", "eval_windows", "seeds"),
        *("checkpoint_interval", "keep_checkpoints", "stop_at_step", "stride", "windows", "top_k"),
    ): ("at least 1", lambda value: value >= 1),
    ("max_tokens",): ("from 1 to 1,000,000", lambda value: 1 <= value <= 1_000_000),  # memory for all is taken at once
    ("learning_rate", "muon_learning_rate", "max_grad_norm", "spike_sigmas"): ("above 0", lambda value: value > 0),
    ("weight_decay",): ("0 or more", lambda value: value >= 0),
    ("decay_ratio",): ("in [0, 1]", lambda value: 0 <= value <= 1),
    ("top_p",): ("above 0 and at most 1", lambda value: 0 < value <= 1),
    ("tokens",): ("above 0", lambda value: all(n > 0 for n in value)),
    ("weights",): ("above 0, one for each token set", lambda value: all(weight > 0 for weight in value)),
    # float32 logits that are divided by less may be infinite
    ("temperature",): ("0, or at least 0.001", lambda value: value == 0 or value >= 1e-3),
}
"""Conditions for the values of other settings. None, where a setting may be None, always holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Settings whose values are checked by WORDS and BOUNDS. Raises ConfigError for the first that is wrong."""

    def __post_init__(self) -> None:
        bounds = {name: bound for names, bound in BOUNDS.items() for name in names}
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if isinstance(value, str) and value not in WORDS.get(name, (value,)):
                raise ConfigError(f"{name} is '{value}'", did_you_mean(value, WORDS[name]))
            expected, holds = bounds.get(name, ("", lambda _: True))
            if value is not None and not holds(value):
                more = ", or none" if "None" in str(each.type) else ""
                raise ConfigError(f"{name} is {value}", f"it must be {expected}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSettings(Checked):
    """[train.shape]: The model's shape, where it differs from its named size."""

    n_layer: int | None = setting(None, "layers  [default: the model size's]")
    n_head: int | None = setting(None, "attention heads  [default: the model size's]")
    n_embd: int | None = setting(None, "width  [default: the model size's]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings(Checked):
    """[train.data]: How the token sets are mixed and cut into windows."""

    weights: tuple[float, ...] = setting((), "weights of the token sets  [default: by their sizes]")
    documents: str = setting(
        "joined", "joined in windows; masked there from one another; or padded, one in each window", flag=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings(Checked):
    """[train.optimizer]: How gradients become updates, and which are skipped."""

    optimizer: str = setting("adamw", "adamw, or muon: Muon for the hidden matrices and AdamW for the rest", flag=False)
    muon_learning_rate: float | None = setting(None, "highest rate of Muon  [default: learning_rate]", flag=False)
    weight_decay: float = setting(0.1, "decoupled weight decay of all weight matrices", flag=False)
    max_grad_norm: float | None = setting(1.0, "norm to which longer gradients are clipped, or none", flag=False)
    spike_sigmas: float | None = setting(
        None, "skip steps so many deviations above the last 128, or not finite; 'none' stops at the latter", flag=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings(Checked):
    """[train.schedule]: The learning rate over a run."""

    schedule: str = setting("cosine", "cosine, to a tenth of the rate, or wsd: warm-up, stable, decay to 0", flag=False)
    decay_ratio: float = setting(0.2, "share of the steps, at the end, in which wsd lowers the rate", flag=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings(Checked):
    """[train.machine]: How the devices are used, which changes no result beyond rounding."""

    activation_checkpointing: bool = setting(False, "compute blocks twice to save memory", in_recipe=False, flag=False)
    mesh: str | None = setting(
        None, "processes per axis: pp, dp, fsdp, tp, e.g. dp=2,tp=2  [default: all are replicas, dp]", in_recipe=False
    )
    pipeline_schedule: str = setting("1f1b", "schedule of the stages: 1f1b or interleaved", in_recipe=False, flag=False)
    offload: bool = setting(
        False, "keep parameters and optimizer on the host of a device with little memory", in_recipe=False, flag=False
    )
    compile: str = setting("auto", "compile blocks and loss: on, off, or auto (on a GPU)", in_recipe=False, flag=False)
    deterministic: bool = setting(
        False, "repeat GPU runs bit for bit, by slower kernels; CPU runs always are", in_recipe=False, flag=False
    )

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        shape = self.mesh_shape(1)
        if self.offload and (shape.size > shape.n_data or shape.dp > shape.fsdp == 1):
            raise ConfigError(f"offload is on, but mesh is '{self.mesh}'", "choose mesh fsdp=N, or leave out offload")

    def mesh_shape(self, n_processes: int) -> MeshShape:
        """Return the mesh of a run of `n_processes` processes: the setting `mesh`, or replicas, offloaded shards."""
        if self.mesh is not None:
            return MeshShape.parse(self.mesh)
        return MeshShape(fsdp=n_processes) if self.offload else MeshShape(dp=n_processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings(Checked):
    """[train.monitor]: Held-out measurements during a run."""

    eval_interval: int | None = setting(250, "steps between two held-out measurements", in_recipe=False, flag=False)
    eval_windows: int | None = setting(256, "held-out windows to score; 'none' for all", in_recipe=False, flag=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings(Checked):
    """[train.checkpoint]: When a run saves, how many checkpoints it keeps, and where it ends."""

    checkpoint_interval: int | None = setting(1000, "steps between two checkpoints", in_recipe=False, flag=False)
    keep_checkpoints: int | None = setting(
        2, "newest checkpoints to keep beside the best one; 'none' keeps all", in_recipe=False, flag=False
    )
    stop_at_step: int | None = setting(
        None, "step after which to save and end; the schedule stays  [default: steps]", in_recipe=False, flag=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(Checked):
    """[train]: a run. A step is the same on any machine: `batch_size` sequences, over processes and microbatches."""

    model: str = setting("124M", "model size: 124M, 345M, 762M or 1542M")
    context: int = setting(1024, "tokens per sequence")
    steps: int = setting(20_000, "optimizer steps")
    batch_size: int = setting(512, "sequences per step, over all processes")
    microbatch_size: int = setting(8, "sequences on a device at once")
    learning_rate: float = setting(6e-4, "highest learning rate")
    warmup_steps: int = setting(700, "steps of linear warm-up")
    seed: int = setting(0, "seed for initial weights and data order", flag=False)
    dtype: str = setting("auto", "dtype of the matrix products: float32, bfloat16, or auto", flag=False)
    device: str = setting("auto", "cpu, cuda, or auto", in_recipe=False, flag=False)
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    data: DataSettings = field(default_factory=DataSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    machine: MachineSettings = field(default_factory=MachineSettings)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not 0 <= self.warmup_steps < self.steps:
            expected = f"it must be 0 or more and below steps = {self.steps}"
            raise ConfigError(f"warmup_steps is {self.warmup_steps}", expected)
        self.config(GPT2Config().vocab_size)  # raises if there is no such model

    @classmethod
    def of(cls, **values: Any) -> TrainSettings:
        """Return the settings with these values by name, whichever sections have them."""
        return from_table(cls, values, "train")

    @property
    def last_step(self) -> int:
        """The step after which a run ends: `steps`, or `stop_at_step` if that comes first."""
        return min(self.checkpoint.stop_at_step or self.steps, self.steps)

    @property
    def total_tokens(self) -> int:
        return self.steps * self.batch_size * self.context

    def config(self, vocab_size: int) -> GPT2Config:
        """Return the model's shape for a vocabulary size."""
        shape = {name: value for name, value in asdict(self.shape).items() if value is not None}
        return GPT2Config.named(self.model, **shape, context=self.context, vocab_size=vocab_size)

    def accumulation(self, n_data: int) -> tuple[int, int]:
        """Return the sequences of a microbatch, and the microbatches of a step in each of `n_data` processes.

        `n_data` is `MeshShape.n_data`. Raises ConfigError, with sizes that work, if the batch does not divide.
        """
        share, rest = divmod(self.batch_size, n_data)
        microbatch = min(self.microbatch_size, share)
        if rest or share % microbatch:
            step = n_data * self.microbatch_size
            smaller = self.batch_size // step * step
            divisors = [] if rest else [size for size in range(1, microbatch) if share % size == 0][-1:]
            choices = [f"batch_size = {size}" for size in (smaller, smaller + step) if size]
            choices += [f"microbatch_size = {size}" for size in divisors]
            raise ConfigError(
                f"batch_size {self.batch_size} is not a multiple of {n_data} x {microbatch} (data ranks x microbatch_size)",
                f"choose {' or '.join(choices)}",
            )
        return microbatch, share // microbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings(Checked):
    """How held-out text is measured. Perplexities are comparable only with the same unit, context and stride."""

    stride: int | None = setting(None, "tokens scored per window; fewer have more context each  [default: context]")
    windows: int | None = setting(None, "windows or examples to score, spread evenly  [default: all]")
    dtype: str = setting("auto", "float32, bfloat16, or auto: as in training if the machine is fast at it")
    batch_size: int = setting(8, "windows at once", in_recipe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSettings(Checked):
    """How tokens are drawn. A top_k of 40 was used for the samples published with GPT-2."""

    max_tokens: int = setting(200, "largest number of tokens; an end-of-text ends a text earlier")
    temperature: float = setting(1.0, "randomness: below 1 favours likely tokens, 0 always takes the likeliest")
    top_k: int | None = setting(40, "number of likeliest tokens to draw from; 'none' for all")
    top_p: float | None = setting(None, "total probability of the likeliest tokens to draw from; 'none' for all")
    seed: int = setting(0, "seed for the draws; each further text adds one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings(Checked):
    """[train.compare], [train.sweep], and all experiments; the model and its schedule are in [train]."""

    seeds: int | None = setting(None, "runs of each, from `seed` on  [default: 3 in compare, else 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings(ExperimentSettings):
    """[train.scale]: A family of sizes and its budgets."""

    sizes: tuple[str, ...] = setting(("2x64", "3x96", "4x128", "5x160"), "LAYERSxWIDTH; repeatable", flag="--size")
    tokens: tuple[float, ...] = setting((), "three or more budgets of tokens")


def check_trainable(config: GPT2Config, settings: TrainSettings, n_processes: int) -> MeshShape:
    """Return the mesh of a run of `n_processes` processes.

    ConfigError if the mesh doesn't divide the model or the batch, or needs another number of processes; or if one process is
    to offload and to compile.
    """
    machine, shape = settings.machine, settings.machine.mesh_shape(n_processes)
    if machine.offload and machine.compile == "on" and shape.size == 1:
        raise ConfigError("offload is on, but compile is 'on': one process can't have both", "leave one of them out")
    for name in ("n_head", "context", "padded_vocab_size"):
        if (value := getattr(config, name)) % shape.tp:
            raise ConfigError(f"tp={shape.tp} does not divide {name} = {value}", "choose a degree that does")
    stages = n_stages(schedule := machine.pipeline_schedule, shape.pp)
    if config.n_layer < stages:
        raise ConfigError(
            f"{config.n_layer} layers do not fill the {stages} pipeline stages of mesh '{shape}' with schedule '{schedule}'",
            "choose a smaller pp",
        )
    check_microbatches(schedule, settings.accumulation(shape.n_data)[1], shape.pp)
    if shape.size != n_processes:
        are = "is 1 process" if n_processes == 1 else f"are {n_processes} processes"
        raise ConfigError(
            f"mesh '{machine.mesh}' needs {shape.size} processes, but there {are}",
            f"start it by 'torchrun --nproc-per-node {shape.size} -m webtext.app.main train run ...'",
        )
    return shape


def difference(recorded: dict[str, object], wanted: dict[str, object]) -> str:
    """Return the first setting that differs, as "steps is 200 here and 100 in the checkpoint"; empty if none does."""
    for name in (*options(TrainSettings), *sorted(recorded.keys() | wanted.keys())):
        if recorded.get(name) != wanted.get(name):
            return f"{name} is {wanted.get(name)!r} here and {recorded.get(name)!r} in the checkpoint"
    return ""
