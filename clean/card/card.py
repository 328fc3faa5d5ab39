"""The dataset card: `corpus/README.md`, Markdown with a YAML head as Hugging Face reads it, made from the manifests.

It reports the sources, the counts of kept and dropped documents by reason, the recipe, and how to load and verify the
files. Nothing in it depends on the clock, the machine or a path, so equal corpora have equal cards. Untrusted text
(domains) is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import sha256_json
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.web.opt_outs import OPT_OUTS
from webtext.clean.card.facts import Facts
from webtext.clean.card.markdown import code, days, escaped, table
from webtext.clean.card.recipe import link_lines, recipe_lines
from webtext.clean.settings import CardSettings

CARD = "README.md"
SPLIT = "corpus"
"""The only split in Hugging Face's sense: a file contains train and validation rows, which the column `split` marks."""

SIZES = [
    (10**exponent, f"{10 ** (exponent % 3)}{unit}") for exponent, unit in zip(range(3, 13), "KKKMMMBBBT", strict=True)
]
"""The upper limits and names of Hugging Face's `size_categories`."""

_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")


def card_text(facts: Facts, settings: CardSettings) -> str:
    """Return the text of the card, ending in a newline."""
    sections = (
        _head(facts, settings),
        _opening(facts, settings),
        _sizes(facts),
        _loading(),
        _columns(),
        *_links(facts),
        _sources(facts),
        _opt_outs(facts),
        _funnel(facts),
        ["## Recipe", "", *recipe_lines([*facts.links, *facts.pages, facts.documents, facts.corpus])],
        _languages(facts),
        _domains(facts),
        _digests(facts),
        _rights(settings),
    )
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def write_card(facts: Facts, settings: CardSettings) -> None:
    """Write the card next to the corpus's parts."""
    facts.corpus.folder.write_bytes(CARD, card_text(facts, settings).encode())


def size_category(n_documents: int) -> str:
    """Return Hugging Face's name for a dataset of this size.

    >>> size_category(999), size_category(1000), size_category(8_000_000)
    ('n<1K', '1K<n<10K', '1M<n<10M')
    """
    below = "n"
    for limit, name in SIZES:
        if n_documents < limit:
            return f"n<{name}" if below == "n" else f"{below}<n<{name}"
        below = name
    return f"n>{below}"


def _head(facts: Facts, settings: CardSettings) -> list[str]:
    codes = sorted(name for name in facts.languages if _LANGUAGE_CODE.fullmatch(name))
    licence = (
        f"license: {_yaml(settings.license)}" if settings.license else "# license: not given; [clean.card] license"
    )
    return [
        "---",
        f"pretty_name: {_yaml(settings.name)}",
        licence,
        *(["language:", *(f"- {_yaml(name)}" for name in codes)] if codes else []),  # quoted: a bare no is false
        "size_categories:",
        f"- {_yaml(size_category(facts.corpus.records))}",
        "task_categories:",
        "- text-generation",
        "task_ids:",
        "- language-modeling",
        "configs:",
        "- config_name: default",
        "  data_files:",
        f"  - split: {SPLIT}",
        '    path: "part-*.parquet"',
        "---",
    ]


def _yaml(value: str) -> str:
    """Return the value as a YAML string: a JSON string without control characters is one."""
    return json.dumps(value, ensure_ascii=False)


def _opening(facts: Facts, settings: CardSettings) -> list[str]:
    origin = "links that people voted for, as GPT-2's WebText was" if facts.pages else "pages in WARC files"
    texts, origin = ("texts", "imported records") if facts.imported else ("texts of web pages", origin)
    return [
        f"# {escaped(settings.name)}",
        "",
        f"{facts.corpus.records:,} {texts}, made from {origin} by webtext. webtext generates this card from its",
        "manifests and overwrites it on the next run: change the settings (`[clean.card]`), not this text.",
    ]


