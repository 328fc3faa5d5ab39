"""The analytic step time: first the papers' worked examples, then properties of any machine."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from webtext.base.config import changed
from webtext.train import GPT2
from webtext.train.mesh import MeshShape
from webtext.train.model.flops import flops_per_token, recomputed_flops_per_token
from webtext.train.parallel.tensor_parallel import split_tensors
from webtext.train.plan.cost import (
    Link,
    Machine,
    bubble_ratio,
    forward_kernels,
    gather_seconds,
    step_time,
)
from webtext.train.plan.layout import Layout, layouts, meshes
from webtext.train.settings import TrainSettings

SETTINGS = TrainSettings.of(n_layer=8, n_head=8, n_embd=512, context=256, batch_size=64)
CONFIG = SETTINGS.config(1000)
LINK = Link(bandwidth=1e9, latency=1e-6)
MACHINE = Machine(
    flops=1e12, inside=LINK, between=replace(LINK, bandwidth=1e8), devices_per_node=4, memory_bandwidth=1e11
)


def layout(mesh: str = "", microbatch: int = 2, n_microbatches: int = 8, **more: Any) -> Layout:
    return Layout(shape=MeshShape.parse(mesh), microbatch=microbatch, n_microbatches=n_microbatches, **more)


def bubble(schedule: str, pp: int, m: int, **passes: float) -> float:
    return bubble_ratio(schedule, pp, m, **{"forward": 1.0, "backward": 2.0, "weights": 1.0, **passes})


def test_the_bubble_of_1f1b_is_narayanans() -> None:
    """Narayanan et al. 2021, section 2.2.1: (p - 1) / m; figure 3's four stages of eight microbatches idle 3 / 8."""
    assert bubble("1f1b", 4, 8) == 3 / 8
    assert bubble("1f1b", 1, 8) == 0


def test_interleaving_two_stages_per_rank_halves_the_bubble() -> None:
    """Section 2.2.2: (p - 1) / (v m), v = 2."""
    assert bubble("interleaved", 4, 8) == 3 / 16


def test_a_v_has_no_bubble_where_the_three_passes_are_equal() -> None:
    """Qi et al. 2024, section 2.3: (p - 1) (T_F + T_B - 2 T_W), here 3 x (1 + 1.5 - 2) over 8 x (1 + 2.5)."""
    assert bubble("zbv", 4, 8) == 0
    assert bubble("zbv", 4, 8, backward=2.5) == pytest.approx(3 * 0.5 / (8 * 3.5))


def test_a_ring_sends_each_byte_but_its_own_once_or_twice() -> None:
    """Patarasuk and Yuan 2009: 2 (n - 1) / n of the data. 4 GB on four ranks at 1 GB/s: 3 s to gather, twice to sum."""
    link = Link(bandwidth=1e9, latency=0.0)
    assert gather_seconds(4e9, 4, link) == 3
    assert gather_seconds(4e9, 1, link) == 0
    assert gather_seconds(0, 4, Link(bandwidth=1e9, latency=0.5)) == 1.5


def test_one_device_computes_the_models_operations_at_its_rate() -> None:
    machine = replace(MACHINE, memory_bandwidth=1e30)
    time = step_time(CONFIG, SETTINGS, layout("", 2, 32), machine)
    counted = flops_per_token(CONFIG) * 64 * 256 / 1e12
    biases = 6 * (8 * 13 + 2) * 512 * 64 * 256 / 1e12  # PaLM's 6 N counts vectors, too
    assert time.compute == pytest.approx(counted - biases)
    assert (time.tensor_parallel, time.bubble, time.messages, time.data_parallel) == (0, 0, 0, 0)
    assert time.recompute == 0
    assert (time.between, time.host) == pytest.approx((0, 0))
    again = step_time(CONFIG, SETTINGS, layout("", 2, 32, activation_checkpointing="full"), machine)
    assert again.recompute == pytest.approx(recomputed_flops_per_token(CONFIG, "full") * 64 * 256 / 1e12)


def test_a_product_takes_its_operations_or_its_bytes() -> None:
    """At 10 FLOP per byte of the device, a product of 512 tokens is bound by its operations, and one of a token by bytes."""
    of_block, output = forward_kernels(CONFIG, 512, 2)
    assert MACHINE.seconds(output) == 2 * 512 * 512 * 1000 / 1e12
    assert of_block[0] == (2 * 512 * 512 * 512, 2 * 3 * 512 * 512)
    _, output = forward_kernels(CONFIG, 1, 2)
    assert MACHINE.seconds(output) == 2 * (512 + 1000 + 512 * 1000) / 1e11


