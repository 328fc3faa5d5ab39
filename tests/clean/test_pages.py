"""Pages to documents: joins, counts, traces, and pages that kill the worker they are read in."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import warc_files
from elsewhere import only_tasks_read
from hypothesis import given
from hypothesis import strategies as st
from set_contents import contents, rows
from warc_files import CAPTURED, DATE, article, page, site, write_pages, write_warc

from webtext.base.console import Console
from webtext.base.errors import DryRun, InputError
from webtext.base.parts.identifiers import link_id, page_document_id, split_of, text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import PAGE
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_response_at
from webtext.base.workers.local_engine import LocalEngine, WorkerLimits, ignore
from webtext.clean.extract import pages as stage
from webtext.clean.extract import redirects
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import extract_documents, extract_recipe

SETTINGS = ExtractSettings()


def test_a_page_becomes_a_document_that_can_be_traced_to_its_record(tmp_path: Path, run: Run) -> None:
    url, body = "http://example.co.uk/a%20b", page(article(1), "One  &amp; two")
    pages = write_pages(tmp_path / "pages", [[{"url": url, "body": body, "karma": 7}]])
    (document,) = rows(extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run))
    assert document["id"] == page_document_id(url, DATE, body)
    assert document["link_ids"] == [link_id(url)]
    assert (document["url"], document["domain"], document["title"]) == (url, "example.co.uk", "One & two")
    assert document["text"] == article(1)
    assert document["text_digest"] == text_digest(article(1))
    assert (document["language"], document["karma"], document["split"]) == ("en", 7, "train")
    assert document["language_score"] > 0.9
    assert document["date"] == CAPTURED
    record = read_response_at(pages.folder, document["warc_file"], document["warc_offset"], document["warc_length"])
    assert record.body(1 << 20) == body


def test_scrubbing_changes_the_text_before_its_digest_is_taken_and_is_counted(tmp_path: Path, run: Run) -> None:
    address = "Questions go to ann.lee@mail.example.org or to the machine at 8.8.8.8, and nowhere else but there."
    body = page(f"{article(1)} {address}", "Ask bob@example.net")
    pages = write_pages(tmp_path / "pages", [[{"url": "http://a.example/", "body": body}]]).folder.url
    (plain,) = rows(extract_documents([pages], str(tmp_path / "plain"), SETTINGS, run))
    (scrubbed,) = rows(extract_documents([pages], str(tmp_path / "scrubbed"), ExtractSettings(scrub=True), run))
    assert (plain["n_scrubbed"], scrubbed["n_scrubbed"]) == (None, 3)
    assert "ann.lee@mail.example.org" in plain["text"]
    expected = plain["text"].replace("ann.lee@mail.example.org", "email@example.com").replace("8.8.8.8", "192.0.2.1")
    assert (scrubbed["text"], scrubbed["title"]) == (expected, "Ask email@example.com")
    assert scrubbed["text_digest"] == text_digest(expected)
    assert scrubbed["id"] == plain["id"]


def test_links_that_redirect_to_a_page_are_also_its_links(tmp_path: Path, run: Run) -> None:
    """b leads to a, c (in another part) to b, d to where e was redirected; r and s form a ring. The best vote counts,
    and a training link decides the split."""
    a, b, c, d, e, end, r, s = (f"http://{name}.example/" for name in ("a", "b", "c", "d", "e", "end", "r", "s"))
    first = [
        {"url": a, "body": page(article(1)), "karma": 3, "split": "validation"},
        {"url": b, "outcome": "linked", "final_url": a, "karma": 50, "split": "validation"},
        {"url": e, "final_url": end, "body": page(article(2)), "karma": 4, "split": "validation"},
    ]
    second = [
        {"url": c, "outcome": "linked", "final_url": b, "karma": 9, "split": "train"},
        {"url": r, "outcome": "linked", "final_url": s},
        {"url": s, "outcome": "linked", "final_url": r},
        {"url": d, "outcome": "linked", "final_url": end, "karma": 2, "split": "validation"},
        {"url": "http://f.example/", "outcome": "failed"},
    ]
    pages = write_pages(tmp_path / "pages", [first, second])
    documents = extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run)
    by_url = {row["url"]: row for row in rows(documents)}
    assert by_url[a]["link_ids"][0] == link_id(a)
    assert set(by_url[a]["link_ids"]) == {link_id(a), link_id(b), link_id(c)}
    assert (by_url[a]["karma"], by_url[a]["split"]) == (50, "train")
    assert by_url[end]["link_ids"] == [link_id(e), link_id(d)]
    assert (by_url[end]["karma"], by_url[end]["split"]) == (4, "validation")
    assert documents.counts.records_in == documents.counts.kept == 2


def test_any_warc_files_are_read_and_every_response_is_counted(tmp_path: Path, run: Run) -> None:
    repeated = [("http://a.example/", page(article(1)))] * 2
    write_warc(tmp_path / "a.warc.gz", repeated, status="203 Non-Authoritative Information")
    write_warc(tmp_path / "b.warc.gz", [("http://b.example/", page(article(2)))], status="404 Not Found")
    write_warc(tmp_path / "c.warc.gz", [("http://c.example/", b"%PDF-1.4"), ("http://d.example/", page(""))])
    documents = extract_documents([str(tmp_path / "*.warc.gz")], str(tmp_path / "out"), SETTINGS, run)
    assert documents.counts.to_json() == {
        "records_in": 5,
        "kept": 1,
        "dropped": {"empty_text": 1, "not_html": 1, "repeated_record": 1, "status_not_ok": 1},
        "failed": {},
    }
    (document,) = rows(documents)
    assert (document["link_ids"], document["karma"], document["split"]) == ([], None, split_of(document["id"]))


OPT_OUTS: dict[str, tuple[str, bytes, list[tuple[str, str]]]] = {
    "noai_meta": ("obey_noai", b'<meta name="robots" content="noai">', []),
    "noindex_meta": ("obey_noindex", b'<meta name="robots" content="noindex">', []),
    "tdm_reserved": ("obey_tdm_reservation", b'<meta name="tdm-reservation" content="1">', []),
    "noai_header": ("obey_noai", b"", [("X-Robots-Tag", "noai;noimageai")]),
    "noimageai_header": ("obey_noai", b"", [("X-Robots-Tag", "noimageai")]),
    "content_signal_no_training": ("obey_content_signal", b"", [("Content-Signal", "ai-train=no")]),
    "content_usage_no_training": ("obey_content_signal", b"", [("Content-Usage", "train-ai=n")]),
}


def test_pages_of_any_warc_file_that_opt_out_are_dropped_unless_a_setting_says_otherwise(
    tmp_path: Path, run: Run
) -> None:
    for i, (reason, (_, tag, headers)) in enumerate(OPT_OUTS.items()):
        body = page(article(i)).replace(b"<title>", tag + b"<title>")
        coding = {"encoding": "gzip"} if i == 0 else {}
        body = gzip.compress(body) if coding else body
        write_warc(tmp_path / f"{reason}.warc.gz", [(f"http://{i}.example/", body)], headers=headers, **coding)
    given = [str(tmp_path / "*.warc.gz")]
    documents = extract_documents(given, str(tmp_path / "out"), SETTINGS, run)
    assert documents.counts.dropped == {f"opt_out_{reason}": 1 for reason in OPT_OUTS}
    assert documents.counts.records_in == len(OPT_OUTS)
    for setting in sorted({setting for setting, *_ in OPT_OUTS.values()}):
        off = ExtractSettings(**{setting: False})
        assert extract_recipe(off).hash != extract_recipe(SETTINGS).hash
        documents = extract_documents(given, str(tmp_path / setting), off, run)
        assert documents.counts.dropped == {f"opt_out_{r}": 1 for r, (name, *_) in OPT_OUTS.items() if name != setting}
        assert documents.counts.kept == len(OPT_OUTS) - sum(documents.counts.dropped.values())


def test_opt_outs_that_a_crawl_recorded_are_obeyed_too(tmp_path: Path, run: Run) -> None:
    """Only the page's own opt-outs: robots.txt is obeyed, or overruled by a setting, when the page is fetched."""
    given = {"noindex_header": "http://a.example/", "robots_disallowed": "http://b.example/"}
    planted = [
        {"url": url, "body": page(article(i)), "opt_outs": [reason]} for i, (reason, url) in enumerate(given.items())
    ]
    pages = write_pages(tmp_path / "pages", [planted]).folder.url
    documents = extract_documents([pages], str(tmp_path / "out"), SETTINGS, run)
    assert (documents.counts.dropped, documents.counts.kept) == ({"opt_out_noindex_header": 1}, 1)
    documents = extract_documents([pages], str(tmp_path / "all"), ExtractSettings(obey_noindex=False), run)
    assert documents.counts.kept == 2


