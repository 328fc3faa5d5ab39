"""Documents to signals: measures every rule's value for every document, part for part and row for row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SCORED_SIGNALS, SIGNALS
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Attempt, Failed
from webtext.clean import _signals
from webtext.clean.rules.thresholds import RULES, RuleSettings
from webtext.clean.score.model import ScoreModel, open_model
from webtext.clean.text.arrays import shortened, texts_of

CODE_VERSION = 4  # 4: prose; extractors' agreement
OF_DOCUMENT = ["id", "language", "language_score", "extractor_agreement"]
COLUMNS = [*OF_DOCUMENT, "text"]
BATCH_ROWS = 256


def score_model(rules: RuleSettings | None) -> ScoreModel | None:
    """Return the model that the settings name; ConfigError if a rule needs one and there is none."""
    if rules is not None and rules.score_model is not None:
        return open_model(rules.score_model)
    for reason in rules.thresholds() if rules else ():
        if RULES[reason].column not in SIGNALS.names:
            raise ConfigError(f"the rule '{reason}' needs a model", "name one: --score-model FILE")
    return None


def measure_signals(documents: PartSet, out: str, run: Run, model: ScoreModel | None = None) -> PartSet:
    """Write the signals set `out` of `documents`: every value that thresholds may be compared with."""
    tasks = PartTask.for_each(documents, model)
    return make_set(_measure_part, tasks, out, "signals", _recipe(model), [documents], run)


def find_signals(documents: PartSet, out: str | None, run: Run, model: ScoreModel | None = None) -> PartSet | None:
    """Return the signals of `documents` in out/signals, else next to the documents; None if they must be measured."""
    beside = Folder.split(documents.folder.url)[0].url
    for place in (out, beside):
        if place and (signals := _open_signals(documents, f"{place}/signals", model)):
            run.console.say(f"reading the signals in '{signals.folder.url}'")
            return signals
    run.console.say(f"'{documents.folder.url}' has no signals yet: measuring {documents.records:,} documents")
    return None


def read_signals(
    documents: PartSet,
    signals: PartSet | None,
    part: int,
    columns: Sequence[str],
    attempt: Attempt,
    model: ScoreModel | None = None,
) -> Iterator[pa.Table]:
    """Yield the signals of a part's documents, read or measured now."""
    if signals is not None:
        yield signals.table(part, columns)
        return
    for measured, _ in _measured(documents, part, attempt.apply_to_batches, model):
        yield measured.select(list(columns))


def _recipe(model: ScoreModel | None) -> Recipe:
    settings = {} if model is None else {"score_model": model.sha256}
    versions = {"unicode": _signals.UNICODE_VERSION}
    return Recipe(stage="clean.signals", code_version=CODE_VERSION, settings=settings, versions=versions)


def _open_signals(documents: PartSet, url: str, model: ScoreModel | None) -> PartSet | None:
    """Return the signals set at `url` if it was made from these documents by this version of the code."""
    try:
        signals = PartSet.open(url, "signals")
    except InputError:
        return None
    parents = [parent["hash"] for parent in signals.manifest["parents"]]
    return signals if signals.recipe == _recipe(model).to_json() and parents == [documents.hash] else None


def _measure_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    name, part, model = task.payload
    if model is not None:
        context.main.widen("signals")
    for signals, failed in _measured(name.open(), part, context.apply_to_batches, model):
        context.main.counts.keep(0 if failed else signals.num_rows)  # a failed row is counted already
        context.main.write_table(signals)


def _measured(
    documents: PartSet, part: int, apply: Callable[..., Iterator[Any]], model: ScoreModel | None
) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the signals of a part's documents, and whether they are a placeholder's for one document that failed."""
    batches = documents.batches(part, COLUMNS, BATCH_ROWS)
    schema = SIGNALS if model is None else SCORED_SIGNALS
    for rows, signals in apply(lambda batch: signals_table(batch, model), batches):
        if failed := isinstance(signals, Failed):
            about = dict.fromkeys(SIGNALS.names, 0) | rows.select(OF_DOCUMENT).to_pylist()[0]
            signals = pa.Table.from_pylist([about | {"failed": signals.reason}], schema=schema)
        yield signals, failed


def signals_table(documents: pa.RecordBatch | pa.Table, model: ScoreModel | None = None) -> pa.Table:
    """Return the rows of SIGNALS, or with a model of SCORED_SIGNALS, for documents with COLUMNS."""
    texts = documents["text"]
    texts, failed = shortened(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts)
    measured = _signals.measure(*texts_of(texts)) | {"failed": failed}
    is_unspaced = np.isnan(measured["mean_word_length"])
    for name in ("mean_word_length", "n_stop_words"):
        measured[name] = pa.array(measured[name], mask=is_unspaced)
    columns = [measured[name] if name in measured else documents[name] for name in SIGNALS.names]
    table = pa.table(columns, schema=SIGNALS)
    return table if model is None else table.append_column(SCORED_SIGNALS.field("vote_score"), model.scores(texts))
