"""The step-time model (`train/plan/cost.py`) compared with published large runs. Takes a second; uses no device.

    python tests/bench/bench_published.py

One number per machine is fitted, the rate at which a device computes, so that the row marked `fitted` is exact. All
other rows are predictions. Bandwidths are from data sheets, with calculon's efficiencies for an A100
(github.com/calculon-ai/calculon, systems/a100_80g.json). Achieved FLOP/s include recomputed blocks, as in Narayanan et
al. 2021, section 3:

    F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h))

Sources: Narayanan et al. 2021, tables 1 and 2, with the layouts of Megatron-LM's examples/sc21/run_table_1.sh; Smith et
al. 2022, section 2.4 (Megatron-Turing NLG); Dash et al. 2023, abstract (Frontier). The layouts for Frontier are from
the first author's scripts (github.com/sajal-vt/Megatron-DeepSpeed-ORNL, branch FA2, launch_gpt*.slurm) and may differ
from those of the paper. The largest models on one V100 of 32 GB and a host of 90 GB are those of STRONGHOLD's artifact
(Sun et al. 2022, README of github.com/strongh2/SC22-AE, figure 6a): width 2048, 16 heads, four sequences of 1,024 tokens.
Nothing is fitted to these; both sizes count as GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arguments import parser

from webtext.train.mesh import MeshShape
from webtext.train.plan.cost import Link, Machine, step_time
from webtext.train.plan.footprint import GIB, memory_of_layout
from webtext.train.plan.layout import Layout
from webtext.train.plan.plan import offloaded_bytes
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

VOCAB_SIZE = 51_200
A100 = Machine(
    flops=0.0,
    inside=Link(bandwidth=0.65 * 300e9, latency=10e-6),
    between=Link(bandwidth=0.9 * 25e9, latency=20e-6),
    devices_per_node=8,
    memory_bandwidth=1.555e12,
    overlap_ratio=0.0,  # Megatron-LM's own data parallel sums gradients after the last backward pass
)
FRONTIER = replace(
    A100,
    inside=Link(bandwidth=50e9, latency=10e-6),  # 50 to 200 GB/s between the halves of MI250X: OLCF's user guide
    between=Link(bandwidth=12.5e9, latency=20e-6),  # four adapters of 200 Gb/s for eight halves
    memory_bandwidth=1.6e12,
)
A100_PEAK, MI250X_HALF_PEAK = 312.0, 191.5


@dataclass(frozen=True, slots=True)
class Row:
    """A published run: its model, layout, and TFLOP/s per device."""

    name: str
    n_layer: int
    n_embd: int
    n_head: int
    mesh: str
    batch_size: int
    microbatch: int
    tflops: float
    schedule: str = "1f1b"
    seconds: float | None = None

    def setup(self) -> tuple[GPT2Config, TrainSettings, Layout]:
        """Return the model, the step's settings and the layout."""
        settings = TrainSettings.of(
            n_layer=self.n_layer, n_head=self.n_head, n_embd=self.n_embd, context=2048, batch_size=self.batch_size
        )
        shape = MeshShape.parse(self.mesh)
        n_microbatches = self.batch_size // (shape.n_data * self.microbatch)
        layout = Layout(
            shape=shape,
            microbatch=self.microbatch,
            n_microbatches=n_microbatches,
            schedule=self.schedule,
            activation_checkpointing="full",
        )
        return settings.config(VOCAB_SIZE), settings, layout

    def flops(self) -> float:
        """Return F, the floating-point operations of a step."""
        width, length = self.n_embd, 2048
        share = 1 + length / (6 * width) + VOCAB_SIZE / (16 * self.n_layer * width)
        return 96 * self.batch_size * length * self.n_layer * width**2 * share


