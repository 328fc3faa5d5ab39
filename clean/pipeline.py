"""Documents to corpus: measure, decide, find duplicates among the rest, then write each part once.

    documents/ ──► signals/ ──► decisions (from signals, never stored) ──► duplicates among those that pass
        └────────────────────────────────────────────────────────────────────► corpus/ + dropped/

Row order is kept. Part n of documents becomes part n of corpus and of dropped, and in = kept + dropped + failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, find_inputs
from webtext.base.inputs.hugging_face import PREFIX
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.parts.stage import PartContext, PartTask, SetWriter, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Attempt, Failed
from webtext.clean.card.facts import gather_facts, write_card
from webtext.clean.decontaminate.comparison import REPORT, Evaluation, write_overlap
from webtext.clean.dedup.find import WORK, Dedup
from webtext.clean.dedup.index import keep_index, open_indexes
from webtext.clean.dedup.losses import warn_of_losses
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import KIND, sign_documents
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import WARC_SUFFIXES, extract_documents
from webtext.clean.inputs.importing import find_documents, import_documents
from webtext.clean.language import LanguageSettings
from webtext.clean.removals import Removals
from webtext.clean.rules.decide import Rules, Yields, columns_of, count_yields
from webtext.clean.rules.measure import find_signals, read_signals, score_model
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.rules.votes import Votes
from webtext.clean.settings import CardSettings, DecontaminationSettings, RemovalSettings, VoteSettings
from webtext.clean.steps import Batch, Cleaning, Length, Step

CODE_VERSION = 4  # 4: documents by domain, attached to dropped
NOTES = (".txt", ".md", ".json", ".csv")  # ignored in a folder of WARC files
DECONTAMINATE = "clean.decontaminate"
RESULTS = ("corpus", "dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """The sections of [clean]: extract, remove, votes, language, rules, dedup, decontaminate, card."""

    extract: ExtractSettings = ExtractSettings()
    remove: RemovalSettings = RemovalSettings()
    votes: VoteSettings = VoteSettings()
    language: LanguageSettings = LanguageSettings()
    rules: RuleSettings = RuleSettings()
    dedup: DedupSettings = DedupSettings()
    decontaminate: DecontaminationSettings = DecontaminationSettings()
    card: CardSettings = CardSettings()


def check_settings(settings: CleanSettings, out: str) -> None:
    """Check that the lists, evaluation sets and indexes of the settings can be read; raises as `clean_pages` would."""
    Removals.of(settings.remove)
    Evaluation.of(settings.decontaminate)
    open_indexes(settings.dedup, Folder(out))
    score_model(settings.rules)


def clean_pages(
    inputs: Sequence[str], out: str, settings: CleanSettings, run: Run, links: PartSet | None = None
) -> Cleaning:
    """Turn pages, or documents, into a corpus: writes documents, signals, corpus (with a dataset card) and dropped.

    With `links`, documents that none of these links led to are dropped: a crawl keeps pages of an earlier link rule.

    Documents in files or datasets are imported; a part set of documents is read in place. If evaluation sets are given,
    out/overlap.json reports what the documents that pass the other rules share with them.
    """
    steps = [  # made first, so that a bad line in a list is reported before hours of work
        Removals.of(settings.remove, links),
        Votes(settings.votes) if settings.votes.judges else None,  # else it isn't in the recipe
        Length(),
        Rules(language=settings.language),
        Rules(settings.rules),
        Dedup(settings.dedup),
        Evaluation.of(settings.decontaminate),
    ]
    score_model(settings.rules)
    _check_place(out, "clean.run")
    pages, documents = _read_inputs(inputs, out, settings.extract, run)
    result = _apply(steps, documents, out, "clean.run", run)
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
    return [], read_documents(inputs, out, run, settings)


def read_documents(inputs: Sequence[str], out: str, run: Run, settings: ExtractSettings | None = None) -> PartSet:
    """Return the given documents set, or one imported from files and datasets to out/documents."""
    settings = settings or ExtractSettings()
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
) -> Cleaning:
    """Apply removal lists, votes, language and quality rules, no dedup: writes out/signals, out/corpus and out/dropped."""
    judging = Votes(votes) if votes and votes.judges else None
    steps = [Removals.of(remove or RemovalSettings()), judging, Length(), Rules(language=language), Rules(rules)]
    return _apply(steps, inputs, out, "clean.filter", run)


def count_rule_yields(
    inputs: Sequence[str], out: str | None, rules: RuleSettings, language: LanguageSettings, run: Run
) -> Yields:
    """Count what the rules of `filter_documents` would drop, from the signals in `out` or next to the documents.

    Writes nothing. Documents without valid signals are measured. Files that aren't imported yet raise DryRun.
    """
    documents = read_documents(inputs, out or ".", run)
    model = score_model(rules)
    signals = find_signals(documents, out, run, model)
    opened = SetName.of(documents), SetName.of(signals) if signals else None
    parts = [(*opened, part, rules, language, model) for part in range(len(documents.parts))]
    return sum(run.map(_count_yields, parts, "clean.yields"), Yields(0, 0, {}))


def _count_yields(attempt: Attempt, task: tuple[Any, ...]) -> Yields:
    """Runs in the worker."""
    documents, name, part, rules, language, model = task
    signals = name.open() if name else None
    tables = read_signals(documents.open(), signals, part, columns_of(rules, language), attempt, model)
    return count_yields(tables, rules, language)


def dedup_documents(
    inputs: Sequence[str], out: str, settings: DedupSettings, run: Run, remove: RemovalSettings | None = None
) -> Cleaning:
    """Apply removal lists and remove exact and near duplicates, nothing else: writes out/corpus and out/dropped."""
    steps = [Removals.of(remove or RemovalSettings()), Length(), Dedup(settings)]
    return _apply(steps, inputs, out, "clean.dedup", run)


def decontaminate_documents(inputs: Sequence[str], out: str, settings: DecontaminationSettings, run: Run) -> Cleaning:
    """Only compare documents with evaluation sets: writes out/corpus, out/dropped and out/overlap.json."""
    evaluation = Evaluation.of(settings)
    if evaluation is None:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    return _apply([Length(), evaluation], inputs, out, DECONTAMINATE, run)


def documents_sets(inputs: Sequence[str], out: str, run: Run) -> list[PartSet]:
    """Return the documents sets among the inputs, and one of all other inputs, extracted or imported to out/documents."""
    sets = {name: PartSet.open(name, ("pages", *DOCUMENTS)) for name in inputs if Folder(name).exists(MANIFEST)}
    found = [each for each in sets.values() if each.kind in DOCUMENTS]
    others = [name for name in inputs if name not in sets or sets[name] not in found]
    return found + ([_read_inputs(others, out, ExtractSettings(), run)[1]] if others else [])


def _check_place(out: str, stage: str, *parents: PartSet) -> None:
    """Raise InputError if `out` has sets of another verb: importing would replace their documents, measuring their signals."""
    recipe = Recipe(stage=stage, code_version=CODE_VERSION, settings={})
    for kind in RESULTS:
        SetWriter(f"{out}/{kind}", kind, recipe, parents).check_place()


def _apply(given: Sequence[Step | None], inputs: PartSet | Sequence[str], out: str, stage: str, run: Run) -> Cleaning:
    """Apply the steps in their order to a documents set or to `read_documents`; write the corpus and the dropped."""
    steps = [step for step in given if step is not None]
    sections = {name: each for step in steps for name, each in step.sections().items()}
    recipe = Recipe(
        stage=stage,
        code_version=CODE_VERSION,
        settings=sections["decontaminate"] if stage == DECONTAMINATE else sections,
        versions={name: version for step in steps for name, version in step.versions.items()},
    )
    _check_place(out, stage)
    documents = inputs if isinstance(inputs, PartSet) else read_documents(inputs, out, run)
    _check_place(out, stage, documents)
    cleaning = Cleaning(documents, Folder(out), run)
    cleaning.prepare(steps)
    measured = [documents] if cleaning.signals is None else [documents, cleaning.signals]
    written = run_parts(
        _write_part,
        [
            PartTask(
                index=part.index,
                sources=tuple(parent.source(place) for parent in measured),
                payload=(cleaning.part(place), prepared),
                depends="".join(step.depends for step in reversed(prepared)),
            )
            for place, (part, prepared) in enumerate(zip(documents.parts, cleaning.prepared, strict=True))
        ],
        recipe=recipe,
        outputs={kind: (f"{out}/{kind}", kind) for kind in RESULTS},
        parents=[*measured, *cleaning.parents],
        run=run,
        label=stage,
    )
    cleaning.corpus, cleaning.dropped = written["corpus"], written["dropped"]
    dedup = next((step.settings for step in steps if isinstance(step, Dedup)), None)
    evaluation = next((step for step in steps if isinstance(step, Evaluation)), None)
    if dedup is not None and not run.dry_run:
        warn_of_losses(documents, cleaning.corpus, cleaning.dropped, out, run)
    if dedup is not None and dedup.keep_index is not None:
        signatures = sign_documents(documents, Folder(out).child(WORK).location(KIND), run)  # done already
        keep_index(cleaning.corpus, signatures, dedup.keep_index, run)
    if evaluation is not None:
        cleaning.overlap = write_overlap(cleaning.dropped, evaluation, out, run)
    elif not run.dry_run:
        Folder(out).remove(REPORT)  # it is about an earlier corpus
    return cleaning


def _write_part(context: PartContext, task: PartTask) -> None:
    """Turn one part of documents into one part of corpus and one of dropped; runs in the worker."""
    part, steps = task.payload
    corpus, dropped = context.output("corpus"), context.output("dropped")
    for step in steps:
        step.begin(part, dropped)

    def divide(rows: pa.RecordBatch) -> tuple[Any, ...]:
        """Return the documents kept, the rows of `dropped`, and the ids of documents that couldn't be judged."""
        batch = Batch(rows.select(DOCUMENT.names), rows["row"][0].as_py()).judged(steps)
        failed = [(rows["id"][row].as_py(), verdict) for row, verdict in batch.refused(failed=True)]
        return batch.documents.filter(pa.array(batch.kept)), batch.decisions(), failed

    for _, divided in context.apply_to_batches(divide, _numbered(part.documents.open().batches(part.place))):
        if isinstance(divided, Failed):
            continue  # counted already
        kept, lost, failed = divided
        corpus.counts.keep(kept.num_rows)
        corpus.write_table(pa.Table.from_batches([kept]))
        dropped.write_table(lost)
        for reason in lost["reason"].to_pylist():
            corpus.counts.drop(reason)
        for identifier, why in failed:
            corpus.fail(identifier, why.reason, f"in the stage '{why.stage}'")
    for step in steps:
        step.end()


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with a column `row`, the rows' numbers in their part."""
    first = 0
    for batch in batches:
        yield batch.append_column("row", pa.array(np.arange(first, first + batch.num_rows)))
        first += batch.num_rows
