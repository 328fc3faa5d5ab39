"""The verbs of `webtext clean`: pages to corpus, in one run or step by step."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from webtext.base.command import need_out, verb
from webtext.base.errors import ConfigError, RunFailed
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import CardSettings, DecontaminationSettings, RemovalSettings, VoteSettings

if TYPE_CHECKING:
    from webtext.base.run import Run
    from webtext.clean.steps import Cleaning

BUILD = ("documents/", "signals/", "corpus/", "dropped/", "links/", "pages/", "index/", "tokens/", "_dedup/")
"""Names that mark a folder to which these verbs may write: a build, or an earlier result."""
OUT = click.option("--out", metavar="DIR", help="Folder to write.")
DOCUMENTS = click.argument("documents", nargs=-1, required=True, metavar="DOCUMENTS...")
SETTINGS: dict[str, type] = {
    "extract": ExtractSettings,
    "remove": RemovalSettings,
    "votes": VoteSettings,
    "language": LanguageSettings,
    "rules": RuleSettings,
    "dedup": DedupSettings,
    "decontaminate": DecontaminationSettings,
    "card": CardSettings,
}


def sections(*names: str) -> dict[str, type]:
    """Return the sections of a config file, clean.NAME, and their settings."""
    return {f"clean.{name}": SETTINGS[name] for name in names}


@click.group(name="clean")
def group() -> None:
    """Turn pages into a corpus: extract, filter, deduplicate."""


RUN_EXAMPLES = """\b
Examples:
  webtext clean run build/pages --out build
  webtext clean run build/pages --out build --min-karma 10 --before 2016-01-01 --communities=-politics
  webtext clean run build/pages --out build --remove requests.txt
  webtext clean run CC-MAIN-*.warc.gz --out cc --profile fineweb --language all
  webtext clean run huggingface:somebody/texts --out build
  webtext clean run build/pages --out build --against lambada_test.jsonl --drop

\b
Reads:  part sets of pages, or WARC files; or documents, as the other verbs do
Writes: DIR/documents, DIR/signals, DIR/corpus (with its dataset card, README.md), DIR/dropped; with --against
        also DIR/overlap.json
"""


@verb(group, "run", workers=True, settings=sections(*SETTINGS), epilog=RUN_EXAMPLES)
@click.argument("inputs", nargs=-1, required=True, metavar="PAGES...")
@OUT
def run_(run: Run, settings: dict[str, Any], inputs: tuple[str, ...], out: str | None) -> None:
    """Turn pages into a corpus: extract, filter, deduplicate.

    Documents are accepted instead of pages: files, or huggingface:NAME[[:CONFIG]:COLUMN][@REVISION], a dataset on the
    Hub or a folder of data files, whose texts are in COLUMN (default: `text`).
    """
    from webtext.clean.pipeline import CleanSettings, clean_pages

    chosen = CleanSettings(**{name.removeprefix("clean."): each for name, each in settings.items()})
    _show(run, clean_pages(inputs, need_out(out, BUILD), chosen, run), pages=True)


EXTRACT_EXAMPLES = """\b
Examples:
  webtext clean extract build/pages --out build/documents
  webtext clean extract crawl.warc.gz --out documents

\b
Reads:  part sets of pages, or WARC files
Writes: DIR, a part set of documents in every language
"""


@verb(
    group,
    "extract",
    replaces=False,
    workers=True,
    settings=ExtractSettings,
    section="clean.extract",
    epilog=EXTRACT_EXAMPLES,
)
@click.argument("pages", nargs=-1, required=True, metavar="PAGES...")
@OUT
def extract(run: Run, settings: ExtractSettings, pages: tuple[str, ...], out: str | None) -> None:
    """Turn pages into documents, without filtering them."""
    from webtext.base.console import funnel_text
    from webtext.base.parts.outcomes import check_kept, check_settled
    from webtext.clean.extract.pages import extract_documents

    documents = extract_documents(pages, need_out(out), settings, run)
    counts = documents.counts.to_json()
    answer = {"out": documents.folder.url, "documents": documents.records, "counts": counts}
    run.console.result(answer, f"{funnel_text('pages', counts)}\nwritten to '{documents.folder.url}'")
    check_kept(documents)
    check_settled(documents)


FILTER_EXAMPLES = """\b
Examples:
  webtext clean filter build/documents --out filtered --profile fineweb
  webtext clean filter texts.jsonl --out filtered --rule too_few_words=50
  webtext clean filter build/documents --profile gopher --rule words_too_long=12 --dry-run

