"""Documents to corpus: measure, decide, find duplicates among the rest, then write each part once.

    documents/ ──► signals/ ──► decisions (from signals, never stored) ──► duplicates among those that pass
        └────────────────────────────────────────────────────────────────────► corpus/ + dropped/

Row order is kept. Part n of documents becomes part n of corpus and of dropped, and in = kept + dropped + failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, find_inputs
from webtext.base.inputs.hugging_face import PREFIX
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.schemas import DECISION, DOCUMENT
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean.card.facts import gather_facts, write_card
from webtext.clean.decontaminate.comparison import REPORT, Evaluation, comparing, write_report
from webtext.clean.decontaminate.comparison import VERSIONS as NGRAM_VERSIONS
from webtext.clean.dedup.documents import VERSIONS
from webtext.clean.dedup.find import Duplicates, find_duplicates
from webtext.clean.dedup.index import keep_index, open_indexes
from webtext.clean.dedup.losses import COMPARED, warn_of_losses, write_domains
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import KIND, sign_documents
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import WARC_SUFFIXES, extract_documents
from webtext.clean.inputs.importing import find_documents, import_documents
from webtext.clean.language import LanguageSettings
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.removals import LINK_NOT_COLLECTED, STAGE, Removals, Removed, digest_of
from webtext.clean.rules.decide import UNMEASURED, Decisions, Yields, columns_of, count_yields, decide
from webtext.clean.rules.measure import find_signals, measure_signals, read_signals, score_model
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.rules.votes import REASONS as VOTE_REASONS
from webtext.clean.rules.votes import vote_verdicts
from webtext.clean.score.model import ScoreModel
from webtext.clean.settings import CardSettings, DecontaminationSettings, RemovalSettings, VoteSettings
from webtext.clean.text.arrays import START_CHARACTERS, without_too_long

CODE_VERSION = 4  # 4: documents by domain, attached to dropped
NOTES = (".txt", ".md", ".json", ".csv")  # ignored in a folder of WARC files
WORK = "_dedup"
DECONTAMINATE = "clean.decontaminate"


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
    """The sets that a run wrote; `documents` is the set that it read, if it didn't extract or import one."""

    documents: PartSet
    signals: PartSet | None
    corpus: PartSet
    dropped: PartSet
    removed: Removed | None = None  # what removal lists took out
    overlap: Mapping[str, Any] | None = None  # contents of `overlap.json`, if evaluation sets were given

    @property
    def counts(self) -> Counts:
        """From documents to corpus: in = kept + dropped by reason."""
        return self.corpus.counts


@dataclass(frozen=True, slots=True)
class Judges:
    """The vote, language and quality rules with their inputs; workers and driver derive equal decisions from them."""

    documents: SetName
    signals: SetName | None
    rules: RuleSettings | None
    language: LanguageSettings | None
    votes: VoteSettings | None

    def decisions(self, part: int) -> Decisions | None:
        """Return the decisions of votes and rules for the rows of one part; None without signals."""
        if self.signals is None:
            return None
        signals = self.signals.open().table(part, columns_of(self.rules, self.language))
        votes = vote_verdicts(self.documents.open(), part, self.votes) if self.votes else ()
        return decide(signals, self.rules, self.language, votes)


@dataclass(frozen=True, slots=True)
class Passing:
    """The rows of a part that votes and rules keep: dedup compares only these."""

    judges: Judges
    part: int
    n_rows: int
    unlinked: tuple[int, ...]

    @property
    def digest(self) -> str:
        """A digest of everything that the mask depends on."""
        sets = [name and name.hash for name in (self.judges.documents, self.judges.signals)]
        settings = [
            each and recipe_settings(each) for each in (self.judges.rules, self.judges.language, self.judges.votes)
        ]
        return sha256_json([sets, settings, self.unlinked])

    def mask(self) -> npt.NDArray[np.bool_]:
        decisions = self.judges.decisions(self.part)
        mask = np.ones(self.n_rows, np.bool_) if decisions is None else decisions.kept.copy()
        mask[list(self.unlinked)] = False
        return mask


@dataclass(frozen=True, slots=True)
class WriteTask:
    """One part of documents and everything that decides about its rows."""

    part: int
    judges: Judges
    removed: pa.Table
    duplicates: Duplicates | None
    evaluation: Evaluation | None


def check_settings(settings: CleanSettings, out: str) -> None:
    """Check that the lists, evaluation sets and indexes of the settings can be read; raises as `clean_pages` would."""
    Removals.of(settings.remove)
    Evaluation.of(settings.decontaminate)
    open_indexes(settings.dedup, Folder(out))
    score_model(settings.rules)


