"""The verbs of `webtext clean`: pages to corpus, whole or step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from webtext.base.command import need_out, verb
from webtext.base.errors import ConfigError
from webtext.clean.card_settings import CardSettings
from webtext.clean.decontaminate.settings import DecontaminationSettings
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.removal_settings import RemovalSettings
from webtext.clean.rules.thresholds import RuleSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webtext.base.run import Run
    from webtext.clean.pipeline import CleanResult

EXTRACT, REMOVE, LANGUAGE, RULES, DEDUP, CARD = (
    "clean.extract",
    "clean.remove",
    "clean.language",
    "clean.rules",
    "clean.dedup",
    "clean.card",
)
DECONTAMINATE = "clean.decontaminate"


@click.group(name="clean")
def group() -> None:
    """Pages to corpus: extract, judge, deduplicate."""


RUN_EXAMPLES = """\b
Examples:
  webtext clean run build/pages --out build
  webtext clean run build/pages --out build --remove build/refreshed/removals
  webtext clean run CC-MAIN-*.warc.gz --out cc --profile fineweb --language all

\b
Reads:  part sets of pages, or WARC files
Writes: DIR/documents, DIR/signals, DIR/corpus (with its dataset card, README.md), DIR/dropped
"""


@verb(
    group,
    "run",
    settings={
        EXTRACT: ExtractSettings,
        REMOVE: RemovalSettings,
        LANGUAGE: LanguageSettings,
        RULES: RuleSettings,
        DEDUP: DedupSettings,
        CARD: CardSettings,
    },
    epilog=RUN_EXAMPLES,
)
@click.argument("pages", nargs=-1, required=True, metavar="PAGES...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def run_(run: Run, settings: dict[str, Any], pages: tuple[str, ...], out: str | None) -> None:
    """Turn pages into a corpus: extract, filter, deduplicate; say why each document went."""
    from webtext.base.console import funnel_text
    from webtext.clean.pipeline import CleanSettings, clean_pages

    chosen = CleanSettings(
        extract=settings[EXTRACT],
        remove=settings[REMOVE],
        language=settings[LANGUAGE],
        rules=settings[RULES],
        dedup=settings[DEDUP],
        card=settings[CARD],
    )
    result = clean_pages(pages, need_out(out), chosen, run)
    _show(run, result, funnel_text("pages", result.documents.counts.to_json()))


EXTRACT_EXAMPLES = """\b
Examples:
  webtext clean extract build/pages --out build/documents
  webtext clean extract crawl.warc.gz --out documents

\b
Reads:  part sets of pages, or WARC files
Writes: DIR, a part set of documents in every language
"""


@verb(group, "extract", settings=ExtractSettings, section=EXTRACT, epilog=EXTRACT_EXAMPLES)
@click.argument("pages", nargs=-1, required=True, metavar="PAGES...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def extract(run: Run, settings: ExtractSettings, pages: tuple[str, ...], out: str | None) -> None:
    """Turn pages into documents, and judge nothing else."""
    from webtext.base.console import funnel_text
    from webtext.clean.extract.pages import extract_documents

    documents = extract_documents(pages, need_out(out), settings, run)
    counts = documents.counts.to_json()
    answer = {"out": documents.folder.url, "documents": documents.records, "counts": counts}
    run.console.result(answer, f"{funnel_text('pages', counts)}\nwritten to '{documents.folder.url}'")


FILTER_EXAMPLES = """\b
Examples:
  webtext clean filter build/documents --out filtered --profile fineweb
  webtext clean filter texts.jsonl --out filtered --rule too_few_words=50
  webtext clean filter build/documents --profile gopher --rule words_too_long=12 --dry-run

