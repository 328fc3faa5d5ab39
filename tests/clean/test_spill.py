"""The external sort: files by range, and results that don't depend on how small the files are."""

from __future__ import annotations

import numpy as np
import pytest
from dedup_sets import by_id, document, edited, prose, write_set
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.errors import RunFailed
from webtext.base.storage import Folder
from webtext.clean.dedup import candidates, columns, settle, spill
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.spill import Spill, blocks, grouped, mapped, range_of_hash

PAIR = np.dtype([("key", "<u8"), ("number", "<u4")])


def test_records_are_returned_by_range_in_the_order_in_which_they_were_added(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "RECORDS_PER_FILE", 10)
    spilled = Spill(tmp_path / "sort", 35, PAIR)
    assert spilled.n_files == 4
    random = np.random.default_rng(1)
    given = np.zeros(35, PAIR)
    given["key"], given["number"] = random.integers(0, 1 << 64, 35, np.uint64), np.arange(35)
    for places in (slice(0, 20), slice(20, 35)):
        spilled.add(range_of_hash(given["key"][places], 4), given[places])
    files = list(spilled.files())
    assert np.concatenate(files).tolist() == given[np.argsort(given["key"] >> np.uint64(62), kind="stable")].tolist()
    assert not (tmp_path / "sort").exists()


@pytest.mark.parametrize("data", [None, b"", b"short", bytes(12 * 35), bytes(12 * 36)])
def test_records_that_change_on_the_disk_are_an_error(data, tmp_path):
    spilled = Spill(tmp_path / "sort", 35, PAIR)
    spilled.add(np.zeros(35, np.int64), np.ones(35, PAIR))
    (tmp_path / "sort/0").unlink() if data is None else (tmp_path / "sort/0").write_bytes(data)
    with pytest.raises(RunFailed, match="sort/0' was changed or removed while it was in use"):
        list(spilled.files())


def test_hashes_fill_all_ranges_from_the_first_to_the_last():
    keys = np.array([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1], np.uint64)
    assert range_of_hash(keys, 2).tolist() == [0, 0, 1, 1]
    assert range_of_hash(keys, 1_000_000).tolist() == [0, 499_999, 500_000, 999_999]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5)))
def test_groups_are_the_positions_of_each_key(keys):
    found = {key: places.tolist() for key, places in grouped(np.array(keys, np.int64))}
    assert found == {key: [place for place, other in enumerate(keys) if other == key] for key in sorted(set(keys))}


def test_a_mapped_column_begins_with_zeros_and_replaces_an_old_one(tmp_path):
    mapped(tmp_path / "column", np.uint32, 5)[:] = 7
    again = mapped(tmp_path / "column", np.uint32, 3)
    assert again.tolist() == [0, 0, 0]
    assert mapped(tmp_path / "none", np.uint32, 0).tolist() == []


def test_blocks_cover_a_range():
    assert list(blocks(3, 10, 4)) == [slice(3, 7), slice(7, 10)]
    assert list(blocks(3, 3)) == []


@pytest.mark.parametrize("template", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_results_do_not_depend_on_batch_sizes(tmp_path, monkeypatch, template, alone):
    """Batches of tens instead of thousands give the same rows and the same counts."""
    documents = []
    for family in range(60):
        words = prose(family, 60)
        documents += [document(f"{family}-{i}", edited(words, *range(i))) for i in range(family % 4)]
        documents += [document(f"{family}-copy", edited(words), split="validation")] * (family % 5 == 0)
    documents += [document(f"equal {i}", "always the same", karma=i % 7) for i in range(200)]
    if template:
        common = " ".join(prose(99, 200))
        documents += [document(f"page {i}", f"{common} number {i}") for i in range(150)]
    given = write_set(tmp_path / "given", documents, 3)
    whole = find_duplicates(given, DedupSettings(), Folder(tmp_path / "whole"), alone)
    for module, name, value in (
        (spill, "RECORDS_PER_FILE", 50),
        (columns, "SIGNATURES_AT_A_TIME", 7),
        (candidates, "PAIRS_AT_A_TIME", 5),
        (settle, "DOCUMENTS_AT_A_TIME", 2),
    ):
        monkeypatch.setattr(module, name, value)
    parts = find_duplicates(given, DedupSettings(), Folder(tmp_path / "parts"), alone)
    assert len(by_id(given, whole)) > 50
    assert by_id(given, parts) == by_id(given, whole)
    assert parts.clusters == whole.clusters
    assert parts.clusters.counted["largest_component"] == (150 if template else 3)
