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
from webtext.base.workers.engine import LocalEngine
from webtext.clean.dedup.lookup import look_up
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
    for name, text in {"a": edited(prose(1)), "b": edited(prose(2), 9), "c": edited(prose(99))}.items():
        Folder(f"{place}/asked").write_bytes(f"{name}.txt", text.encode())
    found = list(look_up([f"{place}/asked"], [f"{place}/index"], 0.8, run))
    assert [(each.answer, each.document) for each in found] == [("exact", "d1"), ("near", "d2"), ("nothing", None)]
    Folder(f"{place}/corpus").remove_all()
    assert [each.estimated for each in look_up([f"{place}/asked"], [f"{place}/index"], 0.8, run)] == [
        False,
        True,
        False,
    ]
