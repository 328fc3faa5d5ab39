"""The tables of the documents are those of the code."""

from __future__ import annotations

import runpy
from pathlib import Path

import pyarrow as pa

TABLES = runpy.run_path(str(Path(__file__).resolve().parents[2] / ".ci/tables.py"))


def test_the_tables_of_all_pages_are_current() -> None:
    for path in TABLES["PAGES"]:
        assert TABLES["page"](path) == path.read_text("utf-8"), "write them again: .venv/bin/python .ci/tables.py"


def test_a_changed_table_is_written_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A\n\n<!-- columns tokens -->\n|column|\n|---|\n|`gone`|\n\nB | C\n")
    written = TABLES["page"](page)
    assert written.startswith("A\n\n<!-- columns tokens -->\n|column|type|meaning|\n|---|---|---|\n|`shard`|string|")
    assert "gone" not in written
    assert written.endswith("|row in that part|\n\nB | C\n")


def test_types_are_those_of_json_and_arrow() -> None:
    hints = {int: "integer", float | None: "number?", tuple[str, ...]: "list", dict[str, int]: "object"}
    assert {hint: TABLES["json_type"](hint) for hint in hints} == hints
    assert TABLES["arrow_type"](pa.field("posts", pa.list_(pa.int64()))) == "list of int64?"