INTERLEAVED = "interleaved"  # two stages per rank here; Megatron-LM's 76B and 530B have three
SIZES = [
    Row("1.7B", 24, 2304, 24, "dp=32", 512, 16, 137),
    Row("3.6B", 30, 3072, 32, "dp=32,tp=2", 512, 16, 138),
    Row("7.5B", 36, 4096, 32, "dp=32,tp=4", 512, 16, 142),
    Row("18B", 40, 6144, 48, "dp=32,tp=8", 1024, 8, 135),
    Row("39B", 48, 8192, 64, "pp=2,dp=32,tp=8", 1536, 4, 138),
    Row("76B", 60, 10240, 80, "pp=4,dp=32,tp=8", 1792, 2, 140, INTERLEAVED),
    Row("145B", 80, 12288, 96, "pp=8,dp=24,tp=8", 2304, 2, 148, INTERLEAVED),
    Row("310B", 96, 16384, 128, "pp=16,dp=15,tp=8", 2160, 1, 155, INTERLEAVED),
    Row("530B", 105, 20480, 128, "pp=35,dp=9,tp=8", 2520, 1, 163, INTERLEAVED),
    Row("1T", 128, 25600, 160, "pp=64,dp=6,tp=8", 3072, 1, 163),
]
STRONG_175B = [
    Row("175B", 96, 12288, 96, "pp=12,dp=4,tp=8", 1536, 1, 153),
    Row("175B", 96, 12288, 96, "pp=12,dp=8,tp=8", 1536, 1, 149),
    Row("175B", 96, 12288, 96, "pp=12,dp=16,tp=8", 1536, 1, 141),
    Row("175B", 96, 12288, 96, "fsdp=384", 1536, 4, 144),
    Row("175B", 96, 12288, 96, "fsdp=768", 1536, 2, 88),
    Row("175B", 96, 12288, 96, "fsdp=1536", 1536, 1, 44),
]
STRONG_530B = [
    Row("530B", 105, 20480, 128, "pp=35,dp=2,tp=8", 2240, 1, 171),
    Row("530B", 105, 20480, 128, "pp=35,dp=4,tp=8", 2240, 1, 167),
    Row("530B", 105, 20480, 128, "pp=35,dp=8,tp=8", 2240, 1, 159),
    Row("530B", 105, 20480, 128, "fsdp=640", 2560, 4, 138),
    Row("530B", 105, 20480, 128, "fsdp=1120", 2240, 2, 98),
    Row("530B", 105, 20480, 128, "fsdp=2240", 2240, 1, 48),
]
MT_NLG = [
    Row("530B", 105, 20480, 128, "pp=35,dp=8,tp=8", 1920, 1, 126, seconds=60.1),
    Row("530B", 105, 20480, 128, "pp=35,dp=10,tp=8", 1920, 1, 121, seconds=50.2),
    Row("530B", 105, 20480, 128, "pp=35,dp=12,tp=8", 1920, 1, 113, seconds=44.4),
]
OF_FRONTIER = [
    Row("22B", 48, 6144, 48, "pp=8,dp=2", 640, 1, 0.3838 * MI250X_HALF_PEAK),
    Row("175B", 96, 12288, 96, "pp=16,dp=2,tp=4", 640, 1, 0.3614 * MI250X_HALF_PEAK),
    Row("1T", 128, 25600, 128, "pp=128,dp=2,tp=4", 1024, 1, 0.3196 * MI250X_HALF_PEAK),
]
LARGEST = {"Megatron-LM, on the device": (None, 32), "STRONGHOLD, offloaded": ("host", 100)}
"""Offload, and layers of the largest model that was trained."""


def most_layers(offload: str | None) -> int:
    """Return the layers of the largest model that fits, by the plan of a run that isn't compiled and keeps blocks' inputs."""
    layers = 0
    while True:
        settings = TrainSettings.of(
            n_layer=layers + 1,
            n_head=16,
            n_embd=2048,
            batch_size=4,
            microbatch_size=4,
            compile="off",
            activation_checkpointing="full",
            offload=offload,
        )
        config, layout = settings.config(VOCAB_SIZE), Layout.of(settings, MeshShape())
        on_device = memory_of_layout(config, settings, layout).total
        needed, given = (on_device, 32) if offload is None else (offloaded_bytes(config, settings, layout), 90)
        if needed > given * GIB:
            return layers
        layers += 1


def predicted(row: Row, machine: Machine) -> tuple[float, float]:
    """Return the predicted seconds of a step, and achieved TFLOP/s per device."""
    config, settings, layout = row.setup()
    seconds = step_time(config, settings, layout, machine).total
    return seconds, row.flops() / seconds / layout.shape.size / 1e12


