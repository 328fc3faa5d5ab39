"""The loss of a trained model on each document of the validation set, the measure by which corpora are compared.

It is computed in float32, in windows of one context that don't overlap, over all documents one after the other, each
after an end-of-text. The ends of all documents but the last are predicted too, and have no bytes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import find_checkpoint, load_model
from webtext.train.experiments.trials import Trial
from webtext.train.experiments.validation import read_validation

MEASURES = "measures.json"
BATCH_SIZE = 8


def measure_trial(trial: Trial, *, validation: str, tokenizer: str) -> None:
    """Write the trial's loss in bits on each document into its measures.json, unless these are of its last checkpoint."""
    files = find_checkpoint(Path(trial.folder)).state["files"]
    with contextlib.suppress(InputError):  # a damaged one is made again
        if Folder(trial.folder).read_object(MEASURES).get("files") == files:
            return
    bits = _measure(trial, validation, tokenizer)
    Folder(trial.folder).write_object(MEASURES, {"files": files, "bits": bits})


def read_measures(trial: Trial) -> list[float]:
    """Return what `measure_trial` wrote."""
    return list(Folder(trial.folder).read_object(MEASURES)["bits"])


def _measure(trial: Trial, validation: str, tokenizer_path: str) -> list[float]:
    import torch

    from webtext.shards.writing.pack import need_eot_id
    from webtext.tokenizer import Tokenizer
    from webtext.train.data.windows import Windows
    from webtext.train.resilience.distributed import join_world

    tokenizer = Tokenizer.load(tokenizer_path)
    texts = [text for _, text in read_validation(validation).documents]
    stream, documents = document_stream(texts, tokenizer, need_eot_id(tokenizer, tokenizer_path))
    model = load_model(trial.folder)
    nats: list[Any] = []
    with join_world(trial.settings.device) as world:
        model = model.to(world.device)
        for tokens_bt, n_scored in Windows([stream], context=model.config.context, stride=None).batches(BATCH_SIZE):
            tokens = torch.from_numpy(tokens_bt).to(world.device)
            likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double().cpu().numpy()
            nats += [-row_t[-n:] for row_t, n in zip(likelihood_bt, n_scored, strict=True)]
            world.progress.advance()
    bits = np.bincount(documents, np.concatenate(nats) / math.log(2), len(texts))
    return [float(each) for each in bits]


def document_stream(texts: Sequence[str], tokenizer: Any, eot_id: int) -> tuple[Any, Any]:
    """Return the tokens of all texts, each after an end-of-text, and the text's number for each token but the first.

    An end-of-text belongs to the document that it ends.
    """
    rows = [np.insert(tokenizer.encode_numpy(text), 0, eot_id) for text in texts]
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])[:-1]
