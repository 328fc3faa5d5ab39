"""Part sets: parts appear complete, sets are sealed, and files are verified when they are read."""

from __future__ import annotations

import io
import json
import pickle
import re
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import FailedRecord, PartSet, bounded_batches
from webtext.base.parts.recipe import Recipe, with_check, without_check
from webtext.base.parts.stage import SetWriter, part_key
from webtext.base.parts.untrusted_parquet import BATCH_BYTES, parquet_batches
from webtext.base.storage import Folder

RECIPE = Recipe(stage="test", code_version=1, settings={"min_karma": 3})


def decision(i: int) -> dict[str, Any]:
    reason = {"stage": "filter", "reason": "too_few_words"}
    return reason | {"id": f"{i:032x}", "value": float(i), "text_start": "text\x1f " * i}


def write_set(folder: Path, parts: int = 2, rows: int = 3) -> PartSet:
    writer = SetWriter(str(folder), "dropped", RECIPE)
    done = []
    for index in range(parts):
        with writer.part(index, key=part_key(RECIPE, [])) as part:
            part.write([decision(i) for i in range(rows)])
            part.attach(f"part-{index:05d}.note").write_text("beside it")
            done.append(part.publish())
    return writer.seal(done)


def test_a_sealed_set_gives_back_its_rows_and_counts(tmp_path: Path) -> None:
    opened = PartSet.open(write_set(tmp_path / "set").folder.url, "dropped")
    assert opened.records == 6
    assert opened.counts == Counts(6, 6)
    assert [row["value"] for row in opened.table(1).to_pylist()] == [0.0, 1.0, 2.0]
    assert opened.table(0, ["reason"]).column_names == ["reason"]
    assert opened.attachment(0, ".note") == "part-00000.note"
    opened.verify()


class Watched(io.BytesIO):
    readers: ClassVar[set[int]] = set()

    def read(self, *n: Any) -> bytes:
        self.readers.add(get_ident())
        return super().read(*n)


def test_no_thread_of_arrow_reads_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that frees a file of Python's while Python ends aborts the process (apache/arrow#34314)."""
    opened = write_set(tmp_path)
    content = (tmp_path / "part-00000.parquet").read_bytes()
    monkeypatch.setattr(Folder, "open", lambda *_: Watched(content))
    assert opened.table(0).num_rows == sum(map(len, parquet_batches(Watched(content), ["id", "value"]))) == 3
    assert Watched.readers == {get_ident()}


def test_equal_rows_written_in_other_batches_give_equal_bytes_and_digests(tmp_path: Path) -> None:
    rows = [decision(i % 7) for i in range(2500)]
    parts = []
    for name, sizes in (("one", [2500]), ("many", [1, 1023, 1024, 400, 52])):
        with SetWriter(str(tmp_path / name), "dropped", RECIPE).part(0, key="k") as part:
            left = iter(rows)
            for size in sizes:
                part.write(list(islice(left, size)))
            parts.append(part.publish())
    assert parts[0] == parts[1]


@pytest.mark.parametrize(("n_long", "expected"), [(0, [64, 64, 64, 8]), (10, [64, *[3] * 8, 2, 32, 64, 14])])
def test_small_row_groups_are_read_together_up_to_a_number_of_rows_and_bytes(
    n_long: int, expected: list[int], tmp_path: Path
) -> None:
    """Row groups of 16 rows. Of long rows, three fit into a batch, also with the short rows that they are read with."""
    texts = [f"{number:09d}" for number in range(200)]
    texts[80 : 80 + n_long] = [text.ljust(4 << 20) for text in texts[80 : 80 + n_long]]
    with pq.ParquetWriter(tmp_path / "texts.parquet", pa.schema({"text": pa.string()})) as writer:
        for some in (texts[:80], texts[80 : 80 + n_long], texts[80 + n_long :]):
            writer.write_table(pa.table({"text": pa.array(some, pa.string())}), row_group_size=16)
    with pq.ParquetFile(tmp_path / "texts.parquet") as file:
        batches = list(bounded_batches(file, ["text"], 64))
    assert [text for batch in batches for text in batch["text"].to_pylist()] == texts
    assert [batch.num_rows for batch in batches] == expected
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES


def test_the_record_digest_sees_a_null_where_there_was_an_empty_string(tmp_path: Path) -> None:
    digests = set()
    for i, url in enumerate([None, "", "a"]):
        with SetWriter(str(tmp_path / str(i)), "dropped", RECIPE).part(0, key="k") as part:
            part.write([decision(1) | {"url": url}])
            digests.add(part.publish().record_digest)
    assert len(digests) == 3


