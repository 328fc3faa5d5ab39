"""What a rank of a mesh holds, by worked numbers, by one device's plan and by the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from webtext.train import GPT2
from webtext.train.parallel.layout import Layout, block_parameters, layouts, memory_of_layout, meshes
from webtext.train.parallel.mesh import MeshShape
from webtext.train.parallel.tensor_parallel import split_tensors
from webtext.train.plan import activation_bytes, memory_of
from webtext.train.settings import TrainSettings

SMALL = TrainSettings(n_layer=8, n_head=4, n_embd=64, context=32, batch_size=64)
CONFIG = SMALL.config(1000)


def layout(mesh: str = "", microbatch: int = 2, n_microbatches: int = 8, **more: Any) -> Layout:
    return Layout(shape=MeshShape.parse(mesh), microbatch=microbatch, n_microbatches=n_microbatches, **more)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("more", [{"dropout": 0.1}, {"document_masks": True}])
def test_one_device_takes_what_its_plan_says(
    dtype: str, optimizer: str, checkpointing: str, more: dict[str, Any]
) -> None:
    settings = replace(SMALL, dtype=dtype, optimizer=optimizer, activation_checkpointing=checkpointing, **more)
    config = settings.config(1000)
    held = memory_of_layout(config, settings, layout(activation_checkpointing=checkpointing))
    assert held == memory_of(config, settings, 2)


def test_shards_divide_parameters_gradients_and_moments() -> None:
    """16 bytes a parameter become 4 on each of four; with them the embeddings and two blocks, gathered in bfloat16."""
    whole = memory_of_layout(CONFIG, SMALL, layout())
    shard = memory_of_layout(CONFIG, SMALL, layout("fsdp=4", n_microbatches=1))
    assert shard.parameters == whole.parameters // 4
    assert shard.optimizer == whole.optimizer // 4
    two_blocks = 2 * block_parameters(CONFIG, 1)
    assert shard.gradients == whole.gradients // 4 + 4 * two_blocks
    assert shard.cast_parameters == 2 * (1024 * 64 + 32 * 64 + 2 * 64 + two_blocks)
    assert memory_of_layout(CONFIG, SMALL, layout("dp=4")) == whole


def test_accumulated_gradients_lie_whole_on_every_shard() -> None:
    whole = memory_of_layout(CONFIG, SMALL, layout())
    assert memory_of_layout(CONFIG, SMALL, layout("fsdp=4", n_microbatches=2)).gradients == whole.gradients


def test_tensor_parallel_divides_matrices_and_their_biases_but_no_norm() -> None:
    """12 x 64^2 + 7 x 64 split, 6 x 64 whole: two norms of 2 x 64 and the biases of the two layers split by rows."""
    assert block_parameters(CONFIG, 1) == 12 * 64**2 + 13 * 64
    assert block_parameters(CONFIG, 4) == (12 * 64**2 + 7 * 64) // 4 + 6 * 64
    split = memory_of_layout(CONFIG, SMALL, layout("tp=4"))
    assert split.parameters == 4 * (1024 * 64 // 4 + 32 * 64 + 2 * 64 + 8 * block_parameters(CONFIG, 4))


def test_tensor_parallel_divides_activations_but_for_two_inputs_a_block() -> None:
    """Of a block's 14 + 2 widths in bfloat16 the inputs of query and of expand are gathered: 2 stay, 14 are halved.

    Each rank notes of every token whether it knows its vector: a byte.
    """
    tokens = 2 * 32
    whole = memory_of_layout(CONFIG, SMALL, layout()).activations
    split = memory_of_layout(CONFIG, SMALL, layout("tp=2")).activations
    assert 2 * split - whole == tokens * (8 * 2 * 2 * 64 + 8 + 2)


@pytest.fixture
def rank_of() -> Iterator[Callable[[int], None]]:
    """rank_of(n) makes this process the first of n whose collectives move nothing: only shapes count here."""

    def join(n: int) -> None:
        distributed.init_process_group("fake", rank=0, world_size=n, store=FakeStore())

    yield join
    distributed.destroy_process_group()


def own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_the_tensors_that_a_split_model_holds_and_keeps_are_those_that_are_planned(
    tp: int, n_layer: int, rank_of: Callable[[int], None]
) -> None:
    rank_of(tp)
    settings = TrainSettings(n_layer=n_layer, n_head=4, n_embd=32, context=16, dtype="float32")
    model = GPT2(settings.config(250))
    split_tensors(model, MeshShape(tp=tp).build("cpu")["tp"].get_group())
    weights = {own(p).untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = own(tensor).untyped_storage().data_ptr()
        if storage not in weights and own(tensor).numel() % 7 == 0:  # seven sequences tell activations from the rest
            kept[storage] = own(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.hidden(torch.randint(250, (7, 16)))
    planned = memory_of_layout(model.config, settings, layout(f"tp={tp}", microbatch=7, n_microbatches=1))
    assert planned.activations == sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert planned.parameters == sum(own(p).nbytes for p in model.parameters())


def test_the_first_rank_of_1f1b_keeps_the_activations_of_as_many_microbatches_as_there_are_stages() -> None:
    """Four stages of two blocks: 4 x 2 = 8 blocks' worth, as one device has of one microbatch; the last rank keeps one."""
    pipeline = layout("pp=4")
    assert [pipeline.in_flight(rank) for rank in range(4)] == [4, 3, 2, 1]
    assert [pipeline.blocks(CONFIG, rank) for rank in range(4)] == [2, 2, 2, 2]
    one = replace(SMALL, n_layer=2)
    received = 1 * 8 * 2 * 32 * 64 * 2  # gradients, of 8 microbatches
    held = memory_of_layout(CONFIG, SMALL, pipeline)
    final_norm = 2 * 32 * (64 * 2 + 2 * 2)
    assert held.activations == 4 * (activation_bytes(one.config(1000), one, 2) - final_norm) + received


