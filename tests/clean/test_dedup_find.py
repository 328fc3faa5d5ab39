"""Duplicates of a documents set: priorities, chains, splits, resume, hostile sets, real near-duplicates."""

from __future__ import annotations

import errno
import json
import lzma
import os
import pickle
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from dedup_sets import Rows, by_id, chain, corpus, document, edited, in_process, prose, write_set
from reference import minhash as reference

from webtext.base.errors import ConfigError, DryRun, InputError, MachineError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup import candidates, find
from webtext.clean.dedup.candidates import SMALL_BUCKET
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.text.arrays import texts_of


@pytest.fixture
def dropped(tmp_path, run):
    """Find the duplicates of some documents: id -> (reason, duplicate_of, similarity)."""

    def find_in(documents, *, n_parts=1, settings=None, run=run, chosen=None):
        folder = tmp_path / f"set-{random.getrandbits(32)}"
        documents_set = write_set(folder / "documents", documents, n_parts)
        found = find_duplicates(documents_set, settings or DedupSettings(), Folder(folder / "work"), run, chosen=chosen)
        return by_id(documents_set, found)

    return find_in


def test_highest_karma_then_earliest_date_then_smallest_id_is_kept(dropped):
    near = [edited(prose(1), place) for place in (10, 100, 200, 300)]
    documents = [
        document("a", near[0], karma=3, date=5),
        document("b", near[1], karma=9, date=7),
        document("c", near[2], karma=9, date=6),
        document("d", near[3], karma=9, date=6),
    ]
    found = dropped(documents)
    assert set(found) == {"a", "b", "d"}
    assert {reason for reason, *_ in found.values()} == {"near_duplicate"}
    assert {kept for _, kept, _ in found.values()} == {"c"}
    assert found["a"][2] == (396 - 10) / (396 + 10)


def test_unknown_karma_and_date_come_last(dropped):
    texts = [edited(prose(1), place) for place in (10, 100, 200)]
    documents = [document("a", texts[0]), document("b", texts[1], karma=-5), document("c", texts[2], karma=-5, date=0)]
    assert {kept for _, kept, _ in dropped(documents).values()} == {"c"}


def test_equal_texts_are_exact_duplicates_and_equal_words_are_near_ones(dropped):
    documents = [document("a", "One two, three."), document("b", "One two, three."), document("c", "ONE two -- three")]
    assert dropped(documents) == {"b": ("exact_duplicate", "a", 1.0), "c": ("near_duplicate", "a", 1.0)}


def test_a_copy_of_a_dropped_text_names_the_kept_document(dropped):
    words = prose(2)
    documents = [document("a", edited(words), karma=9), *(document(i, edited(words, 50)) for i in "bc")]
    found = dropped(documents)
    assert {id_: row[:2] for id_, row in found.items()} == dict.fromkeys("bc", ("near_duplicate", "a"))


@pytest.mark.parametrize(("karmas", "gone"), [((9, 5, 1), "b"), ((1, 5, 9), "b"), ((1, 9, 5), "ac")])
def test_in_a_chain_a_document_is_dropped_only_for_a_kept_one(dropped, karmas, gone):
    texts = zip("abc", chain(3), karmas, strict=True)
    found = dropped([document(id_, text, karma=karma) for id_, text, karma in texts])
    assert sorted(found) == list(gone)
    assert all(similarity == 366 / 426 for _, _, similarity in found.values())


def test_validation_is_dropped_whatever_its_karma(dropped):
    words = prose(4)
    found = dropped(
        [document("t", edited(words), karma=1), document("v", edited(words, 7), karma=99, split="validation")]
    )
    assert found["v"][:2] == ("near_duplicate_of_train", "t")
    assert len(found) == 1


def test_an_equal_text_in_validation_is_dropped_as_a_duplicate_of_train(dropped):
    documents = [document("v", "same old text", karma=99, split="validation"), document("t", "same old text")]
    assert dropped(documents) == {"v": ("near_duplicate_of_train", "t", 1.0)}


