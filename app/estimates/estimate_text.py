"""Print an estimate as text: the sample, the whole build, and its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from webtext.base.console import counted

Row = Mapping[str, Any]

COUNTED = ("pages", "documents", "corpus", "bytes of text", "tokens")
UNITS = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
STAGES = {
    "links": "links: all are read, in a sample too",
    "pages": "pages: the host with the most links",
    "clean": "documents: in proportion",
    "tokenizer": "tokenizer: once, or with the text",
    "tokens": "tokens: in proportion",
    "model": "model: the steps of its settings",
    "evaluation": "evaluation: with what is held out",
}


def estimate_text(estimate: Row) -> str:
    """Return the table of estimates, then the limits of the method."""
    links, duplicates = estimate["links"], estimate["duplicates_ratio"]
    return "\n".join(
        [
            f"A sample of {estimate['sample']}: {links['sample']:,} of {counted(links['whole'], 'link')}. The whole would be:",
            "",
            f"{'':<42}{'sample':>10}{'whole':>10}   between (95 %)",
            *(_counted(name, estimate["counts"][name]) for name in COUNTED),
            _line("duplicates", f"{duplicates['sample']:.1%}", duplicates["whole"], "{:.1%}".format),
            *_bytes(estimate),
            "",
            *(
                _line(STAGES[name], "", each, duration)
                for name, each in sorted(estimate["seconds"].items(), key=_order)
            ),
            *_money(estimate["money"]),
            "",
            *estimate["limits"],
        ]
    )


def _order(item: tuple[str, Any]) -> int:
    return list(STAGES).index(item[0])


def _counted(name: str, row: Row) -> str:
    sampled = row["sample"]
    return _line(name, f"{sampled:,}" if sampled < 10**6 else short(sampled), row["whole"])


def short(value: float) -> str:
    """Return a number in three or four digits.

    >>> short(812), short(12_345), short(8_130_000)
    ('812', '12.3k', '8.13M')
    """
    if value < 1000:
        return f"{value:,.0f}"
    unit, size = next((unit, size) for unit, size in UNITS if value >= size)
    return f"{value / size:.{max(0, 3 - len(str(int(value // size))))}f}{unit}"


def duration(seconds: float) -> str:
    """Return seconds in a readable unit.

    >>> duration(3.21), duration(600), duration(50_000), duration(10**6)
    ('3.2 s', '10.0 min', '13.9 h', '11.6 days')
    """
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"


def _bytes(estimate: Row) -> Iterator[str]:
    stored = estimate["bytes_stored"].values()
    whole = {key: sum(each[key] for each in stored) for key in ("low", "value", "high")}
    yield _line("bytes on disk", "", whole)
    if estimate["bytes_fetched"] is not None:
        yield f"{'bytes over the wire':<42}{'':>10}{short(estimate['bytes_fetched']):>10}"


def _money(money: Row | None) -> Iterator[str]:
    if money is None:
        yield "Prices are not known: [build.prices] takes hour, gigabyte_fetched and gigabyte_month"
        return
    for name, each in money.items():
        if name != "currency":
            yield _line(f"{name}, in {money['currency']}", "", each, "{:,.2f}".format)


def _line(name: str, sample: str, whole: Row, shown: Callable[[float], str] = short) -> str:
    return f"{name:<42}{sample:>10}{shown(whole['value']):>10}   {shown(whole['low'])} .. {shown(whole['high'])}"