def _sizes(facts: Facts) -> list[str]:
    n_bytes = sum(part.bytes for part in facts.corpus.parts)
    rows = [(name, f"{facts.splits[name]:,}", f"{facts.characters[name]:,}") for name in sorted(facts.splits)]
    total = ("total", f"{facts.corpus.records:,}", f"{facts.characters.total():,}")
    return [
        "## Sizes",
        "",
        *table(("split", "documents", "characters"), [*rows, total]),
        "",
        f"Parquet: {n_bytes:,} bytes, files: {len(facts.corpus.parts):,}. The column `split` marks the documents held",
        "out for validation, as decided at the link. Held-out near-duplicates of training documents were dropped.",
    ]


def _loading() -> list[str]:
    return [
        "## How to load it",
        "",
        "Run this in the parent of the folder `corpus`, which contains this card:",
        "",
        "```python",
        "import datasets, duckdb, polars",
        "",
        f'everything = datasets.load_dataset("corpus", split="{SPLIT}")',
        f'train = datasets.load_dataset("corpus", split="{SPLIT}", filters=[("split", "==", "train")])',
        "train = duckdb.sql(\"SELECT * FROM 'corpus/part-*.parquet' WHERE split = 'train'\")",
        'train = polars.scan_parquet("corpus/part-*.parquet").filter(polars.col("split") == "train").collect()',
        "```",
    ]


def _columns() -> list[str]:
    rows = [(f"`{column.name}`", _meaning(column.metadata)) for column in DOCUMENT]
    return ["## Columns", "", *table(("column", "meaning"), rows)]


def _meaning(metadata: dict[bytes, bytes]) -> str:
    return metadata[b"meaning"].decode().replace("|", r"\|")


def _links(facts: Facts) -> Iterator[list[str]]:
    """Which votes counted; nothing if no pages set was given."""
    if facts.pages:
        gone = ["The links set of these pages is no longer at its recorded location."] * (not facts.links)
        yield ["## Links", "", *gone, *(line for links in facts.links for line in link_lines(links))]


def _sources(facts: Facts) -> list[str]:
    if facts.imported:
        origins = [(code(name), code(version), f"{n:,}") for name, version, n in facts.imported]
        return ["## Sources", "", *table(("file or dataset", "SHA-256 or revision", "documents made from it"), origins)]
    rows = [(code(name), f"{n:,}") for name, n in sorted(facts.captures.sources.items())]
    if facts.warc_files:
        rows.append(("WARC files of other crawlers", f"{facts.warc_files:,} files"))
    return [
        "## Sources",
        "",
        *table(("source", "pages fetched"), rows),
        "",
        f"The pages were captured {days(facts.captures.captured)}. " * bool(facts.captures.sources)
        + f"The kept documents were captured {days(facts.captured)}.",
    ]


def _opt_outs(facts: Facts) -> list[str]:
    """Which opt-outs the crawls and extraction obeyed, and which setting turned an opt-out off."""
    lines = ["## Opt-outs", ""]
    crawls = [opened.recipe["settings"] for opened in facts.pages]
    extraction = facts.documents.recipe["settings"]
    for reason, (setting, meaning, _) in OPT_OUTS.items():
        values = {settings.get(setting) for settings in crawls}
        if setting in extraction:  # extraction drops such pages whatever the crawl did
            values = {True} if extraction[setting] else values | {False}
        n = facts.captures.opt_outs[reason]
        for value in sorted(values, key=str):
            if value is True:
                n_refused = sum(opened.counts.dropped.get(reason, 0) for opened in facts.pages)
                lines.append(f"- Obeyed: {meaning}{f'; {n_refused:,} such pages were skipped' if n_refused else ''}.")
            elif value is False:
                lines.append(
                    f"- **Not obeyed** (`{setting} = false`): {meaning}; {n:,} such pages were fetched anyway."
                )
            else:
                lines.append(f"- Not known: {meaning}.")
    for settings in (each for each in crawls if each.get("take_gone_sites")):
        silent = ""
        if "gone_runs" in settings:  # earlier versions took only pages of sites without a host name
            n = facts.captures.opt_outs["robots_unreachable"]
            runs, days = settings["gone_runs"], settings["gone_days"]
            silent = f", or that answered in none of {runs} or more runs over {days:g} days ({n:,} pages)"
        lines.append(
            "- **Not asked** (`take_gone_sites = true`): sites whose host name no longer exists"
            f"{silent}. Their pages came from archives."
        )
    if facts.imported:
        lines.append("- Not known: which opt-outs the crawlers behind the imported records obeyed.")
    elif facts.warc_files:
        lines.append(f"- Not known: what robots.txt said to the crawlers of the {facts.warc_files:,} WARC files.")
    return lines


