"""`train_model`: the identity of a run, whether it is done, and where it resumes. The steps are in `trainer.py`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webtext.base.config import recipe_settings
from webtext.base.console import Console
from webtext.base.errors import ConfigError, DryRun, InputError, MachineError
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train import missing_torch_is_an_error
from webtext.train.checkpoint.checkpoint import Checkpoint, checkpoint_path, latest_checkpoint, open_checkpoint
from webtext.train.checkpoint.model_copy import ModelCopy
from webtext.train.data.sources import Source, open_sources, source_uses, warning_of_passes
from webtext.train.run.given_weights import FROM, given_weights
from webtext.train.settings import TrainSettings, check_trainable, difference

if TYPE_CHECKING:
    from webtext.train.distributed import World

CODE_VERSION = 5
VISIBLE_SECONDS = 120.0
"""How long a process waits to see the checkpoint that process 0 chose: twice as long as NFS clients cache a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended. Losses are in nats per token, or None without a validation split or an update.

    `mfu_ratio` is over all steps together (`meter.full_rate`), `memory_bytes` the maximum of any step.
    """

    checkpoint: str
    step: int
    tokens: int
    seconds: float
    loss: float | None
    validation_loss: float | None
    skipped_steps: int
    mfu_ratio: float | None
    memory_bytes: int
    skipped: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint, *, skipped: bool) -> TrainResult:
        """Return the result that a run's last checkpoint records."""
        result = checkpoint.run_state()["result"]
        try:
            return cls(checkpoint=str(checkpoint.path), step=checkpoint.step, skipped=skipped, **result)
        except TypeError:
            raise InputError(f"'{checkpoint.path}' has an invalid run result: {sorted(result)}", "remove it") from None


def train_model(
    tokens: str | Sequence[str],
    out: str,
    settings: TrainSettings,
    run: Run,
    *,
    tokenizer: str | None = None,
    start: str | None = None,
) -> TrainResult:
    """Train a GPT-2 on the token set `tokens`, or on several mixed; write checkpoints and metrics.jsonl to `out`.

    `tokenizer` is the file that packed the tokens; any other is rejected. `start` is a folder of weights to start with
    instead of drawn ones (`given_weights.py`); the optimizer is new.

    Resumes from the latest undamaged checkpoint. With the same machine and processes, the result is bit-equal to that
    of an uninterrupted run. A finished run is skipped. Under torchrun every process calls this, with an `out` on a disk.
    """
    if Folder(out).is_local:
        return _train(tokens, out, settings, run, tokenizer, start)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"several processes cannot train in '{out}'", "choose an --out on a disk that they share")
    with contextlib.nullcontext() if run.dry_run else Folder(out).held():
        copy = ModelCopy(out)
        try:
            result = _train(tokens, str(copy.path), settings, run, tokenizer, start, copy.upload)
        finally:
            if not run.dry_run:
                copy.upload()  # the last rows of metrics.jsonl
    return replace(result, checkpoint=result.checkpoint.replace(str(copy.path), out))


def check_machine(settings: TrainSettings, vocab_size: int, console: Console) -> None:
    """Raise the errors of `train_model` that don't depend on tokens, and warn about memory, before tokens are made."""
    with missing_torch_is_an_error():
        from webtext.train.distributed import join_world
        from webtext.train.run.memory import warn_if_too_large
    with join_world(settings.device) as world:
        config = settings.config(vocab_size)
        check_trainable(config, settings, world.size)
        if world.is_main:
            warn_if_too_large(config, settings, world, console)


def _train(
    tokens: str | Sequence[str],
    out: str,
    settings: TrainSettings,
    run: Run,
    tokenizer: str | None,
    start: str | None,
    published: Callable[[], None] = lambda: None,
) -> TrainResult:
    with missing_torch_is_an_error():
        import torch

        from webtext.train.distributed import join_world
        from webtext.train.run.memory import memory_is_an_error, warn_if_too_large
        from webtext.train.run.trainer import Trainer

    sources = open_sources(tokens)
    # rejects sets that make no order, before anything is written
    uses = source_uses(sources, settings)
    if tokenizer is not None:
        from webtext.tokenizer import Tokenizer

        for source in sources:
            source.train.check_tokenizer(Tokenizer.load(tokenizer))
    model_dir = Folder(out).local_path()
    if settings.machine.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; it costs 24 MiB, no speed
    torch.use_deterministic_algorithms(settings.machine.deterministic)
    with join_world(settings.device) as world:
        console = run.console if world.is_main else Console("quiet")
        checkpoint = _checkpoint_of_all_processes(model_dir, world, console)
        given, values = given_weights(start, settings, sources[0], checkpoint, world, console)
        recipe = make_recipe(settings, sources, given)
        if checkpoint is not None:
            _check_same_run(checkpoint, recipe, model_dir)
            if checkpoint.step >= settings.last_step:
                console.say(f"train: all {settings.last_step:,} steps are done ('{checkpoint.path}')")
                return TrainResult.of(checkpoint, skipped=True)
        config = settings.config(sources[0].train.vocab_size)
        mesh = check_trainable(config, settings, world.size)
        if run.dry_run:
            first = f"from step {checkpoint.step:,}" if checkpoint else "from the start"
            console.say(
                f"would train {config.n_parameters:,} parameters {first} to step {settings.last_step:,}, processes: {mesh.size}; "
                f"{settings.total_tokens:,} tokens, {'; '.join(map(str, uses))}"
            )
            raise DryRun
        with Folder(out).held() if world.is_main else contextlib.nullcontext():
            if world.is_main:
                warn_if_too_large(config, settings, world, console)
                if warning := warning_of_passes(uses, settings):
                    console.warn(warning)
            with memory_is_an_error(config, settings, world):
                trainer = Trainer(settings, recipe, sources, model_dir, world, console, published, values)
                if checkpoint is not None:
                    trainer.resume(checkpoint)
                return TrainResult.of(trainer.run(), skipped=False)


