"""documents to corpus: measure, decide, find duplicates among what stays, then write each part once.

    documents/ ──► signals/ ──► decisions (from signals, never stored) ──► duplicates among those that pass
        └────────────────────────────────────────────────────────────────────► corpus/ + dropped/

Row order is kept, part n of documents gives part n of corpus and of dropped, and in = kept + dropped.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.base.counts import Counts
from webtext.base.errors import InputError
from webtext.base.partset import PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import DECISION
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.clean.card import write_card
from webtext.clean.card_facts import gather_facts
from webtext.clean.card_settings import CardSettings
from webtext.clean.dedup.find import VERSIONS, Duplicates, find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import WARC_SUFFIXES, extract_documents
from webtext.clean.importing import SUFFIXES, import_documents
from webtext.clean.inputs import SetName, find_inputs
from webtext.clean.language import LanguageSettings
from webtext.clean.removal import COLUMNS, REMOVED_BY_USER, STAGE, Removals
from webtext.clean.removal_settings import RemovalSettings
from webtext.clean.rules.decide import Decisions, columns_of, decide
from webtext.clean.rules.measure import measure_signals, read_signals
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.rules.yields import Yields, count_yields

CODE_VERSION = 1
START_CHARACTERS = 200
WORK = "_dedup"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """The sections [clean.extract], [clean.remove], [clean.language], [clean.rules], [clean.dedup] and [clean.card]."""

    extract: ExtractSettings = field(default_factory=ExtractSettings)
    remove: RemovalSettings = field(default_factory=RemovalSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    dedup: DedupSettings = field(default_factory=DedupSettings)
    card: CardSettings = field(default_factory=CardSettings)


@dataclass(frozen=True, slots=True)
class CleanResult:
    """The sets that a run wrote; `documents` are those it read when it did not extract them."""

    documents: PartSet
    signals: PartSet | None
    corpus: PartSet
    dropped: PartSet

    @property
    def counts(self) -> Counts:
        """From documents to corpus: in = kept + dropped by reason."""
        return self.corpus.counts


@dataclass(frozen=True, slots=True)
class Judges:
    """What decides: the part function makes the same decisions as the parent did, from the same inputs."""

    documents: SetName
    signals: SetName | None
    rules: RuleSettings | None
    language: LanguageSettings | None
    removals: Removals | None

    def decisions(self, part: int) -> Decisions | None:
        """Of the rules, for the rows of one part."""
        if self.signals is None:
            return None
        signals = self.signals.open().table(part, columns_of(self.rules, self.language) or ["id"])
        return decide(signals, self.rules, self.language)

    def removed(self, part: int) -> np.ndarray:
        """Mask of the rows of one part that removal lists take out."""
        documents = self.documents.open()
        if self.removals is None:
            return np.zeros(documents.part(part).records, bool)
        return self.removals.removed(documents.table(part, COLUMNS))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """One part of documents and all that decides over its rows."""

    part: int
    judges: Judges
    duplicates: Duplicates | None


def clean_pages(pages: Sequence[str], out: str, settings: CleanSettings, run: Run) -> CleanResult:
    """Pages to corpus: writes out/documents, out/signals, out/corpus with its dataset card, and out/dropped."""
    sets, _ = find_inputs(pages, "pages", WARC_SUFFIXES)
    documents = extract_documents(pages, f"{out}/documents", settings.extract, run)
    removals = Removals.of(settings.remove)
    result = _finish(documents, out, "clean.run", removals, settings.rules, settings.language, settings.dedup, run)
    assert result.signals is not None, "rules measure"
    if not run.dry_run:
        write_card(gather_facts(sets, documents, result.signals, result.corpus), settings.card)
    return result


def filter_documents(
    inputs: Sequence[str],
    out: str,
    rules: RuleSettings,
    language: LanguageSettings,
    run: Run,
    remove: RemovalSettings | None = None,
) -> CleanResult:
    """Apply removal lists, the language and the quality rules alone: writes out/signals, out/corpus and out/dropped."""
    removals = Removals.of(remove or RemovalSettings())
    return _finish(read_documents(inputs, out, run), out, "clean.filter", removals, rules, language, None, run)


def count_rule_yields(
    inputs: Sequence[str], out: str | None, rules: RuleSettings, language: LanguageSettings, run: Run
) -> Yields:
    """What `filter_documents` would drop by rules, from the signals in `out` or beside the documents; writes nothing.

    Documents without signals that hold are measured on the way. Files are no documents yet: DryRun is raised.
    """
    documents = read_documents(inputs, out or ".", run)
    columns = columns_of(rules, language) or ["id"]
    return count_yields(read_signals(documents, out, columns, run), rules, language)


def dedup_documents(inputs: Sequence[str], out: str, settings: DedupSettings, run: Run) -> CleanResult:
    """Remove exact and near duplicates alone: writes out/corpus and out/dropped."""
    return _finish(read_documents(inputs, out, run), out, "clean.dedup", None, None, None, settings, run)


def read_documents(inputs: Sequence[str], out: str, run: Run) -> PartSet:
    """The documents set itself, or one imported from files to out/documents."""
    sets, files = find_inputs(inputs, ("documents", "corpus"), SUFFIXES)
    if len(sets) == 1 and not files:
        return sets[0]
    if sets:
        raise InputError(
            f"{len(inputs)} inputs, of which {len(sets)} are part sets", "name one part set, or files only"
        )
    return import_documents(files, f"{out}/documents", run)


def _finish(
    documents: PartSet,
    out: str,
    stage: str,
    removals: Removals | None,
    rules: RuleSettings | None,
    language: LanguageSettings | None,
    dedup: DedupSettings | None,
    run: Run,
) -> CleanResult:
    signals = measure_signals(documents, f"{out}/signals", run) if rules is not None else None
    judges = Judges(SetName.of(documents), SetName.of(signals) if signals else None, rules, language, removals)
    duplicates = None
    if dedup is not None:
        passes = functools.partial(_passes, judges) if signals else None
        duplicates = find_duplicates(documents, dedup, _work_folder(out), run, passes=passes)
    sections = {"rules": rules, "language": language, "dedup": dedup}
    chosen: dict[str, Any] = {name: recipe_settings(each) for name, each in sections.items() if each is not None}
    if removals is not None:
        chosen["remove"] = removals.about()
    written = run_parts(
        _write_part,
        [
            PartTask(
                index=part.index,
                sources=tuple(parent.source(i) for parent in (documents, signals) if parent is not None),
                payload=WriteTask(i, judges, duplicates),
                depends=duplicates.digest(i) if duplicates else "",
            )
            for i, part in enumerate(documents.parts)
        ],
        recipe=Recipe(
            stage=stage,
            code_version=CODE_VERSION,
            settings=chosen,
            versions=VERSIONS if dedup is not None else {},
        ),
        outputs={"corpus": (f"{out}/corpus", "corpus"), "dropped": (f"{out}/dropped", "dropped")},
        parents=[documents] if signals is None else [documents, signals],
        run=run,
        label=stage,
    )
    return CleanResult(documents, signals, written["corpus"], written["dropped"])


def _passes(judges: Judges, part: int) -> np.ndarray:
    """Mask of the rows that removal lists and rules keep: the ones that are compared with each other."""
    decisions = judges.decisions(part)
    assert decisions is not None, "only asked where there are signals"
    return np.asarray(decisions.kept & ~judges.removed(part))


def _work_folder(out: str) -> Folder:
    """Where dedup keeps its scratch files: beside the output, or on this machine when the output is remote."""
    folder = Folder(out)
    if folder.is_local:
        return folder.child(WORK)
    name = hashlib.sha256(out.encode()).hexdigest()[:16]
    return Folder(Path(tempfile.gettempdir()) / f"webtext-dedup-{name}")


def _write_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker: one part of documents to one part of corpus and one of dropped."""
    work: WriteTask = task.payload
    documents = work.judges.documents.open()
    fates = _fates(work, documents.part(work.part).records)
    corpus, dropped = context.output("corpus"), context.output("dropped")
    first = 0
    for batch in documents.batches(work.part):
        of_batch = fates.slice(first, batch.num_rows)
        stays = pc.is_null(of_batch["reason"]).combine_chunks()
        kept = batch.filter(stays)
        if kept.num_rows < batch.num_rows:
            goes = pc.invert(stays)
            dropped.write_table(_decisions(of_batch.filter(goes), batch.filter(goes)))
        corpus.counts.keep(kept.num_rows)
        corpus.write_table(pa.Table.from_batches([kept]))
        first += batch.num_rows
    for count in pc.value_counts(fates["reason"].drop_null()).to_pylist():
        corpus.counts.drop(count["values"], count["counts"])