def _funnel(facts: Facts) -> list[str]:
    fetched = sum((opened.counts for opened in facts.pages), Counts())
    unit = "rows" if facts.imported else "pages"
    stages = (
        ("posts → links", "posts", sum((opened.counts for opened in facts.links), Counts())),
        ("links → pages", "links", fetched),
        (f"{unit} → documents", unit, facts.documents.counts),
        ("documents → corpus", "documents", facts.corpus.counts),
    )
    lines = ["## Funnel", "", "At each step, input = kept + dropped + failed. The names of the reasons are webtext's."]
    for title, each, counts in stages:
        if counts.records_in or each not in ("posts", "links"):
            lines += ["", f"### {title}", "", *table((each, "outcome"), _outcomes(counts))]
        if each == "posts" and facts.links:
            n_links = sum(opened.records for opened in facts.links)
            lines += ["", f"The kept posts vote for {n_links:,} links."]
            if fetched.records_in > n_links:
                lines[-1] += f" Pages of {fetched.records_in - n_links:,} more links were fetched by an earlier rule."
    return lines


def _outcomes(counts: Counts) -> Iterator[tuple[str, str]]:
    yield f"{counts.kept:,}", "kept"
    for outcome, reasons in (("dropped", counts.dropped), ("failed", counts.failed)):
        for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"{n:,}", f"{outcome}: {code(reason)}"
    yield f"**{counts.records_in:,}**", "**total**"


def _languages(facts: Facts) -> list[str]:
    rows = [(code(name), f"{n:,}") for name, n in facts.languages.most_common()]
    unknown = facts.corpus.records - facts.languages.total()
    return ["## Languages", "", *table(("language", "documents"), [*rows, ("not known", f"{unknown:,}")])]


def _domains(facts: Facts) -> list[str]:
    rows = [(code(name), f"{n:,}") for name, n in facts.domains]
    return [
        "## Top domains",
        "",
        f"The {len(rows)} largest of {facts.n_domains:,} domains.",
        "",
        *table(("domain", "documents"), rows),
    ]


def _digests(facts: Facts) -> list[str]:
    sets = [*facts.links, *facts.pages, facts.documents, facts.corpus]
    rows = [(each.kind, f"`{records_digest(each)}`", f"`{each.manifest['recipe_hash']}`") for each in sets]
    stable = all(each.manifest["reproducible"] for each in (facts.documents, facts.corpus))  # no crawl is
    return [
        "## Digests",
        "",
        *table(("set", "record digest", "recipe"), rows),
        "",
        "The record digest covers the values of all columns (SHA-256 of the JSON list of the parts' `record_digest` in",
        "`manifest.json`). The same recipe over the same pages reproduces it on any machine.",
        *(
            []
            if stable
            else ["**Not reproducible**: some records killed a worker, and the list of them is not pinned yet."]
        ),
    ]


def records_digest(opened: PartSet) -> str:
    """Return one digest (SHA-256, hex) of all records of a set, in order."""
    return sha256_json([part.record_digest for part in opened.parts])


def _rights(settings: CardSettings) -> list[str]:
    licence = (
        f"states: {escaped(settings.license)}" if settings.license else "has not stated one (`[clean.card] license`)"
    )
    contact = f"write to {escaped(settings.contact)}" if settings.contact else "write to the publisher of this dataset"
    return [
        "## Licences",
        "",
        "The texts belong to their authors, and each page's terms apply to its text; `url` is its source. A licence on",
        f"this dataset can only cover the selection and the added columns. Its publisher {licence}.",
        "",
        "## Removal",
        "",
        f"To have a text removed, {contact} and give its `url`, `domain` or `id`. The publisher adds it to a removal",
        "list (`webtext clean run --remove`) and publishes the dataset again; users should then replace their copies.",
    ]
