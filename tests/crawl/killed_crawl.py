"""Kill a crawl repeatedly (kill -9); check that nothing is lost or repeated and that every record can be read alone.

Crawls local pages with the command line and kills it at random moments: while it starts, writes or publishes. Then
everything is read back with warcio, fastwarc and webtext. Prints the number of repeated requests; any loss is an error.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from crawl_clients import write_links
from crawl_server import Answers, hosts, page_number, serving
from fastwarc.warc import ArchiveIterator as FastwarcIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from webtext.base.parts.partset import PartSet
from webtext.base.warc.reader import read_response_at, read_responses

PART_PAGES = 150
MAX_BODY_BYTES = 1 << 20
CONCURRENCY = 16
RUN_SECONDS = 120.0  # no run takes longer; only a safeguard


def crawl_and_kill(folder: Path, n_pages: int, n_hosts: int, n_kills: int, seed: int = 0) -> str:
    """Crawl into `folder` and return a line of statistics; raises AssertionError if anything is lost or repeated."""
    chance = random.Random(seed)
    bodies = [
        f"<html><p>{chance.random()}</p>{'some words ' * chance.randint(1, 900)}".encode() for _ in range(20)
    ]  # few, so that some bodies repeat
    answers = Answers(bodies)
    with serving(answers, hosts(n_hosts), port := _free_port()) as n_asked:
        names = hosts(n_hosts)
        urls = [f"http://{names[i % n_hosts]}:{port}/page/{i}" for i in range(n_pages)]
        write_links(folder / "links", urls)
        n_killed = 0
        for _ in range(n_kills):
            n_killed += _run(folder, port, chance, mean_pages=n_pages // (n_kills + 1), n_asked=n_asked)
        start = time.monotonic()
        if (code := _start(folder, port).wait(RUN_SECONDS)) != 0:
            raise AssertionError(f"the last run ended with {code}")
        seconds = time.monotonic() - start
        n_again = n_asked.value - n_pages
    n_revisits = check(folder / "pages", urls, answers)
    assert n_again <= n_killed * CONCURRENCY, f"{n_again} pages were requested again"
    return (
        f"{n_pages:,} pages of {n_hosts} hosts, killed {n_killed} times: none lost, none repeated; {n_again} pages in "
        f"flight were requested again; {n_revisits} revisits; the last run took {seconds:.1f} s"
    )


def check(pages_folder: Path, urls: Sequence[str], answers: Answers) -> int:
    """Check that every link has one row and one record with its page's body, in all readers; return the revisits."""
    pages = PartSet.open(str(pages_folder), "pages")
    pages.verify()
    rows = [row for part in pages.parts for row in pages.table(part).to_pylist()]
    assert Counter(row["url"] for row in rows) == Counter(urls), "a link has no row, or two"
    assert {row["outcome"] for row in rows} == {"fetched"}
    assert not [path for path in pages_folder.iterdir() if path.name.startswith((".", "_open"))], "scratch is left"
    found: Counter[str] = Counter()
    n_revisits = 0
    for path in sorted(pages_folder.glob("*.warc.gz")):
        ours = list(read_responses(pages.folder, path.name))
        assert all(one.body(MAX_BODY_BYTES) == answers.body(page_number(one.url)) for one in ours)
        with open(path, "rb") as file:
            by_warcio = [
                one.rec_headers.get_header("WARC-Target-URI")
                for one in WarcioIterator(file, check_digests="raise")
                if one.rec_type in ("response", "revisit") and one.raw_stream.read() is not None
            ]
        with open(path, "rb") as file:
            kinds = [(one.headers["WARC-Type"], one.headers.get("WARC-Target-URI")) for one in FastwarcIterator(file)]
        by_fastwarc = [url for kind, url in kinds if kind in ("response", "revisit")]
        assert [one.url for one in ours] == by_warcio == by_fastwarc
        assert [kind for kind, _ in kinds].count("warcinfo") == 1
        n_revisits += sum(one.is_revisit for one in ours)
        found.update(by_warcio)
        _check_index(pages, path)
    assert found == Counter(urls), "a page has no record, or two"
    for row in rows:
        alone = read_response_at(pages.folder, row["warc_file"], row["warc_offset"], row["warc_length"])
        assert alone.url == row["url"]
    return n_revisits


def _check_index(pages: PartSet, path: Path) -> None:
    """Check that each line's range, read alone, is its record, and that the lines are the file's pages, sorted."""
    data = path.read_bytes()
    lines = path.with_name(path.name.replace(".warc.gz", ".cdxj")).read_bytes().splitlines()
    assert lines == sorted(lines)
    for line in lines:
        fields = json.loads(line.split(b" ", 2)[2])
        start = int(fields["offset"])
        with tempfile.TemporaryFile() as file:
            file.write(data[start : start + int(fields["length"])])
            file.seek(0)
            [record] = list(WarcioIterator(file))
            assert record.rec_headers.get_header("WARC-Target-URI") == fields["url"]
            assert (record.rec_type == "revisit") == (fields["mime"] == "warc/revisit")
    assert len(lines) == sum(1 for _ in read_responses(pages.folder, path.name))


def _run(folder: Path, port: int, chance: random.Random, *, mean_pages: int, n_asked: object) -> bool:
    """Run and kill the crawl, after some pages or (one in five) after some time; False if it ended before that."""
    child = _start(folder, port)
    start = time.monotonic()
    until = n_asked.value + chance.randint(1, 2 * mean_pages)  # type: ignore[attr-defined]
    seconds = chance.uniform(0.0, 2.0) if chance.random() < 0.2 else RUN_SECONDS
    while child.poll() is None and time.monotonic() - start < seconds and n_asked.value < until:  # type: ignore[attr-defined]
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.03))
    child.kill()
    return child.wait() != 0


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = ["crawl", "fetch", str(folder / "links"), "--out", str(folder / "pages"), "--quiet", "--delay", "0"]
    command += ["--allow-address", f"127.0.0.0/8:{port}", "--set", f"crawl.fetch.part_pages={PART_PAGES}"]
    command += ["--concurrency", str(CONCURRENCY)]
    return subprocess.Popen([sys.executable, "-c", "from webtext.app.main import main; main()", *command])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