def test_sealing_the_same_parts_again_changes_no_byte(tmp_path: Path) -> None:
    first = write_set(tmp_path / "set")
    stamp = (tmp_path / "set" / "manifest.json").stat().st_mtime_ns
    writer = SetWriter(str(tmp_path / "set"), "dropped", RECIPE)
    assert writer.seal(list(writer.look().values())).hash == first.hash
    assert (tmp_path / "set" / "manifest.json").stat().st_mtime_ns == stamp


def test_a_pickled_set_is_the_same_set(tmp_path: Path) -> None:
    opened = write_set(tmp_path / "set")
    copy = pickle.loads(pickle.dumps(opened))
    assert (copy.hash, copy.parts) == (opened.hash, opened.parts)


def test_a_folder_that_is_not_a_part_set_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a part set: it has no manifest.json"):
        PartSet.open(str(tmp_path))
    with pytest.raises(InputError, match="no such folder"):
        PartSet.open(str(tmp_path / "missing"))


def test_an_unsealed_set_is_rejected_with_the_way_to_resume(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    (tmp_path / "set" / "manifest.json").unlink()
    with pytest.raises(InputError, match="not sealed.*\n.*resumes where it stopped"):
        PartSet.open(str(tmp_path / "set"))


def test_a_set_of_another_kind_is_rejected_with_both_kinds(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    with pytest.raises(InputError, match="contains dropped, not links or pages"):
        PartSet.open(str(tmp_path / "set"), ("links", "pages"))


@pytest.mark.parametrize("name", ["part-00001.parquet", "part-00001.note"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_set(tmp_path / "set")
    (tmp_path / "set" / name).unlink()
    with pytest.raises(InputError, match=f"{name}' is missing"):
        PartSet.open(str(tmp_path / "set"))


def test_metadata_of_an_attachment_is_in_the_manifest(tmp_path: Path) -> None:
    writer = SetWriter(str(tmp_path), "dropped", RECIPE)
    with writer.part(0, key="0") as part:
        for name in ("a.note", "b.note"):
            part.attach(name).write_text("beside it")
        part.describe("b.note", {"words": 2})
        writer.seal([part.publish()])
    (tmp_path / "b.note").unlink()
    opened = PartSet.open(str(tmp_path), checks_sizes=False)
    assert [attachment.about for attachment in opened.parts[0].attachments] == [{}, {"words": 2}]
    first, second = opened.manifest["parts"][0]["attachments"]
    assert sorted(first) == sorted(second.keys() - {"about"}) == ["bytes", "name", "sha256"]
    with pytest.raises(InputError, match=r"b\.note' is missing"):
        opened.check_names(["a.note", "b.note"])


def test_a_part_of_another_size_is_refused_on_opening(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    with open(tmp_path / "set" / "part-00000.parquet", "ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match="part-00000.parquet' was altered.*bytes, the manifest says"):
        PartSet.open(str(tmp_path / "set"))


def test_one_flipped_bit_is_found_on_reading_even_after_a_first_good_read(tmp_path: Path) -> None:
    opened = write_set(tmp_path / "set")
    opened.table(0)
    path = tmp_path / "set" / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="part-00000.parquet' was altered: SHA-256"):
        opened.table(0)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{", "is damaged: Input data was truncated"),
        (b"[]", "is damaged: Expected `object`, got `array`"),
        (b"{}", "is not a manifest"),
        (b'{"format": 99, "kind": "links"}', "has format 99"),
        (b'{"format": 1, "kind": "dropped", "recipe": {}, "parts": [{"name": 1}]}', "is damaged"),
    ],
)
def test_a_damaged_manifest_is_a_short_error(tmp_path: Path, manifest: bytes, message: str) -> None:
    write_set(tmp_path / "set")
    (tmp_path / "set" / "manifest.json").write_bytes(manifest)
    with pytest.raises(InputError, match=message):
        PartSet.open(str(tmp_path / "set"))


@pytest.mark.parametrize(
    ("of", "change", "place"),
    [
        ("manifest", {"generation": []}, "$.generation"),
        ("manifest", {"recipe": {"settings": []}}, "$.recipe"),
        ("part", {"records": "x"}, "$.parts[0].records"),
        ("part", {"bytes": -1}, "can't be counts"),
        ("part", {"counts": {"records_in": 1, "kept": 1.5}}, "$.parts[0].counts.kept"),
        ("part", {"counts": {"records_in": 0, "kept": 0, "dropped": {"a": 1}}}, "can't be counts"),
        ("part", {"counts": {"records_in": 0, "kept": 1, "failed": {"a": -1}}}, "can't be counts"),
        ("part", {"counts": {"records_in": 10**99, "kept": 10**99}}, "can't be counts"),
    ],
)
def test_a_manifest_with_its_check_and_a_value_of_another_type_is_rejected(
    tmp_path: Path, of: str, change: dict[str, object], place: str
) -> None:
    manifest = without_check(write_set(tmp_path / "set").manifest)
    (manifest if of == "manifest" else manifest["parts"][0]).update(change)
    (tmp_path / "set" / "manifest.json").write_text(json.dumps(with_check(manifest)))
    with pytest.raises(InputError, match=f"manifest.json' is damaged: .*{re.escape(place)}"):
        PartSet.open(str(tmp_path / "set"))


def test_a_flipped_bit_is_an_error_in_a_manifest_and_makes_the_part_again_in_an_entry(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    manifest, entry = tmp_path / "set/manifest.json", tmp_path / "set/_parts/00000.json"
    for path in (manifest, entry):
        written = path.read_bytes()
        for place in range(0, len(written), 7):
            flipped = bytearray(written)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            writer = SetWriter(str(tmp_path / "set"), "dropped", RECIPE)
            if path == entry:
                assert list(writer.look()) == [1]
            else:
                with pytest.raises(InputError, match=r"(is damaged|has format|is not a manifest)"):
                    PartSet.open(str(tmp_path / "set"))
                writer.look()
                assert writer.sealed == ()  # so that a rerun writes it again
        path.write_bytes(written)


def test_columns_that_are_not_the_kinds_columns_are_refused(tmp_path: Path) -> None:
    opened = write_set(tmp_path / "set")
    manifest = without_check(opened.manifest) | {"kind": "links"}
    (tmp_path / "set" / "manifest.json").write_text(json.dumps(with_check(manifest)))
    with pytest.raises(InputError, match="does not have the columns of links"):
        PartSet.open(str(tmp_path / "set")).table(0)


def test_a_part_that_was_not_published_leaves_no_file(tmp_path: Path) -> None:
    with SetWriter(str(tmp_path / "set"), "dropped", RECIPE).part(0, key="k") as part:
        part.write([decision(1)])
        part.attach("part-00000.note").write_text("beside it")
    assert [path for path in (tmp_path / "set").rglob("*") if path.is_file()] == []


def test_an_entry_whose_files_were_altered_does_not_count(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    writer = SetWriter(str(tmp_path / "set"), "dropped", RECIPE)
    (tmp_path / "set" / "part-00001.note").write_text("other text")
    assert list(writer.look()) == [0]
    (tmp_path / "set" / "_parts" / "00000.json").write_text("{")
    assert writer.look() == {}


def test_counts_that_do_not_add_up_are_a_defect() -> None:
    counts = Counts()
    counts.keep(2)
    counts.drop("too_few_words")
    counts.fail("raised")
    assert counts.balanced
    assert (counts + counts).to_json() == {
        "records_in": 8,
        "kept": 4,
        "dropped": {"too_few_words": 2},
        "failed": {"raised": 2},
    }
    counts.kept += 1
    assert not counts.balanced


def test_failures_are_in_a_file_beside_their_part_and_only_their_counts_in_entry_and_manifest(tmp_path: Path) -> None:
    writer = SetWriter(str(tmp_path / "set"), "dropped", RECIPE)
    parts = []
    for index, n_failed in enumerate((0, 1000)):
        with writer.part(index, key=str(index)) as part:
            part.write([decision(1)])
            part.counts.keep()
            for number in range(n_failed):
                part.fail(f"record {number}\ud800", "raised", f"cause {number}")
            parts.append(part.publish())
    opened = writer.seal(parts)
    assert opened.counts.failed == {"raised": 1000}
    assert list(opened.failures()) == [FailedRecord(f"record {i}\ud800", "raised", f"cause {i}") for i in range(1000)]
    assert list(opened.failures(0)) == []
    assert (tmp_path / "set" / "manifest.json").stat().st_size < 4000
    assert [path.name for path in (tmp_path / "set").glob("*.failures.jsonl")] == ["part-00001.failures.jsonl"]
    opened.verify()
    side = tmp_path / "set" / "part-00001.failures.jsonl"
    side.write_text(side.read_text().replace("cause 7", "cause 8", 1))
    with pytest.raises(InputError, match=r"part-00001.failures.jsonl' was altered"):
        list(PartSet.open(opened.folder.url).failures())


def test_a_part_that_is_made_again_without_failures_loses_the_file_of_the_old_ones(tmp_path: Path) -> None:
    writer = SetWriter(str(tmp_path / "set"), "dropped", RECIPE)
    for n_failed in (1, 0):
        with writer.part(0, key=str(n_failed)) as part:
            part.write([decision(1)])
            part.counts.keep()
            for _ in range(n_failed):
                part.fail("record", "raised", "cause")
            made = part.publish()
    assert list(writer.seal([made]).failures()) == []
    assert not list((tmp_path / "set").glob("*.failures.jsonl"))