def test_fewer_microbatches_than_stages_in_flight_are_all_there_are() -> None:
    assert layout("pp=4", n_microbatches=2).in_flight(0) == 2


def test_a_v_keeps_as_much_on_every_rank_and_interleaving_a_little_more_on_the_first() -> None:
    """Narayanan et al. 2021: with two stages a rank the first of four keeps 2 x 3 + 4 + 1 = 11 half stages, 5.5."""
    assert [layout("pp=4", schedule="zbv").in_flight(rank) for rank in range(4)] == [4, 4, 4, 4]
    assert [layout("pp=4", schedule="interleaved").in_flight(rank) for rank in range(4)] == [5.5, 4.5, 3.5, 2.5]


def test_both_ends_of_a_pipeline_hold_the_embedding_and_the_middle_none() -> None:
    assert layout("pp=4").ends(0) == (True, False)
    assert layout("pp=4").ends(3) == (False, True)
    assert layout("pp=4", schedule="zbv").ends(0) == (True, True)
    assert layout("pp=4", schedule="zbv").ends(3) == (False, False)
    table, block = 1024 * 64, block_parameters(CONFIG, 1)
    fullest = memory_of_layout(CONFIG, SMALL, layout("pp=4", schedule="zbv"))
    assert fullest.parameters == 4 * (2 * table + 32 * 64 + 2 * 64 + 2 * block)
    assert memory_of_layout(CONFIG, SMALL, layout("pp=4")).parameters in (
        4 * (table + 32 * 64 + 2 * block),
        4 * (table + 2 * 64 + 2 * block),
    )


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.sampled_from([16, 60, 64]))
def test_the_degrees_of_every_mesh_multiply_to_the_devices_and_divide_model_and_batch(
    devices: int, per_node: int, n_sequences: int
) -> None:
    for shape in meshes(CONFIG, n_sequences, devices, per_node):
        assert shape.size == devices
        assert n_sequences % shape.n_data == 0
        assert per_node % shape.tp == 0
        assert shape.pp <= CONFIG.n_layer
        settings = replace(SMALL, batch_size=n_sequences)
        for found in layouts(CONFIG, settings, shape):
            assert found.microbatch * found.n_microbatches * shape.n_data == n_sequences
            assert shape.pp == 1 or found.n_microbatches >= shape.pp
            assert memory_of_layout(CONFIG, settings, found).total > 0


@pytest.mark.parametrize(
    ("mesh", "change"),
    [
        ("tp=8", {}),  # 4 heads
        ("pp=9", {}),  # 8 layers
        ("tp=2", {"dropout": 0.1}),
        ("fsdp=2", {"optimizer": "muon"}),
    ],
)
def test_what_a_run_would_refuse_is_no_layout(mesh: str, change: dict[str, Any]) -> None:
    settings = replace(SMALL, **change)
    assert list(layouts(settings.config(1000), settings, MeshShape.parse(mesh))) == []
    assert list(layouts(CONFIG, SMALL, MeshShape.parse("pp=4,tp=4")))


def test_checkpointing_that_is_set_is_kept() -> None:
    def kinds(settings: TrainSettings) -> set[str]:
        return {found.activation_checkpointing for found in layouts(CONFIG, settings, MeshShape(dp=2))}

    assert kinds(SMALL) == {"none", "selective", "full"}
    assert kinds(replace(SMALL, activation_checkpointing="selective")) == {"selective", "full"}
    assert kinds(replace(SMALL, activation_checkpointing="full")) == {"full"}