def clean_pages(
    inputs: Sequence[str], out: str, settings: CleanSettings, run: Run, links: PartSet | None = None
) -> CleanResult:
    """Turn pages, or documents, into a corpus: writes documents, signals, corpus (with a dataset card) and dropped.

    With `links`, documents that none of these links led to are dropped: a crawl keeps pages of an earlier link rule.

    Documents in files or datasets are imported; a part set of documents is read in place. If evaluation sets are given,
    out/overlap.json reports what the documents that pass the other rules share with them.
    """
    removals = Removals.of(settings.remove, links)  # first, so that a bad line is reported before hours of work
    evaluation = Evaluation.of(settings.decontaminate)
    score_model(settings.rules)
    pages, documents = _read_inputs(inputs, out, settings.extract, run)
    result = _finish(
        documents,
        out,
        "clean.run",
        run,
        removals=removals,
        votes=settings.votes,
        rules=settings.rules,
        language=settings.language,
        dedup=settings.dedup,
        evaluation=evaluation,
    )
    assert result.signals is not None, "rules measure"
    if not run.dry_run:
        facts = gather_facts(pages, documents, result.signals, result.corpus, run)
        write_card(facts, settings.card)
    return result


def _read_inputs(inputs: Sequence[str], out: str, settings: ExtractSettings, run: Run) -> tuple[list[PartSet], PartSet]:
    """Return the pages sets among the inputs, and the documents: extracted from pages, imported, or an existing set."""
    sets: list[PartSet] = []
    if not any(name.startswith(PREFIX) for name in inputs):
        suffixes = (*WARC_SUFFIXES, *DOCUMENT_SUFFIXES)
        sets, files = find_inputs(inputs, ("pages", *DOCUMENTS), suffixes, may_be_empty=True)
        records = [each for each in files if each.plain_name.endswith(DOCUMENT_SUFFIXES)]
        has_pages = len(records) < len(files) or any(each.kind == "pages" for each in sets)
        has_documents = any(each.kind != "pages" for each in sets) or not all(
            each.plain_name.endswith(NOTES) for each in records
        )
        if has_pages and has_documents:
            raise InputError("pages and documents are given together", "use two runs")
        if has_pages:
            return sets, extract_documents(inputs, f"{out}/documents", settings, run)
    return [], _read_documents(inputs, out, settings, run)


def _read_documents(inputs: Sequence[str], out: str, settings: ExtractSettings, run: Run) -> PartSet:
    found = find_documents(inputs, run, settings.encoding)
    if not isinstance(found, PartSet):
        return import_documents(found, f"{out}/documents", run, scrubs=settings.scrub, encoding=settings.encoding)
    if settings.scrub:
        raise ConfigError(f"'{found.folder.url}' is a part set: scrub cannot change it", "extract its pages with scrub")
    return found


def filter_documents(
    inputs: Sequence[str],
    out: str,
    rules: RuleSettings,
    language: LanguageSettings,
    run: Run,
    remove: RemovalSettings | None = None,
    votes: VoteSettings | None = None,
) -> CleanResult:
    """Apply removal lists, votes, language and quality rules, no dedup: writes out/signals, out/corpus and out/dropped."""
    removals = Removals.of(remove or RemovalSettings())
    documents = read_documents(inputs, out, run)
    return _finish(documents, out, "clean.filter", run, removals=removals, votes=votes, rules=rules, language=language)


def count_rule_yields(
    inputs: Sequence[str], out: str | None, rules: RuleSettings, language: LanguageSettings, run: Run
) -> Yields:
    """Count what the rules of `filter_documents` would drop, from the signals in `out` or next to the documents.

    Writes nothing. Documents without valid signals are measured. Files that aren't imported yet raise DryRun.
    """
    documents = read_documents(inputs, out or ".", run)
    model = score_model(rules)
    signals = find_signals(documents, out, run, model)
    judges = Judges(SetName.of(documents), SetName.of(signals) if signals else None, rules, language, None)
    parts = [(judges, part, model) for part in range(len(documents.parts))]
    return sum(run.map(_count_yields, parts, "clean.yields"), Yields(0, 0, {}))


def _count_yields(journal: Journal, task: tuple[Judges, int, ScoreModel | None]) -> Yields:
    """Runs in the worker."""
    judges, part, model = task
    signals = judges.signals.open() if judges.signals else None
    columns = columns_of(judges.rules, judges.language)
    tables = read_signals(judges.documents.open(), signals, part, columns, journal, model)
    return count_yields(tables, judges.rules, judges.language)


def dedup_documents(
    inputs: Sequence[str], out: str, settings: DedupSettings, run: Run, remove: RemovalSettings | None = None
) -> CleanResult:
    """Apply removal lists and remove exact and near duplicates, nothing else: writes out/corpus and out/dropped."""
    removals = Removals.of(remove or RemovalSettings())
    return _finish(read_documents(inputs, out, run), out, "clean.dedup", run, removals=removals, dedup=settings)


