"""Checkpoints: `checkpoints/step-000100/` with model and optimizer as safetensors and the rest as `state.json`.

A checkpoint is written under a temporary name, fsynced and renamed, so one with its final name is whole. Which is the
latest is decided by listing; `state.json` holds the SHA-256 of the other files, and one that differs is passed over.
Nothing is pickled: reading a checkpoint runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webtext.base.errors import InputError
from webtext.base.storage import no_space_is_an_error
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from torch import Tensor

    from webtext.train.model import GPT2

FORMAT = 1
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are as they were written."""

    path: Path
    step: int
    state: Mapping[str, Any]

    @property
    def config(self) -> GPT2Config:
        """The shape of its model."""
        return GPT2Config(**self.state["config"])

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one of its files, on the CPU."""
        from safetensors.torch import load_file

        return load_file(self.path / name)


def save_checkpoint(
    model_dir: Path, step: int, config: GPT2Config, files: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> Checkpoint:
    """Publish one checkpoint: `files` maps file names to tensors, `state` is JSON beside them."""
    folder = model_dir / "checkpoints"
    target = folder / f"step-{step:06d}"
    temporary = folder / f".{target.name}.{os.getpid()}.tmp"
    with no_space_is_an_error(str(target)):
        try:
            temporary.mkdir(parents=True, exist_ok=True)
            digests = {}
            for name, tensors in files.items():
                write_tensors(temporary / name, tensors)
                digests[name] = _synced_sha256(temporary / name)
            whole = {"format": FORMAT, "step": step, "config": asdict(config), "files": digests, **state}
            (temporary / STATE).write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n")
            _synced_sha256(temporary / STATE)
            _sync_folder(temporary)
            shutil.rmtree(target, ignore_errors=True)  # a damaged one that was passed over
            os.rename(temporary, target)
            _sync_folder(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Checkpoint(target, step, whole)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; what the system says (no space left) is an OSError, as of any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error), str(path)) from None


def latest_checkpoint(model_dir: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are named and passed over."""
    for path in reversed(list_checkpoints(model_dir)):
        try:
            return open_checkpoint(path)
        except InputError as error:
            say(f"passing over a checkpoint: {error.lines[0]}")
    return None


def list_checkpoints(model_dir: Path) -> list[Path]:
    """The published checkpoints, oldest first."""
    folder = model_dir / "checkpoints"
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def best_checkpoint(model_dir: Path) -> tuple[Path, float] | None:
    """The checkpoint of lowest held-out loss and that loss, the later of equals; None where none was measured."""
    measured = []
    for path in list_checkpoints(model_dir):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):  # `open_checkpoint` tells
            measured.append((path, float(json.loads((path / STATE).read_text())["validation_loss"])))
    return min(reversed(measured), key=lambda found: found[1], default=None)


def prune_checkpoints(model_dir: Path, keep: int | None, *, keep_best: bool) -> None:
    """Remove all but the newest `keep` checkpoints and the best one, and what killed runs left."""
    for path in (model_dir / "checkpoints").glob(".step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    best = best_checkpoint(model_dir) if keep_best else None
    for path in list_checkpoints(model_dir)[: -keep if keep else 0]:
        if best is None or path != best[0]:
            shutil.rmtree(path, ignore_errors=True)


def open_checkpoint(path: Path) -> Checkpoint:
    """Read `state.json` and verify the other files against it."""
    remedy = "remove the folder; the one before it will be used"
    try:
        state = json.loads((path / STATE).read_text())
        step, files, version = int(state["step"]), dict(state["files"]), state["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"'{path / STATE}' cannot be read ({error!r})", remedy) from None
    if version != FORMAT:
        raise InputError(f"'{path}' is of checkpoint format {version}", f"this webtext reads format {FORMAT}")
    for name, digest in files.items():
        if not (path / name).is_file():
            raise InputError(f"'{path / name}' is missing", remedy)
        if _sha256(path / name) != digest:
            raise InputError(f"'{path / name}' is not as it was written", remedy)
    return Checkpoint(path, step, state)


def load_model(path: str | os.PathLike[str]) -> GPT2:
    """A model from an exported Hugging Face folder, one checkpoint, or a training folder (its latest checkpoint)."""
    from webtext.train.huggingface import read_huggingface

    place = Path(path)
    if (place / "config.json").is_file():
        return read_huggingface(place).eval()
    return checkpoint_model(find_checkpoint(place)).eval()


def find_checkpoint(place: Path) -> Checkpoint:
    """The checkpoint at `place`, or the latest of a training folder; InputError when there is none."""
    if (place / STATE).is_file():
        return open_checkpoint(place)
    problems: list[str] = []
    found = latest_checkpoint(place, problems.append)
    if found is None:
        if problems:
            raise InputError(f"no checkpoint in '{place}' is whole", problems[0])
        raise InputError(f"'{place}' holds no model", "name a training folder, a checkpoint or an exported folder")
    return found


def checkpoint_model(checkpoint: Checkpoint) -> GPT2:
    """The model of a checkpoint."""
    import torch

    from webtext.train.model import GPT2

    with torch.device("meta"):
        model = GPT2(checkpoint.config)
    model.load_state_dict(checkpoint.tensors(MODEL), assign=True)
    return model.requires_grad_(True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synced_sha256(path: Path) -> str:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