@pytest.mark.parametrize("splits", ["tvv", "ttv", "vtv", "vvt", "vtt"])
def test_a_cluster_that_spans_both_splits_loses_all_its_validation_members(dropped, splits):
    names = {"t": "train", "v": "validation"}
    texts = zip("abc", chain(5), splits, strict=True)
    found = dropped([document(id_, text, split=names[split]) for id_, text, split in texts])
    held_out = {id_ for id_, split in zip("abc", splits, strict=True) if split == "v"}
    assert {id_ for id_, row in found.items() if row[0] == "near_duplicate_of_train"} == held_out
    assert {found[id_][1] for id_ in held_out} <= set("abc") - held_out - set(found)


def test_duplicates_within_validation_leave_one(dropped):
    words = prose(6)
    documents = [document(id_, edited(words, place), split="validation") for id_, place in (("a", 3), ("b", 200))]
    assert {id_: row[:2] for id_, row in dropped(documents).items()} == {"b": ("near_duplicate", "a")}


def test_results_depend_neither_on_workers_nor_on_parts(dropped, alone):
    documents = corpus(1)
    expected = dropped(documents)
    assert len(expected) > 30
    assert dropped(documents[::-1], n_parts=5, run=alone) == expected


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_document_is_dropped_if_and_only_if_it_is_near_a_kept_one(dropped, seed):
    """Compare with all pairs of the corpus by brute force, the greedy rule and the rule of splits."""
    documents = corpus(10 + seed)
    found = dropped(documents, n_parts=2)
    sets = {row["id"]: reference.shingle_set(row["text"], 5) for row in documents}
    kept = [row for row in documents if row["id"] not in found]
    for row in documents:
        if row["id"] in found:
            _, named, similarity = found[row["id"]]
            assert named not in found
            assert similarity == reference.jaccard(sets[row["id"]], sets[named])
            assert similarity >= 0.8 or found[row["id"]][0] == "near_duplicate_of_train"
    for place, left in enumerate(kept):
        for right in kept[:place]:
            assert reference.jaccard(sets[left["id"]], sets[right["id"]]) < 0.8


def test_only_rows_that_pass_are_compared(dropped):
    documents = [
        document(id_, edited(prose(7), place), karma=k) for id_, place, k in (("a", 1, 9), ("b", 2, 5), ("c", 3, 1))
    ]
    found = dropped(documents, chosen=[Rows((False, True, True))])
    assert {id_: row[1] for id_, row in found.items()} == {"c": "b"}
    with pytest.raises(InputError, match="has 3 rows"):
        dropped(documents, chosen=[Rows((True, True))])