def test_a_warc_file_that_is_cut_short_is_read_up_to_there(tmp_path: Path, run: Run) -> None:
    write_warc(tmp_path / "a.warc.gz", [(f"http://{i}.example/", page(article(i, 30**i))) for i in (1, 2, 3)])
    (tmp_path / "cut.warc.gz").write_bytes((tmp_path / "a.warc.gz").read_bytes()[:-2000])
    documents = extract_documents([str(tmp_path / "cut.warc.gz")], str(tmp_path / "out"), SETTINGS, run)
    assert {row["text"] for row in rows(documents)} == {article(1), article(2, 900)}
    assert documents.counts.failed == {"record_cut_short": 1}


def test_real_warc_files_of_other_tools_are_read_to_the_end(shared_data: Path, tmp_path: Path, run: Run) -> None:
    names = (
        "warcio_example.warc.gz fastwarc_warcfile.warc.gz fastwarc_clipped.warc.gz warcio_example-iana.org-chunked.warc"
    )
    inputs = [str(shared_data / "crawl" / "warc" / name) for name in names.split()]
    documents = extract_documents(inputs, str(tmp_path / "out"), SETTINGS, run)
    assert documents.counts.balanced
    assert documents.records > 3
    assert any("DNS Root Zone" in row["text"] for row in rows(documents))
    assert documents.counts.failed == {"record_cut_short": 1}


