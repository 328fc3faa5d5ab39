"""A checkpoint's tensors: their JSON layout, resharding by DCP's planners, and no code that could run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from webtext.base.errors import InputError
from webtext.train.checkpoint.checkpoint import Checkpoint, load_model, open_checkpoint
from webtext.train.checkpoint.storage import PieceReader

Save = Callable[..., Checkpoint]
STORED = {
    "model.matrix": torch.arange(12.0).reshape(4, 3),
    "model.half": torch.arange(4.0, dtype=torch.bfloat16),
    "optimizer.matrix.step": torch.tensor(7.0),
}


def zeros() -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in STORED.items()}


def rewrite(checkpoint: Checkpoint, name: str, content: bytes) -> Checkpoint:
    """Return the checkpoint with another file and its digest in state.json, as an attacker would make it."""
    (checkpoint.path / name).write_bytes(content)
    state = dict(checkpoint.state)
    state["files"] = {**state["files"], name: hashlib.sha256(content).hexdigest()}
    (checkpoint.path / "state.json").write_text(json.dumps(state))
    return open_checkpoint(checkpoint.path)


def test_the_layout_gives_the_place_of_each_piece(tmp_path: Path, save: Save) -> None:
    """The module docstring's example: with one process a tensor is one complete piece."""
    path = save(tmp_path, 1, STORED).path
    layout = json.loads((path / "layout.json").read_text())
    assert layout["model.matrix"] == {
        "dtype": "float32",
        "shape": [4, 3],
        "pieces": [{"file": "model-00000.safetensors", "offset": [0, 0], "shape": [4, 3]}],
    }
    assert layout["optimizer.matrix.step"]["shape"] == []
    assert torch.equal(load_file(path / "model-00000.safetensors")["model.matrix@0,0"], STORED["model.matrix"])
    assert list(load_file(path / "optimizer-00000.safetensors")) == ["optimizer.matrix.step@"]


def test_a_tensor_in_pieces_is_put_together(tmp_path: Path, save: Save) -> None:
    """Rows 0-2 of the matrix from one process, row 3 in two pieces from another."""
    saved = save(tmp_path, 1, STORED)
    matrix = STORED["model.matrix"]
    pieces = {(0, 0): matrix[:3], (3, 0): matrix[3:, :2], (3, 2): matrix[3:, 2:]}
    save_file({f"model.matrix@{i},{j}": piece.contiguous() for (i, j), piece in pieces.items()}, tmp_path / "other")
    saved = rewrite(saved, "model-00001.safetensors", (tmp_path / "other").read_bytes())
    layout = json.loads((saved.path / "layout.json").read_text())
    layout["model.matrix"]["pieces"] = [
        {"file": "model-00001.safetensors", "offset": list(offset), "shape": list(piece.shape)}
        for offset, piece in pieces.items()
    ]
    tensors = zeros()
    rewrite(saved, "layout.json", json.dumps(layout).encode()).read(tensors)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in STORED.items())


def torch_saved(payload: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return buffer.getvalue()


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("name", ["layout.json", "model-00000.safetensors", "optimizer-00000.safetensors"])
@pytest.mark.parametrize("pickled", [pickle.dumps, torch_saved])
def test_a_pickle_instead_of_a_file_is_rejected_and_runs_nothing(
    tmp_path: Path, save: Save, name: str, pickled: Callable[[object], bytes]
) -> None:
    """The digests are correct, because whoever makes the file makes them too."""
    proof = tmp_path / "it-ran"
    hostile = rewrite(save(tmp_path, 1, STORED), name, pickled(Payload(proof)))
    tensors = zeros()
    with pytest.raises(InputError) as caught:
        hostile.read(tensors)
    assert len(caught.value.lines) <= 3
    assert name in str(caught.value)
    assert not any(tensor.any() for tensor in tensors.values())
    assert not proof.exists()


def test_dcps_own_format_is_not_a_checkpoint_and_its_metadata_is_not_opened(tmp_path: Path, save: Save) -> None:
    """`.metadata` is a pickle to torch's own reader, which loads it without asking."""
    proof = tmp_path / "it-ran"
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Payload(proof)))
    (folder / "__0_0.distcp").write_bytes(pickle.dumps(Payload(proof)))
    with pytest.raises(InputError, match="contains no model"):
        load_model(folder)
    ours = save(tmp_path, 1, STORED)
    (ours.path / ".metadata").write_bytes(pickle.dumps(Payload(proof)))
    tensors = zeros()
    ours.read(tensors)
    assert torch.equal(tensors["model.matrix"], STORED["model.matrix"])
    assert not proof.exists()
    pickle.loads((folder / ".metadata").read_bytes())
    assert proof.exists()  # it would have run


