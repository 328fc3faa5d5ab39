"""Damaged scratch files of dedup: each is made again, or named to be removed, and the corpus stays the same."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from webtext.base.console import Console
from webtext.base.errors import InputError, RunFailed
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine
from webtext.clean.dedup.find import RESULT, find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import WORK, dedup_documents

sys.path.insert(0, str(Path(__file__).parent.parent / "clean"))

from dedup_sets import by_id, corpus, write_set  # noqa: E402
from set_contents import contents  # noqa: E402

T = TypeVar("T")
SETTINGS = DedupSettings()
OTHERS = DedupSettings(threshold=0.9)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with LocalEngine(workers=2) as engine:
        yield Run(engine, Console("quiet"))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> PartSet:
    rows = corpus(2)
    return write_set(tmp_path_factory.mktemp("documents"), rows[: len(rows) // 3 * 3], 3)  # parts of equal size


@pytest.fixture(scope="module")
def clean_build(documents: PartSet, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished `clean dedup`, and the scratch files of other settings beside it, which only this test has."""
    out = tmp_path_factory.mktemp("build")
    dedup_documents([documents.folder.url], str(out), SETTINGS, run)
    find_duplicates(documents, OTHERS, Folder(out / "others"), run)
    return out


def with_random_bytes(path: Path, build: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def cut_short(path: Path, build: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path, build: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path, build: Path) -> None:
    path.unlink()


def with_a_flipped_bit(path: Path, build: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swapped_with_another_part(path: Path, build: Path) -> None:
    other, kept = path.with_name(path.name.replace("00000", "00001")), path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def left_by_other_settings(path: Path, build: Path) -> None:
    shutil.copyfile(build / "others" / path.relative_to(build / WORK), path)


Damage = Callable[[Path, Path], None]
DAMAGES = (
    with_random_bytes, cut_short, emptied, removed, with_a_flipped_bit, swapped_with_another_part, left_by_other_settings
)  # fmt: skip
FILES = ("part-00000.signatures", "part-00000.parquet", "_parts/00000.json")
QUICK = (removed, with_a_flipped_bit, swapped_with_another_part)


def damages(*left_out: Damage) -> list[Any]:
    marks = {damage: [] if damage in QUICK else [pytest.mark.slow] for damage in DAMAGES}
    return [pytest.param(damage, marks=marks[damage]) for damage in DAMAGES if damage not in left_out]


def removing_altered(command: Callable[[], T]) -> T:
    """Repeat a command as its errors say: after removing the altered file that each of them names."""
    for _ in range(3):
        try:
            return command()
        except (InputError, RunFailed) as error:
            named = re.search("'([^']*)' was altered.*\nremove that file, then rerun the command", str(error))
            if named is None:
                raise
            Path(named[1]).unlink()
    return command()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", damages())
def test_damaged_signatures_are_made_again(
    damage: Damage, name: str, clean_build: Path, documents: PartSet, run: Run, tmp_path: Path
) -> None:
    out = shutil.copytree(clean_build, tmp_path / "out")
    (out / WORK / RESULT).unlink()  # so that signatures are needed
    damage(out / WORK / "signatures" / name, out)
    shutil.rmtree(out / "corpus")
    shutil.rmtree(out / "dropped")
    removing_altered(lambda: dedup_documents([documents.folder.url], str(out), SETTINGS, run))
    assert contents(out / "corpus") == contents(clean_build / "corpus")
    assert contents(out / "dropped") == contents(clean_build / "dropped")
    made, expected = (PartSet.open(str(folder / WORK / "signatures")) for folder in (out, clean_build))
    made.verify()
    assert made.hash == expected.hash


@pytest.mark.parametrize("name", [RESULT, "duplicates/part-00000.parquet", "duplicates/manifest.json"])
@pytest.mark.parametrize("damage", damages(swapped_with_another_part))
def test_a_damaged_result_is_made_again(
    damage: Damage, name: str, clean_build: Path, documents: PartSet, run: Run, tmp_path: Path
) -> None:
    out = shutil.copytree(clean_build, tmp_path / "out")
    damage(out / WORK / name, out)
    removing_altered(lambda: dedup_documents([documents.folder.url], str(out), SETTINGS, run))
    assert contents(out / "corpus") == contents(clean_build / "corpus")
    assert contents(out / "dropped") == contents(clean_build / "dropped")


def test_a_result_with_another_number_in_it_is_made_again(
    clean_build: Path, documents: PartSet, run: Run, tmp_path: Path
) -> None:
    work = shutil.copytree(clean_build / WORK, tmp_path / "work")
    find_duplicates(documents, SETTINGS, Folder(work), run)
    stored = json.loads((work / RESULT).read_text())
    for name, value in {"threshold": 0.5, "rows": stored["rows"][::-1]}.items():
        (work / RESULT).write_text(json.dumps(stored | {name: value}))
        found = find_duplicates(documents, SETTINGS, Folder(work), run)
        assert (found.threshold, found.rows.hash) == (stored["threshold"], stored["rows"])


def test_leftovers_of_a_killed_run_among_exchanges_are_not_read(
    clean_build: Path, documents: PartSet, run: Run, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    for name in ("texts/part-00000.exchange", "texts/_parts/00000.json", "bands/.part-00001.exchange.7.tmp",
                 "edges/manifest.json", "members/part-00002.parquet", "settled/part-00000.exchange"):  # fmt: skip
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(1).randbytes(4096))
    found = find_duplicates(documents, SETTINGS, Folder(work), run)
    assert by_id(documents, found) == by_id(
        documents, find_duplicates(documents, SETTINGS, Folder(clean_build / WORK), run)
    )
    assert sorted(path.name for path in work.iterdir()) == ["duplicates", RESULT, "signatures"]


class Damaging:
    """An engine that damages a file after its map."""

    def __init__(self, engine: LocalEngine, path: Path, damage: Damage) -> None:
        self._engine, self._path, self._damage = engine, path, damage
        self.workers = engine.workers

    def map(self, *arguments: Any, **options: Any) -> Any:
        failures = self._engine.map(*arguments, **options)
        if self._path.exists():
            self._damage(self._path, self._path)
        return failures


@pytest.mark.parametrize(
    "damage",
    [
        with_random_bytes,
        *damages(with_random_bytes, with_a_flipped_bit, swapped_with_another_part, left_by_other_settings),
    ],
)
def test_shingle_sets_that_change_while_dedup_runs_are_an_error_and_the_next_run_makes_them_again(
    damage: Damage, documents: PartSet, run: Run, tmp_path: Path
) -> None:
    work = Folder(tmp_path / "work")
    damaging: Any = Damaging(run.engine, work.local_path("members/part-00000.exchange"), damage)
    with pytest.raises((InputError, RunFailed), match=r"part-00000.exchange|1 of 3 parts failed"):
        find_duplicates(documents, SETTINGS, work, Run(damaging, run.console))
    found = removing_altered(lambda: find_duplicates(documents, SETTINGS, work, run))
    assert by_id(documents, found) == by_id(
        documents, find_duplicates(documents, SETTINGS, Folder(tmp_path / "other"), run)
    )
