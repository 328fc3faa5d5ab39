"""Crawls from archives, killed at random moments (kill -9): nothing is lost or repeated, and pauses are kept."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from local_common_crawl import LocalCommonCrawl
from local_wayback import ARCHIVE, LocalWayback

from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_response_at
from webtext.crawl.fetch.clock_file import NAME

pytestmark = pytest.mark.slow  # test_pages_set.py has a quick kill, test_retries.py recalls pauses in this process
N_PAGES, N_KILLS = 48, 5
RUN_SECONDS = 600.0  # only a guard against hanging runs


class Archived:
    """Pages from an archive: some by a captured redirect, some with the same body, some not archived."""

    def __init__(self, source: str, web: Any, folder: Path) -> None:
        self.web = web
        self.links: dict[str, str | None] = {}  # URL -> the page's URL, None where it is not archived
        self.bodies: dict[str, bytes] = {}
        archive: Any = LocalWayback(web) if source == "wayback" else LocalCommonCrawl(web, folder / "cc")
        for i in range(N_PAGES):
            link, host = web.url(f"/{i}", i % 6 + 1), i % 5 + 1
            self.links[link] = web.url(f"/page/{i}", host) if i % 4 == 0 else None if i % 7 == 3 else link
            page = self.links[link]
            if page is None:
                continue
            self.bodies[page] = f"<html>{i % 9}".encode() + b"word " * 50
            if source == "wayback":
                archive.page(page, "19990101000000", self.bodies[page])
            else:
                archive.page(page, body=self.bodies[page])
                archive.page("http://b.example/", body=b"between two pages %d" % i)  # so that answers come one by one
            if page == link:
                continue
            if source == "wayback":
                archive.page(link, "19990101000000", "", f"X-Archive-Orig-Location: {page}", status="302 Found")
            else:
                archive.redirect(link, page)
        if source == "wayback":
            names, self.options = ("wayback_cdx", "wayback_replay"), ["--from", "wayback"]
        else:
            archive.write_index()
            names = ("cc_data",)
            self.options = ["--from", "common-crawl", "--cc-index", archive.settings["cc_index"][0]]
        self.options += [word for name in names for word in ("--set", f"crawl.fetch.{name}={archive.settings[name]}")]

    def start(self, links: str, out: Path, archive_delay: float = 0.0) -> subprocess.Popen[bytes]:
        child: subprocess.Popen[bytes] = self.web.start_crawl(
            *(links, out, "--delay", "0", "--set", "crawl.fetch.part_pages=5", *self.options),
            *("--set", f"crawl.fetch.archive_delay={archive_delay}"),
            constants={"archives.common_crawl.MAX_GAP": 0, "archives.sources.CONNECTIONS": 1},
        )
        return child

    def asked(self) -> list[float]:
        """Return the times at which the archive was asked."""
        return [request.time for request in self.web.requests if request.host == f"127.0.0.{ARCHIVE}"]


@pytest.fixture(params=["wayback", "common-crawl"])
def archived(request: pytest.FixtureRequest, web: Any, tmp_path: Path) -> Archived:
    return Archived(request.param, web, tmp_path)


def test_a_crawl_from_an_archive_is_complete_after_many_kills(
    archived: Archived, make_links: Any, bodies: Any, tmp_path: Path
) -> None:
    links, out = make_links(list(archived.links)), tmp_path / "pages"
    chance = random.Random(N_PAGES)
    n_killed = 0
    for _ in range(N_KILLS):
        child = archived.start(links, out)
        until = len(archived.web.requests) + chance.randint(1, 20)
        archived.web.hold_after = until  # so that even a fast run is killed before its end
        archived.web.wait_for_requests(until, child)
        time.sleep(chance.uniform(0.0, 0.02))
        child.kill()
        n_killed += child.wait() != 0
        archived.web.hold_after = None
    assert archived.start(links, out).wait(RUN_SECONDS) == 0
    assert n_killed >= 2, "the runs were over before they were killed"
    pages = PartSet.open(str(out), "pages")
    pages.verify()
    rows = [row for part in pages.parts for row in pages.table(part).to_pylist()]
    assert Counter(row["url"] for row in rows) == Counter(list(archived.links)), "a link has no row, or two"
    for row in rows:
        page = archived.links[row["url"]]
        assert (row["outcome"], row["reason"]) == (("failed", "not_archived") if page is None else ("fetched", None))
        if page is not None:
            assert (row["final_url"], row["redirects"]) == (page, [] if page == row["url"] else [row["url"]])
            alone = read_response_at(Folder(str(out)), row["warc_file"], row["warc_offset"], row["warc_length"])
            assert (alone.url, alone.body(1 << 20)) == (page, archived.bodies[page])
    assert bodies(out) == archived.bodies, "a page has no record, or two"
    assert not [path for path in out.iterdir() if path.name.startswith((".", "_open"))], "scratch is left"


@pytest.mark.parametrize("is_busy", [True, False], ids=["Retry-After", "archive_delay"])
def test_a_rerun_keeps_the_archive_s_pause(is_busy: bool, archived: Archived, make_links: Any, tmp_path: Path) -> None:
    links, out, seconds = make_links([next(iter(archived.links))]), tmp_path / "pages", 3
    answer = archived.web.answer
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % seconds

    def answer_busy(host: str, path: str) -> Any:
        return busy if is_busy and host == f"127.0.0.{ARCHIVE}" else answer(host, path)

    due = 0.0  # as first recorded
    for n_asked, answers in ((1, answer_busy), (2, answer)):
        archived.web.answer = answers
        child = archived.start(links, out, 0.0 if is_busy else seconds)
        while child.poll() is None and not (len(archived.asked()) >= n_asked and due):
            time.sleep(0.001)
            due = due or noted_pause(out / NAME, seconds)
        child.kill()
        child.wait()
        assert len(archived.asked()) >= n_asked
    wall = time.time() - time.monotonic()
    assert archived.asked()[1] + wall >= due - 0.05


def noted_pause(journal: Path, seconds: float) -> float:
    """Return the end of the first recorded pause of this length, or 0.0 if none is recorded yet."""
    lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    fields = [line.split("\t") for line in lines if line.startswith("archive ") and line.endswith("\n")]
    return next((float(until) for _, written, until, _ in fields if float(until) - float(written) > seconds - 0.1), 0.0)
