"""Bits per byte of a trained model on fixed texts, the measure by which corpora are compared.

A text's loss is summed over all its tokens and divided by the bytes of the text as it was published (for WikiText and
the like, not of its de-tokenized form). It is computed in float32, in windows of one context that don't overlap, each
text after an end-of-text. In the validation set the ends of all documents but the last are predicted too, and have no
bytes. Losses are kept by document, so that documents can be drawn again; other texts are cut into blocks for that.
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

CODE_VERSION = 3
MEASURES = "measures.json"
VALIDATION = "validation"
BATCH_SIZE = 8
BLOCK_BYTES = 2048
"""Bytes of a block of running text: a page or so, beyond which few predictions depend on each other."""
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
    """A model's loss in nats on each document (or block) of a set, the documents' bytes, and all their tokens."""

    losses: list[float]
    sizes: list[float]
    tokens: int

    @property
    def bytes(self) -> float:
        """Bytes of the set."""
        return sum(self.sizes)

    @property
    def bits_per_byte(self) -> float:
        """The value that is compared."""
        return sum(self.losses) / math.log(2) / self.bytes


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
    return {each.name: Measure(*(known[each.name][name] for name in ("losses", "sizes", "tokens"))) for each in sets}


def _measure(trial: Trial, sets: Sequence[EvaluationSet], tokenizer_path: str) -> dict[str, Measure]:
    import numpy as np
    import torch

    from webtext.shards.writing.pack import need_eot_id
    from webtext.tokenizer import Tokenizer
    from webtext.train.checkpoint.checkpoint import load_model
    from webtext.train.data.windows import Windows
    from webtext.train.resilience.distributed import join_world

    tokenizer = Tokenizer.load(tokenizer_path)
    model = load_model(trial.folder)
    measures = {}
    with join_world(trial.settings.device) as world:
        model = model.to(world.device)
        for each in sets:
            stream, documents, sizes = _stream(each, tokenizer, need_eot_id(tokenizer, tokenizer_path))
            windows = Windows([stream], context=model.config.context, stride=None)
            losses: list[Any] = []
            for tokens_bt, n_scored in windows.batches(BATCH_SIZE):
                tokens = torch.from_numpy(tokens_bt).to(world.device)
                likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double().cpu().numpy()
                losses += [-row_t[-n:] for row_t, n in zip(likelihood_bt, n_scored, strict=True)]
                world.advance()
            of_documents = np.bincount(documents, np.concatenate(losses), len(sizes)).tolist()
            measures[each.name] = Measure(of_documents, sizes, len(documents))
            print(f"{each.name}: {measures[each.name].bits_per_byte:.4f} bits per byte", flush=True)
    return measures


def _stream(each: EvaluationSet, tokenizer: Any, eot_id: int) -> tuple[Any, Any, list[float]]:
    """Return the set's tokens after an end-of-text, the document of each but the first, and the documents' bytes.

    An end-of-text belongs to the document that it ends. InputError if the file has changed.
    """
    import numpy as np

    from webtext.train.evaluate.perplexity import token_bytes
    from webtext.train.experiments.validation import read_validation

    data = read_file(each.path)
    if hashlib.sha256(data).hexdigest() != each.hash:
        raise InputError(f"'{each.path}' changed during the comparison", "rerun the same command")
    if each.task == VALIDATION:
        texts = [text for _, text in read_validation(each.path).documents]
        rows = [np.insert(tokenizer.encode_numpy(text), 0, eot_id) for text in texts]
        stream, sizes = np.concatenate(rows), [float(len(text.encode())) for text in texts]
        return stream, np.repeat(np.arange(len(rows)), [len(row) for row in rows])[:-1], sizes
    text = read_running_text(each.task, data, each.path)
    tokens = tokenizer.encode_numpy(text.text)
    in_text = token_bytes(tokenizer)[tokens]
    starts = np.cumsum(in_text) - in_text
    blocks = np.arange(0, in_text.sum(), BLOCK_BYTES)
    published = text.units.get("byte", len(text.text)) / in_text.sum()
    sizes = np.diff(blocks, append=in_text.sum()) * published
    return np.insert(tokens, 0, eot_id), starts // BLOCK_BYTES, sizes.tolist()
