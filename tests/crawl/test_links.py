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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import zstandard

from webtext.app.main import run as webtext
from webtext.base.errors import InputError
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.web.urls import canonical_url
from webtext.base.workers.journal import Journal
from webtext.crawl.command import group
from webtext.crawl.links import reading, votes
from webtext.crawl.links.collect import broken_dumps, collect_links
from webtext.crawl.links.inputs import find_files
from webtext.crawl.links.settings import LinkSettings

ANY = LinkSettings(min_karma=None)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    quiet = Run.quiet(workers=1)
    yield quiet
    quiet.engine.close()  # type: ignore[attr-defined]


def post(post_id: str, url: str | None = "http://example.com/a", **fields: object) -> dict[str, Any]:
    row = {"id": post_id, "url": url, "score": 10, "created_utc": 1_400_000_000, "subreddit": "books"}
    return row | {"is_self": False, "over_18": False} | fields


def dump(path: Path, *rows: dict[str, Any] | bytes) -> str:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def rows_of(links: PartSet) -> list[dict[str, Any]]:
    return [row for part in links.parts for row in links.table(part).to_pylist()]


def counts_of(links: PartSet) -> dict[str, Any]:
    assert links.counts.balanced
    return links.counts.to_json()


def files_of(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "run.json"}


def test_the_real_dump_of_june_2005_adds_up(shared_data: Path, tmp_path: Path, run: Run) -> None:
    """103 posts: 83 with at least 3 karma, each with a different URL; 20 below."""
    links = collect_links([str(shared_data / "crawl/reddit/RS_v2_2005-06.xz")], str(tmp_path), LinkSettings(), run)
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
            {
                "source": "reddit",
                "post_id": "87",
                "subreddit": "reddit.com",
                "score": 183,
                "created": 1119552233,
                "retrieved": None,
            }
        ],
        "split": split_of(link_id("http://www.downingstreetmemo.com/")),
    }
    files = ["_parts", "manifest.json", "part-00000.ages.json", "part-00000.parquet", "run.json"]
    assert sorted(os.listdir(tmp_path)) == files
    assert [(source.set, source.part) for source in links.parts[0].sources] == [("submissions", "RS_v2_2005-06.xz")]


def test_posts_of_one_url_are_one_row_earliest_first(tmp_path: Path, run: Run) -> None:
    path = dump(
        tmp_path / "RS_2014-05",
        post("c", "http://EXAMPLE.com/a#top", score=5, created_utc=300),
        post("b", "http://example.com:80/a", score=3, created_utc="200"),
        post("a", "http://user@example.com/a", score=90, created_utc=200.0, retrieved_on=900),
        post("d", "http://example.com/a", score=2, created_utc=100),
        post("e", "http://example.com/b?x=1&amp;amp;y=2", score=3),
    )
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
    assert counts_of(links) == {"records_in": 5, "kept": 4, "dropped": {"too_little_karma": 1}, "failed": {}}
    by_url = {row["url"]: row for row in rows_of(links)}
    row = by_url["http://example.com/a"]
    assert [(p["post_id"], p["score"], p["created"]) for p in row["posts"]] == [
        ("a", 90, 200),
        ("b", 3, 200),
        ("c", 5, 300),
    ]
    assert (row["karma"], row["first_created"], row["url_raw"]) == (90, 200, "http://user@example.com/a")
    assert row["posts"][0]["retrieved"] == 900
    assert by_url["http://example.com/b?x=1&amp;y=2"]["url_raw"] == "http://example.com/b?x=1&amp;y=2"


def test_every_reason_is_counted_and_the_sum_holds(tmp_path: Path, run: Run) -> None:
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
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
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
    assert [failure.reason for failure in links.failures(0)] == [
        "invalid_json",
        "wrong_type",
        "wrong_type",
        "no_post_id",
    ]
    at = next(links.failures(0)).id.rpartition(":")
    assert at[0] == "RS_2017-12"
    assert (tmp_path / "RS_2017-12").read_bytes()[int(at[2]) :].startswith(b"not json")