def test_a_second_call_reads_the_result_and_a_damaged_one_is_made_again(tmp_path, run, monkeypatch):
    documents = write_set(tmp_path / "documents", corpus(2), 3)
    work = Folder(tmp_path / "work")
    first = find_duplicates(documents, DedupSettings(), work, run)
    expected = by_id(documents, first)
    signatures = work.child("signatures")
    signed = {name: signatures.local_path(name).stat().st_mtime_ns for name in signatures.names(".signatures")}
    assert len(signed) == 3
    left = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert left == ["duplicates", "duplicates.json", "signatures"]

    with monkeypatch.context() as patch:
        patch.setattr(find, "sign_documents", lambda *_: pytest.fail("the result was there"))
        again = find_duplicates(documents, DedupSettings(), work, run)
    assert first == again == pickle.loads(pickle.dumps(again))
    assert by_id(documents, pickle.loads(pickle.dumps(again))) == expected

    rows = work.child("duplicates").local_path("part-00001.parquet")
    rows.write_bytes(rows.read_bytes()[:-100])
    damaged = signatures.local_path("part-00002.signatures")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    mended = find_duplicates(documents, DedupSettings(), work, run)
    assert mended == first
    assert by_id(documents, mended) == expected
    unchanged = {name for name, stamp in signed.items() if signatures.local_path(name).stat().st_mtime_ns == stamp}
    assert unchanged == {"part-00000.signatures", "part-00001.signatures"}

    data = bytearray(rows.read_bytes())
    data[len(data) // 2] ^= 0x10
    rows.write_bytes(data)
    with pytest.raises(InputError, match="was altered: SHA-256"):
        by_id(documents, find_duplicates(documents, DedupSettings(), work, run))
    rows.unlink()
    assert by_id(documents, find_duplicates(documents, DedupSettings(), work, run)) == expected

    other = find_duplicates(documents, DedupSettings(threshold=0.9), work, run)
    assert len(by_id(documents, other)) < len(expected)
    assert {
        name for name, stamp in signed.items() if signatures.local_path(name).stat().st_mtime_ns == stamp
    } == unchanged


def test_a_dry_run_writes_nothing(tmp_path, run):
    documents = write_set(tmp_path / "documents", corpus(2))
    dry = Run(run.engine, run.console, dry_run=True)
    with pytest.raises(DryRun):
        find_duplicates(documents, DedupSettings(), Folder(tmp_path / "work"), dry)
    assert not (tmp_path / "work").exists()


def test_a_full_disk_is_a_short_error_and_the_next_run_continues(tmp_path, run, monkeypatch):
    def full(path, target):
        if Path(target).parent.name == "edges":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, target)

    documents, work = write_set(tmp_path / "documents", corpus(2)), Folder(tmp_path / "work")
    replace = os.replace
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(MachineError, match="no space left"):
        find_duplicates(documents, DedupSettings(), work, in_process())
    assert not work.exists("duplicates.json")

    def unlike_the_first(path, target):
        assert Path(target).parent.name not in ("texts", "copies", "bands") or Path(target).name == "manifest.json"
        replace(path, target)

    monkeypatch.setattr(os, "replace", unlike_the_first)
    found = find_duplicates(documents, DedupSettings(), work, in_process())
    assert len(by_id(documents, found)) > 30


def test_five_thousand_equal_documents_leave_one(dropped):
    found = dropped([document(f"{i:04}", "All the same to me, page after page.") for i in range(5000)])
    assert len(found) == 4999
    assert set(found.values()) == {("exact_duplicate", "0000", 1.0)}


def test_five_thousand_pages_of_one_template_are_compared_in_linear_time(tmp_path, run, capsys):
    """All share every bucket; each is compared only with the one that is kept, so about one pair per page is verified."""
    words = " ".join(prose(8, 200))
    documents = [document(f"{i:04}", f"{words} page number {i}") for i in range(5000)]
    found = find_duplicates(
        write_set(tmp_path / "documents", documents), DedupSettings(), Folder(tmp_path / "work"), run
    )
    assert found.clusters.largest == [("0000", 5000)]
    assert found.clusters.dropped == {"near_duplicate": 4999}
    counted = found.clusters.counted
    assert counted["verified"] == 4999
    assert (counted["candidates"], counted["largest_component"]) == (5000, 5000)
    assert counted["largest_bucket"] > 4900
    assert counted["large_buckets"] >= 25
    assert "has 5,000 of 5,000 documents" in capsys.readouterr().err


def test_a_large_bucket_of_texts_that_are_not_near_drops_none(dropped):
    """Texts share one half: J = 96 / 292 = .33, and far more share a bucket than a small one contains."""
    common = " ".join(prose(9, 100))
    documents = [document(f"{i:03}", f"{common} {' '.join(prose(1000 + i, 98))}") for i in range(8 * SMALL_BUCKET)]
    assert dropped(documents) == {}


def test_texts_without_words_are_only_exact_duplicates(dropped):
    texts = ["", "", "🎉 … 🎉", "—", "word", "Word!"]
    documents = [document(str(i), text) for i, text in enumerate(texts)]
    assert dropped(documents) == {"1": ("exact_duplicate", "0", 1.0), "5": ("near_duplicate", "4", 1.0)}


