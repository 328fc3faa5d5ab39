"""A checkpoint's tensors: the keys of their pieces, which process writes which, and no code that could run."""

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
from webtext.base.parts.recipe import with_check
from webtext.train.checkpoint.checkpoint import Checkpoint, open_checkpoint
from webtext.train.checkpoint.storage import PieceReader, share_of

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
    (checkpoint.path / "state.json").write_text(json.dumps(with_check(state)))
    return open_checkpoint(checkpoint.path)


def test_the_keys_give_the_place_of_each_piece(tmp_path: Path, save: Save) -> None:
    """With one process a tensor is one complete piece."""
    path = save(tmp_path, 1, STORED).path
    of_model = load_file(path / "model-00000.safetensors")
    assert of_model.keys() == {"model.matrix@0,0", "model.half@0"}
    assert torch.equal(of_model["model.matrix@0,0"], STORED["model.matrix"])
    assert list(load_file(path / "optimizer-00000.safetensors")) == ["optimizer.matrix.step@"]


def with_pieces(checkpoint: Checkpoint, folder: Path, pieces: dict[str, torch.Tensor]) -> Checkpoint:
    """Return the checkpoint with other pieces of the model, as an attacker would make it."""
    save_file({key: piece.clone().contiguous() for key, piece in pieces.items()}, folder / "other")
    return rewrite(checkpoint, "model-00000.safetensors", (folder / "other").read_bytes())


def test_what_several_have_is_written_by_the_one_with_least_to_write() -> None:
    """Two replicas, and a third process with a shard of its own: 90 + 10, 60 + 30, 80."""
    shared = {"a": 30, "b": 90, "c": 10, "d": 60}
    sizes = [shared, dict(reversed(shared.items())), {"e": 80}]
    assert [sorted(share_of(rank, sizes)) for rank in range(3)] == [["b", "c"], ["a", "d"], ["e"]]


MATRIX, HALF = STORED["model.matrix"], {"model.half@0": STORED["model.half"]}


def test_a_tensor_in_pieces_of_two_files_is_put_together(tmp_path: Path, save: Save) -> None:
    """Rows 0-2 of the matrix from one process, row 3 in two pieces from another."""
    saved = with_pieces(save(tmp_path, 1, STORED), tmp_path, {"model.matrix@0,0": MATRIX[:3], **HALF})
    rest = {"model.matrix@3,0": MATRIX[3:, :2].contiguous(), "model.matrix@3,2": MATRIX[3:, 2:].contiguous()}
    save_file(rest, tmp_path / "rest")
    tensors = zeros()
    rewrite(saved, "model-00001.safetensors", (tmp_path / "rest").read_bytes()).read(tensors)
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


@pytest.mark.parametrize("name", ["model-00000.safetensors", "optimizer-00000.safetensors"])
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


def test_nothing_is_unpickled_while_a_checkpoint_is_read(tmp_path: Path, save: Save) -> None:
    """Python's audit hooks see every class that an unpickler looks up, and every call of exec and compile."""
    path = save(tmp_path, 1, STORED).path
    (path / ".metadata").write_bytes(pickle.dumps(Payload(tmp_path / "it-ran")))  # which torch's own reader would load
    script = (
        "import sys, torch\n"
        "from pathlib import Path; from webtext.train.checkpoint.checkpoint import open_checkpoint\n"
        "import webtext.train.checkpoint.storage\n"
        "heard = []; sys.addaudithook(lambda event, _: heard.append(event))\n"
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
    ("pieces", "message"),
    [
        ({"model.matrix@0,0": MATRIX[:1]}, r"its 'model.matrix' is float32 \[1, 3\], where float32 \[4, 3\] is expected"),
        ({"model.matrix@0,0": MATRIX.double()}, r"its 'model.matrix' is float64 \[4, 3\], where float32 \[4, 3\] is"),
        ({}, r"its 'model.matrix' is nothing, where float32 \[4, 3\] is expected"),
        ({"model.matrix@0,0": MATRIX, "model.more@0": torch.ones(1)}, "its 'model.more' is float32 .1., where nothing is"),
        ({"model.matrix@0,0": MATRIX[:1], "model.matrix@3,0": MATRIX[3:]}, "not have exactly the pieces of 'model.matrix'"),
        ({"model.matrix@0,0": MATRIX, "model.matrix@1,0": MATRIX[:1]}, "not have exactly the pieces of 'model.matrix'"),
        ({"model.matrix@999999999999999,0": MATRIX}, "not have exactly the pieces of 'model.matrix'"),
        ({"model.matrix@0,0": MATRIX[:3], "model.matrix@3,0": MATRIX[3:].half()}, "has another dtype than other pieces"),
        ({"model.matrix@0,0": MATRIX[:3], "model.matrix@3": MATRIX[3]}, "model-00000.safetensors' is not made of"),
        ({"model.matrix@0": MATRIX}, "model-00000.safetensors' is not made of tensors"),
        ({"model.matrix@-1,0": MATRIX}, "is not a piece's NAME@OFFSET"),
        ({"model.matrix@9999999999999999,0": MATRIX}, "is not a piece's NAME@OFFSET"),
        ({"model.matrix@" + "0," * 99 + "0": MATRIX}, "is not a piece's NAME@OFFSET"),
        ({"model.matrix": MATRIX}, "is not a piece's NAME@OFFSET"),
        ({"model.matrix@0,0": MATRIX.to(torch.int16)}, "model-00000.safetensors' is not made of tensors"),
    ],
)  # fmt: skip
def test_files_of_other_or_impossible_pieces_are_rejected_before_anything_is_read(
    tmp_path: Path, save: Save, pieces: dict[str, torch.Tensor], message: str
) -> None:
    hostile = with_pieces(save(tmp_path, 1, STORED), tmp_path, {**pieces, **HALF})
    tensors = zeros()
    with pytest.raises(InputError, match=message) as caught:
        hostile.read(tensors)
    assert len(caught.value.lines) <= 3
    assert not any(tensor.any() for tensor in tensors.values())


pieces_of_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "a@0", "a@", "a@0,0", "x"]), inner, max_size=5
        )
    ),
)
piece = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "I16", "x"]),
        "shape": st.lists(st.integers(-1, 2**63), max_size=3),
        "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2),
    }
)
headers = st.dictionaries(st.sampled_from(["a@0", "a@4", "a@", "a@0,0", "b@0", "b"]), piece, max_size=3)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=headers | pieces_of_json | st.binary(max_size=60), data=st.binary(max_size=16))
def test_any_other_header_is_a_user_error(tmp_path: Path, header: object, data: bytes) -> None:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    (tmp_path / "model-00000.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + data)
    with contextlib.suppress(InputError):
        reader = PieceReader(tmp_path, ["model-00000.safetensors"])
        assert isinstance(header, dict)
        assert {f"{name}@" for name in reader.described("")} == {f"{key.partition('@')[0]}@" for key in header}
