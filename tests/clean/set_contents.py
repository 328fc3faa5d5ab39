"""The contents of a part set, or of a folder of sets: rows, or the bytes that every run must reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from webtext.base.parts.partset import PartSet


def rows(records: PartSet) -> list[dict[str, Any]]:
    return [row for i in range(len(records.parts)) for row in records.table(i).to_pylist()]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "run.json" and "_dedup" not in p.parts
    }
