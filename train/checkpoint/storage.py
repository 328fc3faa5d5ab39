"""Storage for torch.distributed.checkpoint (DCP): pieces of tensors in safetensors files, and their layout as JSON.

DCP's planners decide which process writes which piece, and which pieces fill a tensor that is read. They understand
DTensors, so one mesh can read what another wrote, and each process writes a share of the replicated tensors. DCP's own
storage pickles the layout, so that reading a file can run code. This one stores only tensors: nothing is unpickled.

    layout.json              {"model.final_norm.weight": {"dtype": "float32", "shape": [768], "pieces":
                                 [{"file": "model-00000.safetensors", "offset": [0], "shape": [768]}]}, ...}
    model-00000.safetensors  the model's pieces that process 0 wrote; a piece's key is "NAME@OFFSET", for example
                             "model.final_norm.weight@0"
    optimizer-00000.safetensors
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from webtext.base.errors import InputError
from webtext.base.storage import make_folder
from webtext.train.model.tensor_file import write_tensors

LAYOUT = "layout.json"
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8)
}
_SAFETENSORS_DTYPES = dict(zip(("F64", "F32", "BF16", "F16", "I64", "I32", "U8"), _DTYPES.values(), strict=True))


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a process has written and synced."""

    name: str
    sha256: str


class PieceWriter(StorageWriter):
    """Writes one save. `stage` copies the pieces; `publish` is called once, after all processes have written."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        stage: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        publish: Callable[[dict[str, str]], None],
    ) -> None:
        self.folder, self.rank, self.stage, self.publish = folder, rank, stage, publish

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if is_coordinator:  # the others wait for its plan, so they write after this
            make_folder(self.folder)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this process's pieces, one file for each kind of tensor."""
        indices = {_key(item.index): item.index for item in plan.items}
        pieces = {key: cast(Tensor, planner.resolve_data(item)) for key, item in zip(indices, plan.items, strict=True)}
        staged = self.stage(pieces)
        files: dict[str, dict[str, Tensor]] = {}
        for key, tensor in staged.items():
            files.setdefault(key.partition(".")[0], {})[key] = tensor
        results = []
        for kind, tensors in files.items():
            path = self.folder / f"{kind}-{self.rank:05d}.safetensors"
            write_tensors(path, tensors)
            written = WrittenFile(path.name, synced_sha256(path))
            results += [WriteResult(indices[key], tensors[key].nbytes, written) for key in tensors]
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the layout and publish the checkpoint; called on the coordinator after every process has written."""
        written: dict[MetadataIndex, WrittenFile] = {r.index: r.storage_data for part in results for r in part}
        path = self.folder / LAYOUT
        path.write_text(json.dumps(_layout(metadata, written)) + "\n")
        digests = {file.name: file.sha256 for file in written.values()}
        self.publish({**digests, LAYOUT: synced_sha256(path)})

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


class PieceReader(StorageReader):
    """Reads the tensors in `folder`, whose layout may name only `files`. Raises InputError if the layout is invalid."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.folder = folder
        try:
            self.metadata = _metadata(json.loads((folder / LAYOUT).read_bytes()), set(files))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"'{folder / LAYOUT}' is not a tensor layout ({error!r})", "remove the folder") from None

    def meta_tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return the stored tensors whose names begin with `prefix`, on the meta device."""
        stored: dict[str, TensorStorageMetadata] = self.metadata.state_dict_metadata  # type: ignore[assignment]
        return {
            name: torch.empty(tensor.size, dtype=tensor.properties.dtype, device="meta")
            for name, tensor in stored.items()
            if name.startswith(prefix)
        }

    def check(self, wanted: Mapping[str, Tensor], prefix: str) -> None:
        """Raise InputError unless exactly `wanted` (name, shape, dtype) is stored under `prefix`, in intact files."""
        stored = self.meta_tensors(prefix)
        for name in sorted(stored.keys() | wanted.keys()):
            theirs, ours = (f"{_described(of[name])}" if name in of else "nothing" for of in (stored, wanted))
            if theirs != ours:
                raise InputError(
                    f"'{self.folder}' is a checkpoint of another model: its '{name}' is {theirs}, "
                    f"where {ours} is expected",
                    "name the folder of this model, or choose another --out",
                )
        for file, pieces in self._by_file(stored).items():
            self._check_file(file, pieces)

    def _by_file(self, names: Iterable[str]) -> dict[str, list[MetadataIndex]]:
        files: dict[str, list[MetadataIndex]] = {}
        wanted = set(names)
        for index, (file, _) in self.metadata.storage_data.items():
            if index.fqn in wanted:
                files.setdefault(file, []).append(index)
        return files

    def _check_file(self, name: str, pieces: Iterable[MetadataIndex]) -> None:
        try:
            with safe_open(self.folder / name, "pt") as file:
                for index in pieces:
                    stored = file.get_slice(_key(index))
                    dtype = self.metadata.state_dict_metadata[index.fqn].properties.dtype  # type: ignore[union-attr]
                    shape = self.metadata.storage_data[index][1]
                    if (tuple(stored.get_shape()), _SAFETENSORS_DTYPES.get(stored.get_dtype())) != (shape, dtype):
                        raise InputError(f"'{self.folder / name}' has another '{_key(index)}' than {LAYOUT} says")
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"'{self.folder / name}' does not contain what {LAYOUT} says ({error})", "remove the folder"
            ) from None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's tensors, reading from each file only what they need."""
        files: dict[str, list[Any]] = {}
        for item in plan.items:
            files.setdefault(self.metadata.storage_data[item.storage_index][0], []).append(item)
        for name, items in files.items():
            with safe_open(self.folder / name, "pt") as file:
                for item in items:
                    target = planner.resolve_tensor(item).detach()
                    key = _key(item.storage_index)
                    cut = tuple(slice(o, o + n) for o, n in zip(item.storage_offsets, item.lengths, strict=True))
                    target.copy_(file.get_slice(key)[cut] if cut else file.get_tensor(key))
                    planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None: ...

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def read_tensors(reader: PieceReader, tensors: dict[str, Tensor]) -> None:
    """Fill `tensors`, including DTensors, in place. Each process reads its own pieces and waits for no other."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as no_dist asks
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        load(tensors, storage_reader=reader, planner=planner, no_dist=True)


def synced_sha256(path: Path) -> str:
    """Sync a file to disk and return its SHA-256."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _key(index: MetadataIndex) -> str:
    return f"{index.fqn}@{','.join(map(str, index.offset or ()))}"


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _layout(metadata: Metadata, written: Mapping[MetadataIndex, WrittenFile]) -> dict[str, Any]:
    layout = {}
    for name, tensor in metadata.state_dict_metadata.items():
        assert isinstance(tensor, TensorStorageMetadata), f"{name} is not a tensor"
        pieces = [
            {
                "file": written[MetadataIndex(name, chunk.offsets)].name,
                "offset": list(chunk.offsets),
                "shape": list(chunk.sizes),
            }
            for chunk in tensor.chunks
        ]
        dtype = str(tensor.properties.dtype).removeprefix("torch.")
        layout[name] = {"dtype": dtype, "shape": list(tensor.size), "pieces": pieces}
    return layout


