"""Storage for torch.distributed.checkpoint (DCP): pieces of tensors in safetensors files.

DCP's planners decide which process writes which piece, and which pieces fill a tensor that is read. They understand
DTensors, so one mesh can read what another wrote, and each process writes a share of the replicated tensors. DCP's own
storage pickles the layout, so that reading a file can run code. This one stores only tensors: nothing is unpickled. A
file's header says where its pieces belong: the key of a piece is "NAME@OFFSET", and a tensor is as large as its pieces.

    model-00000.safetensors  the model's pieces that process 0 wrote, for example "model.final_norm.weight@0"
    optimizer-00000.safetensors
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from webtext.base.errors import InputError
from webtext.base.storage import make_folder
from webtext.train.model.tensor_file import write_tensors

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64,
    "I32": torch.int32, "U8": torch.uint8,
}  # fmt: skip
_KEY = re.compile(r"(.+)@((?:\d{1,15}(?:,\d{1,15}){0,7})?)", re.ASCII)


class PieceWriter(FileSystemWriter):
    """Writes one save. `stage_pieces` copies them; `publish` is called once, after all processes have written."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        stage_pieces: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        publish: Callable[[dict[str, str]], None],
    ) -> None:
        super().__init__(folder)
        self.folder, self.rank, self.stage_pieces, self.publish = folder, rank, stage_pieces, publish

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if is_coordinator:  # the others wait for its plan, so they write after this
            make_folder(self.folder)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan  # torch would make the folder here, unsynced

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this process's pieces, one file for each kind of tensor."""
        indices = {_key(item.index): item.index for item in plan.items}
        pieces = {key: cast(Tensor, planner.resolve_data(item)) for key, item in zip(indices, plan.items, strict=True)}
        files: dict[str, dict[str, Tensor]] = {}
        for key, tensor in self.stage_pieces(pieces).items():
            files.setdefault(key.partition(".")[0], {})[key] = tensor
        results = []
        for kind, tensors in files.items():
            path = self.folder / f"{kind}-{self.rank:05d}.safetensors"
            write_tensors(path, tensors)
            written = (path.name, synced_sha256(path))
            results += [WriteResult(indices[key], tensors[key].nbytes, written) for key in tensors]
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publish the checkpoint; called on the coordinator after every process has written."""
        self.publish(dict(result.storage_data for part in results for result in part))


class PieceReader(FileSystemReader):
    """Reads the tensors in the safetensors `files` of a folder. Raises InputError if these don't make tensors."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        super().__init__(folder)
        self.folder = folder
        self._files: dict[MetadataIndex, str] = {}
        self._tensors: dict[str, TensorStorageMetadata] = {}
        for name in sorted(file for file in files if file.endswith(".safetensors")):
            try:
                self._read_header(name)
            except (SafetensorError, OSError, ValueError, KeyError) as error:
                raise InputError(
                    f"'{folder / name}' is not made of tensors ({error!r:.200})", "remove the folder"
                ) from None
        for name, tensor in self._tensors.items():
            if sum(math.prod(chunk.sizes) for chunk in tensor.chunks) != math.prod(tensor.size):
                raise InputError(f"'{folder}' does not have exactly the pieces of '{name:.200}'", "remove the folder")

    def _read_header(self, name: str) -> None:
        with safe_open(self.folder / name, "pt") as file:
            for key in file.keys():  # noqa: SIM118  it isn't a mapping
                if (match := _KEY.fullmatch(key)) is None:
                    raise ValueError(f"{key[:60]!r} is not a piece's NAME@OFFSET")
                stored, offset = file.get_slice(key), tuple(map(int, filter(None, match[2].split(","))))
                sizes, dtype = tuple(stored.get_shape()), _DTYPES[stored.get_dtype()]
                ends = [o + n for o, n in zip(offset, sizes, strict=True)]
                empty = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size([0] * len(ends)), [])
                tensor = self._tensors.setdefault(match[1], empty)
                if tensor.properties.dtype != dtype:
                    raise ValueError(f"{key[:60]!r} has another dtype than other pieces")
                tensor.size = torch.Size(map(max, zip(tensor.size, ends, strict=True)))
                tensor.chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(sizes)))
                self._files[MetadataIndex(match[1], offset)] = name

    def described(self, prefix: str) -> dict[str, str]:
        """Return dtype and shape of the stored tensors whose names begin with `prefix`."""
        return {
            name: f"{_name(tensor.properties.dtype)} {list(tensor.size)}"
            for name, tensor in self._tensors.items()
            if name.startswith(prefix)
        }

    def check(self, wanted: Mapping[str, Tensor], prefix: str) -> None:
        """Raise InputError unless exactly `wanted` (name, shape, dtype) is stored under `prefix`."""
        stored = self.described(prefix)
        expected = {name: f"{_name(tensor.dtype)} {list(tensor.shape)}" for name, tensor in wanted.items()}
        for name in sorted(stored.keys() | expected.keys()):
            theirs, ours = stored.get(name, "nothing"), expected.get(name, "nothing")
            if theirs != ours:
                raise InputError(
                    f"'{self.folder}' is a checkpoint of another model: its '{name}' is {theirs}, "
                    f"where {ours} is expected",
                    "name the folder of this model, or choose another --out",
                )

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata(dict(self._tensors), storage_data=self._files)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's tensors, reading from each file only what they need."""
        files: dict[str, list[Any]] = {}
        for item in plan.items:
            files.setdefault(self._files[item.storage_index], []).append(item)
        for name, items in files.items():
            with safe_open(self.folder / name, "pt") as file:
                for item in items:
                    target = planner.resolve_tensor(item).detach()
                    key = _key(item.storage_index)
                    cut = tuple(slice(o, o + n) for o, n in zip(item.storage_offsets, item.lengths, strict=True))
                    target.copy_(file.get_slice(key)[cut] if cut else file.get_tensor(key))
                    planner.commit_tensor(item, target)
        return _done(None)


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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