def test_a_host_that_launches_slower_than_the_device_computes_is_the_rest_of_the_step() -> None:
    """32 kernels for each of 8 blocks and 40 others, for each of 32 microbatches."""
    time = step_time(CONFIG, SETTINGS, layout("", 2, 32), replace(MACHINE, launch=1.0))
    assert time.total == pytest.approx(32 * (32 * 8 + 40))


def test_selective_checkpointing_costs_the_memory_traffic_of_norms_and_gelu() -> None:
    """15 x 512 numbers of 2 bytes for each token and block, of 8; three more collectives per block than eight, as in full."""
    time = step_time(CONFIG, SETTINGS, layout("", 2, 32, activation_checkpointing="selective"), MACHINE)
    assert time.recompute == pytest.approx(15 * 512 * 2 * 8 * 64 * 256 / MACHINE.memory_bandwidth)
    times = [
        step_time(CONFIG, SETTINGS, layout("tp=2", activation_checkpointing=how), MACHINE).tensor_parallel
        for how in ("none", "selective", "full")
    ]
    of_blocks = 8 * 8 * 8 * (2 * 256 * 512 * 2 / 2 / 1e9 + 1e-6)
    assert times[1] - times[0] == pytest.approx(3 / 8 * of_blocks)
    assert times[2] - times[0] == pytest.approx(3 / 8 * of_blocks)


class Collectives(TorchDispatchMode):
    """Counts what tensor parallel ranks send."""

    n = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += str(function).startswith(
            ("c10d._allgather_base_", "c10d.alltoall_base_")
        )  # the second, of a CPU, scatters
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("how", "n"), [("none", 8), ("selective", 11), ("full", 11)])
def test_a_split_block_sends_as_often_as_is_counted(how: str, n: int) -> None:
    """Checkpointing repeats all collectives of the forward pass but the last. Here they move nothing and are counted."""
    counts = []
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        for n_layer in (2, 3):
            settings = TrainSettings.of(n_layer=n_layer, n_head=2, n_embd=16, context=16)
            model = GPT2(settings.config(250))
            model.activation_checkpointing = how
            split_tensors(model, MeshShape(tp=2).build("cpu")["tp"].get_group())
            with Collectives() as collectives:
                model.hidden(torch.randint(250, (2, 16))).sum().backward()
            counts.append(collectives.n)
    finally:
        distributed.destroy_process_group()
    assert counts[1] - counts[0] == n


def test_a_block_has_four_collectives_each_way() -> None:
    """Korthikanti et al. 2022, section 4.2.2. Half of 2 x 256 x 512 numbers of 2 bytes per rank: 262 us at 1 GB/s, and 1."""
    more, fewer = (changed(SETTINGS, n_layer=n) for n in (8, 7))
    times = [step_time(s.config(1000), s, layout("tp=2"), MACHINE).tensor_parallel for s in (more, fewer)]
    assert times[0] - times[1] == pytest.approx(8 * 8 * (2 * 256 * 512 * 2 / 2 / 1e9 + 1e-6))


def test_a_pipeline_sends_a_hidden_state_and_a_gradient_for_each_microbatch() -> None:
    """Four stages, eight microbatches: 8 + 3 each way of 2 x 256 x 512 numbers, and the tied gradients' sum."""
    time = step_time(CONFIG, SETTINGS, layout("pp=4"), MACHINE)
    tied = 2 * (1024 * 512 * 4 / 2 / 1e9 + 1e-6)
    assert time.messages == pytest.approx(22 * (2 * 256 * 512 * 2 / 1e9 + 1e-6) + tied)