class ClockOfHanging:
    """The engine's clock: a second passes per reading while the hanging page is processed, and none otherwise."""

    def __init__(self, hangs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._hangs = hangs
        self._causes: list[str] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("WEBTEXT_TEST_HANGS", str(hangs))
        monkeypatch.setattr("webtext.base.workers.local_engine.time", self)

    def listen_to(self, engine: LocalEngine) -> None:
        """Note the causes for which the engine sets records aside."""
        map_ = engine.map

        def heard(*arguments: Any, on_set_aside: Callable[[int, int, str], None] = ignore, **more: Any) -> Any:
            def note(index: int, position: int, cause: str) -> None:
                self._causes.append(cause)
                on_set_aside(index, position, cause)

            return map_(*arguments, on_set_aside=note, **more)

        self._monkeypatch.setattr(engine, "map", heard)

    def monotonic(self) -> float:
        """The name by which the engine asks."""
        self.now += self._hangs.exists() and "no progress for 3 s" not in self._causes
        return self.now


@pytest.mark.slow
def test_pages_that_segfault_hang_eat_memory_or_raise_cost_only_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["good", "SEGFAULT", "fine", "HANG", "EAT", "RAISE", "last"]
    answers = [(f"http://{n.lower()}.example/", f"{article(i)} {n}.".encode()) for i, n in enumerate(names)]
    write_warc(tmp_path / "a.warc.gz", answers, content_type="text/plain")
    monkeypatch.setattr(stage, "_extract_part", warc_files.extract_with_killers)
    limits = WorkerLimits(record_seconds=3, memory_bytes=400 << 20)
    clock = ClockOfHanging(tmp_path / "hangs", monkeypatch)
    with LocalEngine(workers=1, limits=limits, quiet=True) as engine:
        clock.listen_to(engine)
        killed = Run(engine, Console("quiet"))
        documents = extract_documents([str(tmp_path / "a.warc.gz")], str(tmp_path / "out"), SETTINGS, killed)
    assert [row["url"] for row in rows(documents)] == [f"http://{name}.example/" for name in ("good", "fine", "last")]
    assert documents.counts.failed == {"killed_worker": 3, "raised": 1}
    causes = {failure.id.split("/")[2]: failure.cause for failure in documents.failures(0)}
    assert "signal 11" in causes["segfault.example"]
    assert "3 s" in causes["hang.example"]
    assert "memory" in causes["eat.example"]
    assert causes["raise.example"] == "RecursionError: too clever a page"


def test_two_workers_write_the_bytes_of_one_and_a_second_run_does_nothing(tmp_path: Path, run: Run, alone: Run) -> None:
    parts = [
        [{"url": f"http://{part}.example/{i}", "body": page(article(part * 7 + i))} for i in range(7)]
        for part in range(3)
    ]
    pages = write_pages(tmp_path / "pages", parts)
    for name, each in (("one", alone), ("two", run)):
        extract_documents([pages.folder.url], str(tmp_path / name), SETTINGS, each)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "two").rglob("*")}
    dry = Run(run.engine, run.console, dry_run=True)  # raises DryRun where there is something to do
    extract_documents([pages.folder.url], str(tmp_path / "two"), SETTINGS, dry)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "two").rglob("*")} == times
    with pytest.raises(DryRun):
        extract_documents([pages.folder.url], str(tmp_path / "two"), ExtractSettings(scrub=True), dry)


