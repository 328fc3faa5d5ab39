"""Large documents, single or many: buffers are bounded in bytes, so that memory doesn't run out."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from webtext.base.console import Console
from webtext.base.parts.digest import DIGEST_BYTES, RecordDigest, block_rows, row_bytes
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import PartWriter
from webtext.base.parts.recipe import with_check
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.parts.untrusted_parquet import BATCH_BYTES
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine, WorkerLimits
from webtext.clean.command import group
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, decontaminate_documents, dedup_documents
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.text.clean_text import is_longer

sys.path.insert(0, str(Path(__file__).parents[1] / "clean"))

from dedup_sets import document, write_set  # noqa: E402
from set_contents import rows  # noqa: E402

ANY_LANGUAGE = CleanSettings(language=LanguageSettings(language=("all",)))


@pytest.fixture
def small_workers() -> Iterator[Run]:
    """A run with small workers; a worker that has imported everything takes some 150 MiB."""
    with LocalEngine(1, WorkerLimits(memory_bytes=340 << 20)) as engine:
        yield Run(engine, Console("quiet"))


def text_of(seed: int, n_bytes: int) -> str:
    """Return lines of random words; no two seeds give near duplicates."""
    chosen = np.random.default_rng(seed)
    words = np.array(["".join(letters) for letters in chosen.choice(list("abcdefghijklmnop"), (4000, 6))])
    lines = chosen.choice(words, (n_bytes // 84, 12)).tolist()
    return "\n".join(" ".join(line) for line in lines)


def write_parquet(path: Path, texts: Sequence[str]) -> None:
    """Write all rows to one row group, like pyarrow up to a million rows; pages of 16 rows are read at once."""
    table = pa.table({"id": [str(i) for i in range(len(texts))], "text": list(texts)})
    pq.write_table(table, path, row_group_size=len(texts), write_batch_size=16)


def write_lines(path: Path, texts: Sequence[str]) -> None:
    with open(path, "w") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_parquet, write_lines])
def test_many_documents_of_600_kb_are_cleaned_by_a_worker_that_holds_a_few(
    write: object, tmp_path: Path, small_workers: Run
) -> None:
    """The text of 128 of them, half of the rows read at a time, takes a quarter of the worker's memory."""
    name = tmp_path / ("in.parquet" if write is write_parquet else "in.jsonl")
    write(name, [text_of(i, 600_000) for i in range(128)])  # type: ignore[operator]
    result = clean_pages([str(name)], str(tmp_path / "out"), ANY_LANGUAGE, small_workers)
    assert result.documents.counts.to_json() == {"records_in": 128, "kept": 128, "dropped": {}, "failed": {}}
    assert result.counts.records_in == 128
    assert result.counts.failed == {}
    assert max(group_bytes(result.documents)) < DIGEST_BYTES + 600_000


def group_bytes(opened: PartSet) -> list[int]:
    """Return the bytes of text in each row group."""
    with pq.ParquetFile(opened.folder.local_path(opened.parts[0].name)) as file:
        groups = [file.read_row_group(number, ["text"]) for number in range(file.num_row_groups)]
    return [sum(len(text.as_buffer()) for text in group["text"]) for group in groups]


