"""Bits per byte of a trained model on fixed texts, the measure by which corpora are compared.

A text's loss is summed over all its tokens and divided by the bytes of the text as it was published (for WikiText and
the like, not of its de-tokenized form). It is computed in float32, in windows of one context that don't overlap, each
text after an end-of-text. In the validation set the ends of all documents but the last are predicted too, and have no
bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.recipe import sha256_json
from webtext.base.storage import Folder
from webtext.train.evaluate.table3 import TASKS, TASKS_3_4_TO_3_8
from webtext.train.evaluate.texts import read_file, read_running_text
from webtext.train.experiments.trials import Trial

CODE_VERSION = 2
MEASURES = "measures.json"
VALIDATION = "validation"
BATCH_SIZE = 8
_NO_TEXTS = ("lambada", "cbt-cn", "cbt-ne", *TASKS_3_4_TO_3_8)


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """One file of text: `task` is its format, VALIDATION for a frozen set's file; `hash` is its SHA-256."""

    name: str
    task: str
    path: str
    hash: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A model's loss on one set in nats, and the set's tokens and bytes."""

    loss: float
    tokens: int
    bytes: int

    @property
    def bits_per_byte(self) -> float:
        """The value that is compared."""
        return self.loss / math.log(2) / self.bytes


def open_evaluation_sets(arguments: Sequence[str]) -> list[EvaluationSet]:
    """Open the sets `TASK=FILE` or `FILE`. ConfigError for tasks without running text and for equal names."""
    sets: list[EvaluationSet] = []
    for argument in arguments:
        task, equals, path = argument.partition("=")
        if not equals or task not in TASKS:
            task, path = "text", argument
        if task in _NO_TEXTS:
            raise ConfigError(
                f"--eval {argument}: '{task}' measures an accuracy", "corpora are compared by bits per byte"
            )
        name = Path(path).name if task == "text" else task
        if name in (VALIDATION, *(each.name for each in sets)):
            raise ConfigError(f"two evaluation sets have the name '{name}'", "name files of different names")
        data = read_file(path)
        if not read_running_text(task, data, path).text:
            raise InputError(f"no text in '{path}'", "name another file")
        sets.append(EvaluationSet(name, task, path, hashlib.sha256(data).hexdigest()))
    return sets


def measure_trial(trial: Trial, *, sets: Sequence[EvaluationSet], tokenizer: str) -> dict[str, Measure]:
    """Measure the trial's model on every set, by name; known measures come from its folder's measures.json."""
    from webtext.train.checkpoint.checkpoint import find_checkpoint

    checkpoint = find_checkpoint(Path(trial.folder))
    folder = Folder(trial.folder)
    keys = {each.name: sha256_json([CODE_VERSION, checkpoint.state["files"], each.task, each.hash]) for each in sets}
    known: dict[str, Any] = {}
    if folder.exists(MEASURES):
        with contextlib.suppress(InputError):  # a damaged one is made again
            known = folder.read_object(MEASURES)
    missing = [each for each in sets if known.get(each.name, {}).get("key") != keys[each.name]]
    if missing:
        found = _measure(trial, missing, tokenizer)
        known |= {name: asdict(measure) | {"key": keys[name]} for name, measure in found.items()}
        folder.write_bytes(MEASURES, json.dumps(known, indent=1).encode() + b"\n")
    return {each.name: Measure(*(known[each.name][name] for name in ("loss", "tokens", "bytes"))) for each in sets}


def _measure(trial: Trial, sets: Sequence[EvaluationSet], tokenizer_path: str) -> dict[str, Measure]:
    from webtext.shards.writing.pack import need_eot_id
    from webtext.tokenizer import Tokenizer
    from webtext.train.checkpoint.checkpoint import load_model
    from webtext.train.data.windows import Windows, total_loss
    from webtext.train.resilience.distributed import join_world

    tokenizer = Tokenizer.load(tokenizer_path)
    model = load_model(trial.folder)
    measures = {}
    with join_world(trial.settings.device) as world:
        model = model.to(world.device)
        for each in sets:
            stream, n_bytes = _stream(each, tokenizer, need_eot_id(tokenizer, tokenizer_path))
            windows = Windows([stream], context=model.config.context, stride=None)
            loss, n_tokens = total_loss(model, windows, BATCH_SIZE, world)
            measures[each.name] = Measure(loss, n_tokens, n_bytes)
            print(f"{each.name}: {measures[each.name].bits_per_byte:.4f} bits per byte", flush=True)
    return measures


def _stream(each: EvaluationSet, tokenizer: Any, eot_id: int) -> tuple[Any, int]:
    """Return the set's tokens after an end-of-text, and its bytes. InputError if the file has changed."""
    import numpy as np

    from webtext.train.experiments.validation import read_validation

    data = read_file(each.path)
    if hashlib.sha256(data).hexdigest() != each.hash:
        raise InputError(f"'{each.path}' changed during the comparison", "rerun the same command")
    if each.task == VALIDATION:
        documents = read_validation(each.path)
        rows = [np.insert(tokenizer.encode_numpy(text), 0, eot_id) for _, text in documents.documents]
        return np.concatenate(rows), documents.n_bytes
    text = read_running_text(each.task, data, each.path)
    return np.insert(tokenizer.encode_numpy(text.text), 0, eot_id), text.units.get("byte", len(text.text))
