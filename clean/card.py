"""The dataset card: `corpus/README.md`, Markdown with a YAML head as Hugging Face reads it, made from the manifests.

It says what went in, what went and why, by which recipe, and how to read and to cite bytes. Nothing in it depends on the
clock, the machine or a path, so equal corpora have equal cards; strangers' words (domains) are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from webtext.base.counts import Counts
from webtext.base.opt_outs import OPT_OUTS
from webtext.base.partset import PartSet
from webtext.base.recipe import sha256_json
from webtext.base.schemas import DOCUMENT
from webtext.clean.card_facts import Facts
from webtext.clean.card_markdown import code, days, escaped, table
from webtext.clean.card_recipe import link_lines, recipe_lines
from webtext.clean.card_settings import CardSettings

CARD = "README.md"
SPLIT = "corpus"
"""The only split in Hugging Face's sense: what is held out is told by a column, for a file holds both."""

SIZES = [
    (10**exponent, f"{10 ** (exponent % 3)}{unit}") for exponent, unit in zip(range(3, 13), "KKKMMMBBBT", strict=True)
]
"""Hugging Face's steps of `size_categories`."""

_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")


def card_text(facts: Facts, settings: CardSettings) -> str:
    """The whole card, ending in a line end."""
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
    """Write the card beside the corpus's parts."""
    facts.corpus.folder.write_bytes(CARD, card_text(facts, settings).encode())


