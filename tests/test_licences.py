"""docs/licences.md is what the packages' metadata says."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_table_of_licences_is_that_of_the_installed_packages() -> None:
    page = runpy.run_path(str(ROOT / ".ci" / "licences.py"))["page"]()
    stored = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    assert page == stored, "print it again: .venv/bin/python .ci/licences.py > docs/licences.md"