def test_no_documents_have_no_duplicates(dropped, tmp_path, run):
    assert dropped([]) == {}
    found = find_duplicates(write_set(tmp_path / "none", [], 0), DedupSettings(), Folder(tmp_path / "work"), run)
    assert found.clusters.documents == 0


def test_one_word_of_ten_megabytes_and_text_without_spaces_are_ordinary_documents(dropped):
    huge = "x" * 9_999_999  # with one character more it is as long as a document may be
    japanese = "".join(chr(0x4E00 + random.Random(1).randrange(5000) + i % 7) for i in range(300))
    documents = [
        document("a", huge),
        document("b", huge + "!"),
        document("c", japanese),
        document("d", japanese + "。"),
    ]
    assert {id_: row[1] for id_, row in dropped(documents).items()} == {"b": "a", "d": "c"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"rows": 0}, "rows is 0"),
        ({"bands": 32}, "32 bands of 5 rows need 160 permutations"),
        ({"index": ("a", "b"), "keep_index": "b"}, "keep_index 'b' is also given as an --index"),
        ({"index": ("./a/../b",), "keep_index": "b/"}, "keep_index 'b/' is also given as an --index"),
        ({"threshold": 0.5}, "25 bands of 5 rows find only 54.8% of the pairs at threshold 0.5"),
    ],
)
def test_settings_that_cannot_work_are_rejected(values, said):
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        DedupSettings(**values)


@pytest.mark.slow
def test_real_near_duplicates_are_found_and_nothing_else(dropped, shared_data):
    """2,000 documents, 700 of them planted copies: at most 1 in 1,000 pairs of true Jaccard >= .8 may both stay."""
    with lzma.open(shared_data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    copies = [row for row in rows if "of" in row][:700]
    bases = {row["of"] for row in copies}
    rows = copies + sorted((row for row in rows if "of" not in row), key=lambda row: row["id"] not in bases)[:1300]
    found = dropped([document(row["id"], row["text"]) for row in rows], n_parts=2)

    pairs = pairs_at_least(0.8, [row["id"] for row in rows], [row["text"] for row in rows])
    left_whole = [pair for pair in pairs if not set(pair) & set(found)]
    assert len(pairs) > 100
    assert len(left_whole) <= len(pairs) / 1000
    assert all(pairs[tuple(sorted((id_, kept)))] == similarity for id_, (_, kept, similarity) in found.items())


def pairs_at_least(threshold: float, ids: list[str], texts: list[str]) -> dict[tuple[str, str], float]:
    """Exact Jaccard of all pairs that reach the threshold, through an index of shingles: no signatures, no bands."""
    import pyarrow as pa

    values, offsets = _minhash.shingle_sets(*texts_of(pa.array(texts)), 5)
    sets = [values[offsets[i] : offsets[i + 1]] for i in range(len(texts))]
    holders = defaultdict(list)
    common: dict[tuple[int, int], int] = defaultdict(int)
    for place, found in enumerate(sets):
        for shingle in found.tolist():
            for other in holders[shingle]:
                common[other, place] += 1
            holders[shingle].append(place)
    pairs = {}
    for (left, right), both in common.items():
        similarity = both / (len(sets[left]) + len(sets[right]) - both)
        if similarity >= threshold:
            first, second = sorted((ids[left], ids[right]))
            pairs[first, second] = similarity
    return pairs


def test_of_thousands_of_distinct_documents_few_pairs_are_compared(dropped, monkeypatch):
    """Of fifty million."""
    compare, n_compared = np.bitwise_count, []

    def counting(sketches):
        n_compared.append(len(sketches))
        return compare(sketches)

    monkeypatch.setattr(candidates.np, "bitwise_count", counting)
    documents = [document(f"{i}", " ".join(prose(i, 20))) for i in range(4000)]
    near = [document("long", edited(prose(1))), document("near", edited(prose(1), 3))]
    assert list(dropped([*documents, *near], run=in_process())) == ["near"]
    assert 1 <= sum(n_compared) < 400