def decontaminate_documents(
    inputs: Sequence[str], out: str, settings: DecontaminationSettings, run: Run
) -> CleanResult:
    """Only compare documents with evaluation sets: writes out/corpus, out/dropped and out/overlap.json."""
    evaluation = Evaluation.of(settings)
    if evaluation is None:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    return _finish(read_documents(inputs, out, run), out, DECONTAMINATE, run, evaluation=evaluation)


def read_documents(inputs: Sequence[str], out: str, run: Run) -> PartSet:
    """Return the given documents set, or one imported from files and datasets to out/documents."""
    return _read_documents(inputs, out, ExtractSettings(), run)


def documents_of(inputs: Sequence[str], out: str, run: Run) -> list[PartSet]:
    """Return the documents sets among the inputs, and one of all other inputs, extracted or imported to out/documents."""
    sets = {name: PartSet.open(name, ("pages", *DOCUMENTS)) for name in inputs if Folder(name).exists(MANIFEST)}
    found = [each for each in sets.values() if each.kind in DOCUMENTS]
    others = [name for name in inputs if name not in sets or sets[name] not in found]
    return found + ([_read_inputs(others, out, ExtractSettings(), run)[1]] if others else [])


def _finish(
    documents: PartSet,
    out: str,
    stage: str,
    run: Run,
    *,
    removals: Removals | None = None,
    votes: VoteSettings | None = None,
    rules: RuleSettings | None = None,
    language: LanguageSettings | None = None,
    dedup: DedupSettings | None = None,
    evaluation: Evaluation | None = None,
) -> CleanResult:
    """Apply the steps whose settings are given; write the corpus and the dropped."""
    votes = votes if votes is not None and votes.judges else None  # not in the recipe if they drop nothing
    sections = {"votes": votes, "rules": rules, "language": language, "dedup": dedup}
    settings = {name: recipe_settings(each) for name, each in sections.items() if each is not None}
    if evaluation is not None:
        settings = evaluation.about() if stage == DECONTAMINATE else settings | {"decontaminate": evaluation.about()}
    recipe = Recipe(
        stage=stage,
        code_version=CODE_VERSION,
        settings=settings,
        versions=(VERSIONS if dedup is not None else {}) | (NGRAM_VERSIONS if evaluation else {}),
    )
    outputs = {"corpus": (f"{out}/corpus", "corpus"), "dropped": (f"{out}/dropped", "dropped")}
    model = score_model(rules)
    for url, kind in outputs.values():  # first: measuring would replace the signals of another set
        SetWriter(url, kind, recipe, [documents]).check_place()
    signals = measure_signals(documents, f"{out}/signals", run, model) if rules is not None else None
    judges = Judges(SetName.of(documents), SetName.of(signals) if signals else None, rules, language, votes)
    removed = (removals or Removals()).find(documents, run)
    removed.warn(run.console)
    duplicates = None
    indexes = [index.signatures for index in open_indexes(dedup, documents.folder)] if dedup is not None else []
    if dedup is not None:
        passing = [
            Passing(judges, i, part.records, tuple(removed.unlinked[i].tolist()))
            for i, part in enumerate(documents.parts)
        ]
        work = Folder(out).child(WORK)
        duplicates = find_duplicates(documents, dedup, work, run, chosen=passing)
    written = run_parts(
        _write_part,
        [
            PartTask(
                index=part.index,
                sources=tuple(parent.source(i) for parent in (documents, signals) if parent is not None),
                payload=WriteTask(i, judges, rows, duplicates, evaluation),
                depends=(duplicates.digest(i) if duplicates else "") + digest_of(rows),
            )
            for i, part in enumerate(documents.parts)
            for rows in (removed.table(i),)
        ],
        recipe=recipe,
        outputs=outputs,
        parents=[documents, *([signals] if signals else []), *removed.parents, *indexes],
        run=run,
        label=stage,
    )
    if dedup is not None and not run.dry_run:
        warn_of_losses(documents, written["corpus"], written["dropped"], out, run)
    if dedup is not None and dedup.keep_index is not None:
        signatures = sign_documents(documents, Folder(out).child(WORK).location(KIND), run)  # done already
        keep_index(written["corpus"], signatures, dedup.keep_index, run)
    overlap = write_report(written["dropped"], evaluation, out, run) if evaluation else None
    if evaluation is None and not run.dry_run:
        Folder(out).remove(REPORT)  # it is about an earlier corpus
    return CleanResult(documents, signals, written["corpus"], written["dropped"], removed, overlap)


