"""The mesh as users write it, and what a rank of it stores: by worked numbers, one device's plan and the pipeline's stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.train.mesh import AXES, MeshShape
from webtext.train.plan.footprint import memory_of_layout
from webtext.train.plan.layout import Layout, divisors, layouts, meshes
from webtext.train.settings import TrainSettings


def test_axes_that_are_not_named_have_one_device() -> None:
    shape = MeshShape.parse("pp=2, tp=4")
    assert shape == MeshShape(pp=2, tp=4)
    assert (shape.size, shape.n_data) == (8, 1)
    assert MeshShape.parse("") == MeshShape()


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_a_mesh_is_printed_as_it_is_read(degrees: list[int]) -> None:
    shape = MeshShape(**dict(zip(AXES, degrees, strict=True)))
    written = str(shape)
    assert MeshShape.parse("" if written == "one process" else written) == shape


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pq=2", "mesh 'pq=2' has an axis 'pq'"),
        ("tp=2,tp=2", "names tp twice"),
        ("tp=0", "has tp = '0'"),
        ("tp", "has tp = ''"),
        ("tp=-1", "has tp = '-1'"),
        ("tp=²", "has tp = '²'"),
        ("tp=1e3", "has tp = '1e3'"),
    ],
)
def test_text_that_is_not_a_mesh_is_rejected_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        MeshShape.parse(text)


SMALL = TrainSettings.of(n_layer=8, n_head=4, n_embd=64, context=32, batch_size=64)
CONFIG = SMALL.config(1000)


def layout(mesh: str = "", microbatch: int = 2, n_microbatches: int = 8, **more: Any) -> Layout:
    return Layout(shape=MeshShape.parse(mesh), microbatch=microbatch, n_microbatches=n_microbatches, **more)


def test_fewer_microbatches_than_stages_in_flight_are_all_there_are() -> None:
    assert layout("pp=4", n_microbatches=2).in_flight(0) == 2


def test_a_v_keeps_as_much_on_every_rank_and_interleaving_a_little_more_on_the_first() -> None:
    """Narayanan et al. 2021: with two stages per rank the first of four keeps 2 x 3 + 4 + 1 = 11 half stages, 5.5."""
    assert [layout("pp=4", schedule="zbv").in_flight(rank) for rank in range(4)] == [4, 4, 4, 4]
    assert [layout("pp=4", schedule="interleaved").in_flight(rank) for rank in range(4)] == [5.5, 4.5, 3.5, 2.5]


@settings(max_examples=50)
@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.sampled_from([16, 60, 64]))
def test_the_degrees_of_every_mesh_multiply_to_the_devices_and_divide_model_and_batch(
    devices: int, per_node: int, n_sequences: int
) -> None:
    for shape in meshes(CONFIG, n_sequences, devices, per_node):
        assert shape.size == devices
        assert n_sequences % shape.n_data == 0
        assert per_node % shape.tp == 0
        assert shape.pp <= CONFIG.n_layer
        how = replace(SMALL, batch_size=n_sequences)
        for found in layouts(CONFIG, how, shape):
            assert found.microbatch * found.n_microbatches * shape.n_data == n_sequences
            assert shape.pp == 1 or found.n_microbatches >= shape.pp
            assert memory_of_layout(CONFIG, how, found).total > 0


@pytest.mark.parametrize(
    ("mesh", "change"),
    [
        ("tp=8", {}),  # 4 heads
        ("pp=9", {}),  # 8 layers
        ("tp=2", {"dropout": 0.1}),
    ],
)
def test_a_mesh_that_a_run_would_reject_has_no_layouts(mesh: str, change: dict[str, Any]) -> None:
    settings = changed(SMALL, **change)
    assert list(layouts(settings.config(1000), settings, MeshShape.parse(mesh))) == []
    assert list(layouts(CONFIG, SMALL, MeshShape.parse("pp=4,tp=4")))


def test_checkpointing_that_is_set_is_kept() -> None:
    def kinds(settings: TrainSettings) -> set[str]:
        return {found.activation_checkpointing for found in layouts(CONFIG, settings, MeshShape(dp=2))}

    assert kinds(SMALL) == {"none", "selective", "full"}
    assert kinds(changed(SMALL, activation_checkpointing="selective")) == {"selective", "full"}
    assert kinds(changed(SMALL, activation_checkpointing="full")) == {"full"}


@given(st.integers(1, 2000))
def test_divisors_are_all_that_divide_in_order(n: int) -> None:
    assert divisors(n) == [i for i in range(1, n + 1) if n % i == 0]
