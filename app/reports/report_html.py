"""Draw a report as one self-contained page, by the template `report.html`: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from markupsafe import Markup

from webtext import __version__
from webtext.app.inspect.trace import START_CHARACTERS
from webtext.app.reports import report_charts
from webtext.app.reports.signals import FACTORS
from webtext.base.html_pages.rendering import cut, short
from webtext.base.html_pages.rendering import render as rendered

Row = Mapping[str, Any]

STAGE_TITLES = {
    "links": "links: posts that voted",
    "pages": "pages: fetched links",
    "documents": "documents: pages with text",
    "corpus": "corpus: documents kept",
    "tokens": "tokens: documents packed",
}

_CONTENTS = Markup('<nav class="contents" aria-label="contents"></nav>')
_HEADING = re.compile(r'<h2 id="(\w+)">([^<]+)</h2>')


def report_page(
    report: Row,
    *,
    frame: str = "webtext.base.html_pages/page.html",
    records: Callable[[str, str, str], str] = lambda stage, kind, reason: "#failed" * (kind == "failed"),
) -> str:
    """Return the whole page, with a list of its sections at the top.

    `frame` is the template around it. `records` returns the address of a reason's records from a stage, "dropped" or "failed",
    and the reason; "" if they aren't stored.
    """
    training = report["training"] or {"curves": {}, "evaluation": None}
    page = rendered(
        "webtext.app.reports/report.html",
        frame=frame,
        records=records,
        **{**report, "stages": [_stage(stage) for stage in report["stages"]]},
        version=__version__,
        seconds=sum(stage["seconds"] or 0 for stage in report["stages"]),
        tiles=list(_tiles(report)),
        stage_titles=STAGE_TITLES,
        missing=[name for name in STAGE_TITLES if name not in {stage["name"] for stage in report["stages"]}],
        other_curves=list(report_charts.other_curves(training["curves"])),
        paper_sizes=list(dict.fromkeys(size for row in report["paper"] for size in row["paper"])),
        token_facts=list(_token_facts(report["tokens"] or {})),
        factors=FACTORS,
        charts=report_charts,
        marked=marked,
    )
    sections = Markup().join(Markup('<a href="#{}">{}</a> ').format(*each) for each in _HEADING.findall(page))
    return page.replace(_CONTENTS, _CONTENTS.replace("></nav>", Markup(">{}</nav>").format(sections)), 1)


def _tiles(report: Row) -> Iterator[tuple[str, str]]:
    """Yield each stage's output as a number, and its name."""
    names = {"pages": "pages fetched", "corpus": "documents in the corpus"}
    for stage in report["stages"]:
        if stage["name"] != "tokens":
            n = stage["counts"]["kept"] if stage["name"] == "pages" else stage["records"]
            yield f"{n:,}", names.get(stage["name"], stage["name"])
    if report["lengths"] is not None and report["lengths"]["kept_characters"]:
        yield short(report["lengths"]["kept_characters"]), "characters"
    for split, n in sorted((report["tokens"] or {"tokens": {}})["tokens"].items()):
        yield short(n), {"train": "tokens to train on", "validation": "tokens held out"}.get(split, split)
    perplexity = ((report["training"] or {}).get("evaluation") or {}).get("perplexity")
    if perplexity is not None:
        yield f"{perplexity:,.1f}", "held-out perplexity"


def _stage(stage: Row) -> Row:
    """Return a stage with its reasons, most frequent first, its sums and its recipe's rows."""
    counts, recipe = stage["counts"], stage["recipe"]
    reasons = [(kind, reason, n) for kind in ("dropped", "failed") for reason, n in counts[kind].items()]
    return {
        **stage,
        "reasons": sorted(reasons, key=lambda each: -each[2]),
        "sums": [counts["kept"], sum(counts["dropped"].values()), sum(counts["failed"].values())],
        "recipe_rows": [*recipe["settings"].items(), *recipe["versions"].items()],
    }


def _token_facts(tokens: Row) -> Iterator[tuple[str, str]]:
    forms = {"vocab_size": ("vocabulary, ids", ","), "characters_per_token": ("characters per token", ".3f")}
    for name, (label, form) in (forms | {"tokens_per_document": ("tokens per document", ",.1f")}).items():
        if tokens.get(name):
            yield label, f"{tokens[name]:{form}}"
    for split, n in sorted(tokens.get("documents", {}).items()):
        yield f"documents, {split}", f"{n:,}"


def marked(text: str, other: str) -> Markup:
    """Return a text with the words marked that another text lacks at that place."""
    words, others = (re.split(r"(\s+)", each[: 2 * START_CHARACTERS]) for each in (text, other))
    found = Markup()
    for kind, _, _, start, end in SequenceMatcher(None, others, words, autojunk=False).get_opcodes():
        run = cut("".join(words[start:end]))
        found += run if kind == "equal" or not run.strip() else Markup("<mark>{}</mark>").format(run)
    return found
