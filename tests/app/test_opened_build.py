"""A finished build in Python: sets as tables of other libraries, and why a record is or isn't in them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import webtext
from webtext.app.inspect.trace import Tracer
from webtext.app.inspect.trace_text import trace_text
from webtext.app.opened_build import Build
from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.parts.schemas import SCHEMAS

SETS = ("links", "pages", "documents", "corpus", "dropped", "tokens")


@pytest.fixture
def build(written_build: Path) -> Build:
    opened: Build = webtext.open(str(written_build))
    return opened


@pytest.mark.parametrize("name", SETS)
def test_every_library_gets_the_same_records_in_the_same_order(build: Build, name: str) -> None:
    records = getattr(build, name)
    table = records.to_arrow()
    assert len(records) == len(table) > 0
    assert table.schema == SCHEMAS[name]
    column = {"links": "url", "pages": "url"}.get(name, "id")
    expected = table.column(column).to_pylist()
    assert pa.Table.from_batches(records.batches()) == table
    assert records.to_pandas()[column].tolist() == expected
    assert records.to_polars()[column].to_list() == expected
    assert [row[0] for row in records.to_duckdb().project(column).fetchall()] == expected
    assert list(records.to_datasets()[column]) == expected


def test_the_example_in_the_readme_runs(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[2] / "app/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(Path(build.folder).parent)
    exec(code.replace("example.com", "kept.example").replace(":4096", ":40"), {})


def test_columns_are_chosen_by_name(build: Build) -> None:
    assert build.documents.to_arrow(["karma", "id"]).column_names == ["karma", "id"]
    assert build.documents.to_polars(["karma", "id"]).columns == ["karma", "id"]
    assert build.documents.to_datasets(["id"]).column_names == ["id"]


def test_a_relation_answers_more_than_one_query(build: Build) -> None:
    documents = build.documents.to_duckdb()
    for _ in range(2):
        assert documents.filter("split = 'validation'").count("*").fetchall() == [(1,)]


def test_a_set_without_parts_has_its_columns(build: Build, tmp_path: Path) -> None:
    shutil.copytree(build.folder, tmp_path / "empty")
    manifest = tmp_path / "empty/links/manifest.json"
    value = json.loads(manifest.read_text()) | {"parts": []}
    del value["check"]
    manifest.write_text(json.dumps(value))
    links = webtext.open(str(tmp_path / "empty")).links
    assert links.to_arrow(["url", "karma"]).schema.names == ["url", "karma"]
    assert links.to_duckdb().count("*").fetchall() == [(0,)]
    assert "0 records" in links._repr_html_()


def test_the_counts_are_those_of_the_manifest(build: Build) -> None:
    counts = build.links.counts
    assert (counts.records_in, counts.kept) == (12, 8)
    assert (counts.dropped, counts.failed) == ({"too_little_karma": 3}, {"invalid_json": 1})


def test_why_is_what_inspect_says(build: Build) -> None:
    for url in ("http://copy.example/", "http://deep.example/"):
        assert build.why(url) == Tracer(build.folder).find(url)
    with pytest.raises(InputError, match="no document 'nothing'"):
        build.why("nothing")


def test_a_token_is_traced_to_its_posts(build: Build) -> None:
    found = build.trace("train-00000.tok:4")
    assert (found.origin.offset, found.origin.token_in_document) == (4, 4)
    assert found.trace is not None
    assert {post["post_id"] for link in found.trace.links for post in link["posts"]} == {"p-kept", "p-moved"}
    with pytest.raises(ConfigError, match="SHARD:OFFSET"):
        build.trace("train-00000.tok")
    with pytest.raises(InputError, match="has no token"):
        build.trace("train-00000.tok:99999999")


def test_a_run_has_its_history_as_a_table(build: Build) -> None:
    history = build.model.history.to_arrow()
    assert len(history) == 1005
    assert history.column("validation_loss").drop_null().to_pylist()[0] == 5.6
    assert build.model.history.to_polars(["step", "loss"])["loss"].null_count() == 5
    assert build.model.evaluation["perplexity"] == 40.5


def test_notebooks_show_untrusted_text_as_text(build: Build) -> None:
    shown = [build, build.links, build.documents, build.dropped, build.why("http://kept.example/")]
    shown.append(build.trace("train-00000.tok:4"))
    pages = [each._repr_html_() for each in shown]
    assert "too_little_karma 3, invalid_json 1" in pages[0]
    assert "words that people voted for" in pages[2]
    assert trace_text(build.why("http://kept.example/")).split()[0] in pages[4]
    assert all("<script" not in page for page in pages)


def test_a_run_in_a_notebook_shows_its_losses_in_a_frame_of_its_own(build: Build, tmp_path: Path) -> None:
    shutil.copytree(build.folder, tmp_path / "build")
    metrics = tmp_path / "build/model/metrics.jsonl"
    metrics.write_text('{"step": 1, "tokens": 10, "loss": 5.0}\n{"step": 2, "tokens": 20, "loss": 4.0}\n')
    html = webtext.open(str(tmp_path / "build")).model._repr_html_()
    assert html.startswith("<iframe srcdoc=")
    assert "sandbox" in html
    assert "&lt;svg viewBox" in html
    assert html.count("<") == 2


def test_a_folder_that_is_no_build_and_a_set_not_made_yet_say_so(only_links: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no build in"):
        webtext.open(str(tmp_path))
    build = webtext.open(str(only_links))
    with pytest.raises(InputError, match="part set .* doesn't exist"):
        _ = build.corpus
    assert "links" in build._repr_html_()
    with pytest.raises(InputError, match=r"no metrics\.jsonl"):
        build.model.history.to_arrow()


def test_an_altered_part_is_refused_by_every_conversion(build: Build, tmp_path: Path) -> None:
    shutil.copytree(build.folder, tmp_path / "build")
    part = tmp_path / "build/documents/part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-9] + b"x" * 9)
    documents = webtext.open(str(tmp_path / "build")).documents
    for convert in (documents.to_arrow, documents.to_duckdb, documents.to_datasets):
        with pytest.raises(InputError, match="was altered"):
            convert()


def test_a_library_that_is_missing_is_named_with_its_command(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MachineError, match="pip install polars"):
        build.links.to_polars()
