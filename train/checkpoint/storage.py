"""How a checkpoint's tensors are stored: as pieces, in safetensors files.

Each process has a shard of every tensor: its part of a DTensor, or all of another tensor. A shard that several have is
written by one of them. A piece's key is "NAME@OFFSET", and a tensor is as large as its pieces, so any mesh reads the
files of another: each process copies the pieces that overlap with its shards. Reading a file runs no code.

    model-00000.safetensors  the model's pieces that process 0 wrote, for example "model.final_norm.weight@0"
    optimizer-00000.safetensors
"""

from __future__ import annotations

import math
import os
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import add, itemgetter, lt, sub
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.tensor import DTensor

from webtext.base.errors import InputError
from webtext.base.storage import file_sha256
from webtext.train.model.huggingface import write_tensors

_DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "I64": "int64", "U8": "uint8"}
_Piece = tuple[list[int], list[int], Any]  # first indices, those after the last, and the data
_KEY = re.compile(r"(.+)@((?:\d{1,15}(?:,\d{1,15}){0,7})?)", re.ASCII)


def shards_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return this process's shards of `tensors`, on their memory, by key; empty ones are left out."""
    shards = {}
    for item in create_default_local_save_plan(dict(tensors), is_coordinator=True).items:  # one for each tensor
        tensor = tensors[item.index.fqn].detach()
        shard = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        shards[f"{item.index.fqn}@{','.join(map(str, item.index.offset or ()))}"] = shard
    return {key: shard for key, shard in shards.items() if shard.numel()}


def share_of(rank: int, sizes: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the keys that a process writes, given the keys and bytes of every process's shards.

    The largest come first, each to the process with the least to write among its holders.
    """
    keys, n_bytes = [], [0] * len(sizes)
    for key, size in sorted(ChainMap(*map(dict, sizes)).items(), key=itemgetter(1), reverse=True):
        writer = min((i for i, each in enumerate(sizes) if key in each), key=n_bytes.__getitem__)
        n_bytes[writer] += size
        keys += [key] * (writer == rank)
    return keys


def write_pieces(folder: Path, rank: int, pieces: Mapping[str, Tensor]) -> dict[str, str]:
    """Write one file for each kind of tensor, and sync it; return their SHA-256 by their names."""
    kinds: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, piece in pieces.items():
        kinds[key.partition(".")[0]][key] = piece
    digests = {}
    for kind, of_kind in kinds.items():
        path = folder / f"{kind}-{rank:05d}.safetensors"
        write_tensors(path, of_kind)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
            digests[path.name] = file_sha256(file)
    return digests


class PieceReader:
    """Reads the tensors in the safetensors `files` of a folder. Raises InputError if these don't make tensors."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.folder = folder
        self._tensors: dict[str, tuple[str, list[int], list[_Piece]]] = {}  # dtype, shape, pieces
        for path in sorted(folder / name for name in files if name.endswith(".safetensors")):
            try:
                self._read_header(path)
            except (SafetensorError, OSError, ValueError, KeyError) as error:
                raise InputError(f"'{path}' is not made of tensors ({error!r:.200})", "remove the folder") from None
        for name, (_, shape, pieces) in self._tensors.items():
            if sum(math.prod(map(sub, stop, start)) for start, stop, _ in pieces) != math.prod(shape):
                raise InputError(f"'{folder}' does not have exactly the pieces of '{name:.200}'", "remove the folder")

    def _read_header(self, path: Path) -> None:
        file: Any = safe_open(path, "pt")  # open as long as its slices are
        for key in file.keys():  # noqa: SIM118  it isn't a mapping
            (name, start), data = _parsed(key), file.get_slice(key)
            stop = [first + n for first, n in zip(start, data.get_shape(), strict=True)]
            dtype = _DTYPES[data.get_dtype()]
            known, shape, pieces = self._tensors.setdefault(name, (dtype, [0] * len(stop), []))
            if dtype != known:
                raise ValueError(f"{key[:60]!r} has another dtype than other pieces")
            shape[:] = [max(ends) for ends in zip(shape, stop, strict=True)]
            pieces.append((start, stop, data))

    def described(self, prefix: str) -> dict[str, str]:
        """Return dtype and shape of the stored tensors whose names begin with `prefix`."""
        return {name: f"{t[0]} {t[1]}" for name, t in self._tensors.items() if name.startswith(prefix)}

    def read(self, tensors: Mapping[str, Tensor], elsewhere: Mapping[str, Tensor], prefix: str) -> None:
        """Fill this process's shards of `tensors` in place, reading only the parts that they need.

        Raises InputError, before any is overwritten, unless exactly these tensors and those `elsewhere` (name, shape,
        dtype) are stored under `prefix`.
        """
        stored, wanted = self.described(prefix), {**elsewhere, **tensors}
        expected = {name: f"{t.dtype} {list(t.shape)}".removeprefix("torch.") for name, t in wanted.items()}
        if wrong := stored.items() ^ expected.items():
            name = min(wrong)[0]
            theirs, ours = (each.get(name, "nothing") for each in (stored, expected))
            what = f"'{self.folder}' is of another model: its '{name}' is {theirs}, where {ours} is expected"
            raise InputError(what, "name the folder of this model, or choose another --out")
        for key, shard in shards_of(tensors).items():
            name, first = _parsed(key)
            last = list(map(add, first, shard.shape))
            for start, stop, data in self._tensors[name][2]:
                begin, end = list(map(max, first, start)), list(map(min, last, stop))
                if all(map(lt, begin, end)):
                    shard[_between(begin, end, first)].copy_(data[_between(begin, end, start)])


def _parsed(key: str) -> tuple[str, list[int]]:
    if (match := _KEY.fullmatch(key)) is None:
        raise ValueError(f"{key[:60]!r} is not a piece's NAME@OFFSET")
    return match[1], [int(index) for index in match[2].split(",") if index]


def _between(begin: list[int], end: list[int], origin: list[int]) -> tuple[slice, ...]:
    return tuple(slice(b - o, e - o) for b, e, o in zip(begin, end, origin, strict=True))
