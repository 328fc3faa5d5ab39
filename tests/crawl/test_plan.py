"""The plan of a crawl: computed by hand, measured in a real crawl, and edge cases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from webtext.app.main import run as webtext
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.crawl.plan.plan import DAY, Pace, make_plan, measured, plan_text
from webtext.crawl.plan.settings import PlanSettings
from webtext.crawl.visits.settings import FetchSettings

HOSTS = {"a.example.com": 20, "b.example.com": 5, "c.example.org": 12}
BY_HAND = PlanSettings(
    delay=1.0,
    answer_seconds=1.0,
    requests_per_link=1.0,
    page_ratio=0.5,
    page_bytes=1000,
    record_bytes=100,
    concurrency=2,
)
FETCH = FetchSettings(delay=30.0)


@pytest.fixture
def links(make_links: Any) -> PartSet:
    return PartSet.open(make_links([f"http://{host}/{i}" for host, n in HOSTS.items() for i in range(n)]), "links")


def test_a_plan_computed_by_hand(links: PartSet) -> None:
    """A request and its pause take two seconds, and each host is also asked for robots.txt: 21 x 2 s for the largest.

    Under a cap of ten, hosts give 10, 5 and 10 links.
    """
    plan = make_plan(links, BY_HAND, FETCH)
    assert (plan.links, plan.hosts, plan.domains) == (37, 3, 2)
    assert [(host.name, host.links, host.days * DAY) for host in plan.largest_hosts] == [
        ("a.example.com", 20, pytest.approx(42)),
        ("c.example.org", 12, pytest.approx(26)),
        ("b.example.com", 5, pytest.approx(12)),
    ]
    assert [(domain.name, domain.links, domain.days * DAY) for domain in plan.largest_domains] == [
        ("example.com", 25, pytest.approx(54)),
        ("example.org", 12, pytest.approx(26)),
    ]
    none, ten = plan.caps
    assert (none.max_pages_per_host, none.links, none.links_ratio, none.capped_hosts) == (None, 37, 1.0, 0)
    assert [none.days_by_host * DAY, none.days_by_domain * DAY] == pytest.approx([42, 54])
    assert none.days_by_concurrency * DAY == pytest.approx(40 / 2)
    assert (none.wire_bytes, none.warc_bytes) == (18_500, 20_350)
    assert (ten.max_pages_per_host, ten.links, ten.capped_hosts) == (10, 25, 2)
    assert [ten.days_by_host * DAY, ten.days_by_domain * DAY] == pytest.approx([22, 34])


def test_the_crawl_lasts_as_long_as_what_takes_longest(links: PartSet) -> None:
    one_at_a_time = make_plan(
        links, PlanSettings(concurrency=1, delay=0.0, answer_seconds=1.0, requests_per_link=1.0), FETCH
    )
    cap = one_at_a_time.caps[0]
    assert cap.days == cap.days_by_concurrency == pytest.approx(40 / DAY)
    assert make_plan(links, BY_HAND, FETCH).caps[0].days == make_plan(links, BY_HAND, FETCH).caps[0].days_by_host


def test_further_requests_per_link_take_time(links: PartSet) -> None:
    twice = make_plan(links, PlanSettings(requests_per_link=2.0, delay=1.0, answer_seconds=1.0), FETCH)
    assert twice.caps[0].days_by_host * DAY == pytest.approx((2 * 20 + 1) * 2)


def test_a_plan_measured_in_a_crawl_predicts_that_crawl(crawl: Any, web: Any, make_links: Any, tmp_path: Path) -> None:
    urls = [web.page(f"/{i}", "<html>" + "x" * 1000 * i) for i in range(3)]
    urls += [web.redirect("/moved", "/else"), web.url("/missing")]
    web.page("/else")
    links = PartSet.open(make_links(urls), "links")
    begun = time.monotonic()
    crawl(links.folder.url)
    seconds = time.monotonic() - begun
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    found = measured(pages, BY_HAND)
    assert (found.page_ratio, found.requests_per_link) == (0.8, 1.2)
    assert 0 <= found.answer_seconds <= seconds
    assert (found.delay, found.concurrency) == (BY_HAND.delay, BY_HAND.concurrency)
    plan = make_plan(links, BY_HAND, FETCH, pages)
    warc_bytes = sum(file.stat().st_size for file in (tmp_path / "pages").glob("*.warc.gz"))
    assert plan.caps[0].warc_bytes == pytest.approx(warc_bytes, abs=2 * 4)  # rounded to bytes, twice, for four pages
    assert "measured in" in plan_text(plan)


def test_a_pages_set_without_pages_measures_nothing(crawl: Any, web: Any, tmp_path: Path) -> None:
    crawl([web.url("/missing")])
    with pytest.raises(InputError, match="no fetched page"):
        measured(PartSet.open(str(tmp_path / "pages"), "pages"), BY_HAND)


def test_a_set_without_links_takes_no_time(tmp_path: Path) -> None:
    links = SetWriter(str(tmp_path), "links", Recipe(stage="test", code_version=1, settings={})).seal([])
    plan = make_plan(links, BY_HAND, FETCH)
    assert (plan.links, plan.hosts, plan.caps[0].days, plan.caps[0].links_ratio) == (0, 0, 0.0, 1.0)
    assert "0 links on 0 hosts" in plan_text(plan)


def test_the_verb_prints_text_and_json(links: PartSet, capfd: pytest.CaptureFixture[str]) -> None:
    assert webtext(["crawl", "plan", links.folder.url, "--top", "2", "--delay", "86400"]) == 0
    said = capfd.readouterr().out
    assert "37 links on 3 hosts of 2 domains" in said
    assert "a.example.com" in said
    assert "b.example.com" not in said
    assert "25.00" in said  # 20 links x 1.2 requests and robots.txt, a day each
    assert webtext(["crawl", "plan", links.folder.url, "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert [cap["max_pages_per_host"] for cap in answer["caps"]] == [None, 10]
    assert answer["caps"][0]["days"] == answer["largest_hosts"][0]["days"]


def test_the_pace_is_the_crawl_s_unless_it_is_set(
    links: PartSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "build.toml").write_text("[crawl.fetch]\ndelay = 5\nconcurrency = 7\n")
    verb = ["crawl", "plan", links.folder.url, "--json", "--config", str(tmp_path / "build.toml")]
    chosen = {
        (): (5.0, 7),
        ("--delay", "2"): (2.0, 7),
        ("--set", "crawl.plan.delay=0"): (0.0, 7),
        ("--set", "crawl.fetch.delay=9"): (9.0, 7),
    }
    for options, pace in chosen.items():
        assert webtext([*verb, *options]) == 0
        said = json.loads(capfd.readouterr().out)["pace"]
        assert (said["delay"], said["concurrency"]) == pace
    assert make_plan(links, PlanSettings(), FetchSettings(concurrency=64)).pace == Pace(1.0, 64)


@pytest.mark.parametrize(
    "wrong", [{"delay": -1.0}, {"concurrency": 0}, {"page_ratio": 1.5}, {"requests_per_link": 0.5}, {"top": -1}]
)
def test_an_invalid_setting_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PlanSettings(**wrong)
