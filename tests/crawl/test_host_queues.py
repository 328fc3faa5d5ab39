"""Host queues: many hosts at once, one link per host at a time, and retries."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from webtext.base.parts.identifiers import link_id
from webtext.base.web.urls import host_of
from webtext.crawl.fetch import host_queues
from webtext.crawl.fetch.host_queues import HostQueues
from webtext.crawl.fetch.page_source import Queue
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.visit import QueuedLink, Visit


def link(host: int, number: int) -> QueuedLink:
    url = f"http://host-{host}.example/{number}"
    return QueuedLink(link_id=link_id(url), url=url, karma=3, split="train", voted=0)


def queues(sizes: list[int]) -> Iterator[Queue]:
    for host, size in enumerate(sizes):
        yield [link(host, number) for number in range(size)].__iter__


class Recorder:
    """Makes visits that take a moment. The first `n_failures` tries of a link fail with a reason that may pass."""

    def __init__(self, n_failures: dict[str, int] | None = None, address_of: Callable[[str], str] = str) -> None:
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0
        self.most_of_one_host = 0
        self.tries: list[str] = []
        self.done: list[str] = []
        self._n_failures = n_failures or {}
        self._address_of = address_of
        self.at_address: Counter[str] = Counter()
        self.most_at_address: Counter[str] = Counter()

    async def visit(self, link: QueuedLink, visit: Visit) -> Visit:
        host = host_of(link.url)
        address = self._address_of(host)
        if address:  # otherwise its look-up fails
            await asyncio.sleep(0)
            visit.arrive(address)
        self.at_address[address] += 1
        self.most_at_address |= self.at_address
        self.under_way[host] += 1
        self.most_under_way = max(self.most_under_way, sum(self.under_way.values()))
        self.most_of_one_host = max(self.most_of_one_host, self.under_way[host])
        self.tries.append(link.url)
        await asyncio.sleep(0)
        self.under_way[host] -= 1
        self.at_address[address] -= 1
        visit.n_tries += 1
        visit.reason = "timed_out" if visit.n_tries <= self._n_failures.get(link.url, 0) else None
        return visit

    def finish(self, link: QueuedLink, visit: Visit) -> None:
        self.done.append(link.url)

    def run(self, sizes: list[int], retries: int = 2) -> None:
        settings = FetchSettings(retries=retries)
        asyncio.run(HostQueues("web", self.visit, settings).run(queues(sizes), self.finish))


@pytest.fixture(autouse=True)
def _retries_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queues, "RETRY_SECONDS", 0.01)


def test_every_link_is_done_once_and_a_host_is_asked_one_at_a_time() -> None:
    recorder = Recorder()
    recorder.run([5, 1, 3])
    assert sorted(recorder.done) == sorted(link.url for queue in queues([5, 1, 3]) for link in queue())
    assert recorder.most_of_one_host == 1
    assert recorder.most_under_way == 3


def test_no_more_hosts_than_allowed_are_begun_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queues, "HOSTS_AT_ONCE", 4)
    recorder = Recorder()
    recorder.run([3] * 20)
    assert len(recorder.done) == 60
    assert recorder.most_under_way == 4


def test_a_host_whose_address_is_busy_is_parked_and_the_next_one_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for 12 hosts, and the 50 that share an address come first. At most 8 of them are begun."""
    monkeypatch.setattr(host_queues, "HOSTS_AT_ONCE", 12)
    recorder = Recorder(address_of=lambda host: "shared" if int(host[5:-8]) < 50 else host)
    recorder.run([2] * 50 + [1] * 10)
    assert sorted(recorder.done) == sorted(link.url for queue in queues([2] * 50 + [1] * 10) for link in queue())
    assert recorder.most_at_address["shared"] <= 2 * host_queues.VISITS_PER_ADDRESS  # begun hosts may exceed the limit
    own = [i for i, url in enumerate(recorder.done) if recorder._address_of(host_of(url)) != "shared"]
    assert own[-1] < 40, "hosts with addresses of their own waited for a shared one"


def test_a_host_that_was_begun_is_finished_before_another_of_its_address() -> None:
    recorder = Recorder(address_of=lambda host: "shared")
    recorder.run([3] * 100)
    begun: set[str] = set()
    for url in recorder.tries:
        begun.add(host_of(url))
        open_ = [host for host in begun if sum(host_of(done) == host for done in recorder.tries) < 3]
        assert len(open_) <= 2 * host_queues.VISITS_PER_ADDRESS
    assert len(recorder.done) == 300


@pytest.mark.parametrize("seed", range(20))
def test_every_link_is_done_once_whatever_the_addresses_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses change between look-ups, look-ups fail, and visits are retried."""
    chance = random.Random(seed)
    monkeypatch.setattr(host_queues, "HOSTS_AT_ONCE", chance.randint(1, 20))
    sizes = [chance.randint(1, 4) for _ in range(chance.randint(1, 80))]
    failing = {link(host, 0).url: chance.randint(0, 4) for host in range(len(sizes))}
    recorder = Recorder(failing, address_of=lambda _: chance.choice(["", "a", "a", "a", "b"]))
    recorder.run(sizes)
    assert sorted(recorder.done) == sorted(link.url for queue in queues(sizes) for link in queue())
    assert max(recorder.most_of_one_host, 1) == 1


def test_while_a_link_waits_for_a_retry_its_host_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is stopped until the others are done, so that the wait can't end before, even on a slow machine."""
    first = link(0, 0).url
    recorder = Recorder({first: 2})
    clock = SimpleNamespace(monotonic=lambda: 1000.0 if len(recorder.done) >= 3 else 0.0)
    monkeypatch.setattr(host_queues, "time", clock)
    recorder.run([4])
    assert recorder.tries.count(first) == 3
    assert recorder.done == [*(link(0, number).url for number in (1, 2, 3)), first]


def test_retries_are_limited() -> None:
    recorder = Recorder({link(0, 0).url: 99})
    recorder.run([1], retries=2)
    assert len(recorder.tries) == 3
    assert len(recorder.done) == 1


def test_a_host_whose_links_all_fail_holds_a_bounded_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queues, "MAX_WAITING", 2)
    recorder = Recorder({link(0, number).url: 1 for number in range(6)})
    recorder.run([6])
    assert len(set(recorder.tries[:3])) == 2  # the third try is a retry
    assert sorted(recorder.done) == sorted(link(0, number).url for number in range(6))


def test_an_error_in_writing_ends_the_run() -> None:
    class Full(Recorder):
        def finish(self, link: QueuedLink, visit: Visit) -> None:
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Full().run([3, 3])