def test_the_cutoff_is_exact_to_the_second(tmp_path: Path, run: Run) -> None:
    """2018-01-01T00:00:00Z is 1514764800; dumps also write it as a string or a float."""
    moments = [1514764799, "1514764799", 1514764799.9, 1514764800, "1514764800", 1514764800.0, 1514764801]
    posts = [post(f"{i}", f"http://a.com/{i}", created_utc=moment) for i, moment in enumerate(moments)]
    links = collect_links([dump(tmp_path / "RS_x", *posts)], str(tmp_path / "links"), LinkSettings(), run)
    assert counts_of(links) == {"records_in": 7, "kept": 3, "dropped": {"too_late": 4}, "failed": {}}
    assert sorted(row["url"][-1] for row in rows_of(links)) == ["0", "1", "2"]


def test_scores_far_from_any_threshold_are_judged_or_counted(tmp_path: Path, run: Run) -> None:
    scores = (-(2**63), -1, 2**63 - 1, 2**63, -(2**63) - 1)
    path = dump(tmp_path / "RS_x", *(post(f"{i}", f"http://a.com/{i}", score=score) for i, score in enumerate(scores)))
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
    counts = {"records_in": 5, "kept": 1, "dropped": {"too_little_karma": 2}, "failed": {"wrong_type": 2}}
    assert counts_of(links) == counts
    assert [row["karma"] for row in rows_of(links)] == [2**63 - 1]


def test_a_post_in_two_files_counts_once_in_its_latest_reading(tmp_path: Path, run: Run) -> None:
    early = dump(tmp_path / "RS_a", post("x", score=500, retrieved_on=1), post("y", score=7))
    late = dump(tmp_path / "RS_b", post("x", score=90, retrieved_on=2), post("y", score=7))
    links = collect_links([early, late], str(tmp_path / "links"), LinkSettings(), run)
    assert counts_of(links) == {"records_in": 4, "kept": 2, "dropped": {"duplicate_post": 2}, "failed": {}}
    (row,) = rows_of(links)
    assert (row["karma"], [p["post_id"] for p in row["posts"]]) == (90, ["x", "y"])


def made_dumps(folder: Path, n_posts: int = 2000) -> list[str]:
    """Four files in four compressions, whose posts share URLs, with some bad lines."""
    rng = random.Random(5)
    folder.mkdir(exist_ok=True)
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


def test_neither_workers_nor_order_nor_names_of_folders_change_a_byte(tmp_path: Path, run: Run) -> None:
    inputs = made_dumps(tmp_path / "dumps")
    settings = LinkSettings(parts=3)
    one = collect_links(inputs, str(tmp_path / "one"), settings, run)
    with Run.quiet(workers=2).engine as engine:  # type: ignore[attr-defined]
        two = collect_links(inputs[::-1] + inputs[:1], str(tmp_path / "two"), settings, Run(engine, run.console))
    folder = collect_links([str(tmp_path / "dumps")], str(tmp_path / "three"), settings, run)
    assert one.hash == two.hash == folder.hash
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") == files_of(tmp_path / "three")
    assert counts_of(one)["records_in"] == 2000
    assert counts_of(one)["kept"] == sum(len(row["posts"]) for row in rows_of(one))
    ids = [row["link_id"] for row in rows_of(one)]
    assert ids == sorted(set(ids))
    assert all(part.records > 0 for part in one.parts)