def _write_part(context: PartContext, task: PartTask) -> None:
    """Turn one part of documents into one part of corpus and one of dropped; runs in the worker."""
    work: WriteTask = task.payload
    documents = work.judges.documents.open()
    decided = _decide(work, documents.part(work.part).records)
    corpus, dropped = context.output("corpus"), context.output("dropped")
    with comparing(work.evaluation, dropped) if work.evaluation else contextlib.nullcontext() as comparer:

        def divide(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Table, pa.RecordBatch, pa.RecordBatch]:
            """Return the documents kept, the rows of `dropped`, rows that failed earlier, and what dedup compared."""
            failed = pc.is_in(batch["reason"], pa.array(UNMEASURED))
            passes = pc.or_(pc.is_null(batch["reason"]), pc.is_in(batch["reason"], pa.array([TOO_MANY_BYTES])))
            kept, too_long = without_too_long(batch.filter(passes).select(DOCUMENT.names))
            lost = [_decisions(batch.filter(pc.invert(pc.or_(passes, failed)))), too_long]
            if comparer is not None:
                kept, shared = comparer.judge(kept)
                lost.append(shared)
            some = batch.filter(pc.and_not(pc.is_in(batch["stage"], pa.array([None, "dedup"])), failed))
            by_dedup = pa.record_batch([some["domain"], pc.is_valid(some["stage"])], schema=COMPARED)
            return kept, pa.concat_tables(lost), batch.filter(failed), by_dedup

        compared = []
        for _, divided in context.apply_to_batches(divide, _beside(documents.batches(work.part), decided)):
            if isinstance(divided, Failed):
                continue  # counted already
            kept, lost, failed, by_dedup = divided
            compared.append(by_dedup)
            corpus.counts.keep(kept.num_rows)
            corpus.write_table(pa.Table.from_batches([kept]))
            dropped.write_table(lost)
            for reason in lost["reason"].to_pylist():
                corpus.counts.drop(reason)
            for each in failed.select(["id", "reason", "stage"]).to_pylist():
                corpus.fail(each["id"], each["reason"], f"in the stage '{each['stage']}'")
    if work.duplicates is not None:
        write_domains(dropped, compared)


def _beside(batches: Iterator[pa.RecordBatch], decided: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the document batches with the columns of their decisions appended."""
    first = 0
    for batch in batches:
        of_batch = decided.slice(first, batch.num_rows).combine_chunks()
        first += batch.num_rows
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in of_batch.columns]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *columns], names=[*batch.schema.names, *of_batch.column_names]
        )


def _decisions(lost: pa.RecordBatch) -> pa.Table:
    """Return the rows of `dropped`; rows removed on request contain no text."""
    start = pc.utf8_slice_codeunits(lost["text"], 0, START_CHARACTERS)
    text_start = pc.if_else(pc.is_valid(lost["request"]), "", start)
    columns = [text_start if name == "text_start" else lost[name] for name in DECISION.names]
    return pa.table(columns, schema=DECISION)


def _decide(work: WriteTask, n_rows: int) -> pa.Table:
    """Return the decision for each document, null if it is kept: by removal list, else votes, rules, duplicates."""
    stage, reason, duplicate_of, request = (np.full(n_rows, None, object) for _ in range(4))
    value, threshold = np.full(n_rows, np.nan), np.full(n_rows, np.nan)
    if work.duplicates is not None:
        found = work.duplicates.table(work.part)
        rows = found["row"].to_numpy()
        stage[rows], threshold[rows] = "dedup", work.duplicates.threshold
        reason[rows], duplicate_of[rows] = found["reason"].to_pylist(), found["duplicate_of"].to_pylist()
        value[rows] = found["similarity"].to_numpy()
    decisions = work.judges.decisions(work.part)
    if decisions is not None:
        lost = ~decisions.kept
        duplicate_of[lost] = None
        reason[lost] = np.array(decisions.reasons, object)[decisions.rule[lost]]
        stage[lost] = np.where(np.isin(reason[lost], VOTE_REASONS), "votes", "filter")
        value[lost], threshold[lost] = decisions.value[lost], decisions.threshold[lost]
    rows = work.removed["row"].to_numpy()
    reason[rows], request[rows] = work.removed["reason"].to_numpy(), work.removed["request"].to_numpy()
    stage[rows] = np.where(reason[rows] == LINK_NOT_COLLECTED, "votes", STAGE)
    duplicate_of[rows], value[rows], threshold[rows] = None, np.nan, np.nan
    return pa.table(
        {
            "stage": pa.array(stage, pa.string()),
            "reason": pa.array(reason, pa.string()),
            "value": pa.array(value, pa.float64(), from_pandas=True),  # NaN becomes null
            "threshold": pa.array(threshold, pa.float64(), from_pandas=True),
            "duplicate_of": pa.array(duplicate_of, pa.string()),
            "request": pa.array(request, pa.string()),
        }
    )
