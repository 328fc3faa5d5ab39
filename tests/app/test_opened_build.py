"""A finished build in Python: its sets as pyarrow datasets, which other libraries read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import polars
import pytest

import webtext
from webtext.app.opened_build import SETS, Build
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import with_check
from webtext.base.parts.schemas import SCHEMAS

from .conftest import write_set


@pytest.fixture
def build(written_build: Path) -> Build:
    opened: Build = webtext.open(str(written_build))
    return opened


@pytest.mark.parametrize("name", SETS)
def test_every_library_gets_the_same_records_in_the_same_order(build: Build, name: str) -> None:
    records = getattr(build, name)
    opened = PartSet.open(f"{build.folder}/{name}")
    assert records.schema == SCHEMAS[name]
    assert records.count_rows() == opened.records > 0
    column = "url" if name in ("links", "pages") else "id"
    expected = [each for part in opened.parts for each in opened.table(part, [column])[column].to_pylist()]
    assert records.to_table([column])[column].to_pylist() == expected
    assert duckdb.sql(f"SELECT {column} FROM records").fetchall() == [(each,) for each in expected]
    assert polars.scan_pyarrow_dataset(records).select(column).collect()[column].to_list() == expected


def test_the_example_in_the_readme_runs(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[2] / "app/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(Path(build.folder).parent)
    exec(code, {})


def test_a_set_without_parts_has_its_columns(build: Build, tmp_path: Path) -> None:
    shutil.copytree(build.folder, tmp_path / "empty")
    manifest = tmp_path / "empty/links/manifest.json"
    value = json.loads(manifest.read_text()) | {"parts": []}
    del value["check"]
    manifest.write_text(json.dumps(with_check(value)))
    links = webtext.open(str(tmp_path / "empty")).links
    assert links.schema.names == SCHEMAS["links"].names
    assert links.count_rows() == 0


def test_signals_have_the_vote_score_of_a_build_that_has_it(tmp_path: Path) -> None:
    write_set(tmp_path / "signals", "signals", [[{"id": "a", "vote_score": 0.5}], [{"id": "b", "vote_score": None}]])
    assert webtext.open(str(tmp_path)).signals.to_table(["vote_score"])["vote_score"].to_pylist() == [0.5, None]


def test_a_folder_that_is_no_build_and_a_set_not_made_yet_say_so(only_links: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no build in"):
        webtext.open(str(tmp_path))
    write_set(tmp_path / "pages", "pages", [[]])  # all that a sample has while its pages are fetched
    assert webtext.open(str(tmp_path)).pages.count_rows() == 0
    build = webtext.open(str(only_links))
    with pytest.raises(InputError, match="part set .* doesn't exist"):
        _ = build.corpus
    with pytest.raises(AttributeError, match="a build has no 'model', but links, pages"):
        _ = build.model
    assert set(SETS) < set(dir(build))


def test_an_altered_part_is_refused(build: Build, tmp_path: Path) -> None:
    shutil.copytree(build.folder, tmp_path / "build")
    part = tmp_path / "build/documents/part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(InputError, match="was altered"):
        _ = webtext.open(str(tmp_path / "build")).documents
