"""Signatures and indexes in an object store: the same bytes as on disk, and the same answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import ObjectStore

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.settings import DedupSettings

from .test_stages import files

sys.path.append(str(Path(__file__).parent.parent / "clean"))

from dedup_sets import document, edited, index_of, prose, write_set  # noqa: E402


@pytest.fixture(scope="module")
def run(running: ObjectStore) -> Iterator[Run]:
    with LocalEngine(workers=1) as engine:
        yield Run(engine, Console("quiet"))


def test_an_index_in_a_store_has_the_bytes_of_one_on_disk_and_gives_its_answers(
    place: str, tmp_path: Path, run: Run
) -> None:
    documents = [document(f"d{i}", edited(prose(i))) for i in range(9)]
    for folder in (str(tmp_path), place):
        index_of(write_set(f"{folder}/corpus", documents, 3), f"{folder}/index", DedupSettings(), run)
    assert files(f"{place}/index") == files(f"{tmp_path}/index")
    assert files(f"{place}/index-signatures") == files(f"{tmp_path}/index-signatures")
    asked = [document("a", edited(prose(1))), document("b", edited(prose(2), 9)), document("c", edited(prose(99)))]
    settings = DedupSettings(index=(f"{place}/index",))
    found = find_duplicates(write_set(f"{place}/asked", asked, 1), settings, Folder(f"{place}/_dedup"), run)
    rows = found.rows.open().table(0).to_pylist()
    assert [(row["row"], row["reason"], row["duplicate_of"]) for row in rows] == [
        (0, "exact_duplicate", "d1"),
        (1, "near_duplicate", "d2"),
    ]