def test_shards_gather_twice_for_one_microbatch_and_once_for_several() -> None:
    """With nothing hidden: bfloat16 parameters once or twice, and float32 gradients once."""
    plain = replace(MACHINE, overlap_ratio=0.0, inside=Link(bandwidth=1e9, latency=0.0), memory_bandwidth=1e30)
    n = 8 * (12 * 512**2 + 13 * 512) + (1024 + 256 + 2) * 512
    for n_microbatches, gathers in ((8, 1), (1, 2)):
        shards = step_time(CONFIG, SETTINGS, layout("fsdp=2", 2, n_microbatches), plain).data_parallel
        assert shards == pytest.approx((gathers * 2 + 4) * n / 2 / 1e9)
    replicas = step_time(CONFIG, SETTINGS, layout("dp=2"), plain).data_parallel
    assert replicas == pytest.approx(2 * 4 * n / 2 / 1e9)
    in_pipeline = step_time(CONFIG, SETTINGS, layout("pp=2,fsdp=2"), plain).data_parallel
    assert in_pipeline < (2 + 4) * n / 2 / 1e9


def test_gathered_and_sent_bytes_are_copied_too() -> None:
    """Two shards: half a parameter goes in, a whole one comes out, each read and written: 3 x in bfloat16, and 3 x in
    float32. Replicas copy each parameter once, and gradients in and out."""
    slow = replace(MACHINE, overlap_ratio=0.0, inside=Link(bandwidth=1e30, latency=0.0), memory_bandwidth=1e9)
    n = 8 * (12 * 512**2 + 13 * 512) + (1024 + 256 + 2) * 512
    shards, replicas = (step_time(CONFIG, SETTINGS, layout(mesh), slow).data_parallel for mesh in ("fsdp=2", "dp=2"))
    assert shards == pytest.approx((3 * 2 + 3 * 4) * n / 1e9)
    assert replicas == pytest.approx((2 * 2 + 4 * 4) * n / 1e9)


def test_collectives_are_hidden_except_for_one_block() -> None:
    slow = step_time(CONFIG, SETTINGS, layout("dp=2"), replace(MACHINE, overlap_ratio=0.0)).data_parallel
    assert step_time(CONFIG, SETTINGS, layout("dp=2"), replace(MACHINE, flops=1e6)).data_parallel == pytest.approx(
        slow / 8
    )


def test_an_axis_within_a_node_takes_its_links_and_one_beyond_all_adapters_of_a_node() -> None:
    """Four devices per node at 1 GB/s, 0.1 GB/s each between: a ring of eight neighbours leaves by four adapters."""
    inside = MACHINE.link(MeshShape(dp=2, tp=4), "tp")
    assert inside.bandwidth == 1e9
    assert MACHINE.link(MeshShape(dp=2, tp=4), "dp").bandwidth == 1e8
    assert MACHINE.link(MeshShape(fsdp=8), "fsdp").bandwidth == 4e8
    assert MACHINE.link(MeshShape(fsdp=4, tp=2), "fsdp").bandwidth == 2e8
    assert MACHINE.link(MeshShape(pp=2, fsdp=4), "pp").bandwidth == 1e8


@functools.cache
def all_layouts(devices: int) -> list[Layout]:
    return [found for shape in meshes(CONFIG, 64, devices, 4) for found in layouts(CONFIG, SETTINGS, shape)]


@settings(max_examples=50)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.floats(1, 1e3),
    st.sampled_from(["flops", "inside", "between", "memory_bandwidth", "overlap_ratio"]),
)
def test_a_faster_machine_is_never_slower(devices: int, times: float, part: str) -> None:
    slow = replace(MACHINE, overlap_ratio=0.5)
    value = getattr(slow, part)
    faster = replace(value, bandwidth=value.bandwidth * times) if isinstance(value, Link) else value * times
    fast = replace(slow, **{part: min(1.0, faster) if part == "overlap_ratio" else faster})
    for found in all_layouts(devices):
        before, after = (step_time(CONFIG, SETTINGS, found, machine).total for machine in (slow, fast))
        assert after <= before * (1 + 1e-9)


@given(st.sampled_from([2, 4, 8, 16]))
def test_no_mesh_beats_as_many_devices_that_need_not_talk(devices: int) -> None:
    alone = step_time(CONFIG, SETTINGS, layout("", 2, 32), MACHINE).compute / devices
    for found in all_layouts(devices):
        assert step_time(CONFIG, SETTINGS, found, MACHINE).total >= alone * (1 - 1e-9)
        seconds = step_time(CONFIG, SETTINGS, found, MACHINE).total
        flops = flops_per_token(CONFIG) * SETTINGS.batch_size * SETTINGS.context
        assert 0 < flops / (seconds * devices * MACHINE.flops) < 1.03