def test_a_new_body_in_the_same_row_makes_its_part_again(tmp_path: Path, run: Run) -> None:
    def make(text: str) -> PartSet:
        pages = write_pages(tmp_path / "pages", [[site("a", text)]])
        return extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run)

    assert rows(make(article(1)))[0]["text"] == article(1)
    assert rows(make(article(2)))[0]["text"] == article(2)


@pytest.mark.slow
def test_decompression_bombs_are_rejected_by_size_and_cost_no_worker(tmp_path: Path) -> None:
    """1 GB as one line and 100 MB of one tag, as gzip members of 16 MiB; the worker may use 400 MiB."""
    line, tags = (gzip.compress(unit * (2**24 // len(unit)), 1) for unit in (b"x", b"<b>"))
    answers = [
        ("http://line.example/", line * 64),
        ("http://tags.example/", tags * 6),
        ("http://good.example/", gzip.compress(page(article(1)))),
    ]
    write_warc(tmp_path / "a.warc.gz", answers, encoding="gzip")
    with LocalEngine(workers=1, limits=WorkerLimits(memory_bytes=400 << 20), quiet=True) as engine:
        bounded = Run(engine, Console("quiet"))
        documents = extract_documents([str(tmp_path / "a.warc.gz")], str(tmp_path / "out"), SETTINGS, bounded)
    assert documents.counts.failed == {"body_too_large": 2}
    assert [row["url"] for row in rows(documents)] == ["http://good.example/"]


def test_the_recipe_names_the_extractor_and_its_version() -> None:
    plain, fast = (extract_recipe(ExtractSettings(extractor=name)) for name in ("blocks", "trafilatura"))
    assert (plain.settings["extractor"], fast.settings["extractor"]) == ("blocks", "trafilatura")
    assert set(fast.versions) - set(plain.versions) == {"trafilatura"}
    assert plain.hash != fast.hash


def test_an_altered_warc_or_part_is_rejected(tmp_path: Path, run: Run) -> None:
    for name in ("part-00000.warc.gz", "part-00000.parquet"):
        pages = write_pages(tmp_path / name / "pages", [[site("a", article(1))]])
        path = tmp_path / name / "pages" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(InputError, match=f"{name}' was altered"):
            extract_documents([pages.folder.url], str(tmp_path / name / "out"), SETTINGS, run)


def test_an_unfinished_crawl_can_be_read_with_a_warning(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1))]])
    writer = SetWriter(pages.folder.url, "pages", Recipe(stage="test", code_version=1, settings={}))
    writer.seal(pages.parts, complete=False)
    assert extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run).records == 1
    assert "is an unfinished crawl, with 1 row so far" in capsys.readouterr().err


def test_inputs_that_are_not_pages_are_rejected_with_their_names(tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.warc").write_text("this is not an archive\n" * 100)
    pages = write_pages(tmp_path / "pages", [[site("a", article(1))]])
    documents = extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run)
    for name, message in (
        (str(tmp_path / "nothing"), "does not exist"),
        (str(tmp_path / "*.gz"), "no file matches"),
        (str(tmp_path / "empty"), "is not a part set of pages"),
        (str(tmp_path / "text.warc"), "text.warc"),
        (documents.folder.url, "contains documents, not pages"),
    ):
        with pytest.raises(InputError, match=message.replace("*", r"\*")):
            extract_documents([name], str(tmp_path / "other"), SETTINGS, run)


def test_no_pages_result_in_a_sealed_set_without_documents(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[{"url": "http://a.example/", "outcome": "failed"}], []])
    documents = extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS, run)
    assert (documents.records, documents.counts.records_in) == (0, 0)
    assert Folder(str(tmp_path / "out")).exists("manifest.json")