@pytest.mark.parametrize(
    ("compress", "share_kept", "ways"),
    [
        (lzma.compress, 1.0, [(1, True)]),
        (bz2.compress, 0.5, [(1, True)]),
        (zstandard.compress, 0.5, [(1, True)]),
        (bytes, 1.0, [(2, False), (2, False)]),
    ],
    ids=["xz", "bz2 cut short", "zst cut short", "plain"],
)
def test_workers_that_read_one_file_together_change_no_byte(
    compress: Any,
    share_kept: float,
    ways: list[tuple[int, bool]],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty MB, so that both workers have stretches of their own; more failures than are listed.

    `ways` are the tasks of two workers: in how many shares, and whether another process decompresses.
    """
    monkeypatch.setattr(votes, "MIN_SHARED_BYTES", 1)
    given: list[tuple[int, bool]] = []
    real = votes._tasks

    def spied(job: votes.SpillJob, workers: int) -> list[votes.SpillJob]:
        tasks = real(job, workers)
        given.extend((task.share.of, task.ahead) for task in tasks)
        return tasks

    monkeypatch.setattr(votes, "_tasks", spied)
    filler = "x" * 2_000
    lines = [
        json.dumps(post(f"{i:x}", f"http://s{i % 50}.com/{i % 4_000}", score=i % 7, selftext=filler)).encode()
        if i % 20
        else b"{broken"
        for i in range(10_000)
    ]
    data = compress(b"\n".join(lines))
    (tmp_path / "RS_x").write_bytes(data[: int(len(data) * share_kept)])
    one = collect_links([str(tmp_path / "RS_x")], str(tmp_path / "one"), LinkSettings(), run)
    with Run.quiet(workers=2).engine as engine:  # type: ignore[attr-defined]
        two = collect_links([str(tmp_path / "RS_x")], str(tmp_path / "two"), LinkSettings(), Run(engine, run.console))
    assert given == [(1, False), *ways]
    assert one.hash == two.hash
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert counts_of(one)["failed"]["invalid_json"] > votes.MAX_NAMED_FAILURES
    assert len(broken_dumps(one)) == (share_kept < 1)


def test_a_decoder_starts_before_the_worker_that_reads_from_it(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted decoder reads another file, whose lines the worker gets; an earlier worker starts its own decoder."""
    monkeypatch.setattr(votes, "MIN_SHARED_BYTES", 1)
    for name, url in {"RS_a.xz": "http://a.com/", "RS_b.xz": "http://b.com/"}.items():
        (tmp_path / name).write_bytes(lzma.compress(json.dumps(post("a", url)).encode()))
    real = votes.started_decoder
    monkeypatch.setattr(votes, "started_decoder", lambda _: real(tmp_path / "RS_b.xz"))
    with Run.quiet(workers=2).engine as engine:  # type: ignore[attr-defined]
        for out, url in {"one": "http://b.com/", "two": "http://a.com/"}.items():
            dump = [str(tmp_path / "RS_a.xz")]
            links = collect_links(dump, str(tmp_path / out), LinkSettings(), Run(engine, run.console))
            assert [row["url"] for row in rows_of(links)] == [url]


def test_the_number_of_parts_changes_no_record(tmp_path: Path, run: Run) -> None:
    inputs = made_dumps(tmp_path / "dumps")
    few = collect_links(inputs, str(tmp_path / "links"), LinkSettings(parts=1), run)
    few_rows, few_counts = rows_of(few), counts_of(few)
    many = collect_links(inputs, str(tmp_path / "links"), LinkSettings(parts=7), run)
    assert len(many.parts) == 7
    assert (rows_of(many), counts_of(many)) == (few_rows, few_counts)


def test_links_equal_those_of_a_plain_loop_in_memory(tmp_path: Path, run: Run) -> None:
    """The loop is the same rule in ten lines of Python."""
    inputs = made_dumps(tmp_path / "dumps")
    opened = {".xz": lzma.open, ".bz2": bz2.open, ".zst": zstandard.open}
    expected: dict[str, set[str]] = {}
    for name in inputs:
        with opened.get(Path(name).suffix, open)(name, "rb") as file:  # type: ignore[operator]
            for line in file.read().splitlines():
                if line != b"{broken":
                    row = json.loads(line)
                    if row["score"] >= 3:
                        expected.setdefault(str(canonical_url(row["url"])), set()).add(row["id"])
    links = collect_links(inputs, str(tmp_path / "links"), LinkSettings(), run)
    assert {row["url"]: {p["post_id"] for p in row["posts"]} for row in rows_of(links)} == expected


def test_small_buffers_change_nothing(tmp_path: Path, run: Run) -> None:
    from webtext.crawl.links.spill import Block, SpillWriter, Vote, read_blocks
    from webtext.crawl.links.submission import Submission

    def vote(i: int) -> Vote:
        post = Submission(
            source="reddit",
            post_id=str(i),
            subreddit=None,
            url="u",
            score=1,
            created=i,
            retrieved=None,
            is_self=False,
            over_18=False,
        )
        return Vote(f"http://a.com/{i}", "a.com", post)

    for flush_bytes in (1, 200, 1 << 20):
        with open(tmp_path / "spill", "w+b") as file:
            writer = SpillWriter(file, flush_bytes)
            for i in range(100):
                writer.add(i % 3, vote(i))
            writer.close()
            of_one = [block for block in writer.blocks if block.bucket == 1]
            assert list(read_blocks(file, of_one, "spill")) == [vote(i) for i in range(1, 100, 3)]
            with pytest.raises(InputError, match="damaged"):
                list(read_blocks(file, [Block(1, of_one[0].offset + 1, of_one[0].length, 0)], "spill"))


def test_buckets_are_merged_as_many_at_a_time_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes at a time: a larger bucket is merged alone, and buckets without votes are skipped."""
    from webtext.crawl.links import merging
    from webtext.crawl.links.spill import N_BUCKETS, Block

    monkeypatch.setattr(merging, "MERGE_BYTES", 10)
    sizes = {0: 4, 1: 5, 2: 2, 700: 8, 701: 99, 1023: 1}
    one = tuple(Block(bucket, 0, 1, n_bytes) for bucket, n_bytes in sizes.items())
    batches = list(merging._batches_of_buckets([("one", one), ("two", (Block(1, 0, 1, 1),))]))
    merged = [[bucket for bucket in sizes if bucket in batch] for batch in batches]
    assert merged == [[0, 1], [2, 700], [701], [1023]]
    assert [b.start for b in batches[1:]] + [N_BUCKETS] == [b.stop for b in batches]
    assert list(merging._batches_of_buckets([])) == []


@pytest.mark.parametrize("profile", ["webtext", "openwebtext2"])
@pytest.mark.parametrize("merge_bytes", [1, 1 << 20])
def test_links_merged_a_few_at_a_time_are_the_same(
    merge_bytes: int, profile: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bucket by bucket, and three votes at a time of many buckets; also when scores are added up.

    The part function is called here, since a worker would not see what is patched.
    """
    from webtext.crawl.links import merging

    class InThisProcess:
        workers = 1

        def map(self, function: Any, jobs: Any, *, on_done: Any, **_: Any) -> list[Any]:
            for index, job in enumerate(jobs):
                on_done(index, function(Journal(), job))
            return []

        def prepare(self, n: int, module: str, files: Any = ()) -> None:
            pass

    inputs = made_dumps(tmp_path / "dumps", 400)
    settings = LinkSettings(parts=2, profile=profile)
    whole = collect_links(inputs, str(tmp_path / "whole"), settings, run)
    monkeypatch.setattr(merging, "MERGE_BYTES", merge_bytes)
    monkeypatch.setattr(merging, "ROWS_AT_A_TIME", 3)
    monkeypatch.setattr("webtext.crawl.links.votes._engine_for", lambda jobs, run: contextlib.nullcontext(run.engine))
    here = Run(InThisProcess(), run.console)  # type: ignore[arg-type]
    few_at_a_time = collect_links(inputs, str(tmp_path / "few"), settings, here)
    assert few_at_a_time.hash == whole.hash


def test_the_split_depends_only_on_the_link(tmp_path: Path, run: Run) -> None:
    path = dump(tmp_path / "RS_x", *(post(f"{i:x}", f"http://a.com/{i}") for i in range(2000)))
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
    held_out = [row["url"] for row in rows_of(links) if row["split"] == "validation"]
    assert 60 < len(held_out) < 140
    fewer = collect_links([path], str(tmp_path / "fewer"), LinkSettings(validation_ratio=0.01), run)
    assert {row["url"] for row in rows_of(fewer) if row["split"] == "validation"} < set(held_out)


# --- resuming --------------------------------------------------------------------------------------------------------


def test_a_new_sets_files_are_hashed_while_they_are_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before. After a killed run they are hashed first, since their contents decide which parts are done."""
    inputs = made_dumps(tmp_path / "dumps")
    whole = collect_links(inputs, str(tmp_path / "whole"), LinkSettings(), run)
    known = {source.part: source.record_digest for source in whole.parts[0].sources}
    assert known == {Path(name).name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in inputs}
    monkeypatch.setattr("webtext.crawl.links.collect.identify_dumps", lambda *_: pytest.fail("it is hashed first"))
    assert collect_links(inputs, str(tmp_path / "links"), LinkSettings(), run).hash == whole.hash
    for left in ("_work", "_parts"):
        (tmp_path / left / left).mkdir(parents=True)
        with pytest.raises(pytest.fail.Exception):
            collect_links(inputs, str(tmp_path / left), LinkSettings(), run)


def test_a_spill_of_other_bytes_is_not_used(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dump has the size and time of the one that was read before the run was stopped."""
    path = Path(dump(tmp_path / "RS_x", post("a", "http://a.com/")))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("webtext.crawl.links.collect.run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            collect_links([str(path)], str(tmp_path / "links"), LinkSettings(), run)
    about = path.stat()
    path.write_bytes(path.read_bytes().replace(b"a.com", b"b.com"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    links = collect_links([str(path)], str(tmp_path / "links"), LinkSettings(), run)
    assert [row["url"] for row in rows_of(links)] == ["http://b.com/"]


def test_a_dump_that_changes_between_its_readers_ends_the_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks that read one file must have read the same bytes."""
    monkeypatch.setattr(votes, "MIN_SHARED_BYTES", 1)
    path = dump(tmp_path / "RS_x", post("a"))
    real = votes._map

    def changed(engine: Any, run: Any, label: str, function: Any, tasks: Any, names: Any, **_: Any) -> list[Any]:
        done = real(engine, run, label, function, tasks[:1], names[:1])
        dump(tmp_path / "RS_x", post("b"))
        return done + real(engine, run, label, function, tasks[1:], names[1:])

    monkeypatch.setattr(votes, "_map", changed)
    with Run.quiet(workers=2).engine as engine, pytest.raises(InputError, match="changed while it was read"):  # type: ignore[attr-defined]
        collect_links([path], str(tmp_path / "links"), LinkSettings(), Run(engine, run.console))


def test_a_second_run_reads_no_dump_and_changes_nothing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = made_dumps(tmp_path / "dumps")
    first = collect_links(inputs, str(tmp_path / "links"), LinkSettings(), run)
    monkeypatch.setattr("webtext.crawl.links.collect.spill_dumps", lambda *_: pytest.fail("a dump is read again"))
    assert collect_links(inputs, str(tmp_path / "links"), LinkSettings(), run).hash == first.hash


def test_a_dump_read_in_shares_is_not_read_again_by_fewer_workers(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers read it, the merge is stopped, and one worker resumes."""
    monkeypatch.setattr(votes, "MIN_SHARED_BYTES", 1)
    path = dump(tmp_path / "RS_x", *(post(f"{i:x}", f"http://a.com/{i}") for i in range(200)), b"{")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, Run.quiet(workers=2).engine as engine:  # type: ignore[attr-defined]
        patch.setattr("webtext.crawl.links.collect.run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            collect_links([path], str(tmp_path / "links"), LinkSettings(), Run(engine, run.console))
    assert len(list((tmp_path / "links" / "_work").glob("*-of-2.spill"))) == 2
    monkeypatch.setattr(votes, "spill_dump", lambda *_: pytest.fail("it is read again"))
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
    assert counts_of(links) == {"records_in": 201, "kept": 200, "dropped": {}, "failed": {"invalid_json": 1}}


def test_another_setting_or_another_byte_of_input_redoes_it(tmp_path: Path, run: Run) -> None:
    path = dump(tmp_path / "RS_x", post("a", "http://a.com/", score=3), post("b", "http://b.com/", score=5))
    assert collect_links([path], str(tmp_path / "links"), LinkSettings(), run).records == 2
    assert collect_links([path], str(tmp_path / "links"), LinkSettings(min_karma=4), run).records == 1
    dump(tmp_path / "RS_x", post("a", "http://a.com/", score=4), post("b", "http://b.com/", score=5))
    assert collect_links([path], str(tmp_path / "links"), LinkSettings(min_karma=4), run).records == 2


def test_finished_spills_are_used_and_torn_ones_are_not(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = made_dumps(tmp_path / "dumps")
    whole = collect_links(inputs, str(tmp_path / "whole"), LinkSettings(), run)
    out = tmp_path / "links"

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("webtext.crawl.links.collect.run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            collect_links(inputs, str(out), LinkSettings(), run)
    spills = sorted((out / "_work").glob("*.spill"))
    assert len(spills) == 4
    assert not list(out.rglob("*.parquet"))
    before = {spill: spill.stat().st_ino for spill in spills}
    spills[0].write_bytes(spills[0].read_bytes()[:-5])
    spills[1].with_suffix(".json").write_bytes(b"{")
    spills[2].with_suffix(".json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("webtext.crawl.links.collect.run_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            collect_links(inputs, str(out), LinkSettings(), run)
    redone = [spill for spill in spills if spill.stat().st_ino != before[spill]]
    assert redone == spills[:3]
    assert collect_links(inputs, str(out), LinkSettings(), run).hash == whole.hash
    assert files_of(out) == files_of(tmp_path / "whole")


def test_kill_9_at_any_moment_changes_no_byte(tmp_path: Path, run: Run) -> None:
    """Killed when the first spill's record and the first part have just appeared."""
    inputs = made_dumps(tmp_path / "dumps")
    collect_links(inputs, str(tmp_path / "whole"), LinkSettings(parts=3), run)
    out = tmp_path / "links"
    command = [*(sys.executable, "-m", "webtext.app.main", "crawl", "links", *inputs), "--out", str(out)]
    command += ["--parts", "3", "--workers", "1", "--quiet"]
    for sign in ("_work/*.json", "_parts/*.json"):
        process = subprocess.Popen(command)
        while process.poll() is None and not list(out.glob(sign)):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, check=False).returncode == 0
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("title", "n_lost", "compress"),
    [("segfault", 1, bytes), ("together", 0, bytes), ("segfault", 1, lzma.compress)],
    ids=["segfault", "together", "segfault and its decoder ends"],
)
def test_a_line_that_kills_its_worker_is_the_only_loss(
    title: str, n_lost: int, compress: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted parser dies of SIGSEGV on one line, or only when it gets many lines at once, which loses none."""
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from webtext.crawl.links.dumps import RedditDump\n"
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
        "def spill(journal, job):\n"
        "    return reading.spill_dump(journal, job)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(reading, "link_source", reading.link_source)  # restored afterwards: the import replaces it
    import deadly  # type: ignore[import-not-found]

    real = votes._map

    def planted(engine: Any, run: Any, label: str, function: Any, *rest: Any, **more: Any) -> list[Any]:
        return real(engine, run, label, deadly.spill if label == "reading dumps" else function, *rest, **more)

    monkeypatch.setattr(votes, "_map", planted)
    path = dump(tmp_path / "RS_x", post("a"), post("b", title=title), post("c", "http://b.com/"))
    Path(path).write_bytes(compress(Path(path).read_bytes()))
    monkeypatch.setattr(votes, "MIN_SHARED_BYTES", 1)
    quiet = Run.quiet(workers=2 if compress is lzma.compress else 1)
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), quiet)
    quiet.engine.close()  # type: ignore[attr-defined]
    failed = {"killed_worker": 1} if n_lost else {}
    assert counts_of(links) == {"records_in": 3, "kept": 3 - n_lost, "dropped": {}, "failed": failed}
    assert [failure.cause for failure in links.failures(0)] == ["signal 11"] * n_lost
    assert links.manifest["reproducible"] is (n_lost == 0)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress, zstandard.compress], ids=["xz", "bz2", "zst"])
def test_a_truncated_dump_contributes_its_links_and_is_reported(
    compress: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "\n".join(
        json.dumps(post(f"{i:x}", f"http://a.com/{i}", r=hashlib.md5(b"%d" % i).hexdigest())) for i in range(8_000)
    )
    data = compress(lines.encode())
    (tmp_path / "RS_broken").write_bytes(data[: len(data) * 3 // 4])
    good = dump(tmp_path / "RS_good", post("zzzz", "http://b.com/"))
    arguments = [
        "crawl",
        "links",
        str(tmp_path / "RS_broken"),
        good,
        "--out",
        str(tmp_path / "links"),
        "--workers",
        "1",
    ]
    assert webtext(arguments) == 1
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
        "RS_missing.xz": "no file",
        "RS_empty.xz": "is empty",
        "RS_packed.zip": "is a ZIP archive",
        "folder": "no submissions (RS_* or *_submissions) in the folder",
        "RS_2017-*": "no file is called",
        "nowhere/RS_1": "no file",
    }.items():
        with pytest.raises(InputError) as error:
            find_files([str(tmp_path / name)])
        assert said in str(error.value)
        assert name in str(error.value)
    with pytest.raises(InputError, match="no input file was given"):
        find_files([])


def test_inputs_are_files_folders_patterns_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    for name in ("RS_1.xz", "RS_2.zst", "RC_1.xz", "README"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.name for file in find_files([str(tmp_path)])] == ["RS_1.xz", "RS_2.zst"]
    assert [file.name for file in find_files([f"{tmp_path}/*.xz", f"{tmp_path}/RS_1.xz"])] == ["RC_1.xz", "RS_1.xz"]
    monkeypatch.chdir(tmp_path)
    assert [file.name for file in find_files(["RC_1.xz"])] == ["RC_1.xz"]
    with fsspec.open("memory://dumps/RS_3", "wb") as file:
        file.write(b"x")
    assert [file.location for file in find_files(["memory://dumps/RS_*"])] == ["memory://dumps/RS_3"]
    assert [file.location for file in find_files(["memory://dumps"])] == ["memory://dumps/RS_3"]


def test_bad_lines_are_all_counted_and_the_first_hundred_listed(tmp_path: Path, run: Run) -> None:
    path = dump(tmp_path / "RS_x", *([b"{"] * 250), post("a"))
    links = collect_links([path], str(tmp_path / "links"), LinkSettings(), run)
    assert counts_of(links)["failed"] == {"invalid_json": 250}
    assert len(list(links.failures(0))) == votes.MAX_NAMED_FAILURES == 100


def test_a_dump_without_any_link_makes_an_empty_set(tmp_path: Path, run: Run) -> None:
    links = collect_links([dump(tmp_path / "RS_x", post("a", score=0))], str(tmp_path / "links"), LinkSettings(), run)
    assert (links.records, counts_of(links)["dropped"]) == (0, {"too_little_karma": 1})


# --- command line ----------------------------------------------------------------------------------------------------


def test_the_verb_prints_the_funnel_and_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = dump(tmp_path / "RS_x", post("a"), post("b", score=4))
    arguments = ["crawl", "links", path, "--out", str(tmp_path / "links"), "--workers", "1", "--min-karma", "5"]
    assert webtext(arguments) == 0
    shown = capfd.readouterr().out
    assert "dropped: too_little_karma" in shown
    assert "1 link in" in shown
    assert webtext([*arguments, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["counts"]["records_in"] == 2


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", post("a"))
    assert webtext(["crawl", "links", path, "--out", str(tmp_path / "links"), "--workers", "1", "--dry-run"]) == 0
    assert not (tmp_path / "links").exists()


def test_limits_are_turned_off_by_none(tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", post("a", score=-1, created_utc=2**33))
    arguments = ["crawl", "links", path, "--out", str(tmp_path / "links"), "--workers", "1", "--before", "none"]
    assert webtext([*arguments, "--set", "crawl.links.min_karma=none"]) == 0
    assert PartSet.open(str(tmp_path / "links"), "links").records == 1


def test_every_setting_is_an_option_of_the_verb() -> None:
    shown = click.testing.CliRunner().invoke(group, ["links", "--help"]).output
    for option in ("--min-karma", "--before", "--profile", "--keep-wikipedia", "--parts", "--out"):
        assert option in shown
