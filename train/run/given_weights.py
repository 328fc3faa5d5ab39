"""Given weights, with which a run starts instead of drawn ones: a Hugging Face GPT-2 folder, a checkpoint, or a
training folder, whose latest checkpoint is taken. Only the model's parameters are read, not the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webtext.base.console import Console
from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.storage import file_sha256
from webtext.train.checkpoint.checkpoint import STATE, Checkpoint, checkpoint_of, checkpoint_path, list_checkpoints
from webtext.train.checkpoint.model_copy import local_model
from webtext.train.data.sources import Source
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.distributed import World
    from webtext.train.model.initialization import Values

FROM = "from"
"""Where a run's recipe records its given weights: {"folder", "step", "tokenizer", "weights": {file: SHA-256}}."""
_SHAPE = ("n_layer", "n_head", "n_embd", "context")


def shape_of(folder: str, out: str | None) -> dict[str, int]:
    """Return the settings of the shape of the model in `folder`; if that is gone, of the model trained in `out`."""
    from webtext.train.model.huggingface import GPT2Folder

    resumes = out is not None and not _exists(local_model(folder)) and list_checkpoints(local_model(out))
    place = out if out and resumes else folder
    found = checkpoint_of(place, lambda _: None, verify=False)
    config = GPT2Folder(local_model(place)).config if found is None else found.config
    return {name: getattr(config, name) for name in _SHAPE}


def given_weights(
    folder: str | None,
    settings: TrainSettings,
    source: Source,
    checkpoint: Checkpoint | None,
    world: World,
    console: Console,
) -> tuple[Mapping[str, Any] | None, Values | None]:
    """Open the weights in `folder`; all processes call this. Return the recipe's record of them, and their values.

    Without a folder both are None. If it is gone and a run only resumes, the values are. Raises InputError or ConfigError
    if its tokenizer, vocabulary or shape isn't the run's, or if the run resumes from `checkpoint` and started with other
    weights than there are now.
    """
    if folder is None:
        return None, None
    from webtext.train.model.huggingface import GPT2Folder, own_tokenizer

    recorded = None if checkpoint is None else checkpoint.run_state()["recipe"]["settings"].get(FROM)
    place = local_model(folder)
    if recorded is not None and not _exists(place):
        return recorded, None
    # process 0 chooses an undamaged checkpoint; one at a URL is in each process's own copy
    found = world.together(lambda: checkpoint_of(folder, console.warn) if world.is_main else None)[0]
    if found is None:
        weights, own = GPT2Folder(place), own_tokenizer(place)
        config, step, tokenizer = weights.config, None, None if own is None else own.hash
        files = {place / name: "" for name in weights.files}
    else:
        found = replace(found, path=place if (place / STATE).is_file() else checkpoint_path(place, found.step))
        config, step = found.config, found.step
        tokenizer = found.run_state()["recipe"]["settings"].get("tokenizer")
        stated = sorted(found.state["files"].items())
        files = {found.path / name: digest for name, digest in stated if not name.startswith("optimizer")}
    _check(config, tokenizer, folder, settings, source, console)
    sizes = tuple((path.name, path.is_file() and path.stat().st_size) for path in files)
    if len(set(world.gather(sizes))) > 1:
        raise MachineError(
            f"the processes see different files in '{folder}'", "name one checkpoint, on a file system that all share"
        )
    digests = {path.name: known or _sha256(path) for path, known in files.items()} if world.is_main else None
    facts = {"folder": folder, "step": step, "tokenizer": tokenizer, "weights": world.gather(digests)[0]}
    if recorded is not None and recorded["weights"] != facts["weights"]:
        raise InputError(
            f"'{folder}' has changed since the run started with it: step {recorded['step']} then, {step} now",
            "name the checkpoint that it started with, restore the folder, or choose another --out",
        )
    return facts, found.values() if found else weights.values


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return file_sha256(file)


def _exists(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())  # the copy of a folder at a URL is empty if that is gone


def _check(
    config: GPT2Config, tokenizer: str | None, folder: str, settings: TrainSettings, source: Source, console: Console
) -> None:
    """Raise InputError or ConfigError, which names both values, if the weights are of another kind than the run's."""
    tokens = source.train
    if tokenizer is None:
        console.warn(f"'{folder}' has no tokenizer: only the size of its vocabulary is compared with '{source.name}'")
    for what, theirs, mine in (
        ("tokenizer", (tokenizer or tokens.tokenizer_hash)[:12], tokens.tokenizer_hash[:12]),
        ("vocabulary size", config.vocab_size, tokens.vocab_size),
    ):
        if theirs != mine:
            raise InputError(
                f"the {what} is {mine} in '{source.name}' and {theirs} in '{folder}'",
                "pack the texts with the tokenizer of the weights",
            )
    ours = settings.config(tokens.vocab_size)
    for name in _SHAPE:
        if getattr(ours, name) != getattr(config, name):
            raise ConfigError(
                f"{name} is {getattr(ours, name)} here and {getattr(config, name)} in '{folder}'",
                "leave out the settings of the shape: it is that of the weights",
            )
