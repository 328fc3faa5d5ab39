"""Print the difference between two builds as text. Control characters in untrusted text are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
REASONS_SHOWN = 12


def diff_text(diff: Row) -> str:
    """Return the verdict, then settings, counts and documents."""
    lines = [_verdict(diff), "", f"A  {visible(diff['a'])}", f"B  {visible(diff['b'])}"]
    lines += ["", *_settings(diff["settings"]), "", *_counts(diff["counts"])]
    if diff["documents"] is not None:
        lines += ["", *_documents(diff["documents"])]
    return "\n".join(lines)


def _verdict(diff: Row) -> str:
    documents = diff["documents"]
    if diff["equal"]:
        return "The builds are equal: the same recipes, the same records"
    if documents is None:
        return "The builds differ; their documents cannot be compared before both have a corpus"
    lost, gained = (documents[side]["documents"] for side in ("lost", "gained"))
    return f"The builds differ: documents lost: {lost:,}, gained: {gained:,}, in common: {documents['common']:,}"


def _settings(settings: Sequence[Row]) -> Iterator[str]:
    if not settings:
        yield "No setting and no version differs where both builds have run"
        return
    yield "Settings and versions that differ, A -> B"
    names = [visible(f"{row['stage']} {row['name']}") for row in settings]
    width = max(map(len, names))
    for name, row in zip(names, settings, strict=True):
        yield f"  {name:<{width}}  {visible(str(row['a']))} -> {visible(str(row['b']))}"


def _counts(counts: Sequence[Row]) -> Iterator[str]:
    """Yield what each set kept, and the reasons whose counts differ."""
    shown = [row for row in counts if row["reason"] == "kept" or row["a"] != row["b"]]
    names = [visible(f"{row['set']}: {row['reason']}") for row in shown]
    title = "Records, and reasons whose counts differ"
    width = max(map(len, [title[2:], *names]))
    yield f"{title:<{width + 2}}{'A':>14}{'B':>14}"
    for name, row in zip(names, shown, strict=True):
        a, b = ("-" if row[side] is None else f"{row[side]:,}" for side in "ab")
        yield f"  {name:<{width}}{a:>14}{b:>14}"


def _documents(documents: Row) -> Iterator[str]:
    common = documents["common"]
    yield "Documents in the corpus"
    for name, side in (("A", "lost"), ("B", "gained")):
        kept, left = documents[f"kept_{name.lower()}"], documents[side]["documents"]
        yield f"  kept in {name}  {kept:>12,} = {common:,} common + {left:,} {side}"
    for title, left in (("Lost, by what B did with them", "lost"), ("Gained, by what A did with them", "gained")):
        if documents[left]["documents"]:
            yield from ("", title, *_reasons(documents[left]["reasons"]))
            for row in documents[left]["samples"]:
                yield f"    {visible(row['url'] or row['id'])}  {visible(row['reason'])}"


def _reasons(reasons: Sequence[Row]) -> Iterator[str]:
    for row in reasons[:REASONS_SHOWN]:
        yield f"  {row['documents']:>12,}  {visible(row['reason'])}"
    if others := reasons[REASONS_SHOWN:]:
        yield f"  {sum(row['documents'] for row in others):>12,}  for {len(others)} other reasons"


def visible(text: str) -> str:
    """Return text on one line: all whitespace as spaces, other non-printing characters (controls, bidi marks) as escapes.

    >>> visible("a\\nb\\x1b[2J")
    'a b\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)