def test_nothing_is_unpickled_while_a_checkpoint_is_read(tmp_path: Path, save: Save) -> None:
    """Python's audit hooks see every class that an unpickler looks up, and every call of exec and compile."""
    path = save(tmp_path, 1, STORED).path
    script = (
        "import sys, torch, torch.distributed.checkpoint.state_dict_loader, torch.distributed.checkpoint.default_planner\n"
        "from pathlib import Path; from webtext.train.checkpoint.checkpoint import open_checkpoint\n"
        "import webtext.train.checkpoint.storage\n"
        "heard = []\n"
        "sys.addaudithook(lambda event, _: heard.append(event))\n"
        f"tensors = {{name: torch.zeros(shape, dtype=getattr(torch, dtype)) for name, (shape, dtype) in {shapes()!r}.items()}}\n"
        f"open_checkpoint(Path({str(path)!r})).read(tensors)\n"
        "assert 'open' in heard\n"
        "assert not {'pickle.find_class', 'exec', 'compile', 'marshal.loads'} & set(heard), set(heard)\n"
        "assert tensors['optimizer.matrix.step'] == 7\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def shapes() -> dict[str, tuple[list[int], str]]:
    return {name: (list(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in STORED.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "../../other.safetensors"}, "is not one of its files"),
        ({"file": "/etc/passwd"}, "is not one of its files"),
        ({"file": "state.json"}, "is not one of its files"),
        ({"file": "model-00009.safetensors"}, "is not one of its files"),
        ({"offset": [2, 0]}, "exceeds its shape"),
        ({"shape": [3, 3]}, "do not add up to its shape"),
        ({"shape": [4, -3]}, "are not valid sizes"),
        ({"shape": [4, True]}, "are not valid sizes"),
        ({"shape": [2**40, 2**40]}, "are not valid sizes"),
        ({"shape": [4]}, "is not a tensor layout"),
        ({"shape": None}, "is not a tensor layout"),
    ],
)
def test_an_impossible_layout_is_rejected(tmp_path: Path, save: Save, change: dict[str, Any], message: str) -> None:
    saved = save(tmp_path, 1, STORED)
    layout = json.loads((saved.path / "layout.json").read_text())
    layout["model.matrix"]["pieces"][0] |= change
    hostile = rewrite(saved, "layout.json", json.dumps(layout).encode())
    with pytest.raises(InputError, match=message) as caught:
        hostile.read(zeros())
    assert len(caught.value.lines) <= 3


@pytest.mark.parametrize(
    "held",
    [
        {"model.matrix@0,0": torch.zeros(1, 3), "model.half@0": STORED["model.half"]},  # would be broadcast
        {"model.matrix@0,0": STORED["model.matrix"].double(), "model.half@0": STORED["model.half"]},
        {"model.matrix@0,0": STORED["model.matrix"]},
    ],
    ids=["shape", "dtype", "missing"],
)
def test_a_file_with_other_pieces_than_the_layout_says_is_rejected(
    tmp_path: Path, save: Save, held: dict[str, torch.Tensor]
) -> None:
    save_file(held, tmp_path / "other")
    hostile = rewrite(save(tmp_path, 1, STORED), "model-00000.safetensors", (tmp_path / "other").read_bytes())
    tensors = zeros()
    with pytest.raises(InputError, match="model-00000.safetensors"):
        hostile.read(tensors)
    assert not any(tensor.any() for tensor in tensors.values())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "pieces", "file", "offset", "x"]), inner, max_size=5)
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values | st.binary(max_size=60))
def test_any_other_layout_is_a_user_error(tmp_path: Path, value: object) -> None:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    (tmp_path / "layout.json").write_bytes(content)
    with contextlib.suppress(InputError):
        reader = PieceReader(tmp_path, ["model-00000.safetensors"])
        assert isinstance(value, dict)
        assert reader.metadata.state_dict_metadata.keys() == value.keys()
