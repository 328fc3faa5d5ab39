"""Every month of Reddit's submission dumps, from June 2005 to January 2026, with what its schema changed.

The changes are those of the published schemas (github.com/ArthurHeitmann/arctic_shift, schemas/RS); six of them are carried
as real data, and rows are made of them too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dump_files import rows_of

from webtext.base.workers.attempt import Attempt
from webtext.crawl.links.judging import Funnel, votes_in, votes_in_batches
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources.lines import read_batches, read_lines
from webtext.crawl.links.sources.reddit import RedditDump

MONTHS = [f"{year}-{month:02}" for year in range(2005, 2027) for month in range(1, 13)]
MONTHS = [month for month in MONTHS if "2005-06" <= month <= "2026-01"]
WITHOUT_RETRIEVED_ON = (("2005-06", "2005-09"), ("2006-08", "2006-09"), ("2011-01", "2012-08"), ("2020-05", "2021-06"))
CARRIED = ("2005-06", "2014-06", "2017-10", "2017-12", "2022-08", "2026-01")
ALL = LinkSettings(before=None)


def begin_of(month: str) -> int:
    return int(datetime.fromisoformat(month + "-01").replace(tzinfo=UTC).timestamp())


def within(month: str, *ranges: tuple[str, str]) -> bool:
    return any(first <= month <= last for first, last in ranges)


def row_of(month: str) -> dict[str, Any]:
    """A link post of that month, with as many fields, and of the types, as the month's rows."""
    created = begin_of(month)
    row: dict[str, Any] = {"id": f"p{month}", "domain": "a.com", "url": f"http://a.com/{month}?a=1&amp;b=2", "score": 7}
    row |= {"created_utc": str(created) if within(month, ("2014-01", "2015-11")) else created}
    row |= {"is_self": False, "over_18": False, "subreddit": "books", "author": "[deleted]", "title": "日本"}
    if not within(month, *WITHOUT_RETRIEVED_ON):
        row["retrieved_on"] = created + 1000
    if within(month, ("2020-05", "2022-06")):
        row["retrieved_utc"] = created + 2000
    if month >= "2023-11":
        row["_meta"] = {"retrieved_2nd_on": created + 130_000}
    n_fields = 36 + (152 - 36) * MONTHS.index(month) // (len(MONTHS) - 1)
    row |= {f"field_{number}": None for number in range(n_fields - len(row))}
    return row


def odd_rows_of(month: str) -> Iterator[dict[str, Any]]:
    if month in ("2017-10", "2017-11"):
        yield {**row_of(month), "id": f"n{month}", "score": None}
    if month in ("2022-08", "2022-09"):
        yield {**row_of(month), "id": f"n{month}", "url": None, "domain": None}


def retrieved_in(month: str) -> int | None:
    begin = begin_of(month)
    if month >= "2023-11":
        return begin + 130_000
    if not within(month, *WITHOUT_RETRIEVED_ON):
        return begin + 1000
    return begin + 2000 if within(month, ("2020-05", "2022-06")) else None


def lines_of(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in rows)


def test_all_248_months_give_their_links_without_losing_a_line(collect: Any, tmp_path: Path) -> None:
    """One link post per month; also a post without a score in two months, and one without a URL in two others."""
    assert len(MONTHS) == 248
    rows = [row for month in MONTHS for row in (row_of(month), *odd_rows_of(month))]
    (tmp_path / "RS_all").write_bytes(lines_of(*rows))  # one file: each costs two syncs of the disk
    links = collect(tmp_path, before=None)
    dropped = {"null_score": 2, "null_url": 2}
    assert links.counts.to_json() == {"records_in": 252, "kept": 248, "dropped": dropped, "failed": {}}
    by_month = {row["posts"][0]["post_id"][1:]: row for row in rows_of(links)}
    assert sorted(by_month) == MONTHS
    for month, row in by_month.items():
        assert (row["first_created"], row["url"]) == (begin_of(month), f"http://a.com/{month}?a=1&b=2")
        assert row["posts"][0]["retrieved"] == retrieved_in(month)


OWN = {"id": "string", "domain": "string null", "url": "string null", "score": "int null", "created_utc": "int string"}
OWN |= {"retrieved_on": "int null", "subreddit": "null string", "edited": "bool int float", "media": "null object"}


@pytest.mark.parametrize("month", ["own", *CARRIED])
def test_rows_of_a_schema_are_judged_alike_at_once_and_one_by_one(request: pytest.FixtureRequest, month: str) -> None:
    """A row with each field's first type; then one row for each other type that a field has in that month."""
    schema: dict[str, Any] = {name: [{"type": each} for each in types.split()] for name, types in OWN.items()}
    if month != "own":
        path = request.getfixturevalue("shared_data") / f"crawl/reddit/arctic_schema_RS_{month}.json"
        schema = json.loads(path.read_text())[0]["schema"]
    usual = {name: _value(name, types[0]) for name, types in schema.items()}
    usual |= {"url": "http://a.com/", "score": 9, "is_self": False, "over_18": False}
    rows = [usual] + [usual | {name: _value(name, other)} for name, types in schema.items() for other in types[1:]]
    data = lines_of(*rows)
    judge = KarmaJudge.of(ALL)
    one_by_one, at_once = Funnel("RS"), Funnel("RS")
    votes = list(votes_in(read_lines(io.BytesIO(data)), RedditDump(), Attempt(), judge, one_by_one))
    assert list(votes_in_batches(read_batches([data]), RedditDump(), Attempt(), judge, at_once)) == votes
    assert at_once == one_by_one
    assert one_by_one.counts.failed == {}
    assert len(votes) + sum(one_by_one.counts.dropped.values()) == len(rows)
    assert len(votes) >= len(rows) - 3


def _value(name: str, type_: dict[str, Any]) -> Any:
    values = {"int": 12, "float": 12.5, "bool": True, "null": None, "object": {}, "array": []}
    texts = {"created_utc": "1400000000", "id": "p1", "domain": "a.com", "url": "http://a.com/"}
    return texts.get(name, "12") if type_["type"] == "string" else values[type_["type"]]
