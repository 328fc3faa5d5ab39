"""The pages set: rolling parts, growing links sets, other settings, kill -9, Ctrl-C, a full disk."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from webtext.base.console import Console
from webtext.base.errors import ConfigError, DryRun, InputError, MachineError
from webtext.base.parts.digest import link_keys
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.crawl.fetch.run import fetch_pages
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.link_table import LinkTable
from webtext.crawl.pages.pages_set import PagesSet


def test_parts_are_published_one_by_one_and_a_rerun_does_nothing(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(7)])
    rows = crawl(links, part_pages=3)
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    pages.verify()
    assert [part.records for part in pages.parts] == [3, 3, 1]
    assert [[a.name for a in part.attachments] for part in pages.parts][0] == ["part-00000.cdxj", "part-00000.warc.gz"]
    assert (pages.records, pages.counts.kept) == (7, 7)
    n_requests, manifest = len(web.requests), (tmp_path / "pages/manifest.json").read_bytes()
    assert crawl(links, part_pages=100, delay=9.0) == rows
    assert len(web.requests) == n_requests
    assert (tmp_path / "pages/manifest.json").read_bytes() == manifest


def test_a_small_crawl_gets_parts_for_several_workers(
    crawl: Any, web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.crawl.pages.pages_set.LEAST_PART", 2)
    crawl([web.page(f"/{i}") for i in range(7)])
    assert [part.records for part in PartSet.open(str(tmp_path / "pages"), "pages").parts] == [2, 2, 2, 1]


def test_when_the_links_grow_only_the_new_ones_are_fetched(crawl: Any, web: Any, tmp_path: Path) -> None:
    old, new = [web.page(f"/{i}") for i in range(3)], [web.page(f"/new{i}") for i in range(2)]
    crawl(old)
    web.requests.clear()
    rows = crawl(old + new)
    assert sorted(rows) == sorted(old + new)
    assert sorted(web.paths()) == ["/new0", "/new1"]
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    assert [part.generation for part in pages.parts] == [1, 2]
    assert pages.manifest["parents"][0]["hash"] == PartSet.open(str(tmp_path / "links"), "links").hash


def test_rows_of_removed_links_are_kept_and_counted(
    crawl: Any, web: Any, make_links: Any, settings_for: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two links, then one of them and a new one, then all three: each is fetched once."""
    a, b, c = (web.page(path) for path in ("/a", "/b", "/c"))
    crawl([a, b])
    fetch_pages(make_links([a, c]), str(tmp_path / "pages"), settings_for(), Run(Run.quiet().engine, Console("human")))
    said = capsys.readouterr().err
    assert "keeps 1 row of links that" in said
    assert "2 links, 1 done, 1 to fetch" in said
    assert json.loads((tmp_path / "pages/run.json").read_text())["links_gone"] == 1
    assert sorted(crawl([a, b, c])) == [a, b, c]
    assert sorted(web.paths()) == ["/a", "/b", "/c"]