def _metadata(layout: dict[str, Any], files: set[str]) -> Metadata:
    """Invert `_layout`, checking every value because the file is untrusted."""
    tensors: dict[str, Any] = {}
    places: dict[MetadataIndex, tuple[str, tuple[int, ...]]] = {}
    for name, tensor in layout.items():
        shape, chunks = _sizes(tensor["shape"]), []
        for piece in tensor["pieces"]:
            file, offset, sizes = piece["file"], _sizes(piece["offset"]), _sizes(piece["shape"])
            if file not in files:
                raise ValueError(f"{file!r} is not one of its files")
            if any(o + n > whole for o, n, whole in zip(offset, sizes, shape, strict=True)):
                raise ValueError(f"a piece of {name!r} exceeds its shape")
            chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(sizes)))
            places[MetadataIndex(name, offset)] = (file, sizes)
        if sum(math.prod(chunk.sizes) for chunk in chunks) != math.prod(shape):
            raise ValueError(f"the pieces of {name!r} do not add up to its shape")
        properties = TensorProperties(dtype=_DTYPES[tensor["dtype"]])
        tensors[name] = TensorStorageMetadata(properties, torch.Size(shape), chunks)
    return Metadata(tensors, storage_data=places)


def _sizes(values: list[int]) -> tuple[int, ...]:
    if not all(type(value) is int and value >= 0 for value in values) or math.prod(max(1, n) for n in values) >= 2**48:
        raise ValueError(f"{values!r} are not valid sizes")
    return tuple(values)