def finished_result(tokens: str | Sequence[str], out: str, settings: TrainSettings) -> TrainResult | None:
    """Return the result of a finished run, or None if steps remain; raises the errors of `train_model`. Needs no torch."""
    sources = open_sources(tokens)
    source_uses(sources, settings)
    model_dir = Folder(out).local_path()
    checkpoint = latest_checkpoint(model_dir, lambda _: None)  # the run itself warns
    if checkpoint is None:
        return None
    _check_same_run(checkpoint, make_recipe(settings, sources), model_dir)
    return TrainResult.of(checkpoint, skipped=True) if checkpoint.step >= settings.last_step else None


def _checkpoint_of_all_processes(model_dir: Path, world: World, console: Console) -> Checkpoint | None:
    """Return the checkpoint that process 0 chooses and verifies; the others wait until they see the same files."""
    chosen = world.together(lambda: latest_checkpoint(model_dir, console.warn) if world.is_main else None)[0]
    if chosen is not None:
        path, give_up = checkpoint_path(model_dir, chosen.step), time.monotonic() + VISIBLE_SECONDS
        while not (visible := _is_visible(path, chosen.state)) and time.monotonic() < give_up:
            time.sleep(0.5)
        if not all(seen := world.gather(visible)):
            raise MachineError(
                f"rank {seen.index(False)} does not see '{path}' as rank 0 does, after {VISIBLE_SECONDS:.0f} s",
                "--out must be one folder on a file system that all hosts share; then rerun the same command",
            )
        chosen = replace(chosen, path=path)
    return chosen


def _is_visible(path: Path, state: Mapping[str, Any]) -> bool:
    """Return whether this process sees the checkpoint of that state; hosts that share a file system may see it late."""
    with contextlib.suppress(InputError):
        return open_checkpoint(path, verify=False).state == state
    return False


def make_recipe(settings: TrainSettings, sources: Sequence[Source], given: Mapping[str, Any] | None = None) -> Recipe:
    """Return everything that determines the model: settings, resolved shape, tokens, and the weights it starts with."""
    train = sources[0].train
    chosen = recipe_settings(settings) | asdict(settings.config(train.vocab_size))
    del chosen["model"]  # a name of the shape
    chosen |= {"tokens": [source.train.hash for source in sources], "tokenizer": train.tokenizer_hash}
    if given is not None:
        chosen[FROM] = given
    return Recipe(stage="train.run", code_version=CODE_VERSION, settings=chosen)


def _check_same_run(checkpoint: Checkpoint, recipe: Recipe, model_dir: Path) -> None:
    recorded: Mapping[str, Any] = checkpoint.run_state()["recipe"]
    theirs, ours = dict(recorded["settings"]), dict(recipe.settings)
    remedy = "choose another --out, or remove the folder to start over"
    for name, what in (("tokenizer", "with another tokenizer"), ("tokens", "on other tokens")):
        if theirs.pop(name, None) != ours.pop(name):
            raise InputError(f"'{model_dir}' was trained {what}", remedy)
    given, wanted = theirs.pop(FROM, None), ours.pop(FROM, None)  # `given_weights` compares their files
    if (given is None) != (wanted is None):
        what = "drawn weights" if given is None else f"the weights of '{given['folder']}'"
        raise InputError(f"'{model_dir}' was started with {what}", f"use the same --from, or {remedy}")
    changed = difference(theirs, ours)
    if changed:
        further = "train further: --from that folder, with another --out, or" if changed.startswith("steps ") else "or"
        what = f"'{model_dir}' was trained with other settings: {changed}"
        raise InputError(what, f"use the same, {further} {remedy}")
    if recorded["code_version"] != recipe.code_version:
        raise InputError(f"'{model_dir}' was started by another version of the training code", remedy)