\b
Reads:  a part set of documents, or Parquet or JSONL files with text (and url, id)
Writes: DIR/corpus, DIR/dropped, DIR/signals (and DIR/documents, of files)
"""


@verb(
    group,
    "filter",
    settings={REMOVE: RemovalSettings, LANGUAGE: LanguageSettings, RULES: RuleSettings},
    epilog=FILTER_EXAMPLES,
)
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENTS...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def filter_(run: Run, settings: dict[str, Any], documents: tuple[str, ...], out: str | None) -> None:
    """Apply removal lists, the language and the quality rules to documents.

    --dry-run says how many documents each rule drops alone, as the first of them and as the only one, and all together;
    removal lists are left out of it.
    """
    from webtext.clean.pipeline import count_rule_yields, filter_documents

    rules, language, remove = settings[RULES], settings[LANGUAGE], settings[REMOVE]
    if run.dry_run:
        yields = count_rule_yields(documents, out, rules, language, run)
        run.console.result(yields.to_json(), yields.to_text())
        return
    _show(run, filter_documents(documents, need_out(out), rules, language, run, remove))


DEDUP_EXAMPLES = """\b
Examples:
  webtext clean dedup build/documents --out deduplicated
  webtext clean dedup texts/*.parquet --out deduplicated --threshold 0.7 --bands 30 --rows 4

\b
Reads:  a part set of documents, or Parquet or JSONL files with text (and url, id)
Writes: DIR/corpus, DIR/dropped (and DIR/documents, of files)
"""


@verb(group, "dedup", settings=DedupSettings, section=DEDUP, epilog=DEDUP_EXAMPLES)
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENTS...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def dedup(run: Run, settings: DedupSettings, documents: tuple[str, ...], out: str | None) -> None:
    """Remove exact and near duplicates from documents; each removal names the document that stays."""
    from webtext.clean.pipeline import dedup_documents

    _show(run, dedup_documents(documents, need_out(out), settings, run))


DECONTAMINATE_EXAMPLES = """\b
Examples:
  webtext clean decontaminate build/corpus --against lambada_test.jsonl --out checked
  webtext clean decontaminate build/corpus --against wikitext/ --against squad.parquet#question --out clean --drop

\b
Reads:  a part set of documents, or Parquet or JSONL files with text (and url, id)
Writes: DIR/corpus, DIR/dropped, DIR/overlap.json (and DIR/documents, of files)
"""


@verb(group, "decontaminate", settings=DecontaminationSettings, section=DECONTAMINATE, epilog=DECONTAMINATE_EXAMPLES)
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENTS...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def decontaminate(run: Run, settings: DecontaminationSettings, documents: tuple[str, ...], out: str | None) -> None:
    """Tell what documents share with evaluation sets; with --drop, remove those that repeat an example."""
    from webtext.clean.decontaminate.overlap import overlap_table
    from webtext.clean.decontaminate.stage import decontaminate_documents

    found = decontaminate_documents(documents, need_out(out), settings, run)
    _show(run, found.result, more={"overlap": found.report}, after=overlap_table(found.report))


RELEASE_EXAMPLES = """\b
Examples:
  webtext clean release build --out release
  webtext clean release rebuilt --check release

\b
Reads:  BUILD/corpus and BUILD/documents, as clean run wrote them; with --check a release too
Writes: DIR, a part set without texts and titles; with --check nothing
"""


@verb(group, "release", epilog=RELEASE_EXAMPLES)
@click.argument("build", metavar="BUILD")
@click.option("--out", metavar="DIR", help="Folder to write.")
@click.option("--check", metavar="RELEASE", help="Say how many texts of this release BUILD has too, and write nothing.")
def release(run: Run, build: str, out: str | None, check: str | None) -> None:
    """Write a corpus without its texts: ids, links, URLs, capture places, text digests, recipe; or check one."""
    from webtext.clean.release import compare_release, write_release

    if check is not None:
        if out is not None:
            raise ConfigError("--out and --check are given", "a check writes nothing: leave one out")
        found = compare_release(check, build).to_json()
        same_recipe = found["same_recipe"]
        width = max(map(len, found))
        lines = [f"{name:<{width}}  {n:>12,}" for name, n in found.items() if name != "same_recipe"]
        recipe = f"{'recipe':<{width}}  {'the same' if same_recipe else 'another':>12}"
        run.console.result({"release": check, "build": build} | found, "\n".join([*lines, recipe]))
        return
    written = write_release(build, need_out(out), run)
    text = f"{written.records:,} documents without text written to '{written.folder.url}'"
    run.console.result({"out": written.folder.url, "documents": written.records}, text)


def _show(
    run: Run, result: CleanResult, before: str = "", *, more: Mapping[str, Any] | None = None, after: str = ""
) -> None:
    from webtext.base.console import funnel_text

    counts = result.counts.to_json()
    answer = {
        "corpus": result.corpus.folder.url,
        "dropped": result.dropped.folder.url,
        "documents": result.corpus.records,
        "counts": counts,
    }
    came_from = result.documents.counts.to_json()
    if before:
        answer["pages"] = came_from
    elif result.documents.recipe["stage"] == "clean.import":
        answer["rows"] = came_from
        before = funnel_text("rows", came_from)
    lines = [before, funnel_text("documents", counts), after, f"written to '{result.corpus.folder.url}'"]
    run.console.result(answer | dict(more or {}), "\n".join(line for line in lines if line))