def test_other_settings_in_an_old_folder_are_an_error_that_names_them(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    links = make_links([web.page("/a")])
    crawl(links)
    with pytest.raises(
        InputError, match=r"max_bytes was 100000, is 50000\nrestore the setting, or write to another folder"
    ):
        crawl(links, max_bytes=50_000)
    (tmp_path / "pages/manifest.json").unlink()  # as if the crawl were unfinished
    with pytest.raises(InputError, match="obey_noai was True, is False"):
        crawl(links, obey_noai=False)


def test_a_crawl_without_a_row_may_be_rerun_with_other_settings(crawl: Any, web: Any, make_links: Any) -> None:
    links = make_links([web.page("/a")])
    with pytest.raises(InputError, match="does not exist"):
        crawl(links, sources=("warc",), warc=("missing.warc.gz",))
    assert len(crawl(links)) == 1


def test_other_kinds_of_sets_are_rejected(crawl: Any, web: Any, tmp_path: Path) -> None:
    crawl([web.page("/a")])
    with pytest.raises(InputError, match="contains pages, not links"):
        crawl(str(tmp_path / "pages"), "more")
    with pytest.raises(InputError, match="no such folder"):
        crawl(str(tmp_path / "nothing"), "more")


def test_no_links_make_an_empty_sealed_set(crawl: Any) -> None:
    assert crawl([]) == {}


def test_an_altered_part_is_rejected_by_readers_and_a_cut_one_fetched_again(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(6)])
    rows = crawl(links, part_pages=2)
    altered = tmp_path / "pages/part-00001.warc.gz"
    data = bytearray(altered.read_bytes())
    data[len(data) // 2] ^= 1
    altered.write_bytes(data)
    with pytest.raises(InputError, match=r"part-00001\.warc\.gz' was altered"):
        PartSet.open(str(tmp_path / "pages"), "pages").verify()
    altered.write_bytes(data[:-1])
    web.requests.clear()
    again = crawl(links)
    assert len(web.paths()) == 2
    assert sorted(again) == sorted(rows)
    PartSet.open(str(tmp_path / "pages"), "pages").verify()


@pytest.mark.parametrize("place", range(4, 2000, 499))
def test_altered_rows_are_not_resumed_from(crawl: Any, web: Any, make_links: Any, tmp_path: Path, place: int) -> None:
    """They say which links have a row, so a link could be lost, or its page asked for again."""
    links = make_links([web.page(f"/{i}") for i in range(2)])
    crawl(links)
    rows = tmp_path / "pages/part-00000.parquet"
    data = bytearray(rows.read_bytes())
    data[place % len(data)] ^= 1
    rows.write_bytes(data)
    with pytest.raises(InputError, match=r"part-00000\.parquet' was altered: SHA-256 \w+…, the manifest says"):
        crawl(links)
    rows.unlink()
    assert len(crawl(links)) == 2


def test_a_dry_run_sends_and_writes_nothing(settings_for: Any, web: Any, make_links: Any, tmp_path: Path) -> None:
    run, links, out = Run.quiet(), make_links([web.page("/a")]), str(tmp_path / "pages")
    run.dry_run = True
    with pytest.raises(DryRun):
        fetch_pages(links, out, settings_for(), run)
    assert (web.requests, Path(out).exists()) == ([], False)
    made = fetch_pages(links, out, settings_for(), Run.quiet())
    assert fetch_pages(links, out, settings_for(), run).hash == made.hash, "nothing is left to do"


def test_a_full_disk_ends_the_run_with_a_short_error(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(4)])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("webtext.crawl.pages.warc_writer.WarcWriter.write", full)
        with pytest.raises(MachineError, match="no space left"):
            crawl(links)
    assert not list((tmp_path / "pages").glob("part-*"))
    assert len(crawl(links)) == 4


PATIENCE = 300.0  # seconds: only a guard against hanging runs
SLOWLY = ("--delay", "0.02", "--set", "crawl.fetch.part_pages=4")


