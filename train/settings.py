"""The settings of training (`[train]`), of its plan, of evaluation and of sampling. Needs no torch.

Defaults that the GPT-2 paper doesn't give (its learning rates were "manually tuned") follow GPT-3, whose code base it
shares: Brown et al. 2020, table 2.1 and appendix B, the 125M column.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean
from webtext.train.mesh import SCHEDULES as PIPELINE_SCHEDULES
from webtext.train.mesh import MeshShape
from webtext.train.shape import GPT2Config

DTYPES = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
COMPILE = ("auto", "on", "off")
ACTIVATION_CHECKPOINTING = ("none", "selective", "full")  # from the least recomputed to the least kept
OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("cosine", "wsd")
ON_SPIKE = ("stop", "skip")
HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Settings of a run. A step is the same on any machine: `batch_size` sequences, over processes and microbatches."""

    model: str = setting("124M", "model size: 124M, 345M, 762M or 1542M")
    n_layer: int | None = setting(None, "layers, instead of the named size's")
    n_head: int | None = setting(None, "attention heads, instead of the named size's")
    n_embd: int | None = setting(None, "width, instead of the named size's")
    context: int = setting(1024, "tokens per sequence")
    dropout: float = setting(0.0, "dropout ratio")
    weights: tuple[float, ...] = setting(
        (), "weights of the token sets in a mixture, in their order  [default: by their sizes]"
    )
    group_blocks: int | None = setting(64, "blocks of 64 MiB whose windows are shuffled together; 'none' for all")
    crosses_documents: bool = setting(True, "cut windows across documents; else each is inside one, padded")
    document_masks: bool = setting(False, "make tokens attend only to their own document in a window of several")
    batch_size: int = setting(512, "sequences per step, over all processes together")
    batch_ramp_start: int | None = setting(
        None, "sequences per step at first; the batch doubles from there to batch_size  [default: batch_size]"
    )
    batch_ramp_steps: int = setting(0, "steps with batches smaller than batch_size, equally many of each size")
    microbatch_size: int = setting(8, "sequences on a device at once; the rest of the step's batch is accumulated")
    steps: int = setting(20_000, "optimizer steps")
    stop_at_step: int | None = setting(
        None, "save and end after this step; the schedule is still that of all steps  [default: steps]", in_recipe=False
    )
    optimizer: str = setting("adamw", "adamw, or muon: Muon for the hidden matrices and AdamW for the rest")
    learning_rate: float = setting(6e-4, "highest learning rate")
    muon_learning_rate: float | None = setting(
        None, "highest learning rate of Muon, whose updates have AdamW's size  [default: learning_rate]"
    )
    muon_momentum: float = setting(0.95, "decay of Muon's mean gradient")
    newton_schulz_steps: int = setting(5, "steps of Muon that each bring the update's singular values nearer to 1")
    min_learning_rate_ratio: float = setting(0.1, "last learning rate, as a share of the highest")
    warmup_steps: int = setting(700, "steps in which the learning rate grows linearly")
    schedule: str = setting("cosine", "schedule of the learning rate: cosine, or wsd (warm-up, stable, decay)")
    decay_ratio: float = setting(0.2, "share of the steps, at the end, in which wsd lowers the learning rate")
    weight_decay: float = setting(0.1, "decoupled weight decay of all weight matrices")
    beta1: float = setting(0.9, "decay of AdamW's mean gradient")
    beta2: float = setting(0.95, "decay of AdamW's mean squared gradient")
    max_grad_norm: float | None = setting(1.0, "norm to which longer gradients are clipped; 'none' for no clipping")
    on_spike: str = setting(
        "stop", "reaction to a spike, or to a loss or gradient that is not finite: stop, or skip the update"
    )
    spike_sigmas: float | None = setting(
        None, "standard deviations above the last 128 updates that make a spike; 'none' for no spikes"
    )
    seed: int = setting(0, "seed for initial weights, data order and dropout")
    dtype: str = setting("auto", "dtype of the matrix products: float32, bfloat16, or auto")
    activation_checkpointing: str = setting(
        "none",
        "what blocks recompute instead of keeping: none, selective (norms and GELU), or full (all but their inputs), "
        "which offloaded runs always use",
        in_recipe=False,
    )
    mesh: str | None = setting(
        None,
        "processes along each axis: pp (stages), dp (replicas), fsdp (shards), tp (tensor parallel), "
        "e.g. pp=2,dp=2,tp=2  [default: all are replicas]",
        in_recipe=False,
    )
    pipeline_schedule: str = setting("1f1b", "schedule of pipeline stages: 1f1b, interleaved, zbv", in_recipe=False)
    device: str = setting("auto", "cpu, cuda, or auto", in_recipe=False)
    offload: str | None = setting(
        None,
        "keep all but a window of layers off the device: in 'host' memory, or in files in a folder (path with a slash)",
        in_recipe=False,
    )
    device_memory_gib: float | None = setting(
        None,
        "device memory that an offloaded run uses, GiB; on a CPU an arena of that size  [default: all of a GPU]",
        in_recipe=False,
    )
    threads: int | None = setting(None, "CPU threads  [default: torch's choice]", in_recipe=False)
    compile: str = setting("auto", "run blocks through torch.compile: on, off, or auto (on a GPU)", in_recipe=False)
    deterministic: bool = setting(
        False, "make GPU runs repeatable bit for bit by slower kernels; CPU runs always are", in_recipe=False
    )
    hang_timeout: float | None = setting(
        600.0,
        "seconds without progress after which one of several processes is named in an error and the run ends",
        in_recipe=False,
    )
    straggler_interval: int | None = setting(
        100, "steps between two comparisons of the processes' own seconds; 'none' for none", in_recipe=False
    )
    eval_interval: int | None = setting(250, "steps between two held-out measurements", in_recipe=False)
    eval_windows: int | None = setting(256, "held-out windows of one context each; 'none' for all", in_recipe=False)
    sample_interval: int | None = setting(None, "steps between two sample texts; needs a tokenizer", in_recipe=False)
    checkpoint_interval: int | None = setting(1000, "steps between two checkpoints", in_recipe=False)
    keep_checkpoints: int | None = setting(2, "newest checkpoints to keep; 'none' keeps all", in_recipe=False)
    keep_best: bool = setting(True, "also keep the checkpoint of lowest held-out loss", in_recipe=False)

    def __post_init__(self) -> None:
        for name in ("batch_size", "microbatch_size", "steps", "context", "newton_schulz_steps"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        for name in (
            "threads",
            "straggler_interval",
            "eval_interval",
            "eval_windows",
            "sample_interval",
            "checkpoint_interval",
            "keep_checkpoints",
            "group_blocks",
            "stop_at_step",
        ):
            value = getattr(self, name)
            self._check(name, value is None or value >= 1, "at least 1, or none")
        self._check("learning_rate", self.learning_rate > 0, "above 0")
        self._check("weight_decay", self.weight_decay >= 0, "0 or more")
        self._check("max_grad_norm", self.max_grad_norm is None or self.max_grad_norm > 0, "above 0, or none")
        self._check("min_learning_rate_ratio", 0 <= self.min_learning_rate_ratio <= 1, "in [0, 1]")
        self._check("weights", all(weight > 0 for weight in self.weights), "above 0, one for each token set")
        self._check(
            "muon_learning_rate", self.muon_learning_rate is None or self.muon_learning_rate > 0, "above 0, or none"
        )
        for name in ("beta1", "beta2", "muon_momentum", "dropout"):
            self._check(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        self._check("hang_timeout", self.hang_timeout is None or self.hang_timeout > 0, "above 0, or none")
        self._check("decay_ratio", 0 <= self.decay_ratio <= 1, "in [0, 1]")
        self._check("spike_sigmas", self.spike_sigmas is None or self.spike_sigmas > 0, "above 0, or none")
        self._check("warmup_steps", 0 <= self.warmup_steps < self.steps, f"0 or more and below steps = {self.steps}")
        self._check_batch_ramp()
        self._check_offload()
        if self.document_masks and not self.crosses_documents:
            raise ConfigError(
                "document_masks is true, but crosses_documents is false: each window has only one document",
                "leave one of them at its default",
            )
        words = {
            "optimizer": OPTIMIZERS,
            "dtype": DTYPES,
            "device": DEVICES,
            "compile": COMPILE,
            "activation_checkpointing": ACTIVATION_CHECKPOINTING,
            "schedule": SCHEDULES,
            "on_spike": ON_SPIKE,
            "pipeline_schedule": PIPELINE_SCHEDULES,
        }
        for name, known in words.items():
            if (given := getattr(self, name)) not in known:
                raise ConfigError(f"{name} is '{given}'", did_you_mean(str(given), known))
        if self.activation_checkpointing == "selective" and self.compile == "on":
            raise ConfigError(
                "activation_checkpointing is 'selective' and compile is 'on': a compiled block recomputes norms and "
                "GELU by itself",
                "leave one of them out",
            )
        if self.mesh is not None:
            MeshShape.parse(self.mesh)

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ConfigError(f"{name} is {getattr(self, name)}", f"it must be {expected}")

    def _check_offload(self) -> None:
        gib = self.device_memory_gib
        self._check("device_memory_gib", gib is None or gib > 0, "above 0")
        if self.offload is None:
            self._check("device_memory_gib", gib is None, "left out if nothing is offloaded")
        elif self.offload != HOST and "/" not in self.offload:
            raise ConfigError(
                f"offload is '{self.offload}'", "it must be 'host', or a folder's path with a slash: ./rows"
            )
        elif self.compile == "on":
            raise ConfigError(
                f"offload is '{self.offload}' and compile is 'on': an offloaded run can't be compiled",
                "leave one of them out",
            )
        elif self.mesh is not None and (shape := MeshShape.parse(self.mesh)).size > shape.dp:
            raise ConfigError(
                f"offload is '{self.offload}' and mesh '{self.mesh}': an offloaded run is one process or its replicas",
                "choose mesh dp=N, or leave out offload",
            )

    def _check_batch_ramp(self) -> None:
        start, n_steps = self.batch_ramp_start, self.batch_ramp_steps
        if start is None:
            self._check("batch_ramp_steps", n_steps == 0, "0 if batch_ramp_start is not set")
            return
        quotient = self.batch_size // max(1, start)
        is_power = start >= 1 and quotient >= 2 and quotient & (quotient - 1) == 0
        self._check(
            "batch_ramp_start",
            is_power and start * quotient == self.batch_size,
            f"batch_size {self.batch_size} halved once or more",
        )
        n_sizes = quotient.bit_length() - 1
        self._check(
            "batch_ramp_steps",
            n_sizes <= n_steps < self.steps,
            f"at least {n_sizes}, one step for each smaller size, and below steps = {self.steps}",
        )

    @property
    def last_step(self) -> int:
        """The step after which a run ends: `steps`, or `stop_at_step` if that comes first."""
        return self.steps if self.stop_at_step is None else min(self.stop_at_step, self.steps)

    @property
    def offload_folder(self) -> str | None:
        """Folder for the files of an offloaded run; None if it has none."""
        return None if self.offload == HOST else self.offload

    @property
    def first_batch_size(self) -> int:
        """Sequences of the first step; every later step has a multiple of it."""
        return self.batch_ramp_start or self.batch_size

    def config(self, vocab_size: int) -> GPT2Config:
        """Return the model's shape for a vocabulary size."""
        shape = {name: getattr(self, name) for name in ("n_layer", "n_head", "n_embd")}
        given = {name: value for name, value in shape.items() if value is not None}
        changes = {**given, "context": self.context, "dropout": self.dropout, "vocab_size": vocab_size}
        return GPT2Config.named(self.model, **changes)

    def mesh_shape(self, n_processes: int) -> MeshShape:
        """Return the mesh of a run of `n_processes` processes: the setting `mesh`, or replicas."""
        return MeshShape(dp=n_processes) if self.mesh is None else MeshShape.parse(self.mesh)

    def accumulation(self, n_data: int) -> tuple[int, int]:
        """Return the sequences of a microbatch, and the microbatches of a full step in each of `n_data` processes.

        `n_data` is `MeshShape.n_data`. The microbatch divides the first step's share and is the same in all steps, so
        the shapes of a run do not change. Raises ConfigError, with sizes that work, if the batch does not divide.
        """
        share, rest = divmod(self.first_batch_size, n_data)
        microbatch = min(self.microbatch_size, share)
        if rest or share % microbatch:
            name = "batch_size" if self.batch_ramp_start is None else "batch_ramp_start"
            step = n_data * self.microbatch_size
            smaller = self.first_batch_size // step * step
            divisors = [] if rest else [size for size in range(1, microbatch) if share % size == 0][-1:]
            choices = [f"{name} = {size}" for size in (smaller, smaller + step) if size]
            choices += [f"microbatch_size = {size}" for size in divisors]
            raise ConfigError(
                f"{name} {self.first_batch_size} does not divide into {n_data} processes x "
                f"microbatches of {microbatch}",
                f"choose {' or '.join(choices)}",
            )
        return microbatch, self.batch_size // (n_data * microbatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The devices for which a run is planned, and a measured speed, given in one of three ways."""

    processes: int = setting(1, "processes, each with a device of its own")
    devices: int | None = setting(None, "propose a mesh of so many devices, a microbatch and what else it takes to fit")
    devices_per_node: int = setting(8, "devices that the fast links of one node join")
    inside_gb_per_second: float = setting(195.0, "bandwidth of a device to others of its node, 10^9 bytes per second")
    between_gb_per_second: float = setting(22.5, "bandwidth of a device to other nodes, 10^9 bytes per second")
    host_gb_per_second: float | None = setting(
        None, "bandwidth between an offloaded run and its host, each way, 10^9 bytes per second"
    )
    vocab_size: int = setting(50_257, "vocabulary size if no token set is given")
    memory_gib: float | None = setting(None, "memory of one device, GiB: reports whether the run fits, and what would")
    tokens_per_second: float | None = setting(None, "speed of all devices together")
    peak_tflops: float | None = setting(None, "TFLOP/s of one device's matrix products; with mfu_ratio")
    mfu_ratio: float | None = setting(None, "share of peak_tflops that the model's own operations reach")
    measured: str | None = setting(None, "model folder of an earlier run, whose FLOP/s per process apply")
    price: float | None = setting(None, "price of one device for one hour")

    def __post_init__(self) -> None:
        for name in (
            "processes",
            "devices",
            "devices_per_node",
            "inside_gb_per_second",
            "between_gb_per_second",
            "vocab_size",
            "host_gb_per_second",
            "memory_gib",
            "tokens_per_second",
            "peak_tflops",
            "mfu_ratio",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}", "it must be above 0")
        if self.mfu_ratio is not None and self.mfu_ratio > 1:
            raise ConfigError(f"mfu_ratio is {self.mfu_ratio}", "it must be at most 1")
        if self.price is not None and self.price < 0:
            raise ConfigError(f"price is {self.price}", "it must be 0 or more")
        ways = [name for name in ("tokens_per_second", "peak_tflops", "measured") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} all set the speed", "give one of them")
        if (self.peak_tflops is None) != (self.mfu_ratio is None):
            raise ConfigError("peak_tflops and mfu_ratio set a speed only together", "give both, or neither")
        if self.devices is not None:
            self._check_devices()

    def _check_devices(self) -> None:
        if self.memory_gib is None:
            raise ConfigError(f"devices is {self.devices}, but memory_gib is not set", "give --memory-gib of a device")
        if self.processes != 1:
            raise ConfigError("processes and devices are both set", "give devices for a mesh, processes for replicas")
        if self.tokens_per_second is not None:
            raise ConfigError(
                "tokens_per_second is the speed of a single mesh",
                "give peak_tflops and mfu_ratio of one device, or measured",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """How held-out text is measured. Perplexities are comparable only with the same unit, context and stride."""

    stride: int | None = setting(
        None, "tokens scored per window; with fewer each sees more context  [default: context]"
    )
    windows: int | None = setting(None, "windows or examples to score, spread evenly  [default: all]")
    untrained: bool = setting(True, "also measure the model as it was before training")
    baselines: bool = setting(True, "also measure unigram and bigram tables of the training tokens")
    batch_size: int = setting(8, "windows at once", in_recipe=False)
    device: str = setting("auto", "cpu, cuda, or auto", in_recipe=False)

    def __post_init__(self) -> None:
        for name in ("stride", "windows", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", "it must be at least 1")
        if self.device not in DEVICES:
            raise ConfigError(f"device is '{self.device}'", f"known: {', '.join(DEVICES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSettings:
    """How tokens are drawn. A top_k of 40 was used for the samples published with GPT-2."""

    max_tokens: int = setting(200, "largest number of tokens; an end-of-text ends a text earlier")
    temperature: float = setting(1.0, "randomness: below 1 favours likely tokens, 0 always takes the likeliest")
    top_k: int | None = setting(40, "number of likeliest tokens to draw from; 'none' for all")
    top_p: float | None = setting(
        None, "draw from the fewest likeliest tokens that have this probability together; 'none' for all"
    )
    samples: int = setting(1, "texts per prompt")
    seed: int = setting(0, "seed for the draws; each further text adds one")
    device: str = setting("auto", "cpu, cuda, or auto", in_recipe=False)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}", "it must be at least 1")
        if self.samples < 1:
            raise ConfigError(f"samples is {self.samples}", "it must be at least 1")
        if not self.temperature >= 0:
            raise ConfigError(f"temperature is {self.temperature}", "it must be 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}", "it must be at least 1, or none")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", "it must be above 0 and at most 1, or none")
        if self.device not in DEVICES:
            raise ConfigError(f"device is '{self.device}'", f"known: {', '.join(DEVICES)}")


def difference(recorded: dict[str, object], wanted: dict[str, object], where: str = "in the checkpoint") -> str:
    """Return the first setting that differs, as "steps is 200 here and 100 in the checkpoint"; empty if none does."""
    order = [field.name for field in fields(TrainSettings)]
    names = sorted(recorded.keys() | wanted.keys(), key=lambda name: (name not in order, name))
    for name in names:
        if recorded.get(name) != wanted.get(name):
            return f"{name} is {wanted.get(name)!r} here and {recorded.get(name)!r} {where}"
    return ""
