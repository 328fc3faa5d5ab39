"""Dumps to links: a real month first, then what must not change the result, then broken input."""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
import zstandard
from dump_files import by_url, counts_of, dump, files_of, post, rows_of, submission

from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url
from webtext.base.workers.attempt import Attempt
from webtext.crawl.command import group
from webtext.crawl.links import merging, reading
from webtext.crawl.links.collect import broken_dumps, collect_links
from webtext.crawl.links.judging import MAX_NAMED_FAILURES
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources.inputs import find_files
from webtext.crawl.links.spill import N_BUCKETS, VOTES_PER_BLOCK, SpillBlock, SpillWriter, Vote, read_votes


def made_dumps(folder: Path, n_posts: int) -> list[str]:
    """Four files in four compressions, whose posts share URLs, with some bad lines."""
    rng = random.Random(5)
    compressions = {
        "RS_2011-01.xz": lzma.compress,
        "RS_2011-02.bz2": bz2.compress,
        "RS_2011-03.zst": zstandard.compress,
    }
    made = []
    for name, compress in (compressions | {"RS_2011-04": bytes}).items():
        lines = [
            json.dumps(
                post(
                    f"{rng.randrange(n_posts * 3):x}",
                    f"http://s{rng.randrange(50)}.com/{rng.randrange(40)}",
                    score=rng.randrange(8),
                    created_utc=rng.randrange(10**9),
                )
            )
            if rng.random() > 0.01
            else "{broken"
            for _ in range(n_posts // 4)
        ]
        (folder / name).write_bytes(compress("\n".join(lines).encode()))  # no newline at the end
        made.append(str(folder / name))
    return made


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return made_dumps(tmp_path_factory.mktemp("dumps"), 2000)


@pytest.fixture(scope="module")
def whole(dumps: list[str], run: Run, tmp_path_factory: pytest.TempPathFactory) -> PartSet:
    """The links of `dumps`, in three parts."""
    return collect_links(dumps, str(tmp_path_factory.mktemp("whole") / "links"), LinkSettings(parts=3), run)


def test_the_real_dump_of_june_2005_adds_up(collect: Any, shared_data: Path, tmp_path: Path) -> None:
    """103 posts: 83 with at least 3 karma, each with a different URL; 20 below."""
    links = collect(shared_data / "crawl/reddit/RS_v2_2005-06.xz", out=".")
    assert counts_of(links) == {"records_in": 103, "kept": 83, "dropped": {"too_little_karma": 20}, "failed": {}}
    rows = rows_of(links)
    assert len(rows) == links.records == 83
    assert [row["link_id"] for row in rows] == sorted(link_id(row["url"]) for row in rows)
    first = next(row for row in rows if row["posts"][0]["post_id"] == "87")
    assert first == {
        "link_id": link_id("http://www.downingstreetmemo.com/"),
        "url": "http://www.downingstreetmemo.com/",
        "url_raw": "http://www.downingstreetmemo.com",
        "domain": "downingstreetmemo.com",
        "karma": 183,
        "karma_sum": 183,
        "first_created": 1119552233,
        "posts": [
            {"source": "reddit", "post_id": "87", "subreddit": "reddit.com", "retrieved": None}
            | {"score": 183, "created": 1119552233}
        ],
        "split": split_of(link_id("http://www.downingstreetmemo.com/")),
    }
    files = ["_parts", "manifest.json", "part-00000.parquet", "run.json"]
    assert sorted(os.listdir(tmp_path)) == files
    assert [(source.set, source.part) for source in links.parts[0].sources] == [("submissions", "RS_v2_2005-06.xz")]


def test_posts_of_one_url_are_one_row_earliest_first(collect: Any, tmp_path: Path) -> None:
    path = dump(
        tmp_path / "RS_2014-05",
        post("c", "http://EXAMPLE.com/a#top", score=5, created_utc=300),
        post("b", "http://example.com:80/a", score=3, created_utc="200"),
        post("a", "http://user@example.com/a", score=90, created_utc=200.0, retrieved_on=900),
        post("d", "http://example.com/a", score=2, created_utc=100),
        post("e", "http://example.com/b?x=1&amp;amp;y=2", score=3),
    )
    links = collect(path)
    assert counts_of(links) == {"records_in": 5, "kept": 4, "dropped": {"too_little_karma": 1}, "failed": {}}
    row = by_url(links)["http://example.com/a"]
    expected = [("a", 90, 200), ("b", 3, 200), ("c", 5, 300)]
    assert [(p["post_id"], p["score"], p["created"]) for p in row["posts"]] == expected
    assert (row["karma"], row["first_created"], row["url_raw"]) == (90, 200, "http://user@example.com/a")
    assert row["posts"][0]["retrieved"] == 900
    assert by_url(links)["http://example.com/b?x=1&amp;y=2"]["url_raw"] == "http://example.com/b?x=1&amp;y=2"


def test_every_reason_is_counted_and_the_sum_holds(collect: Any, tmp_path: Path) -> None:
    path = dump(
        tmp_path / "RS_2017-12",
        post("1"),
        post("2", score=None),
        post("3", None),
        post("4", created_utc=1514764800),
        post("5", created_utc=1514764799),
        post("6", is_self=True),
        post("7", over_18=True),
        post("8", "https://en.wikipedia.org/wiki/A"),
        post("9", "https://www.reddit.com/r/a/"),
        post("10", "http://a.com/b.png"),
        post("11", "steam://run/1"),
        post("12", score=2),
        post("13", created_utc=None),
        b"not json",
        b"[]",
        b'{"id": "14", "score": "x"}',
        b'{"score": 3}',
        b"",
    )
    links = collect(path)
    assert counts_of(links) == {
        "records_in": 17,
        "kept": 2,
        "dropped": dict.fromkeys(
            (
                *("links_back", "media", "not_http", "null_created", "null_score", "null_url", "over_18", "self_post"),
                *("too_late", "too_little_karma", "wikipedia"),
            ),
            1,
        ),
        "failed": {"invalid_json": 1, "no_post_id": 1, "wrong_type": 2},
    }
    expected = ["invalid_json", "wrong_type", "wrong_type", "no_post_id"]
    assert [failure.reason for failure in links.failures(0)] == expected
    at = next(links.failures(0)).id.rpartition(":")
    assert at[0] == "RS_2017-12"
    assert (tmp_path / "RS_2017-12").read_bytes()[int(at[2]) :].startswith(b"not json")


def test_the_cutoff_is_exact_to_the_second(collect: Any, tmp_path: Path) -> None:
    """2018-01-01T00:00:00Z is 1514764800; dumps also write it as a string or a float."""
    moments = [1514764799, "1514764799", 1514764799.9, 1514764800, "1514764800", 1514764800.0, 1514764801]
    posts = [post(f"{i}", f"http://a.com/{i}", created_utc=moment) for i, moment in enumerate(moments)]
    links = collect(dump(tmp_path / "RS_x", *posts))
    assert counts_of(links) == {"records_in": 7, "kept": 3, "dropped": {"too_late": 4}, "failed": {}}
    assert sorted(row["url"][-1] for row in rows_of(links)) == ["0", "1", "2"]


def test_scores_far_from_any_threshold_are_judged_or_counted(collect: Any, tmp_path: Path) -> None:
    scores = (-(2**63), -1, 2**63 - 1, 2**63, -(2**63) - 1)
    path = dump(tmp_path / "RS_x", *(post(f"{i}", f"http://a.com/{i}", score=score) for i, score in enumerate(scores)))
    links = collect(path)
    counts = {"records_in": 5, "kept": 1, "dropped": {"too_little_karma": 2}, "failed": {"wrong_type": 2}}
    assert counts_of(links) == counts
    assert [row["karma"] for row in rows_of(links)] == [2**63 - 1]


def test_a_post_in_two_files_counts_once_in_its_latest_reading(collect: Any, tmp_path: Path) -> None:
    early = dump(tmp_path / "RS_a", post("x", score=500, retrieved_on=1), post("y", score=7))
    late = dump(tmp_path / "RS_b", post("x", score=90, retrieved_on=2), post("y", score=7))
    links = collect(early, late)
    assert counts_of(links) == {"records_in": 4, "kept": 2, "dropped": {"duplicate_post": 2}, "failed": {}}
    (row,) = rows_of(links)
    assert (row["karma"], [p["post_id"] for p in row["posts"]]) == (90, ["x", "y"])


def test_neither_workers_nor_order_nor_names_of_folders_change_a_byte(
    collect: Any, dumps: list[str], whole: PartSet, two_workers: Run, tmp_path: Path
) -> None:
    two = collect(*dumps[::-1], dumps[0], out="two", parts=3, by=two_workers)
    (tmp_path / "dumps").symlink_to(Path(dumps[0]).parent)
    folder = collect(tmp_path / "dumps", out="three", parts=3)
    assert whole.hash == two.hash == folder.hash
    assert files_of(Path(whole.folder.url)) == files_of(tmp_path / "two") == files_of(tmp_path / "three")
    assert counts_of(whole)["records_in"] == 2000
    assert counts_of(whole)["kept"] == sum(len(row["posts"]) for row in rows_of(whole))
    ids = [row["link_id"] for row in rows_of(whole)]
    assert ids == sorted(set(ids))
    assert all(part.records > 0 for part in whole.parts)


@pytest.mark.parametrize(
    ("compress", "share_kept", "is_ahead"),
    [
        pytest.param(lzma.compress, 1.0, True, id="xz", marks=pytest.mark.slow),
        pytest.param(bz2.compress, 0.5, True, id="bz2 cut short", marks=pytest.mark.slow),
        pytest.param(zstandard.compress, 0.5, True, id="zst cut short"),
        pytest.param(bytes, 1.0, False, id="plain", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_decompresses_for_another_changes_no_byte(
    collect: Any,
    two_workers: Run,
    compress: Any,
    share_kept: float,
    is_ahead: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty MB, but for Zstandard; more failures than are listed."""
    monkeypatch.setattr(reading, "MIN_AHEAD_BYTES", 1)
    given: list[bool] = []
    real = Run.map

    def spied(run: Run, function: Any, tasks: Any, label: str, **options: Any) -> list[Any]:
        given.extend(task.ahead for task in tasks if label == "reading dumps")
        return real(run, function, tasks, label, **options)

    monkeypatch.setattr(Run, "map", spied)
    filler = "x" * (100 if compress is zstandard.compress else 2_000)
    lines = [
        json.dumps(post(f"{i:x}", f"http://s{i % 50}.com/{i % 4_000}", score=i % 7, selftext=filler)).encode()
        if i % 20
        else b"{broken"
        for i in range(10_000)
    ]
    data = compress(b"\n".join(lines))
    (tmp_path / "RS_x").write_bytes(data[: int(len(data) * share_kept)])
    one = collect(tmp_path / "RS_x", out="one")
    two = collect(tmp_path / "RS_x", out="two", by=two_workers)
    assert given == [False, is_ahead]
    assert one.hash == two.hash
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert counts_of(one)["failed"]["invalid_json"] > MAX_NAMED_FAILURES
    assert len(broken_dumps(one)) == (share_kept < 1)


def test_dumps_read_on_another_machine_give_the_same_links(
    collect: Any, dumps: list[str], whole: PartSet, elsewhere: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dump at a time, which a worker decompresses by a decoder; all dumps, with other limits."""
    monkeypatch.setattr(reading, "MIN_AHEAD_BYTES", 1)
    for name in dumps:
        assert collect(name, out="there", by=elsewhere).hash == collect(name, out="here").hash
    assert collect(*dumps, out="all", parts=3, by=elsewhere).hash == whole.hash


def test_the_number_of_parts_changes_no_record(collect: Any, dumps: list[str], whole: PartSet) -> None:
    assert len(collect(*dumps, parts=1).parts) == 1
    many = collect(*dumps, parts=7)  # into the same folder
    assert (len(whole.parts), len(many.parts)) == (3, 7)
    assert (rows_of(many), counts_of(many)) == (rows_of(whole), counts_of(whole))


def test_links_equal_those_of_a_plain_loop_in_memory(dumps: list[str], whole: PartSet) -> None:
    """The loop is the same rule in ten lines of Python."""
    opened = {".xz": lzma.open, ".bz2": bz2.open, ".zst": zstandard.open}
    expected: dict[str, set[str]] = {}
    for name in dumps:
        with opened.get(Path(name).suffix, open)(name, "rb") as file:  # type: ignore[operator]
            for line in file.read().splitlines():
                if line != b"{broken":
                    row = json.loads(line)
                    if row["score"] >= 3:
                        expected.setdefault(str(canonical_url(row["url"])), set()).add(row["id"])
    assert {row["url"]: {p["post_id"] for p in row["posts"]} for row in rows_of(whole)} == expected


def test_small_buffers_change_nothing(tmp_path: Path) -> None:
    def vote(i: int) -> Vote:
        return Vote(f"http://a.com/{i}", "a.com", submission(post_id=str(i), score=1, created=i))

    for flush_bytes in (1, 200, 1 << 20):
        with open(tmp_path / "spill", "w+b") as file:
            writer = SpillWriter(file, flush_bytes)
            for i in range(100):
                writer.add(i % 3, vote(i))
            writer.flush()
            of_one = [block for block in writer.blocks if block.bucket == 1]
            assert list(read_votes(file, of_one, "spill")) == [vote(i) for i in range(1, 100, 3)]
            with pytest.raises(InputError, match="damaged"):
                list(read_votes(file, [SpillBlock(1, of_one[0].offset + 1, of_one[0].length, 0)], "spill"))


def test_the_posts_of_one_link_share_their_strings_and_are_decoded_a_few_at_a_time(tmp_path: Path) -> None:
    """1.4 million posts of one link took 1.3 GB."""
    n_votes = VOTES_PER_BLOCK + 1
    with open(tmp_path / "spill", "wb") as file:
        writer = SpillWriter(file)
        for i in range(n_votes):
            post = submission(post_id=str(i), score=1, created=i, url="http://a.example/#top")
            writer.add(3, Vote("http://a.example/", "a.example", post))
        writer.flush()
    assert len(writer.blocks) == 2
    payload = merging.MergePayload(
        work=Folder(str(tmp_path)), blocks=(("spill", tuple(writer.blocks)),), unlinked=Counts(), failures=(),
        validation_ratio=0.0, min_karma_sum=None,
    )  # fmt: skip
    identifiers, found = merging._votes_of(range(3, 4), payload)
    assert [vote.post.post_id for vote in found] == [str(i) for i in range(n_votes)]
    assert {vote.post.url for vote in found} == {"http://a.example/#top"}
    for strings in (
        identifiers,
        *([pick(vote) for vote in found[1:]] for pick in (lambda v: v.url, lambda v: v.domain, lambda v: v.post.url)),
    ):
        assert len(set(map(id, strings))) == 1


def test_buckets_are_merged_as_many_at_a_time_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes at a time: a larger bucket is merged alone, and buckets without votes are skipped."""
    monkeypatch.setattr(merging, "MERGE_BYTES", 10)
    sizes = {0: 4, 1: 5, 2: 2, 700: 8, 701: 99, 1023: 1}
    one = tuple(SpillBlock(bucket, 0, 1, n_bytes) for bucket, n_bytes in sizes.items())
    batches = list(merging._batches_of_buckets([("one", one), ("two", (SpillBlock(1, 0, 1, 1),))]))
    merged = [[bucket for bucket in sizes if bucket in batch] for batch in batches]
    assert merged == [[0, 1], [2, 700], [701], [1023]]
    assert [b.start for b in batches[1:]] + [N_BUCKETS] == [b.stop for b in batches]
    assert list(merging._batches_of_buckets([])) == []


@pytest.mark.parametrize("profile", ["webtext", "openwebtext2"])
@pytest.mark.parametrize("merge_bytes", [1, 1 << 20])
def test_links_merged_a_few_at_a_time_are_the_same(
    collect: Any, merge_bytes: int, profile: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bucket by bucket, and three votes at a time of many buckets; also when scores are added up.

    The part function is called here, since a worker would not see what is patched.
    """

    class InThisProcess:
        workers = 1

        def map(self, function: Any, jobs: Any, *, on_done: Any, **_: Any) -> list[Any]:
            for index, job in enumerate(jobs):
                on_done(index, function(Attempt(), job))
            return []

    inputs = made_dumps(tmp_path, 400)
    whole = collect(*inputs, out="whole", parts=2, profile=profile)
    monkeypatch.setattr(merging, "MERGE_BYTES", merge_bytes)
    monkeypatch.setattr(merging, "ROWS_AT_A_TIME", 3)
    monkeypatch.setattr("webtext.crawl.links.reading._engine_for", lambda jobs, run: contextlib.nullcontext(run.engine))
    here = Run(InThisProcess(), run.console)  # type: ignore[arg-type]
    assert collect(*inputs, out="few", parts=2, profile=profile, by=here).hash == whole.hash


def test_the_split_depends_only_on_the_link(collect: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", *(post(f"{i:x}", f"http://a.com/{i}") for i in range(2000)))
    links = collect(path)
    held_out = [row["url"] for row in rows_of(links) if row["split"] == "validation"]
    assert 60 < len(held_out) < 140
    fewer = collect(path, out="fewer", validation_ratio=0.01)
    assert {row["url"] for row in rows_of(fewer) if row["split"] == "validation"} < set(held_out)


# --- resuming --------------------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(collect: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Collect links, but stop when all dumps are read and nothing is merged."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def run(*inputs: str, **options: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("webtext.crawl.links.collect.make_set", stop)
            with pytest.raises(KeyboardInterrupt):
                collect(*inputs, **options)

    return run


def test_a_new_sets_files_are_hashed_while_they_are_read(
    collect: Any, dumps: list[str], whole: PartSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before. After a killed run they are hashed first, since their contents decide which parts are done."""
    known = {source.part: source.record_digest for source in whole.parts[0].sources}
    assert known == {Path(name).name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in dumps}
    monkeypatch.setattr("webtext.crawl.links.collect.identify_files", lambda *_: pytest.fail("it is hashed first"))
    assert collect(*dumps, parts=3).hash == whole.hash
    for left in ("_work", "_parts"):
        (tmp_path / left / left).mkdir(parents=True)
        with pytest.raises(pytest.fail.Exception):
            collect(*dumps, out=left)


def test_a_spill_of_other_bytes_is_not_used(collect: Any, read_only: Any, tmp_path: Path) -> None:
    """The dump has the size and time of the one that was read before the run was stopped."""
    path = Path(dump(tmp_path / "RS_x", post("a", "http://a.com/")))
    read_only(path)
    about = path.stat()
    path.write_bytes(path.read_bytes().replace(b"a.com", b"b.com"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert list(by_url(collect(path))) == ["http://b.com/"]


def test_a_second_run_reads_no_dump_and_changes_nothing(
    collect: Any, dumps: list[str], whole: PartSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.crawl.links.collect.spill_files", lambda *_: pytest.fail("a dump is read again"))
    assert collect(*dumps, out=whole.folder.url, parts=3).hash == whole.hash


def test_another_setting_or_another_byte_of_input_redoes_it(collect: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", post("a", "http://a.com/", score=3), post("b", "http://b.com/", score=5))
    assert collect(path).records == 2
    assert collect(path, min_karma=4).records == 1
    dump(tmp_path / "RS_x", post("a", "http://a.com/", score=4), post("b", "http://b.com/", score=5))
    assert collect(path, min_karma=4).records == 2


def test_finished_spills_are_used_and_torn_ones_are_not(
    collect: Any, read_only: Any, dumps: list[str], whole: PartSet, tmp_path: Path
) -> None:
    out = tmp_path / "links"
    read_only(*dumps, parts=3)
    spills = sorted((out / "_work").glob("*.spill"))
    assert len(spills) == 4
    assert not list(out.rglob("*.parquet"))
    before = {spill: spill.stat().st_ino for spill in spills}
    spills[0].write_bytes(spills[0].read_bytes()[:-5])
    spills[1].with_suffix(".json").write_bytes(b"{")
    spills[2].with_suffix(".json").unlink()
    read_only(*dumps, parts=3)
    redone = [spill for spill in spills if spill.stat().st_ino != before[spill]]
    assert redone == spills[:3]
    assert collect(*dumps, parts=3).hash == whole.hash
    assert files_of(out) == files_of(Path(whole.folder.url))


@pytest.mark.slow
def test_kill_9_at_any_moment_changes_no_byte(dumps: list[str], whole: PartSet, tmp_path: Path) -> None:
    """Killed when the first spill's record and the first part have just appeared."""
    out = tmp_path / "links"
    command = [*(sys.executable, "-m", "webtext.app.main", "crawl", "links", *dumps), "--out", str(out)]
    command += ["--set", "crawl.links.parts=3", "--workers", "1", "--quiet"]
    for sign in ("_work/*.json", "_parts/*.json"):
        process = subprocess.Popen(command)
        while process.poll() is None and not list(out.glob(sign)):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, check=False).returncode == 0
    assert files_of(out) == files_of(Path(whole.folder.url))


@pytest.mark.parametrize(
    ("title", "n_lost", "compress"),
    [
        pytest.param("segfault", 1, bytes, id="segfault"),
        pytest.param("together", 0, bytes, id="together", marks=pytest.mark.slow),
        pytest.param("segfault", 1, lzma.compress, id="segfault and its decoder ends", marks=pytest.mark.slow),
    ],
)
def test_a_line_that_kills_its_worker_is_the_only_loss(
    collect: Any, title: str, n_lost: int, compress: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted parser dies of SIGSEGV on one line, or only when it gets many lines at once, which loses none."""
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from webtext.crawl.links.sources.reddit import RedditDump\n"
        "class Deadly(RedditDump):\n"
        "    def parse(self, record):\n"
        "        if b'segfault' in record:\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        return super().parse(record)\n"
        "    def sift(self, lines, rule):\n"
        "        if b'segfault' in bytes(lines) or b'together' in bytes(lines):\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        return super().sift(lines, rule)\n"
        "import webtext.crawl.links.reading as reading\n"
        "reading.link_source = lambda *_: Deadly()\n"
        "def spill(attempt, job):\n"
        "    return reading.spill_file(attempt, job)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(reading, "link_source", reading.link_source)  # restored afterwards: the import replaces it
    import deadly  # type: ignore[import-not-found]

    real = Run.map

    def planted(run: Run, function: Any, tasks: Any, label: str, **options: Any) -> list[Any]:
        return real(run, deadly.spill if label == "reading dumps" else function, tasks, label, **options)

    monkeypatch.setattr(Run, "map", planted)
    path = dump(tmp_path / "RS_x", post("a"), post("b", title=title), post("c", "http://b.com/"))
    Path(path).write_bytes(compress(Path(path).read_bytes()))
    monkeypatch.setattr(reading, "MIN_AHEAD_BYTES", 1)
    quiet = Run.quiet(workers=2 if compress is lzma.compress else 1)
    links = collect(path, by=quiet)
    quiet.engine.close()  # type: ignore[attr-defined]
    failed = {"killed_worker": 1} if n_lost else {}
    assert counts_of(links) == {"records_in": 3, "kept": 3 - n_lost, "dropped": {}, "failed": failed}
    assert [failure.cause for failure in links.failures(0)] == ["signal 11"] * n_lost
    assert links.manifest["reproducible"] is (n_lost == 0)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compress",
    [
        pytest.param(lzma.compress, id="xz", marks=pytest.mark.slow),
        pytest.param(bz2.compress, id="bz2", marks=pytest.mark.slow),
        pytest.param(zstandard.compress, id="zst"),
    ],
)
def test_a_truncated_dump_contributes_its_links_and_is_reported(
    compress: Any, links_verb: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "\n".join(
        json.dumps(post(f"{i:x}", f"http://a.com/{i}", r=hashlib.md5(b"%d" % i).hexdigest())) for i in range(8_000)
    )
    data = compress(lines.encode())
    (tmp_path / "RS_broken").write_bytes(data[: len(data) * 3 // 4])
    good = dump(tmp_path / "RS_good", post("zzzz", "http://b.com/"))
    assert links_verb(tmp_path / "RS_broken", good) == 1
    error = capfd.readouterr().err
    assert "'RS_broken': truncated_stream" in error
    assert "download the files again" in error
    assert "Traceback" not in error
    links = PartSet.open(str(tmp_path / "links"), "links")
    counts = counts_of(links)
    assert counts["failed"] == {"truncated_stream": 1}
    assert 1000 < counts["kept"] < 8_000
    assert "http://b.com/" in {row["url"] for row in rows_of(links)}
    assert [failure.reason for failure in broken_dumps(links)] == ["truncated_stream"]


def test_missing_and_empty_inputs_are_named(tmp_path: Path) -> None:
    (tmp_path / "RS_empty.xz").touch()
    (tmp_path / "RS_packed.zip").write_bytes(b"PK\x03\x04")
    (tmp_path / "folder").mkdir()
    for name, said in {
        "RS_missing.xz": "does not exist",
        "RS_empty.xz": "is empty",
        "RS_packed.zip": "is a ZIP archive",
        "folder": "contains no RS_*, *_submissions file",
        "RS_2017-*": "no file matches",
        "nowhere/RS_1": "does not exist",
    }.items():
        with pytest.raises(InputError) as error:
            find_files([str(tmp_path / name)])
        assert said in str(error.value)
        assert name in str(error.value)
    (tmp_path / "folder/RS_\udcef").write_text("{}")
    with pytest.raises(InputError, match=r"RS_\\udcef' is not valid UTF-8"):
        find_files([str(tmp_path / "folder")])
    with pytest.raises(InputError, match="no input file was given"):
        find_files([])


def test_inputs_are_files_folders_patterns_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    for name in ("RS_1.xz", "RS_2.zst", "u.txt.xz", "README"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.name for file in find_files([str(tmp_path)])] == ["RS_1.xz", "RS_2.zst"]
    assert [file.name for file in find_files([f"{tmp_path}/*.xz", f"{tmp_path}/RS_1.xz"])] == ["RS_1.xz", "u.txt.xz"]
    monkeypatch.chdir(tmp_path)
    assert [file.name for file in find_files(["u.txt.xz"])] == ["u.txt.xz"]
    with fsspec.open("memory://dumps/RS_3", "wb") as file:
        file.write(b"x")
    assert [file.location for file in find_files(["memory://dumps/RS_*"])] == ["memory://dumps/RS_3"]
    assert [file.location for file in find_files(["memory://dumps"])] == ["memory://dumps/RS_3"]


def test_bad_lines_are_all_counted_and_the_first_hundred_listed(collect: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", *([b"{"] * 250), post("a"))
    links = collect(path)
    assert counts_of(links)["failed"] == {"invalid_json": 250}
    assert len(list(links.failures(0))) == MAX_NAMED_FAILURES == 100


def test_a_dump_without_any_link_makes_an_empty_set(collect: Any, tmp_path: Path) -> None:
    links = collect(dump(tmp_path / "RS_x", post("a", score=0)))
    assert (links.records, counts_of(links)["dropped"]) == (0, {"too_little_karma": 1})


# --- command line ----------------------------------------------------------------------------------------------------


def test_the_verb_prints_a_funnel_and_json(links_verb: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = dump(tmp_path / "RS_x", post("a"), post("b", score=4))
    assert links_verb(path, "--min-karma", "5") == 0
    shown = capfd.readouterr().out
    assert "dropped: too_little_karma" in shown
    assert "1 link in" in shown
    assert links_verb(path, "--min-karma", "5", "--json") == 0
    assert json.loads(capfd.readouterr().out)["counts"]["records_in"] == 2


def test_a_dry_run_writes_nothing(links_verb: Any, tmp_path: Path) -> None:
    assert links_verb(dump(tmp_path / "RS_x", post("a")), "--dry-run") == 0
    assert not (tmp_path / "links").exists()


def test_limits_are_turned_off_by_none(links_verb: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", post("a", score=-1, created_utc=2**33))
    assert links_verb(path, "--before", "none", "--set", "crawl.links.min_karma=none") == 0
    assert PartSet.open(str(tmp_path / "links"), "links").records == 1


def test_every_setting_is_an_option_of_the_verb() -> None:
    shown = click.testing.CliRunner().invoke(group, ["links", "--help"]).output
    for option in ("--min-karma", "--before", "--profile", "--min-score-age", "--parts", "--out"):
        assert option in shown