def test_an_archive_without_the_function_that_opens_it_is_rejected_before_anything_is_written(
    settings_for: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    settings = settings_for(sources=("web", "wayback"))
    with pytest.raises(ConfigError, match="the sources are web, wayback, but open_archives is not given"):
        fetch_pages(make_links([web.page("/a")]), str(tmp_path / "pages"), settings, Run.quiet())
    assert not (tmp_path / "pages").exists()


def test_two_runs_cannot_write_one_folder(web: Any, make_links: Any, tmp_path: Path) -> None:
    links = make_links([web.page(f"/{i}") for i in range(30)])
    other = Recipe(stage="test", code_version=1, settings={"contact": None, "obey_robots": False})
    begun_before = PagesSet(str(tmp_path / "pages"), other, PartSet.open(links, "links"))
    web.hold_after = 6
    child = web.start_crawl(links, tmp_path / "pages", *SLOWLY)
    web.wait_for_requests(6, child)
    with pytest.raises(InputError, match="another run is writing"), begun_before.writing():
        pass
    same = FetchSettings(allow_address=(f"127.0.0.0/8:{web.port}",))
    with pytest.raises(InputError, match="another run is writing"):
        fetch_pages(links, str(tmp_path / "pages"), same, Run.quiet())
    web.hold_after = None
    assert child.wait(PATIENCE) == 0, "the first run was disturbed"
    assert PartSet.open(str(tmp_path / "pages"), "pages").records == 30


@pytest.mark.parametrize("n_kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_kills_lose_and_repeat_nothing(
    n_kills: int, rows_of: Any, bodies: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    chance = random.Random(7)
    urls = [web.page(f"/{i}", f"<html>{i}", host=host) for host in (1, 2, 3) for i in range(12)]
    urls += [web.redirect(f"/r{i}", f"/target{i % 2}", host=1) for i in range(4)]
    targets = [web.page(f"/target{i}") for i in range(2)]
    links = make_links(urls)
    for _ in range(n_kills):
        child = web.start_crawl(links, tmp_path / "pages", *SLOWLY)
        web.wait_for_requests(len(web.requests) + chance.randint(6, 18), child)
        child.kill()
        child.communicate()
    assert web.start_crawl(links, tmp_path / "pages", *SLOWLY).wait(PATIENCE) == 0
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    pages.verify()
    rows = rows_of(pages)
    assert sorted(rows) == sorted(urls)
    assert sorted(bodies()) == sorted(urls[:36] + targets)
    assert not list((tmp_path / "pages").glob(".*")), "scratch of a killed run is left"


@pytest.mark.slow
def test_an_interrupted_crawl_publishes_complete_rows_and_resumes(web: Any, make_links: Any, tmp_path: Path) -> None:
    links = make_links([web.page(f"/{i}") for i in range(30)])
    web.hold_after = 12
    child = web.start_crawl(links, tmp_path / "pages", *SLOWLY)
    web.wait_for_requests(12, child)
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE) == 130
    web.hold_after = None
    under_way = PartSet.open(str(tmp_path / "pages"), "pages")  # readable during the crawl, and marked as incomplete
    assert not under_way.complete
    assert 0 < under_way.records < 30
    n_before = len(web.paths())
    assert web.start_crawl(links, tmp_path / "pages", *SLOWLY).wait(PATIENCE) == 0
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    assert pages.complete
    assert pages.manifest["generation"] > under_way.manifest["generation"]
    assert len(PartSet.open(str(tmp_path / "pages"), "pages").table(0)) == 4
    assert len(web.paths()) - n_before <= 30 - n_before + 2, "published pages were fetched again"


def test_links_added_to_a_table_are_all_found_and_take_eight_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.crawl.pages.link_table._ADDED_AT_A_TIME", 100)
    table = LinkTable([link_keys(pa.array(["0" * 32, "f" * 32]))])
    urls = [f"http://a.example/{number}" for number in range(1050)]
    for url in [*urls, *urls]:
        table.add_url(url)
    assert all(map(table.has_url, urls))
    assert not table.has_url("http://b.example/")
    assert (len(table), len(table._added)) == (1052, 50)


def test_a_table_of_links_knows_its_members() -> None:
    ids = [f"{i:032x}" for i in (1 << 100, 1 << 120, (1 << 128) - 1)]
    table = LinkTable([link_keys(pa.array(ids[:2])), link_keys(pa.array(ids[2:]))])
    assert table.has(pa.array([*ids, f"{1 << 110:032x}"])).tolist() == [True, True, True, False]
    assert len(table) == 3
    table.add_url("http://a.example/")
    assert table.has_url("http://a.example/")
    assert not table.has_url("http://b.example/")
    assert table.missing_from(LinkTable([link_keys(pa.array(ids[:1]))])) == 2