def size_category(n_documents: int) -> str:
    """Hugging Face's name for the size.

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
    licence = f"license: {_yaml(settings.license)}" if settings.license else "# license: not given; --card-license"
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
    """A JSON string without controls is a YAML string."""
    return json.dumps(value, ensure_ascii=False)


def _opening(facts: Facts, settings: CardSettings) -> list[str]:
    origin = "links that people voted for, as GPT-2's WebText was" if facts.pages else "pages in WARC files"
    texts, origin = ("texts", "records of others") if facts.imported else ("texts of web pages", origin)
    return [
        f"# {escaped(settings.name)}",
        "",
        f"{facts.corpus.records:,} {texts}, made from {origin}, by webtext. It wrote this card from its",
        "manifests, and the next run writes it again: change its settings (`[clean.card]`), not its words.",
    ]


def _sizes(facts: Facts) -> list[str]:
    n_bytes = sum(part.bytes for part in facts.corpus.parts)
    rows = [(name, f"{facts.splits[name]:,}", f"{facts.characters[name]:,}") for name in sorted(facts.splits)]
    total = ("in all", f"{facts.corpus.records:,}", f"{facts.characters.total():,}")
    return [
        "## Sizes",
        "",
        *table(("split", "documents", "characters"), [*rows, total]),
        "",
        f"Parquet: {n_bytes:,} bytes in files: {len(facts.corpus.parts):,}. The column `split` says what is held out for",
        "validation: it was decided at the link, and a held-out text that nearly repeats one of train was dropped.",
    ]


def _loading() -> list[str]:
    return [
        "## How to load it",
        "",
        "Where the folder `corpus` lies, which holds this card:",
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
    """Who voted for what: nothing where no pages set was given."""
    if facts.pages:
        gone = ["The links set that the pages were fetched for is no longer where it was."] * (not facts.links)
        yield ["## Links", "", *gone, *(line for links in facts.links for line in link_lines(links))]


def _sources(facts: Facts) -> list[str]:
    if facts.imported:
        origins = [(code(name), code(version), f"{n:,}") for name, version, n in facts.imported]
        return ["## Sources", "", *table(("file or dataset", "SHA-256 or revision", "documents made of it"), origins)]
    rows = [(code(name), f"{n:,}") for name, n in sorted(facts.captures.sources.items())]
    if facts.warc_files:
        rows.append(("WARC files that another crawler wrote", f"{facts.warc_files:,} files"))
    return [
        "## Sources",
        "",
        *table(("source", "pages fetched"), rows),
        "",
        f"The pages were captured {days(facts.captures.captured)}. " * bool(facts.captures.sources)
        + f"The documents that stay were captured {days(facts.captured)}.",
    ]


def _opt_outs(facts: Facts) -> list[str]:
    """What was done about opt-outs by each crawl and by extraction; one that a setting overruled is named with it."""
    lines = ["## Opt-outs", ""]
    crawls = [opened.recipe["settings"] for opened in facts.pages]
    extraction = facts.documents.recipe["settings"]
    for reason, (setting, meaning) in OPT_OUTS.items():
        values = {settings.get(setting) for settings in crawls}
        if setting in extraction:  # which drops such pages whatever the crawl did
            values = {True} if extraction[setting] else values | {False}
        n = facts.captures.wishes[reason]
        for value in sorted(values, key=str):
            if value is True:
                lines.append(f"- Obeyed: {meaning}.")
            elif value is False:
                lines.append(
                    f"- **Not obeyed** (`{setting} = false`): {meaning}; {n:,} pages were fetched all the same."
                )
            else:
                lines.append(f"- Not known: {meaning}.")
    for settings in (each for each in crawls if each.get("take_gone_sites")):
        silent = ""
        if "gone_runs" in settings:  # earlier crawls took only pages of sites without a name
            n = facts.captures.wishes["robots_unreachable"]
            runs, days = settings["gone_runs"], settings["gone_days"]
            silent = f", or that answered in none of {runs} or more runs over {days:g} days ({n:,} pages)"
        lines.append(
            "- **Not asked** (`take_gone_sites = true`): sites whose host name no longer exists"
            f"{silent}. Their pages come from archives."
        )
    if facts.imported:
        lines.append("- What the crawlers behind the imported records obeyed is not known here.")
    elif facts.warc_files:
        lines.append(
            f"- What robots.txt said to the crawlers of the {facts.warc_files:,} WARC files is not known here."
        )
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
    lines = [
        "## Funnel",
        "",
        "At each step what came in is what was kept, dropped or failed; reasons are webtext's own.",
    ]
    for title, each, counts in stages:
        if counts.records_in or each not in ("posts", "links"):
            lines += ["", f"### {title}", "", *table((each, "became of them"), _fates(counts))]
        if each == "posts" and facts.links:
            n_links = sum(opened.records for opened in facts.links)
            lines += ["", f"The posts that were kept vote for {n_links:,} links."]
            if fetched.records_in > n_links:
                lines[-1] += f" Pages of {fetched.records_in - n_links:,} more were fetched under an earlier rule."
    return lines


def _fates(counts: Counts) -> Iterator[tuple[str, str]]:
    yield f"{counts.kept:,}", "kept"
    for fate, reasons in (("dropped", counts.dropped), ("failed", counts.failed)):
        for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"{n:,}", f"{fate}: {code(reason)}"
    yield f"**{counts.records_in:,}**", "**in all**"


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
        "The record digest is over the values of all columns (SHA-256 of the JSON list of the parts' `record_digest` in",
        "`manifest.json`): the same recipe over the same pages gives it again on any machine.",
        *(
            []
            if stable
            else ["**Not reproducible as it stands**: records that killed a worker are pinned nowhere yet."]
        ),
    ]


def records_digest(opened: PartSet) -> str:
    """One digest for all records of a set, in their order."""
    return sha256_json([part.record_digest for part in opened.parts])


def _rights(settings: CardSettings) -> list[str]:
    licence = f"says: {escaped(settings.license)}" if settings.license else "has named none yet (`--card-license`)"
    contact = f"write to {escaped(settings.contact)}" if settings.contact else "write to whoever publishes this set"
    return [
        "## Licences",
        "",
        "The texts belong to their authors, and each page's own terms hold for it; `url` says where it came from. A licence",
        f"on this set can only be about the selection and the added columns. Its publisher {licence}.",
        "",
        "## Removal",
        "",
        f"To have a text removed, {contact} and name its `url`, its `domain` or its `id`. The publisher puts it on a",
        "removal list (`webtext clean run --remove`) and publishes the set again; who uses a copy should take the new one.",
    ]
