"""Checkpoints: `checkpoints/step-000100/` has the tensors as safetensors and the run's state as JSON.

A checkpoint is written under a temporary name, fsynced and renamed, so one with its final name is complete.
`state.json`, written last, records the SHA-256 of the other files, and a checkpoint whose files differ is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.recipe import with_check, without_check
from webtext.base.storage import Folder, file_sha256, sync_folder
from webtext.train.checkpoint.model_copy import local_model
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from torch import Tensor

    from webtext.train.checkpoint.storage import PieceReader
    from webtext.train.model.gpt2 import GPT2
    from webtext.train.model.initialization import Values

FORMAT = 2
STATE = "state.json"
MODEL, OPTIMIZER = "model.", "optimizer."  # prefixes of tensor names
_NAME = re.compile(r"step-(\d{6,})")
_FILE = re.compile(r"[a-z]+-\d{5,}\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are unchanged since they were written."""

    path: Path
    step: int
    state: Mapping[str, Any]

    @property
    def config(self) -> GPT2Config:
        """The shape of its model. Raises InputError if `state` has no valid one."""
        try:
            return GPT2Config(**self.state["config"])
        except (KeyError, TypeError, ConfigError) as error:
            what = f"'{self.path / STATE}' has no valid model shape as its config ({error!r:.200})"
            raise InputError(what, "remove the folder") from None

    def run_state(self) -> Mapping[str, Any]:
        """Return the state that a run needs to resume. Raises InputError if something is missing."""
        for name in ("recipe", "sampler", "guard", "result", "environment"):
            if not isinstance(self.state.get(name), dict):
                raise InputError(f"'{self.path / STATE}' has no {name}, so no run wrote it", "remove the folder")
        if not {"settings", "code_version"} <= self.state["recipe"].keys():
            raise InputError(f"'{self.path / STATE}' has a recipe without settings or version", "remove the folder")
        return self.state

    def read(self, tensors: Mapping[str, Tensor], elsewhere: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        """Fill `tensors` in place. Raises InputError, before any is overwritten, if names, shapes or dtypes differ.

        The checkpoint must contain these tensors, those `elsewhere` (in other processes) and nothing else.
        """
        self._reader().read(tensors, elsewhere, prefix="")

    def values(self) -> Values:
        """Return its model's parameters, each read when it is asked for. Raises InputError if one isn't finite."""
        import torch

        reader = self._reader()
        n_blocks = len({name.split(".")[2] for name in reader.described(MODEL + "blocks.")})
        if n_blocks != self.config.n_layer:  # checked before a model of that many is made
            what = f"'{self.path}' contains {n_blocks} layers, but its {STATE} says {self.config.n_layer:,}"
            raise InputError(what, "remove the folder")

        def values(name: str, shape: Sequence[int]) -> Tensor:
            tensor = torch.zeros(*shape, dtype=torch.float32, device="cpu")
            reader.read({MODEL + name: tensor}, {}, prefix=MODEL + name)
            if not torch.isfinite(tensor).all():
                raise InputError(f"'{MODEL}{name}' in '{self.path}' has values that are not finite", "name another")
            return tensor

        return values

    def _reader(self) -> PieceReader:
        from webtext.train.checkpoint.storage import PieceReader  # which loads torch

        return PieceReader(self.path, self.state["files"])


class _Damaged(InputError):
    """A checkpoint that has changed since it was written; the previous one is used instead."""


def checkpoint_path(model_dir: Path, step: int) -> Path:
    """Return the folder of the checkpoint of `step`."""
    return model_dir / "checkpoints" / f"step-{step:06d}"


def temporary_path(target: Path) -> Path:
    """Return the folder in which the checkpoint `target` is written; no two runs write to one model folder."""
    return target.with_name(f".{target.name}.tmp")


def publish_checkpoint(saved: Checkpoint, files: Mapping[str, str]) -> None:
    """Publish the synced `files` (name to SHA-256) in `saved`'s temporary folder: write state.json, rename."""
    whole = {**saved.state, "format": FORMAT, "step": saved.step, "files": files}
    Folder(temporary_path(saved.path)).write_object(STATE, with_check(whole))  # which also syncs the files' names
    shutil.rmtree(saved.path, ignore_errors=True)  # a damaged one that was skipped
    os.rename(temporary_path(saved.path), saved.path)
    sync_folder(saved.path.parent)


def latest_checkpoint(
    model_dir: Path, warn: Callable[[str], object] = warnings.warn, *, verify: bool = True
) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, None without any. Warns of damaged ones; InputError if all are damaged."""
    problems: list[str] = []
    for path in reversed(list_checkpoints(model_dir)):
        try:
            found = open_checkpoint(path, verify=verify)
        except _Damaged as error:
            problems.append(error.lines[0])
        else:
            for problem in problems:
                warn(f"skipping a checkpoint: {problem}; using '{path}'")
            return found
    if not problems:
        return None
    remedy = "remove the folder to start over, or choose another --out"
    raise InputError(f"every checkpoint in '{model_dir}' is damaged", f"the newest: {problems[0]}", remedy)


def list_checkpoints(model_dir: Path) -> list[Path]:
    """Return the published checkpoints, oldest first."""
    found = [path for path in (model_dir / "checkpoints").glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def best_checkpoint(model_dir: Path) -> tuple[Path, float] | None:
    """Return the checkpoint of lowest held-out loss (the later of equals) and that loss; None if none was measured."""
    measured = []
    for path in list_checkpoints(model_dir):
        with contextlib.suppress(InputError, ValueError, KeyError, TypeError):  # `latest_checkpoint` reports
            measured.append((path, float(open_checkpoint(path, verify=False).state["validation_loss"])))
    return min(reversed(measured), key=lambda found: found[1], default=None)


def prune_checkpoints(newest: Path, keep: int | None) -> None:
    """Remove all but `newest`, the `keep` - 1 before it and the best one.

    Temporary folders of killed runs go too, and later checkpoints: damaged ones that were skipped when the run resumed.
    """
    found = list_checkpoints(newest.parents[1])
    n = found.index(newest) + 1
    for path in (*newest.parent.glob(".step-*.tmp"), *found[n:]):
        shutil.rmtree(path, ignore_errors=True)
    best = best_checkpoint(newest.parents[1])
    for path in found[: max(0, n - keep) if keep else 0]:
        if best is None or path != best[0]:
            with contextlib.suppress(OSError):  # renamed first, so that one with its final name is complete
                os.rename(path, temporary_path(path))
                sync_folder(path.parent)
            shutil.rmtree(temporary_path(path), ignore_errors=True)


def open_checkpoint(path: Path, *, verify: bool = True) -> Checkpoint:
    """Read `state.json` and verify the other files against it, unless another process has done so (`verify=False`)."""
    remedy = "remove the folder; the checkpoint before it will be used"
    try:
        state = without_check(json.loads((path / STATE).read_text()))
        step, files, version = int(state["step"]), dict(state["files"]), state["format"]
        for name, digest in files.items() if version == FORMAT else ():
            if not _FILE.fullmatch(name):
                raise ValueError(f"{name!r} is not a checkpoint file")
            with open(path / name, "rb") as file:
                if verify and file_sha256(file) != digest:
                    raise _Damaged(f"'{path / name}' has changed since it was written", remedy)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _Damaged(f"'{path}' is damaged ({type(error).__name__}: {error})", remedy) from None
    if version != FORMAT:
        raise InputError(
            f"'{path}' has checkpoint format {version}, but this webtext reads format {FORMAT}",
            "choose another --out, or use the version that wrote it (its `train export` writes a folder that all read)",
        )
    return Checkpoint(path, step, state)


def load_model(path: str | os.PathLike[str], warn: Callable[[str], object] = warnings.warn) -> GPT2:
    """Load a model from a Hugging Face folder, a checkpoint or a training folder."""
    return model_of(checkpoint_of(path, warn), path)


def model_of(found: Checkpoint | None, path: str | os.PathLike[str]) -> GPT2:
    """Load the model of `checkpoint_of` the folder `path`."""
    from webtext.train.model.gpt2 import GPT2

    if found is None:
        return GPT2.from_huggingface(local_model(path))
    return GPT2(found.config, values=found.values())


def checkpoint_of(
    path: str | os.PathLike[str], warn: Callable[[str], object] = warnings.warn, *, verify: bool = True
) -> Checkpoint | None:
    """Return the checkpoint at `path`, or `latest_checkpoint` of a training folder; None for a Hugging Face folder."""
    place = local_model(path)
    if (place / "config.json").is_file():
        return None
    if (place / STATE).is_file():
        return open_checkpoint(place, verify=verify)
    found = latest_checkpoint(place, warn, verify=verify)
    if found is None:
        raise InputError(f"'{place}' contains no model", "name a training folder, a checkpoint or an exported folder")
    return found
