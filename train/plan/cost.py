"""The time of a step of a layout on a machine of known speed: an analytic model that doesn't need torch.

A kernel takes its FLOPs over the device's rate or its bytes over the memory's, whichever is longer (Williams et al. 2009:
the roofline). The kernels are those of a fused step, which tests compare with the real one's. Collectives are rings: each
of n ranks sends (n - 1) / n of the bytes, once for all-gather or reduce-scatter and twice for all-reduce, in n - 1 or
2 (n - 1) messages (Thakur et al. 2005; Patarasuk and Yuan 2009). Assumptions about overlap:

- Tensor parallel collectives and a pipeline's messages hide behind nothing (Narayanan et al. 2021, section 3).
- Gathered parameters and sent gradients hide behind the same pass of the other blocks, except one block's (Rajbhandari
  et al. 2020; Li et al. 2020), as far as `Machine.overlap_ratio` allows: 0 if computing and sending share a core.
- Shards and gradients are copied into the buffers that are sent, and parameters out of them (torch's FSDP2: copy-in and
  copy-out of `_fsdp_collectives.py`). Each copy is a read and a write.
- A pipeline waits for its slowest rank, and its bubble is the bubble of equal microbatches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from webtext.train.mesh import AXES, MeshShape
from webtext.train.model.flops import recomputed_flops_per_token
from webtext.train.plan.footprint import FLOAT32, number_bytes, rank_parameters
from webtext.train.plan.layout import Layout
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

COLLECTIVES_PER_BLOCK = {"none": 8, "selective": 11, "full": 11}
"""All-gathers and reduce-scatters of a block under tensor with sequence parallel, four in each pass. Checkpointing repeats
the forward pass's but the last, whose result isn't needed to go back."""
UPDATE_BYTES = 7 * FLOAT32
"""AdamW reads a parameter, its gradient and two moments, and writes all but the gradient."""
FORWARD_WIDTHS, BACKWARD_WIDTHS = 17, 29
"""Widths of a block that are read and written between products: forward two norms 2 each, two sums 3 and 2, GELU 4 + 4;
back two norms 4 each, GELU 3 x 4, and 9 for the sums of the biases' gradients."""
RECOMPUTED_WIDTHS = {"none": 0, "selective": 15, "full": FORWARD_WIDTHS}
"""Those that checkpointing reads and writes again; selective: two norms 2 each, a sum 3, GELU 4 + 4."""
LAUNCHES_PER_BLOCK, OTHER_LAUNCHES = 32, 40
"""Kernels of a block's two passes, compiled, with the sum of its gradients, and of the rest of a microbatch; counted by
`tests/train/test_counted_steps.py`."""
Kernel = tuple[float, float]
"""FLOPs and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two devices: bytes per second one way, and seconds per message whatever its size."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Devices in nodes. `flops` are a device's FLOP/s, `memory_bandwidth` its bytes per second, `launch` seconds a kernel."""

    flops: float
    inside: Link
    between: Link
    devices_per_node: int
    memory_bandwidth: float
    overlap_ratio: float = 1.0
    launch: float = 0.0

    def seconds(self, kernels: Sequence[Kernel]) -> float:
        """Return the time of kernels one after another, each bound by its FLOPs or its bytes."""
        return sum(max(flops / self.flops, n_bytes / self.memory_bandwidth) for flops, n_bytes in kernels)

    def link(self, shape: MeshShape, axis: str) -> Link:
        """Return the slowest link of a ring along an axis; the innermost axis is on neighbouring devices.

        A ring that leaves its node uses the network adapters of all its devices there, one each, as NCCL's rings do.
        """
        stride = math.prod(getattr(shape, inner) for inner in list(AXES)[list(AXES).index(axis) + 1 :])
        if stride * getattr(shape, axis) <= self.devices_per_node:
            return self.inside
        adapters = 1 if axis == "pp" else max(1, self.devices_per_node // stride)
        return replace(self.between, bandwidth=min(self.inside.bandwidth, adapters * self.between.bandwidth))


DATA_SHEETS = {
    name: Machine(
        flops=tflops * 1e12,
        memory_bandwidth=memory * 1e9,
        inside=Link(bandwidth=inside * 1e9, latency=10e-6),
        between=Link(bandwidth=between * 1e9, latency=20e-6),
        devices_per_node=8,
        launch=4e-6,
    )
    for name, tflops, memory, inside, between in (
        ("a100", 312, 2039, 300, 25),
        ("h100", 989, 3350, 450, 50),
        ("h200", 989, 4800, 450, 50),
    )
}
"""SXM modules: TFLOP/s in bfloat16 without sparsity, and 10^9 bytes per second of memory and of links one way: NVIDIA's
data sheets of the A100 80GB, H100 and H200; networks of DGX A100 and H100, one adapter a device. Latencies and `launch`
are assumptions, not measured. They hardly change which mesh is best, so they aren't settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step, by cause."""

    compute: float
    between: float
    recompute: float
    tensor_parallel: float
    bubble: float
    messages: float
    data_parallel: float
    update: float
    host: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the complete step."""
        return float(sum(astuple(self)))


def gather_seconds(n_bytes: float, n: int, link: Link) -> float:
    """Return the time of a ring's all-gather to `n_bytes` on each of n ranks, or of a reduce-scatter from them.

    An all-reduce is both.

    >>> 2 * gather_seconds(8e9, 4, Link(bandwidth=1e9, latency=0.0))
    12.0
    """
    return (n - 1) * (n_bytes / n / link.bandwidth + link.latency)


def bubble_ratio(
    schedule: str, pp: int, n_microbatches: int, *, forward: float, backward: float, weights: float
) -> float:
    """Return the idle time of a pipeline over the time that it computes.

    1f1b: (p - 1) / m. Interleaved with v = 2 stages per rank: (p - 1) / (v m) (Narayanan et al. 2021, sections 2.2.1
    and 2.2.2). zbv: (p - 1) (T_F + T_B - 2 T_W) of its microbatches' passes, where T_B is the time of the inputs'
    gradients. That is the bound of ZB-H2, which a V reaches with half the memory; it is 0 if all three are equal (Qi et
    al. 2024, sections 2.3 and 6).

    `backward` is the time of the complete backward pass, including `weights` for the weights' gradients.
    """
    idle = {"1f1b": 1.0, "interleaved": 0.5, "zbv": max(0.0, 1 - 3 * weights / (forward + backward))}
    return (pp - 1) / n_microbatches * idle[schedule]


def step_time(config: GPT2Config, settings: TrainSettings, layout: Layout, machine: Machine) -> StepTime:
    """Return a step's seconds on the slowest rank of the pipeline, by cause."""
    of_ranks = (_time_of_rank(config, settings, layout, machine, rank) for rank in layout.fullest_ranks)
    return max(of_ranks, key=lambda time: time.total)


def _time_of_rank(config: GPT2Config, settings: TrainSettings, layout: Layout, machine: Machine, rank: int) -> StepTime:
    shape, m, how = layout.shape, layout.n_microbatches, layout.activation_checkpointing
    size, n_tokens = number_bytes(settings), layout.microbatch * settings.context
    n_blocks, (is_first, is_last) = layout.blocks(config, rank), layout.ends(rank)
    n_parameters = sum(rank_parameters(config, layout, rank))
    hidden_bytes = n_tokens * config.n_embd * size
    table = config.padded_vocab_size * config.n_embd / shape.tp

    of_block, output = forward_kernels(config, n_tokens, size, shape.tp)
    attention = machine.seconds(of_block[-1:]) * n_blocks
    forward = machine.seconds(of_block) * n_blocks + machine.seconds(output) * is_last
    width = hidden_bytes / shape.tp * n_blocks / machine.memory_bandwidth
    slopes_bytes = 2 * size * n_tokens * config.padded_vocab_size / shape.tp * is_last
    summed_bytes = (size + 2 * FLOAT32) * n_parameters
    between = (FORWARD_WIDTHS + BACKWARD_WIDTHS) * width + (slopes_bytes + summed_bytes) / machine.memory_bandwidth
    repeated = recomputed_flops_per_token(config, how) * n_blocks / config.n_layer * n_tokens / shape.tp
    recompute = repeated / machine.flops + RECOMPUTED_WIDTHS[how] * width

    link = machine.link(shape, "tp")
    gather = gather_seconds(hidden_bytes, shape.tp, link)
    sums = 2 * gather_seconds(3 * FLOAT32 * n_tokens, shape.tp, link)
    tensor = gather * (COLLECTIVES_PER_BLOCK[how] * n_blocks + 2 * is_first + 2 * is_last) + sums * is_last

    busy = 3 * forward + between + recompute + tensor
    going = forward + gather * COLLECTIVES_PER_BLOCK["none"] / 2 * n_blocks
    passes = {"forward": going, "backward": busy - going, "weights": forward - attention}  # attention has no weights
    time = StepTime(
        compute=3 * forward * m,
        between=between * m,
        recompute=recompute * m,
        tensor_parallel=tensor * m,
        bubble=bubble_ratio(layout.schedule, shape.pp, m, **passes) * busy * m,
        messages=_messages(layout, machine, hidden_bytes / shape.tp, FLOAT32 * table / shape.fsdp),
        data_parallel=_data_parallel(layout, machine, n_parameters, size, max(1, n_blocks), forward, busy - forward),
        update=(UPDATE_BYTES + FLOAT32) * n_parameters / shape.fsdp / machine.memory_bandwidth,
    )
    launching = m * (LAUNCHES_PER_BLOCK * n_blocks + OTHER_LAUNCHES) * machine.launch
    return replace(time, host=max(0.0, launching - time.total))


def forward_kernels(config: GPT2Config, n_tokens: float, size: int, tp: int = 1) -> tuple[list[Kernel], list[Kernel]]:
    """Return the products and the attention (last) of a block's forward pass on one of `tp` ranks, and the output layer.

    Each reads its inputs of `size` bytes a number, and writes its output, once. A backward pass takes twice the FLOPs and
    bytes of each.
    """
    width, part = config.n_embd, config.n_embd / tp

    def product(n_in: float, n_out: float) -> Kernel:
        return 2 * n_tokens * n_in * n_out, size * (n_tokens * (n_in + n_out) + n_in * n_out)

    attention = 4 * n_tokens * part * config.context, 4 * size * n_tokens * part
    products = [*3 * [product(width, part)], product(part, width), product(width, 4 * part), product(4 * part, width)]
    return [*products, attention], [product(width, config.vocab_size / tp)]


def _messages(layout: Layout, machine: Machine, n_bytes: float, tied_bytes: float) -> float:
    """Return the seconds of a pipeline's messages: a hidden state forward and its gradient back for each microbatch and
    stage of a rank, including the pipeline's fill, and the sum of the two copies of the tied weight's gradient."""
    if layout.shape.pp == 1:
        return 0.0
    link = machine.link(layout.shape, "pp")
    hops = layout.n_microbatches * layout.chunks + layout.shape.pp - 1
    tied = 0.0 if layout.schedule == "zbv" else 2 * gather_seconds(tied_bytes, 2, link)
    return 2 * hops * (n_bytes / link.bandwidth + link.latency) + tied


def _data_parallel(
    layout: Layout, machine: Machine, n_parameters: float, size: int, n_blocks: int, forward: float, backward: float
) -> float:
    """Return the seconds per step of gathering parameters and summing gradients that nothing hides."""
    shape = layout.shape
    if shape.n_data == 1:
        return 0.0

    def shown(seconds: float, behind: float) -> float:
        return max(seconds / n_blocks, seconds - machine.overlap_ratio * behind)

    def moved(number: int) -> float:
        return gather_seconds(number * n_parameters, shape.fsdp, machine.link(shape, "fsdp"))

    copies = 2 * (1 + 1 / shape.fsdp) * n_parameters / machine.memory_bandwidth  # in and out; a replica has only one
    gather = moved(size) + size * copies / (2 if shape.fsdp == 1 else 1)
    gradients = moved(FLOAT32) + FLOAT32 * copies
    gradients += 2 * gather_seconds(FLOAT32 * n_parameters / shape.fsdp, shape.dp, machine.link(shape, "dp"))
    is_once = shape.pp > 1 or shape.fsdp == 1 or layout.n_microbatches > 1
    return shown(gather, forward) + shown(gradients if is_once else gather + gradients, backward)
