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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.recipe import sha256_json
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import find_checkpoint, load_model
from webtext.train.evaluate.table3 import TASKS, TASKS_3_4_TO_3_8
from webtext.train.evaluate.texts import read_file, read_running_text
from webtext.train.experiments.trials import Trial

CODE_VERSION = 4
MEASURES = "measures.json"
VALIDATION = "validation"
BATCH_SIZE = 8
BLOCK_BYTES = 2048
"""Bytes of a block of running text: a page or so, beyond which few predictions depend on each other."""
_NO_TEXTS = ("lambada", "cbt-cn", "cbt-ne", *TASKS_3_4_TO_3_8)


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Documents in UTF-8, or one running text with the bytes that it was `published` with."""

    name: str
    texts: tuple[bytes, ...]
    published: int | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of everything that a measure depends on."""
        return sha256_json([self.name, self.published, *(hashlib.sha256(text).hexdigest() for text in self.texts)])


@dataclass(frozen=True, slots=True)
class Measure:
    """A model's loss in nats on each document (or block) of a set, and the documents' bytes."""

    losses: list[float]
    sizes: list[float]

    @property
    def bits_per_byte(self) -> float:
        """The value that is compared."""
        return sum(self.losses) / math.log(2) / sum(self.sizes)


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
        text = read_running_text(task, read_file(path), path)
        if not text.text:
            raise InputError(f"no text in '{path}'", "name another file")
        sets.append(EvaluationSet(name, (text.text,), text.units.get("byte", len(text.text))))
    return sets


def measure_trial(trial: Trial, *, sets: Sequence[EvaluationSet], tokenizers: Mapping[str, str]) -> dict[str, Measure]:
    """Measure the trial's model on every set, by name, with the tokenizer of its folder; known ones are in measures.json."""
    folder = Folder(trial.folder)
    key = sha256_json([CODE_VERSION, find_checkpoint(Path(trial.folder)).state["files"], *(each.hash for each in sets)])
    known: dict[str, Any] = {}
    if folder.exists(MEASURES):
        with contextlib.suppress(InputError):  # a damaged one is made again
            known = folder.read_object(MEASURES)
    if known.get("key") != key:
        found = _measure(trial, sets, tokenizers[trial.folder])
        known = {"key": key, "sets": {name: asdict(measure) for name, measure in found.items()}}
        folder.write_bytes(MEASURES, json.dumps(known, indent=1).encode() + b"\n")
    return {name: Measure(**of) for name, of in known["sets"].items()}


def _measure(trial: Trial, sets: Sequence[EvaluationSet], tokenizer_path: str) -> dict[str, Measure]:
    import torch

    from webtext.shards.writing.pack import need_eot_id
    from webtext.tokenizer import Tokenizer
    from webtext.train.data.windows import Windows
    from webtext.train.resilience.distributed import join_world

    tokenizer = Tokenizer.load(tokenizer_path)
    model = load_model(trial.folder)
    measures = {}
    with join_world(trial.settings.device) as world:
        model = model.to(world.device)
        for each in sets:
            stream, documents, sizes = _stream(each, tokenizer, need_eot_id(tokenizer, tokenizer_path))
            losses: list[Any] = []
            for tokens_bt, n_scored in Windows([stream], context=model.config.context, stride=None).batches(BATCH_SIZE):
                tokens = torch.from_numpy(tokens_bt).to(world.device)
                likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double().cpu().numpy()
                losses += [-row_t[-n:] for row_t, n in zip(likelihood_bt, n_scored, strict=True)]
                world.progress.advance()
            of_documents = np.bincount(documents, np.concatenate(losses), len(sizes)).tolist()
            measures[each.name] = Measure(of_documents, sizes)
            print(f"{each.name}: {measures[each.name].bits_per_byte:.4f} bits per byte", flush=True)
    return measures


def _stream(each: EvaluationSet, tokenizer: Any, eot_id: int) -> tuple[Any, Any, list[float]]:
    """Return the set's tokens after an end-of-text, the document of each but the first, and the documents' bytes.

    An end-of-text belongs to the document that it ends, a token of running text to the block of its first byte.
    """
    from webtext.train.evaluate.perplexity import token_bytes

    if each.published is None:
        rows = [np.insert(tokenizer.encode_numpy(text), 0, eot_id) for text in each.texts]
        documents = np.repeat(np.arange(len(rows)), [len(row) for row in rows])[:-1]
        return np.concatenate(rows), documents, [float(len(text)) for text in each.texts]
    tokens = tokenizer.encode_numpy(each.texts[0])
    in_text = token_bytes(tokenizer)[tokens]
    starts = np.cumsum(in_text) - in_text
    sizes = np.diff(np.arange(0, in_text.sum(), BLOCK_BYTES), append=in_text.sum()) * each.published / in_text.sum()
    return np.insert(tokens, 0, eot_id), starts // BLOCK_BYTES, sizes.tolist()
