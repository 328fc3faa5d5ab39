"""The frontier: links waiting to be fetched, by host."""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.identifiers import link_id
from webtext.base.web.urls import host_of
from webtext.crawl.fetch.frontier import Frontier
from webtext.crawl.fetch.page_source import SCHEMA
from webtext.crawl.pages.visit import QueuedLink


def link(url: str, karma: int = 3) -> QueuedLink:
    return QueuedLink(link_id=link_id(url), url=url, karma=karma, split="train", voted=0, posts=[])


def batches(links: Iterable[QueuedLink], n_rows: int = 7) -> Iterator[pa.RecordBatch]:
    rows = map(dataclasses.asdict, links)
    while some := list(itertools.islice(rows, n_rows)):
        yield pa.RecordBatch.from_pylist(some, SCHEMA)


def queues(links: list[QueuedLink], tmp_path: Path) -> list[list[QueuedLink]]:
    with Frontier(batches(links), tmp_path / "frontier") as frontier:
        return [list(queue()) for queue in frontier.queues()]


def test_the_longest_queue_comes_first_and_in_it_the_links_with_most_karma(tmp_path: Path) -> None:
    few = [link("http://b.example/", 9)]
    many = [link("http://a.example/1", 3), link("http://a.example/2", 8), link("http://a.example/3", 5)]
    assert queues(few + many, tmp_path) == [[many[1], many[2], many[0]], few]


def test_links_of_equal_karma_keep_the_order_of_their_set(tmp_path: Path) -> None:
    links = [link(f"http://a.example/{number}") for number in range(50)]
    assert queues(links, tmp_path) == [links]


def test_hosts_differ_by_name_and_not_by_port_or_scheme(tmp_path: Path) -> None:
    found = queues([link("http://a.example/"), link("https://a.example:8443/"), link("http://b.a.example/")], tmp_path)
    assert [len(queue) for queue in found] == [2, 1]


def test_an_empty_frontier_has_no_queues(tmp_path: Path) -> None:
    assert queues([], tmp_path) == []


def test_no_file_is_left_behind_however_the_process_ends(tmp_path: Path) -> None:
    with Frontier(batches([link("http://a.example/")]), tmp_path / "frontier") as frontier:
        assert len([*frontier.queues()]) == 1
        assert list(tmp_path.iterdir()) == []


def test_queues_can_be_read_side_by_side(tmp_path: Path) -> None:
    links = [link(f"http://{host}.example/{number}") for number in range(20) for host in "abc"]
    with Frontier(batches(links), tmp_path / "frontier") as frontier:
        rounds = list(zip(*(queue() for queue in frontier.queues()), strict=True))
    assert {len({host_of(each.url) for each in turn}) for turn in rounds} == {3}
    assert sorted(each.url for turn in rounds for each in turn) == sorted(each.url for each in links)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 99), st.integers(-(2**40), 2**40)), max_size=60))
def test_every_link_comes_out_once_whatever_went_in(rows: list[tuple[str, int, int]]) -> None:
    import tempfile

    links = [link(f"http://{host}.example/{number}/{place}", karma) for place, (host, number, karma) in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        found = queues(links, Path(folder))
    assert sorted(each.url for queue in found for each in queue) == sorted(each.url for each in links)
    assert all(len({host_of(each.url) for each in queue}) == 1 for queue in found)
    assert [len(queue) for queue in found] == sorted((len(queue) for queue in found), reverse=True)


def test_many_links_take_a_few_bytes_each(tmp_path: Path) -> None:
    def links() -> Iterator[QueuedLink]:
        for number in range(30_000):
            yield link(f"http://host-{number % 7}.example/a/long/path/to/a/page/{number}")

    tracemalloc.start()
    with Frontier(batches(links(), 1000), tmp_path / "frontier") as frontier:
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sum(len([*queue()]) for queue in frontier.queues()) == 30_000
    assert peak < 100 * 30_000  # a QueuedLink alone takes some 500
    assert kept < 1_500_000
