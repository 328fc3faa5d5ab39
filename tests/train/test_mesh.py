"""The mesh as users write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.mesh import AXES, MeshShape


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
