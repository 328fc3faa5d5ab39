"""Print the difference between two builds as text. Control characters in untrusted text are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

REASONS_SHOWN = 12
START_CHARACTERS = 160
NO_TEXT = "(removed on request: its text is not shown)"
SET_NAMES = {"tokens": "documents in tokens", "corpus": "documents in the corpus", "signals": "documents with signals"}


def diff_text(diff: Row) -> str:
    """Return the whole text, the verdict first."""
    lines = [verdict_line(diff), ""]
    lines += [
        f"A  {visible(diff['a'])}",
        f"B  {visible(diff['b'])}",
        *map(visible, notes(diff)),
        "",
        *_stages(diff["stages"]),
    ]
    lines += ["", *_settings(diff["settings"])]
    if diff["documents"] is not None:
        lines += ["", *_documents(diff["documents"])]
    return "\n".join(lines)


def verdict_line(diff: Row) -> str:
    """Return one sentence: equal, or what differs."""
    documents = diff["documents"]
    if diff["equal"]:
        return "The builds are equal: the same recipes, the same records"
    if documents is None:
        return "The builds differ; their documents cannot be compared before both have a corpus"
    if not documents["lost"]["documents"] and not documents["gained"]["documents"] and not documents["text_changed"]:
        return f"The builds differ, their corpora do not: the same {documents['common']:,} documents"
    return (
        f"The builds differ: {documents['lost']['documents']:,} documents lost, {documents['gained']['documents']:,} gained, "
        f"{documents['common']:,} in common, the texts of {documents['text_changed']:,} of them changed"
    )


def notes(diff: Row) -> list[str]:
    """Yield what a reader has to know before the numbers: missing stages, stale sets, builds with nothing in common."""
    said = [
        f"{side.upper()} is half done: it has no {', '.join(diff['missing'][side])}; rerun `webtext build` to finish it"
        for side in "ab"
        if diff["missing"][side]
    ]
    said += [f"{side.upper()}: {sentence}" for side in "ab" for sentence in diff["stale"][side]]
    documents = diff["documents"]
    if documents is not None and not documents["common"] and documents["kept_a"] and documents["kept_b"]:
        said.append("No document is common to both: they were made from other links, or from other pages")
    return said


def set_name(name: str) -> str:
    """Return the name of a stage's records."""
    return SET_NAMES.get(name, name)


def reason_name(row: Row) -> str:
    """Return the stage and reason that lost a document in the other build."""
    return f"{row['stage']}: {row['reason']}"


def shown_value(value: Any) -> str:
    """Return a setting's value on one line."""
    return visible(value if isinstance(value, str) else str(value))


def measured(row: Row) -> str:
    """Return the value that dropped the document in the other build, beside the threshold."""
    if row.get("value") is None:
        return ""
    against = f" (threshold {row['threshold']:.4g})" if row.get("threshold") is not None else ""
    return f" {row['value']:.4g}{against}"


def visible(text: str) -> str:
    """Return text on one line: all whitespace as spaces, other non-printing characters (controls, bidi marks) as escapes.

    >>> visible("a\\nb\\x1b[2J")
    'a b\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)


def _stages(stages: Sequence[Row]) -> Iterator[str]:
    yield f"{'records':<26}{'A':>14}{'B':>14}"
    for stage in stages:
        counts = [("-" if stage[side] is None else f"{stage[side]:,}") for side in "ab"]
        same = "  the same" if stage["same_records"] else ""
        yield f"  {set_name(stage['name']):<24}{counts[0]:>14}{counts[1]:>14}{same}"


def _settings(settings: Sequence[Row]) -> Iterator[str]:
    if not settings:
        yield "No setting and no version differs where both builds have run"
        return
    yield "Settings and versions that differ, A -> B"
    width = max(len(f"{row['stage']} {row['name']}") for row in settings)
    for row in settings:
        name = f"{row['stage']} {row['name']}"
        yield f"  {visible(name):<{width}}  {shown_value(row['a'])} -> {shown_value(row['b'])}"


def _documents(documents: Row) -> Iterator[str]:
    lost, gained = documents["lost"], documents["gained"]
    yield "Documents in the corpus"
    yield f"  kept in A  {documents['kept_a']:>12,} = {documents['common']:,} common + {lost['documents']:,} lost"
    yield f"  kept in B  {documents['kept_b']:>12,} = {documents['common']:,} common + {gained['documents']:,} gained"
    if documents["fetched_again"]:
        yield f"  of the common ones {documents['fetched_again']:,} were fetched again: they have one URL and two ids"
    yield f"  of the common ones {documents['text_changed']:,} have another text"
    for title, left in (("Lost, by what B did with them", lost), ("Gained, by what A did with them", gained)):
        if left["documents"]:
            yield ""
            yield title
            yield from _reasons(left["reasons"])
    for title, left in (("of those lost", lost), ("of those gained", gained)):
        if left["samples"]:
            yield ""
            yield f"A random choice {title}, always the same one"
            for row in left["samples"]:
                yield from _sample(row)


def _reasons(reasons: Sequence[Row]) -> Iterator[str]:
    for row in reasons[:REASONS_SHOWN]:
        yield f"  {row['documents']:>12,}  {visible(reason_name(row))}"
    others = reasons[REASONS_SHOWN:]
    if others:
        yield f"  {sum(row['documents'] for row in others):>12,}  for {len(others)} other reasons"


def _sample(row: Row) -> Iterator[str]:
    yield f"  {visible(row['url'] or row['id'])}"
    yield f"    {visible(reason_name(row))}{measured(row)}"
    if row.get("duplicate_of"):
        yield f"    duplicate of {visible(row['duplicate_of'])}"
    text = NO_TEXT if row["text_start"] is None else visible(row["text_start"])[:START_CHARACTERS]
    yield f"    | {text}"
