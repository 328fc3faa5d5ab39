"""Checkpoints: `checkpoints/step-000100/` with tensors as safetensors, their layout and the run's state as JSON.

A checkpoint is written under a temporary name, fsynced and renamed, so one with its final name is whole. Which is the
latest is decided by listing; `state.json`, written last, holds the SHA-256 of the other files, and one that differs is
passed over. Nothing is pickled: reading a checkpoint runs no code. `checkpoint_storage.py` is how tensors lie in it,
`checkpoint_saver.py` how a run saves without standing still.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from torch import Tensor

    from webtext.train.model import GPT2

FORMAT = 2
STATE = "state.json"
MODEL, OPTIMIZER = "model.", "optimizer."  # what tensors' names begin with
_NAME = re.compile(r"step-(\d{6,})")
_FILE = re.compile(r"layout\.json|[a-z]+-\d{5,}\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are as they were written."""

    path: Path
    step: int
    state: Mapping[str, Any]

    @property
    def config(self) -> GPT2Config:
        """The shape of its model. InputError where there is none: the file may come from anybody."""
        try:
            config = GPT2Config(**self.state["config"])
            if not all(type(value) is int for name, value in asdict(config).items() if name != "dropout"):
                raise TypeError(f"{config} has sizes that are no whole numbers")
        except (KeyError, TypeError, ConfigError) as error:
            raise InputError(
                f"'{self.path / STATE}' has no shape of a model as its config ({error!r:.200})", "remove the folder"
            ) from None
        return config

    def run_state(self) -> Mapping[str, Any]:
        """Its state, with all that a run needs to go on. InputError where something is missing."""
        for name in ("recipe", "sampler", "guard", "result", "environment"):
            if not isinstance(self.state.get(name), dict):
                raise InputError(f"'{self.path / STATE}' has no {name}: no run wrote it", "remove the folder")
        if not {"settings", "code_version"} <= self.state["recipe"].keys():
            raise InputError(f"'{self.path / STATE}' has a recipe without settings", "remove the folder")
        return self.state

    def read(self, tensors: dict[str, Tensor], elsewhere: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        """Fill `tensors`; InputError, and nothing overwritten, where the checkpoint has other names, shapes or dtypes.

        It must hold these and those `elsewhere`, in other processes, and nothing else.
        """
        from webtext.train.checkpoint_storage import PieceReader, read_tensors

        reader = PieceReader(self.path, self.state["files"])
        reader.check({**elsewhere, **tensors}, prefix="")
        read_tensors(reader, tensors)

    def model(self) -> GPT2:
        """Its model, on the CPU."""
        import torch

        from webtext.train.checkpoint_storage import PieceReader, read_tensors
        from webtext.train.model import GPT2

        reader = PieceReader(self.path, self.state["files"])
        n_blocks = len({name.split(".")[2] for name in reader.meta_tensors(MODEL + "blocks.")})
        if n_blocks != self.config.n_layer:  # said before a model of that many is made
            raise InputError(
                f"'{self.path}' holds {n_blocks} layers, and its {STATE} says {self.config.n_layer:,}",
                "remove the folder",
            )
        with torch.device("meta"):
            model = GPT2(self.config)
        wanted = {MODEL + name: tensor for name, tensor in model.state_dict().items()}
        reader.check(wanted, prefix=MODEL)
        tensors = {name: torch.zeros_like(tensor, device="cpu") for name, tensor in wanted.items()}
        read_tensors(reader, tensors)
        model.load_state_dict({name.removeprefix(MODEL): tensor for name, tensor in tensors.items()}, assign=True)
        return model.requires_grad_(True)


class _Damaged(InputError):
    """A checkpoint that is not as it was written: the one before it serves."""


def checkpoint_path(model_dir: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return model_dir / "checkpoints" / f"step-{step:06d}"


def temporary_path(target: Path) -> Path:
    """Where the files lie that are to become the checkpoint `target`; no two runs write in one folder."""
    return target.with_name(f".{target.name}.tmp")


def publish_checkpoint(
    target: Path, step: int, config: GPT2Config, files: Mapping[str, str], state: Mapping[str, Any]
) -> None:
    """Make a checkpoint of the synced `files` (name to SHA-256) that lie in its temporary folder: state.json, a rename."""
    temporary = temporary_path(target)
    whole = {"format": FORMAT, "step": step, "config": asdict(config), "files": files, **state}
    with open(temporary / STATE, "x") as file:
        file.write(json.dumps(whole, indent=1, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(temporary)
    shutil.rmtree(target, ignore_errors=True)  # a damaged one that was passed over
    os.rename(temporary, target)
    _sync_folder(target.parent)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; what the system says (no space left) is an OSError, as of any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # safetensors leaves a file that its owner alone may read
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
        path.chmod(mode)
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
        except _Damaged as error:
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


def open_checkpoint(path: Path, *, verify: bool = True) -> Checkpoint:
    """Read `state.json` and verify the other files against it; without `verify` another process has done so."""
    remedy = "remove the folder; the one before it will be used"
    try:
        state = json.loads((path / STATE).read_text())
        step, files, version = int(state["step"]), dict(state["files"]), state["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _Damaged(f"'{path / STATE}' cannot be read ({error!r})", remedy) from None
    if version != FORMAT:
        raise InputError(
            f"'{path}' is of checkpoint format {version}, and this webtext reads format {FORMAT}",
            "choose another --out, or use the version that wrote it (its `train export` leaves a folder that all read)",
        )
    for name, digest in files.items():
        if not _FILE.fullmatch(name):
            raise _Damaged(f"'{path / STATE}' names a file {name!r}, which no checkpoint has", remedy)
        if not (path / name).is_file():
            raise _Damaged(f"'{path / name}' is missing", remedy)
        if verify and _sha256(path / name) != digest:
            raise _Damaged(f"'{path / name}' is not as it was written", remedy)
    return Checkpoint(path, step, state)


def visible_files(path: Path) -> tuple[str, list[int]] | None:
    """What this process sees of a checkpoint: SHA-256 of its state.json, which has those of its other files, and their sizes.

    None where a file is missing. Hosts that share a file system may see it late.
    """
    try:
        state = (path / STATE).read_bytes()
        return hashlib.sha256(state).hexdigest(), [(path / name).stat().st_size for name in json.loads(state)["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def load_model(path: str | os.PathLike[str], warn: Callable[[str], object] = warnings.warn) -> GPT2:
    """A model from an exported Hugging Face folder, one checkpoint, or a training folder (as `find_checkpoint`)."""
    from webtext.train.huggingface import read_huggingface

    place = Path(path)
    if (place / "config.json").is_file():
        return read_huggingface(place).eval()
    return find_checkpoint(place, warn).model().eval()


def find_checkpoint(place: Path, warn: Callable[[str], object] = warnings.warn) -> Checkpoint:
    """The checkpoint at `place`, or the latest whole one of a training folder; InputError when there is none.

    `warn` is told of each newer one that is damaged.
    """
    if (place / STATE).is_file():
        return open_checkpoint(place)
    problems: list[str] = []
    found = latest_checkpoint(place, problems.append)
    if found is None:
        if problems:
            raise InputError(f"no checkpoint in '{place}' is whole", problems[0])
        raise InputError(f"'{place}' holds no model", "name a training folder, a checkpoint or an exported folder")
    for problem in problems:
        warn(f"{problem}; '{found.path}' is taken")
    return found


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
