"""docs/SECURITY.md states the limits that the code has."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "SECURITY.md"
ROW = re.compile(r"\| (\d+)(?: (KiB|MiB))? \| `([\w/]+)\.py` `(\w+)` \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("value", "unit", "module", "name"), ROWS)
def test_a_limit_is_the_one_in_the_code(value: str, unit: str, module: str, name: str) -> None:
    stated = int(value) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    assert getattr(importlib.import_module(f"webtext.{module.replace('/', '.')}"), name) == stated


def test_every_row_of_the_table_names_a_limit_in_the_code() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(ROWS) == len(rows) - 2