def fitted(row: Row, machine: Machine) -> Machine:
    """Return the machine with the computing rate at which the prediction for `row` equals the published figure."""
    low, high = 1e12, 1e15
    for _ in range(60):
        middle = (low + high) / 2
        is_fast = predicted(row, replace(machine, flops=middle))[1] > row.tflops
        low, high = (low, middle) if is_fast else (middle, high)
    return replace(machine, flops=low)


def print_table(title: str, rows: Sequence[Row], machine: Machine, peak: float) -> None:
    """Print predicted and published figures; a machine without a rate gets the one that fits the first row."""
    is_fitted = not machine.flops
    machine = fitted(rows[0], machine) if is_fitted else machine
    print(
        f"\n{title}; a device computes at {machine.flops / 1e12:,.0f} TFLOP/s, {machine.flops / 1e12 / peak:.0%} of peak\n"
    )
    print("| model | devices | mesh | published | predicted | off by | of peak | of the step: bubble, links |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        config, settings, layout = row.setup()
        time = step_time(config, settings, layout, machine)
        seconds, tflops = predicted(row, machine)
        links = (time.tensor_parallel + time.messages + time.data_parallel) / time.total
        off = "fitted" if is_fitted and row is rows[0] else f"{tflops / row.tflops - 1:+.0%}"
        published = f"{row.tflops:.0f}" + ("" if row.seconds is None else f", {row.seconds} s")
        shown = f"{tflops:.0f}" + ("" if row.seconds is None else f", {seconds:.1f} s")
        print(
            f"| {row.name} | {layout.shape.size:,} | {layout.shape}{' ' + row.schedule if row.schedule != '1f1b' else ''} | "
            f"{published} | {shown} | {off} | {tflops / peak:.0%} | {time.bubble / time.total:.0%}, {links:.0%} |"
        )


def print_weak_scaling(small: Row, times: int, machine: Machine) -> None:
    """Print weak scaling: the same work per device on `times` as many devices, as replicas."""
    shape = MeshShape.parse(small.mesh)
    large = replace(small, mesh=str(replace(shape, dp=shape.dp * times)), batch_size=small.batch_size * times)
    ratio = predicted(small, machine)[0] / predicted(large, machine)[0]
    n, n_large = shape.size, shape.size * times
    print(f"{small.name}, {n:,} to {n_large:,} devices, {large.mesh}: weak scaling {ratio:.1%}, published 100 %")


def main() -> None:
    parser(__doc__).parse_args()
    print("TFLOP/s per device")
    print_table("Narayanan et al. 2021, table 1, A100", SIZES, A100, A100_PEAK)
    print_table("Narayanan et al. 2021, table 2, 175B", STRONG_175B, A100, A100_PEAK)
    one_adapter = replace(
        fitted(STRONG_175B[0], A100), between=replace(A100.between, bandwidth=A100.between.bandwidth / 8)
    )
    shards = [row for row in STRONG_175B if row.mesh.startswith("fsdp")]
    print_table("The same with one adapter per ring instead of eight", shards, one_adapter, A100_PEAK)
    print_table("Narayanan et al. 2021, table 2, 530B", STRONG_530B, A100, A100_PEAK)
    print_table("Smith et al. 2022, Megatron-Turing NLG", MT_NLG, A100, A100_PEAK)
    print_table("Dash et al. 2023, Frontier (layouts of the authors' scripts)", OF_FRONTIER, FRONTIER, MI250X_HALF_PEAK)
    print()
    frontier = fitted(OF_FRONTIER[0], FRONTIER)
    print_weak_scaling(OF_FRONTIER[1], 8, frontier)
    print_weak_scaling(OF_FRONTIER[2], 3, frontier)
    print("\nLayers of the largest model of width 2048 on one V100 (Sun et al. 2022, artifact)\n")
    print("| | published | predicted | off by |")
    print("|---|---|---|---|")
    for name, (offload, layers) in LARGEST.items():
        print(f"| {name} | {layers} | {most_layers(offload)} | {most_layers(offload) / layers - 1:+.0%} |")


if __name__ == "__main__":
    main()