def test_votes_of_redirects_are_found_elsewhere_across_sets_and_parts_though_the_driver_reads_none(
    tmp_path: Path, elsewhere: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty links of which most redirect to another one, in chains and rings, in five parts of two sets."""
    monkeypatch.setattr(redirects, "VOTES_PER_RANGE", 2)
    chance = random.Random(5)
    names = [f"http://{number}.example/" for number in range(50)]
    targets = {name: chance.choice(names) if chance.random() < 0.7 else None for name in names}
    pages: list[list[dict[str, Any]]] = [[] for _ in range(5)]
    for number, (name, target) in enumerate(targets.items()):
        row = {"url": name, "karma": number} | {"outcome": "linked", "final_url": target}
        pages[number % 5].append(row if target else site(number, article(1)) | {"karma": number})
    ours, theirs = write_pages(tmp_path / "ours", pages[:3]), write_pages(tmp_path / "theirs", pages[3:])
    with only_tasks_read():
        given = [ours.folder.url, theirs.folder.url]
        documents = extract_documents(given, str(tmp_path / "documents"), SETTINGS, elsewhere)
    expected: dict[str, set[str]] = {name: {name} for name, target in targets.items() if target is None}
    for name in names:
        at, passed = name, set[str]()
        while at not in passed and (target := targets[at]) is not None:
            passed.add(at)
            at = target
        if at in expected:
            expected[at].add(name)
    found = {row["url"]: {*row["link_ids"]} for row in rows(documents)}
    assert found == {url: {*map(link_id, links)} for url, links in expected.items()}
    assert max(map(len, expected.values())) > 5


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
def test_many_links_to_one_page_are_collected_in_linear_time(tmp_path: Path, run: Run) -> None:
    """400,000 links redirect to one URL: copying their list for each of them would take 640 GB of memory traffic."""
    n_links = 400_000
    columns = {name: pa.nulls(n_links, PAGE.field(name).type) for name in PAGE.names}
    numbers = pa.array(np.arange(n_links)).cast(pa.string())
    columns |= {"link_id": numbers, "url": pc.binary_join_element_wise("http://a.example/", numbers, "")}
    for name, value in (
        ("final_url", "http://b.example/"),
        ("outcome", "linked"),
        ("source", "web"),
        ("split", "train"),
    ):
        columns[name] = pa.repeat(value, n_links)
    for name in ("voted", "karma", "requests"):
        columns[name] = pa.repeat(0, n_links).cast(PAGE.field(name).type)
    for name in ("redirects", "opt_outs", "opt_out_evidence", "posts"):
        columns[name] = pa.nulls(n_links, PAGE.field(name).type).fill_null([])
    writer = SetWriter(str(tmp_path / "pages"), "pages", Recipe(stage="test", code_version=1, settings={}))
    with writer.part(0, key="k") as part:
        part.write_table(pa.table(columns, schema=PAGE))
        part.counts.keep(n_links)
        opened = writer.seal([part.publish()])
    votes = redirects.find_redirects([opened], str(tmp_path / "out"), run)
    page = {"link_id": "b", "url": "http://b.example/", "final_url": None}
    assert len(redirects.votes_for([page], votes)["b"]) == n_links


@pytest.mark.usefixtures("linear_time")
def test_a_long_chain_of_redirects_is_followed_once() -> None:
    """Each of 100,000 links redirects to the next one: following each to the end would take 5 billion steps."""
    forward = {i: i + 1 for i in range(100_000)}
    ends: dict[int, int] = {}
    assert {redirects._end(url, forward, ends) for url in forward} == {100_000}


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 9)), st.permutations(range(10)))
def test_redirects_end_where_following_each_alone_ends(forward: dict[int, int], order: list[int]) -> None:
    """Also in rings, and whatever was looked up before."""

    def plainly(url: int) -> int:
        passed = set()
        while url in forward and url not in passed:
            passed.add(url)
            url = forward[url]
        return url

    ends: dict[int, int] = {}
    assert [redirects._end(url, forward, ends) for url in order] == [plainly(url) for url in order]


def test_another_model_makes_the_documents_of_the_block_scorer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: extract_recipe(ExtractSettings(extractor=name)).hash for name in ("blocks", "resiliparse")}
    monkeypatch.setattr(stage, "model_digest", lambda: "of another model")
    after = {name: extract_recipe(ExtractSettings(extractor=name)).hash for name in before}
    assert after["blocks"] != before["blocks"]
    assert after["resiliparse"] == before["resiliparse"]