def _decisions(fates: pa.Table, documents: pa.RecordBatch) -> pa.Table:
    """The rows of `dropped`: what the fates say, and what names the documents."""
    columns = {name: fates[name] for name in fates.column_names}
    columns |= {"id": documents["id"], "url": documents["url"]}
    columns["text_start"] = pc.utf8_slice_codeunits(documents["text"], 0, START_CHARACTERS)
    return pa.table([columns[name] for name in DECISION.names], schema=DECISION)


def _fates(work: WriteTask, n_rows: int) -> pa.Table:
    """Row for row with the documents, what drops each, null where it stays: a removal list, else a rule, else a duplicate."""
    stage, reason, duplicate_of = (np.full(n_rows, None, object) for _ in range(3))
    value, threshold = np.full(n_rows, np.nan), np.full(n_rows, np.nan)
    if work.duplicates is not None:
        found = work.duplicates.table(work.part)
        rows = found["row"].to_numpy()
        stage[rows], threshold[rows] = "dedup", work.duplicates.threshold
        reason[rows], duplicate_of[rows] = found["reason"].to_pylist(), found["duplicate_of"].to_pylist()
        value[rows] = found["similarity"].to_numpy()
    decisions = work.judges.decisions(work.part)
    if decisions is not None:
        goes = ~decisions.kept
        stage[goes], duplicate_of[goes] = "filter", None
        reason[goes] = np.array(decisions.reasons, object)[decisions.rule[goes]]
        value[goes], threshold[goes] = decisions.value[goes], decisions.threshold[goes]
    removed = work.judges.removed(work.part)
    stage[removed], reason[removed], duplicate_of[removed] = STAGE, REMOVED_BY_USER, None
    value[removed] = threshold[removed] = np.nan
    return pa.table(
        {
            "stage": pa.array(stage, pa.string()),
            "reason": pa.array(reason, pa.string()),
            "value": pa.array(value, pa.float64(), from_pandas=True),  # NaN: there is none
            "threshold": pa.array(threshold, pa.float64(), from_pandas=True),
            "duplicate_of": pa.array(duplicate_of, pa.string()),
        }
    )


def named(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """What a decision says of the document itself."""
    return {
        "id": batch["id"][row].as_py(),
        "url": batch["url"][row].as_py(),
        "text_start": batch["text"][row].as_py()[:START_CHARACTERS],
    }
