"""Links by host: counts, and the cap on pages per host, for a links set and in a real crawl."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.web.urls import MAX_URL_BYTES, is_fetchable
from webtext.crawl.pages import link_table
from webtext.crawl.pages.link_table import are_fetchable, count_hosts, over_host_cap, part_of, string_keys


def kept(links: PartSet, cap: int | None) -> set[str]:
    over = over_host_cap(links, cap)
    urls = [url for part in links.parts for url in links.table(part)["url"].to_pylist()]
    is_over = over.has(pa.array(map(link_id, urls), pa.string()))
    return {url for url, dropped in zip(urls, is_over, strict=True) if not dropped}


def test_links_are_counted_by_host(make_links: Any) -> None:
    urls = ["http://a.example.com/1", "https://a.example.com:8443/2", "http://b.example.com/", "http://[::1]:80/c"]
    expected = [{"host": "a.example.com", "n": 2}, {"host": "[::1]", "n": 1}, {"host": "b.example.com", "n": 1}]
    assert count_hosts(PartSet.open(make_links(urls), "links")).to_pylist() == expected


def test_counting_in_batches_gives_the_same_counts(make_links: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    links = PartSet.open(make_links([f"http://h{i % 7}.example/{i}" for i in range(100)]), "links")
    whole = count_hosts(links)
    monkeypatch.setattr(link_table, "_ROWS_AT_A_TIME", 3)
    monkeypatch.setattr(link_table, "_FOLD_AT", 5)
    assert count_hosts(links).equals(whole)
    assert whole["n"].to_pylist() == [15, 15, *[14] * 5]


def test_a_set_without_links_has_no_hosts(tmp_path: Path) -> None:
    writer = SetWriter(str(tmp_path / "links"), "links", Recipe(stage="test", code_version=1, settings={}))
    links = writer.seal([])
    assert count_hosts(links).num_rows == 0
    assert len(over_host_cap(links, 1)) == 0


def test_the_cap_keeps_the_links_of_highest_karma(make_links: Any) -> None:
    karma = {f"http://big.example/{i}": i for i in range(10)} | {"http://small.example/": -(2**63)}
    links = PartSet.open(make_links(list(karma), karma=karma), "links")
    assert kept(links, 3) == {*(f"http://big.example/{i}" for i in (7, 8, 9)), "http://small.example/"}
    assert kept(links, 10) == kept(links, None) == set(karma)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3)), max_size=30), st.integers(1, 6))
def test_the_cap_agrees_with_a_plain_implementation(links: list[tuple[int, int]], cap: int) -> None:
    """Equal karma is ordered by date, which is always the same here, then by link_id."""
    rows = [(f"http://h{host}.example/{i}", karma) for i, (host, karma) in enumerate(links)]
    expected = set()
    for host in {url.split("/")[2] for url, _ in rows}:
        ranked = sorted((-karma, link_id(url), url) for url, karma in rows if url.split("/")[2] == host)
        expected |= {url for _, _, url in ranked[:cap]}
    assert kept(_InMemory(rows), cap) == expected  # type: ignore[arg-type]


class _InMemory:
    """The parts of a set that `over_host_cap` reads, in memory."""

    def __init__(self, rows: list[tuple[str, int]]) -> None:
        self.parts = (0,)
        names = {"url": [url for url, _ in rows], "link_id": [link_id(url) for url, _ in rows]}
        columns = {name: pa.array(values, pa.string()) for name, values in names.items()}
        columns["karma"] = pa.array([karma for _, karma in rows], pa.int64())
        columns["first_created"] = pa.array([1] * len(rows), pa.int64())
        self._table = pa.table(columns)

    def table(self, _: int) -> Any:
        return self._table

    def batches(self, _: int, columns: list[str], batch_size: int) -> Any:
        return self._table.select(columns).to_batches(batch_size)


def test_only_the_best_links_of_a_host_are_fetched_and_all_have_rows(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    urls = [web.page(f"/{i}") for i in range(6)]
    other = web.page("/only", host=2)
    links = make_links([*urls, other], karma={url: i for i, url in enumerate(urls)})
    rows = crawl(links, max_pages_per_host=2)
    assert sorted(web.paths()) == ["/4", "/5"]
    assert {rows[url]["reason"] for url in (*urls[4:], other)} == {None}
    assert {(rows[url]["outcome"], rows[url]["reason"], rows[url]["requests"]) for url in urls[:4]} == {
        ("refused", "over_host_cap", 0)
    }
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    assert pages.counts.to_json() == {"records_in": 7, "kept": 3, "dropped": {"over_host_cap": 4}, "failed": {}}


BAD_URLS = ["", "http:", "http://", "http:///x", "no-url", "//a.example/", "http://a.example", "ftp://a.example/"]
BAD_URLS += ["http://bad.example/\r\nX: y", "http://bad.example/a b", "http://bad.example/\x1b[2J"]
BAD_URLS += [
    "HTTP://bad.example/",
    "http://bad.example/x/../",
    "http://me@bad.example/",
    "http://bad.example/" + "a" * (MAX_URL_BYTES - 18),
]


@pytest.mark.parametrize("changes", [{}, {"max_pages_per_host": 2}])
def test_a_link_with_a_bad_url_is_counted_and_the_others_are_fetched(
    changes: dict[str, Any], crawl: Any, web: Any, make_links: Any
) -> None:
    good = [web.page("/1"), web.page("/2")]
    links = make_links([*BAD_URLS, *good])
    rows = crawl(links, **changes)
    assert {rows[url]["reason"] for url in good} == {None}
    assert {(rows[url]["outcome"], rows[url]["reason"]) for url in BAD_URLS} == {("refused", "bad_url")}
    again = crawl(links, **changes)
    assert again == rows


@given(st.text(alphabet="aZ0.-_~%2eE/?=&:\n", max_size=20), st.sampled_from(["http://a.b/", "http://", "http://1.2"]))
def test_urls_are_judged_together_as_one_by_one(rest: str, start: str) -> None:
    urls = [start + rest, *BAD_URLS, "http://a.example/b"]
    assert are_fetchable(pa.array(urls)).tolist() == list(map(is_fetchable, urls))


def test_a_link_with_a_bad_url_takes_no_place_under_the_cap(make_links: Any) -> None:
    karma = {"http://bad.example/a b": 9, "http://bad.example/x/../": 8} | {f"http://bad.example/{i}": i for i in "123"}
    links = PartSet.open(make_links(list(karma), karma={url: int(n) for url, n in karma.items()}), "links")
    assert kept(links, 2) == set(karma) - {"http://bad.example/1"}


def test_links_whose_url_has_no_host_are_counted() -> None:
    counted = count_hosts(_InMemory([(url, 5) for url in BAD_URLS]))  # type: ignore[arg-type]
    assert sum(counted["n"].to_pylist()) == len(BAD_URLS)


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
def test_parts_have_about_as_many_hosts_each(n_parts: int) -> None:
    hosts = pa.array([f"host{i}.example" for i in range(1000)])
    parts = part_of(hosts, n_parts)
    assert part_of(hosts[500:], n_parts).tolist() == parts[500:].tolist()
    sizes = Counter(parts.tolist())
    assert sorted(sizes) == list(range(n_parts))
    assert max(sizes.values()) < 1.3 * 1000 / n_parts


def test_a_key_depends_on_all_bytes_of_a_string_and_on_nothing_else() -> None:
    names = ["", "a", "b", "ab", "ba", "aa", "a" * 300, "a" * 299 + "b"]
    keys = string_keys(pa.array(names))
    assert len(set(keys.tolist())) == len(names)
    assert string_keys(pa.array(["x", *names, "y"])[1:-1]).tolist() == keys.tolist()
