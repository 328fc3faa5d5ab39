"""documents to corpus: measure, decide, find duplicates among what stays, then write each part once.

    documents/ ──► signals/ ──► decisions (from signals, never stored) ──► duplicates among those that pass
        └────────────────────────────────────────────────────────────────────► corpus/ + dropped/

Row order is kept, part n of documents gives part n of corpus and of dropped, and in = kept + dropped + failed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.base.counts import Counts
from webtext.base.errors import ConfigError, InputError
from webtext.base.hugging_face import PREFIX
from webtext.base.journal import Failed
from webtext.base.partset import PartSet, SetName
from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import DECISION, DOCUMENT
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.clean.card import write_card
from webtext.clean.card_facts import gather_facts
from webtext.clean.card_settings import CardSettings
from webtext.clean.decontaminate.holding import REPORT, Evaluation, holding, write_report
from webtext.clean.decontaminate.holding import VERSIONS as NGRAM_VERSIONS
from webtext.clean.decontaminate.settings import DecontaminationSettings
from webtext.clean.dedup.find import VERSIONS, Duplicates, find_duplicates
from webtext.clean.dedup.index import keep_index, open_indexes
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import WARC_SUFFIXES, extract_documents
from webtext.clean.importing import find_documents, import_documents
from webtext.clean.inputs import find_inputs
from webtext.clean.language import LanguageSettings
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.record_files import SUFFIXES
from webtext.clean.removal import LINK_NOT_COLLECTED, STAGE, Removals, Removed, digest_of
from webtext.clean.removal_clusters import Comparison
from webtext.clean.removal_settings import RemovalSettings
from webtext.clean.rules.decide import UNMEASURED, Decisions, columns_of, decide
from webtext.clean.rules.measure import measure_signals, read_signals
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.rules.vote_settings import VoteSettings
from webtext.clean.rules.votes import REASONS as VOTE_REASONS
from webtext.clean.rules.votes import vote_verdicts
from webtext.clean.rules.yields import Yields, count_yields
from webtext.clean.text_size import START_CHARACTERS, max_text_bytes, without_too_long

CODE_VERSION = 3  # 3: too_many_bytes, failed documents; words of scripts without spaces
WORK = "_dedup"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """The sections of [clean]: extract, remove, votes, language, rules, dedup, decontaminate, card."""

    extract: ExtractSettings = field(default_factory=ExtractSettings)
    remove: RemovalSettings = field(default_factory=RemovalSettings)
    votes: VoteSettings = field(default_factory=VoteSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    dedup: DedupSettings = field(default_factory=DedupSettings)
    decontaminate: DecontaminationSettings = field(default_factory=DecontaminationSettings)
    card: CardSettings = field(default_factory=CardSettings)


@dataclass(frozen=True, slots=True)
class CleanResult:
    """The sets that a run wrote; `documents` are those it read when it did not extract them."""

    documents: PartSet
    signals: PartSet | None
    corpus: PartSet
    dropped: PartSet
    removed: Removed | None = None  # what removal lists took out
    overlap: Mapping[str, Any] | None = None  # what `overlap.json` says, where evaluation sets were named

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
    votes: VoteSettings | None

    def decisions(self, part: int) -> Decisions | None:
        """Of votes and rules, for the rows of one part."""
        if self.signals is None:
            return None
        signals = self.signals.open().table(part, columns_of(self.rules, self.language))
        votes = vote_verdicts(self.documents.open(), part, self.votes) if self.votes else ()
        return decide(signals, self.rules, self.language, votes)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """One part of documents and all that decides over its rows."""

    part: int
    judges: Judges
    removed: pa.Table
    duplicates: Duplicates | None
    evaluation: Evaluation | None


def check_settings(settings: CleanSettings, out: str) -> None:
    """Raise what `clean_pages` would raise of these settings, whatever the pages: lists and indexes that cannot be read."""
    Removals.of(settings.remove)
    Evaluation.of(settings.decontaminate)
    open_indexes(settings.dedup, Folder(out))


def clean_pages(
    inputs: Sequence[str], out: str, settings: CleanSettings, run: Run, links: PartSet | None = None
) -> CleanResult:
    """Pages, or documents, to corpus: writes out/documents, out/signals, out/corpus with its dataset card, out/dropped.

    With `links`, documents of pages that none of these links leads to are dropped: pages of an earlier rule stay in a crawl.

    Documents are imported where they are files or datasets, and read where they are where they are a part set. Where
    evaluation sets are named, out/overlap.json says what the documents that would stay share with them.
    """
    removals = Removals.of(settings.remove, links)  # a bad line shows before the work of hours
    evaluation = Evaluation.of(settings.decontaminate)
    pages, documents = _read_inputs(inputs, out, settings.extract, run)
    rules, language, dedup = settings.rules, settings.language, settings.dedup
    result = _finish(documents, out, "clean.run", removals, rules, language, dedup, run, evaluation, settings.votes)
    assert result.signals is not None, "rules measure"
    if not run.dry_run:
        write_card(gather_facts(pages, documents, result.signals, result.corpus), settings.card)
    return result


def _read_inputs(inputs: Sequence[str], out: str, settings: ExtractSettings, run: Run) -> tuple[list[PartSet], PartSet]:
    """The pages sets that are given, and the documents: extracted from pages, imported, or as they are."""
    sets: list[PartSet] = []
    if not any(name.startswith(PREFIX) for name in inputs):
        sets, files = find_inputs(inputs, ("pages", "documents", "corpus"), (*WARC_SUFFIXES, *SUFFIXES))
        kinds = {each.kind == "pages" for each in sets} | {not each.name.endswith(SUFFIXES) for each in files}
        if kinds == {True}:
            return sets, extract_documents(inputs, f"{out}/documents", settings, run)
        if len(kinds) == 2:
            raise InputError("pages and documents are given together", "give them to two runs")
    found = find_documents(inputs)
    if not isinstance(found, PartSet):
        bound = settings.max_text_bytes
        return [], import_documents(found, f"{out}/documents", run, scrubs=settings.scrub, max_text_bytes=bound)
    if settings.scrub:
        raise ConfigError(
            f"'{found.folder.url}' is a part set, which is read as it is", "extract its pages with --scrub"
        )
    return [], found


def filter_documents(
    inputs: Sequence[str],
    out: str,
    rules: RuleSettings,
    language: LanguageSettings,
    run: Run,
    remove: RemovalSettings | None = None,
    votes: VoteSettings | None = None,
) -> CleanResult:
    """Apply removal lists, votes, the language and the quality rules alone: writes out/signals, out/corpus and out/dropped.

    Of the lists those that say which votes were taken back: what a request takes out needs dedup, else ConfigError.
    """
    removals = Removals.of(remove or RemovalSettings())
    if removals.requests is not None or removals.earlier:
        raise ConfigError(
            "--remove names requests, and clean filter looks for no duplicates",
            "the documents' mirrors must go too: give the list to clean run or clean dedup",
        )
    documents = read_documents(inputs, out, run)
    return _finish(documents, out, "clean.filter", removals, rules, language, None, run, votes=votes)


def count_rule_yields(
    inputs: Sequence[str], out: str | None, rules: RuleSettings, language: LanguageSettings, run: Run
) -> Yields:
    """What `filter_documents` would drop by rules, from the signals in `out` or beside the documents; writes nothing.

    Documents without signals that hold are measured on the way. Files are no documents yet: DryRun is raised.
    """
    documents = read_documents(inputs, out or ".", run)
    return count_yields(read_signals(documents, out, columns_of(rules, language), run), rules, language)


def dedup_documents(
    inputs: Sequence[str], out: str, settings: DedupSettings, run: Run, remove: RemovalSettings | None = None
) -> CleanResult:
    """Apply removal lists and remove exact and near duplicates alone: writes out/corpus and out/dropped."""
    removals = Removals.of(remove or RemovalSettings())
    return _finish(read_documents(inputs, out, run), out, "clean.dedup", removals, None, None, settings, run)


def read_documents(inputs: Sequence[str], out: str, run: Run) -> PartSet:
    """The documents set itself, or one imported from files and datasets to out/documents."""
    found = find_documents(inputs)
    return found if isinstance(found, PartSet) else import_documents(found, f"{out}/documents", run)


def _finish(
    documents: PartSet,
    out: str,
    stage: str,
    removals: Removals,
    rules: RuleSettings | None,
    language: LanguageSettings | None,
    dedup: DedupSettings | None,
    run: Run,
    evaluation: Evaluation | None = None,
    votes: VoteSettings | None = None,
) -> CleanResult:
    votes = votes if votes is not None and votes.judges else None  # those that drop nothing are in no recipe
    sections = {"votes": votes, "rules": rules, "language": language, "dedup": dedup}
    recipe = Recipe(
        stage=stage,
        code_version=CODE_VERSION,
        settings={name: recipe_settings(each) for name, each in sections.items() if each is not None}
        | ({"decontaminate": evaluation.about()} if evaluation else {}),
        versions=(VERSIONS if dedup is not None else {}) | (NGRAM_VERSIONS if evaluation else {}),
    )
    outputs = {"corpus": (f"{out}/corpus", "corpus"), "dropped": (f"{out}/dropped", "dropped")}
    for url, kind in outputs.values():  # before signals are written that another set's would give way to
        SetWriter(url, kind, recipe, [documents]).check_place()
    signals = measure_signals(documents, f"{out}/signals", run) if rules is not None else None
    judges = Judges(SetName.of(documents), SetName.of(signals) if signals else None, rules, language, votes)
    removed = removals.find(documents)
    removed.warn(run.console)
    duplicates = None
    indexes = [index.signatures for index in open_indexes(dedup, documents.folder)] if dedup is not None else []
    if dedup is not None:
        passes = functools.partial(_passes, judges, removed)
        work = _work_folder(out)
        all_pass = signals is None and not any(map(len, removed.withdrawn))
        duplicates = find_duplicates(documents, dedup, work, run, passes=None if all_pass else passes)
        Comparison(documents, duplicates, passes, dedup, work).add_clusters(removed, run)
    threshold = dedup.threshold if dedup is not None else None
    in_tasks = replace(duplicates, digests=()) if duplicates else None  # a task doesn't carry the digests of all parts
    written = run_parts(
        _write_part,
        [
            PartTask(
                index=part.index,
                sources=tuple(parent.source(i) for parent in (documents, signals) if parent is not None),
                payload=WriteTask(i, judges, goes, in_tasks, evaluation),
                depends=(duplicates.digest(i) if duplicates else "") + digest_of(goes),
            )
            for i, part in enumerate(documents.parts)
            for goes in (removed.table(i, threshold),)
        ],
        recipe=recipe,
        outputs=outputs,
        parents=[documents, *([signals] if signals else []), *removed.parents, *indexes],
        run=run,
        label=stage,
    )
    if dedup is not None and dedup.keep_index is not None:
        keep_index(written["corpus"], dedup.keep_index, dedup, run)
    overlap = write_report(written["dropped"], evaluation, out) if evaluation else None
    if evaluation is None and not run.dry_run:
        Folder(out).remove(REPORT)  # of another corpus
    return CleanResult(documents, signals, written["corpus"], written["dropped"], removed, overlap)


def _passes(judges: Judges, removed: Removed, part: int) -> np.ndarray:
    """Mask of the rows that votes and rules keep: the ones that are compared with each other."""
    decisions = judges.decisions(part)
    votes = removed.keeps_votes(part, judges.documents.open().part(part).records)
    return votes if decisions is None else np.asarray(decisions.kept & votes)


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
    limit = max_text_bytes(documents)
    fates = _fates(work, documents.part(work.part).records)
    corpus, dropped = context.output("corpus"), context.output("dropped")
    with holding(work.evaluation, dropped) if work.evaluation else contextlib.nullcontext() as held:

        def divide(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Table, pa.RecordBatch]:
            """The documents that are kept, the rows of `dropped`, and what failed before."""
            failed = pc.is_in(batch["reason"], pa.array(UNMEASURED))
            stays = pc.or_(pc.is_null(batch["reason"]), pc.is_in(batch["reason"], pa.array([TOO_MANY_BYTES])))
            kept, too_long = without_too_long(batch.filter(stays).select(DOCUMENT.names), limit)
            gone = [_decisions(batch.filter(pc.invert(pc.or_(stays, failed)))), too_long]
            if held is not None:
                kept, shared = held.judge(kept)
                gone.append(shared)
            return kept, pa.concat_tables(gone), batch.filter(failed)

        for _, divided in context.apply_to_batches(divide, _beside(documents.batches(work.part), fates)):
            if isinstance(divided, Failed):
                continue  # counted already
            kept, gone, failed = divided
            corpus.counts.keep(kept.num_rows)
            corpus.write_table(pa.Table.from_batches([kept]))
            dropped.write_table(gone)
            for reason in gone["reason"].to_pylist():
                corpus.counts.drop(reason)
            for each in failed.select(["id", "reason", "stage"]).to_pylist():
                corpus.fail(each["id"], each["reason"], f"in the stage '{each['stage']}'")


def _beside(batches: Iterator[pa.RecordBatch], fates: pa.Table) -> Iterator[pa.RecordBatch]:
    """Documents, with what drops each in further columns."""
    first = 0
    for batch in batches:
        of_batch = fates.slice(first, batch.num_rows).combine_chunks()
        first += batch.num_rows
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in of_batch.columns]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *columns], names=[*batch.schema.names, *of_batch.column_names]
        )


def _decisions(gone: pa.RecordBatch) -> pa.Table:
    """The rows of `dropped`: what drops each document, and what names it."""
    start = pc.utf8_slice_codeunits(gone["text"], 0, START_CHARACTERS)
    text_start = pc.if_else(pc.is_valid(gone["request"]), "", start)
    columns = [text_start if name == "text_start" else gone[name] for name in DECISION.names]
    return pa.table(columns, schema=DECISION)


def _fates(work: WriteTask, n_rows: int) -> pa.Table:
    """Row for row with the documents, what drops each, null where it stays: removal list, else votes, rule, duplicate."""
    stage, reason, duplicate_of, request = (np.full(n_rows, None, object) for _ in range(4))
    value, threshold = np.full(n_rows, np.nan), np.full(n_rows, np.nan)
    columns = {"reason": reason, "value": value, "threshold": threshold}
    columns |= {"duplicate_of": duplicate_of, "request": request}
    if work.duplicates is not None:
        found = work.duplicates.table(work.part)
        rows = found["row"].to_numpy()
        stage[rows], threshold[rows] = "dedup", work.duplicates.threshold
        reason[rows], duplicate_of[rows] = found["reason"].to_pylist(), found["duplicate_of"].to_pylist()
        value[rows] = found["similarity"].to_numpy()
    decisions = work.judges.decisions(work.part)
    if decisions is not None:
        goes = ~decisions.kept
        duplicate_of[goes] = None
        reason[goes] = np.array(decisions.reasons, object)[decisions.rule[goes]]
        stage[goes] = np.where(np.isin(reason[goes], VOTE_REASONS), "votes", "filter")
        value[goes], threshold[goes] = decisions.value[goes], decisions.threshold[goes]
    rows = work.removed["row"].to_numpy()
    stage[rows] = np.where(work.removed["reason"].to_numpy() == LINK_NOT_COLLECTED, "votes", STAGE)
    for name, column in columns.items():
        column[rows] = work.removed[name].to_numpy()
    return pa.table(
        {
            "stage": pa.array(stage, pa.string()),
            "reason": pa.array(reason, pa.string()),
            "value": pa.array(value, pa.float64(), from_pandas=True),  # NaN: there is none
            "threshold": pa.array(threshold, pa.float64(), from_pandas=True),
            "duplicate_of": pa.array(duplicate_of, pa.string()),
            "request": pa.array(request, pa.string()),
        }
    )