\b
Reads:  a part set of documents; or files with text (and url, id), or huggingface:NAME datasets
Writes: DIR/corpus, DIR/dropped, DIR/signals (and DIR/documents, of files)
"""


@verb(group, "filter", workers=True, settings=sections("remove", "votes", "language", "rules"), epilog=FILTER_EXAMPLES)
@DOCUMENTS
@OUT
def filter_(run: Run, settings: dict[str, Any], documents: tuple[str, ...], out: str | None) -> None:
    """Apply removal lists, votes, language and quality rules.

    --dry-run prints how many documents each rule drops alone, as the first rule and as the only rule, and how many all
    rules drop together. It ignores removal lists and votes.
    """
    from webtext.clean.pipeline import count_rule_yields, filter_documents

    remove, votes, language, rules = settings.values()
    if run.dry_run:
        yields = count_rule_yields(documents, out, rules, language, run)
        run.console.result(yields.to_json(), yields.to_text())
        return
    _show(run, filter_documents(documents, need_out(out, BUILD), rules, language, run, remove, votes))


DEDUP_EXAMPLES = """\b
Examples:
  webtext clean dedup build/documents --out deduplicated
  webtext clean dedup texts/*.parquet --out deduplicated --set clean.dedup.threshold=0.85
  webtext clean dedup november/documents --out november --index october/index --keep-index november/index
  webtext clean dedup texts/*.parquet --out deduplicated --remove requests.txt

\b
Reads:  a part set of documents; or files with text (and url, id), or huggingface:NAME datasets
Writes: DIR/corpus, DIR/dropped (and DIR/documents, of files)
"""


@verb(group, "dedup", workers=True, settings=sections("remove", "dedup"), epilog=DEDUP_EXAMPLES)
@DOCUMENTS
@OUT
def dedup(run: Run, settings: dict[str, Any], documents: tuple[str, ...], out: str | None) -> None:
    """Remove exact and near duplicates from documents.

    Each removal names the document that is kept.
    """
    from webtext.clean.pipeline import dedup_documents

    _show(run, dedup_documents(documents, need_out(out, BUILD), settings["clean.dedup"], run, settings["clean.remove"]))


DECONTAMINATE_EXAMPLES = """\b
Examples:
  webtext clean decontaminate build/corpus --against lambada_test.jsonl --out checked
  webtext clean decontaminate build/corpus --against wikitext/ --against squad.parquet#question --out clean --drop

\b
Reads:  a part set of documents; or files with text (and url, id), or huggingface:NAME datasets
Writes: DIR/corpus, DIR/dropped, DIR/overlap.json (and DIR/documents, of files)
"""


@verb(
    group,
    "decontaminate",
    workers=True,
    settings=DecontaminationSettings,
    section="clean.decontaminate",
    epilog=DECONTAMINATE_EXAMPLES,
)
@DOCUMENTS
@OUT
def decontaminate(run: Run, settings: DecontaminationSettings, documents: tuple[str, ...], out: str | None) -> None:
    """Report or drop what documents share with evaluation sets.

    With --drop, documents that repeat an example are removed.
    """
    from webtext.clean.pipeline import decontaminate_documents

    _show(run, decontaminate_documents(documents, need_out(out, BUILD), settings, run))


SCORE_EXAMPLES = """\b
Examples:
  webtext clean score train build/corpus --background cc/corpus --out votes.score
  webtext clean score train high/corpus --background build/corpus --out votes.score
  webtext clean run CC-MAIN-*.warc.gz --out cc --score-model votes.score --rule vote_score_too_low=0.5

\b
Reads:  part sets of documents or pages, WARC files, or files with text, or huggingface:NAME datasets
Writes: FILE, a model; beside it _FILE/, the documents of pages and files, which may be removed
"""


@group.group("score", epilog=SCORE_EXAMPLES)
def score() -> None:
    """Learn from votes which pages to keep."""


@verb(score, "train", workers=True, epilog=SCORE_EXAMPLES)
@click.argument("voted", nargs=-1, required=True, metavar="VOTED...")
@click.option("--background", multiple=True, metavar="SET", help="Pages that nobody voted for; repeatable.")
@click.option("--out", metavar="FILE", help="Model to write.")
@click.option("--per-domain", type=click.IntRange(1), default=10, show_default=True, help="Maximum texts of a domain.")
@click.option("--most", type=click.IntRange(1), default=10_000, show_default=True, help="Maximum texts of a side.")
def score_train(
    run: Run, voted: tuple[str, ...], background: tuple[str, ...], out: str | None, per_domain: int, most: int
) -> None:
    """Train a model of which pages get votes.

    It tells voted pages from background pages, for the signal `vote_score`.

    Both sides should have passed the same rules; else the model learns languages or lengths. It is judged on domains
    that it hasn't seen.
    """
    from webtext.base.storage import Folder
    from webtext.clean.pipeline import documents_sets
    from webtext.clean.score.model import check_place
    from webtext.clean.score.train import train_score

    if not background:
        raise ConfigError("no --background given", "name sets or files of pages that nobody voted for")
    folder, name = Folder.split(place := need_out(out))
    check_place(place)
    voted_sets = documents_sets(voted, folder.location(f"_{name}/voted"), run)
    others = documents_sets(background, folder.location(f"_{name}/background"), run)
    run.would_write(place)
    card = train_score(voted_sets, others, place, per_domain=per_domain, most=most).header["card"]
    auc, (low, high) = card["auc"], card["auc_interval"]
    lines = [f"area under the curve on unseen domains: {auc:.4f} [{low:.4f}, {high:.4f}]", "score   voted  background"]
    lines += [f"{at:5.1f}  {100 * a:5.1f} %  {100 * b:8.1f} %" for at, a, b in card["curve"]]
    run.console.result({"out": place, "card": card}, "\n".join([*lines, f"written to '{place}'"]))


LOOKUP_EXAMPLES = """\b
Examples:
  webtext clean lookup page.txt --index october/index
  webtext clean lookup new.jsonl --index october/index --index november/corpus --json
  webtext clean lookup - --index mine.npz < new.jsonl

\b
Reads:  text, Parquet or JSONL files, or - for JSON lines on standard input; of SET, what --keep-index wrote, signatures,
        documents, or an .npz file of datasketch MinHashes
Writes: nothing
"""


@verb(group, "lookup", epilog=LOOKUP_EXAMPLES)
@click.argument("texts", nargs=-1, required=True, metavar="TEXTS...")
@click.option("--index", "indexes", multiple=True, required=True, metavar="SET", help="Set to look in; repeatable.")
@click.option("--threshold", type=click.FloatRange(0.1, 1), default=0.8, show_default=True, help="Lowest similarity.")
def lookup(run: Run, texts: tuple[str, ...], indexes: tuple[str, ...], threshold: float) -> None:
    """Print the documents of an index that are near given texts.

    Similarities are estimates, off by about 0.05.
    """
    from webtext.base.parts.outcomes import UNSETTLED
    from webtext.clean.decontaminate.comparison import aligned
    from webtext.clean.dedup.lookup import look_up

    answers = look_up(texts, indexes, threshold)
    lines = [["text", "similarity", "document", "url"]]
    for each in answers:
        found = [[each["text"], f"{m['similarity']:.2f}", m["id"], m["url"] or ""] for m in each["matches"]]
        lines += found or [[each["text"], each["reason"] or "nothing", "", ""]]
    run.console.result({"texts": answers}, aligned(lines))
    for each in answers:
        if each["reason"] in UNSETTLED:
            raise RunFailed(f"'{each['text']}' could not be read: {each['reason']}", UNSETTLED[each["reason"]])


RELEASE_EXAMPLES = """\b
Examples:
  webtext clean release build --out published
  webtext clean release rebuilt --check published

\b
Reads:  BUILD/corpus, and BUILD/documents and BUILD/links if they exist; with --check also a release
Writes: DIR, a part set without texts and titles; with --check nothing
"""


@verb(group, "release", replaces=False, workers=True, epilog=RELEASE_EXAMPLES)
@click.argument("build", metavar="BUILD")
@OUT
@click.option("--check", metavar="RELEASE", help="Count the texts of this release that BUILD has; write nothing.")
def release(run: Run, build: str, out: str | None, check: str | None) -> None:
    """Write a corpus without its texts, or check such a release.

    A release has ids, links, URLs, capture locations, text digests and the recipe.
    """
    from webtext.base.console import counted
    from webtext.base.parts.outcomes import check_kept
    from webtext.clean.decontaminate.comparison import aligned
    from webtext.clean.release import compare_release, write_release

    if check is not None:
        if out is not None:
            raise ConfigError("--out and --check are both given", "a check writes nothing: remove one of them")
        found = asdict(compare_release(check, build))
        lines = [[name, f"{n:,}"] for name, n in found.items() if name != "same_recipe"]
        lines.append(["recipe", "equal" if found["same_recipe"] else "different"])
        run.console.result({"release": check, "build": build} | found, aligned(lines))
        return
    written = write_release(build, need_out(out), run)
    text = f"{counted(written.records, 'document')} without text written to '{written.folder.url}'"
    run.console.result({"out": out, "documents": written.records}, text)
    check_kept(written)


def _show(run: Run, result: Cleaning, *, pages: bool = False) -> None:
    """Print the funnel from documents to corpus, preceded by the funnel of imported rows or, with `pages`, of pages."""
    from webtext.base.console import funnel_text
    from webtext.base.parts.outcomes import check_kept, check_settled
    from webtext.clean.decontaminate.comparison import overlap_table

    counts = result.counts.to_json()
    answer: dict[str, Any] = {name: getattr(result, name).folder.url for name in ("corpus", "dropped")}
    answer |= {"documents": result.corpus.records, "counts": counts}
    lines = [funnel_text("documents", counts)]
    stage = result.documents.recipe["stage"]
    unit = "rows" if stage == "clean.import" else "pages" if pages and stage == "clean.extract" else ""
    if unit:
        answer[unit] = result.documents.counts.to_json()
        lines.insert(0, funnel_text(unit, answer[unit]))
    if result.removed is not None and result.removed.lines:
        answer["removal"] = result.removed.to_json()
    if result.overlap is not None:
        answer["overlap"] = result.overlap
        lines.append(overlap_table(result.overlap))
    run.console.result(answer, "\n".join([*lines, f"written to '{result.corpus.folder.url}'"]))
    check_kept(result.documents, result.corpus)
    check_settled(*([result.documents] if unit else []), result.corpus)