@pytest.mark.slow
def test_documents_just_below_the_limit_are_kept_and_those_above_are_dropped(tmp_path: Path) -> None:
    """`clean run --worker-memory` on JSON lines: four of 9.9 MB, too much for a worker, and two above 10 MB."""
    texts = [text_of(i, 9_990_000)[:9_990_000] for i in range(4)] + [text_of(i, 11_000_000) for i in range(2)]
    write_lines(tmp_path / "in.jsonl", texts)
    arguments = [str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out"), "--language", "all", "--workers", "1"]
    ran = CliRunner().invoke(group, ["run", *arguments, "--worker-memory", "450", "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    documents = PartSet.open(str(tmp_path / "out" / "documents"))
    assert documents.counts.to_json() == {"records_in": 6, "kept": 4, "dropped": {"too_many_bytes": 2}, "failed": {}}
    assert PartSet.open(str(tmp_path / "out" / "corpus")).counts.failed == {}


def test_the_limit_is_counted_in_utf_8() -> None:
    assert [is_longer(text) for text in ("é" * 5_000_000, "é" * 5_000_001, "e" * 10_000_000)] == [False, True, False]


@pytest.fixture
def foreign(tmp_path: Path) -> PartSet:
    """A set of documents that webtext didn't make: its fourth document is too long, and its text has a copy."""
    long = "word " * 2_020_000
    texts = [text_of(i, 5_000) for i in range(3)]
    return write_set(
        tmp_path / "foreign",
        [*(document(str(i), text) for i, text in enumerate(texts)), document("long", long), document("copy", long)],
    )


def test_a_document_of_a_foreign_set_that_is_too_long_is_a_counted_drop_and_is_compared_with_none(
    foreign: PartSet, tmp_path: Path, small_workers: Run
) -> None:
    result = dedup_documents([foreign.folder.url], str(tmp_path / "out"), DedupSettings(), small_workers)
    assert [row["id"] for row in rows(result.corpus)] == ["0", "1", "2"]
    assert result.counts.to_json() == {"records_in": 5, "kept": 3, "dropped": {"too_many_bytes": 2}, "failed": {}}
    long = rows(result.dropped)[0]
    assert (long["id"], long["threshold"], len(long["text_start"])) == ("long", 10_000_000, 200)
    assert long["value"] > 10_000_000


def test_every_verb_that_reads_a_foreign_set_drops_what_is_too_long(
    foreign: PartSet, tmp_path: Path, small_workers: Run
) -> None:
    result = clean_pages([foreign.folder.url], str(tmp_path / "run"), ANY_LANGUAGE, small_workers)
    assert result.counts.dropped["too_many_bytes"] == 2
    assert result.signals is not None
    assert [row["failed"] for row in rows(result.signals)] == [None] * 3 + ["too_many_bytes"] * 2
    (tmp_path / "example.txt").write_text("one two three four five six seven eight nine ten eleven twelve thirteen")
    settings = DecontaminationSettings(against=(str(tmp_path / "example.txt"),))
    held = decontaminate_documents([foreign.folder.url], str(tmp_path / "held"), settings, small_workers)
    assert held.counts.to_json() == {"records_in": 5, "kept": 3, "dropped": {"too_many_bytes": 2}, "failed": {}}


def test_blocks_do_not_depend_on_how_rows_come_in(tmp_path: Path) -> None:
    """A block ends when its rows reach 16 MiB, so rows written one by one or at once give equal bytes and digests."""
    texts = [f"{i} " * 1_500_000 for i in range(14)]
    made = pa.Table.from_pylist([document(str(i), text) for i, text in enumerate(texts)], schema=DOCUMENT)
    parts = []
    for name, step in (("one", 1), ("five", 5), ("all", 14)):
        with PartWriter(Folder(tmp_path / name), "documents", 0, key="k") as writer:
            for start in range(0, 14, step):
                writer.write_table(made.slice(start, step))
            parts.append(writer.publish())
    with PartWriter(Folder(tmp_path / "rows"), "documents", 0, key="k") as writer:
        writer.write(made.to_pylist())
        parts.append(writer.publish())
    assert len({(part.sha256, part.record_digest) for part in parts}) == 1
    sizes = row_bytes(made)
    digest, start = RecordDigest(), 0
    while start < 14:
        n_rows = block_rows(sizes[start:]) or 14 - start
        digest.update(made.slice(start, n_rows))
        start += n_rows
    assert digest.hexdigest() == parts[0].record_digest


def test_a_row_group_of_somebody_elses_is_read_in_batches_of_bounded_bytes(tmp_path: Path) -> None:
    opened = write_set(tmp_path / "set", [document(str(i), f"{i:09d} " * 100_000) for i in range(40)])
    table = opened.table(0)
    path = opened.folder.local_path(opened.parts[0].name)
    pq.write_table(table, path, row_group_size=40)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == 1
    entry = json.loads((tmp_path / "set" / "manifest.json").read_text())
    entry["parts"][0] |= {"bytes": path.stat().st_size, "sha256": sha256(path)}
    del entry["check"]
    (tmp_path / "set" / "manifest.json").write_text(json.dumps(with_check(entry)))
    sizes = [batch.nbytes for batch in PartSet.open(str(tmp_path / "set")).batches(0)]
    assert sum(sizes) > 39_000_000
    assert max(sizes) <= BATCH_BYTES


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
