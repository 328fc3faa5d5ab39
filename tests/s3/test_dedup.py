"""Dedup with all its part sets in a store: the rows are those that a folder on disk gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from object_store import ObjectStore

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.settings import DedupSettings

sys.path.append(str(Path(__file__).parent.parent / "clean"))

from dedup_sets import by_id, corpus, write_set  # noqa: E402


@pytest.mark.slow
def test_duplicates_are_found_in_a_store_as_on_disk(running: ObjectStore, place: str, tmp_path: Path) -> None:
    rows = corpus(4, n_families=15)
    with LocalEngine(workers=2) as engine:
        run = Run(engine, Console("quiet"))
        on_disk, in_store = (write_set(f"{where}/documents", rows, 3) for where in (tmp_path, place))
        expected = find_duplicates(on_disk, DedupSettings(), Folder(tmp_path / "dedup"), run)
        found = find_duplicates(in_store, DedupSettings(), Folder(f"{place}/dedup"), run)
        again = find_duplicates(in_store, DedupSettings(), Folder(f"{place}/dedup"), run)
    assert len(by_id(on_disk, expected)) > 10
    assert by_id(in_store, found) == by_id(on_disk, expected)
    assert found.clusters == expected.clusters
    assert again == found
    assert Folder(f"{place}/dedup/bands").names() == []
