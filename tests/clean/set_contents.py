"""Files of records for a run, and what it made: rows, or the bytes that every run must reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from webtext.base.parts.partset import PartSet
from webtext.clean.language import LanguageSettings
from webtext.clean.rules.decide import verdicts
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.steps import Batch, Verdict


class Decided(Batch):
    def __init__(self, signals: pa.Table, rules: RuleSettings | None, language: LanguageSettings | None) -> None:
        super().__init__(signals)
        self.refuse(verdicts(signals, rules, language))

    def verdict(self, row: int) -> Verdict:
        return self.verdicts[self.refused_by[row]]

    def reason(self, row: int) -> str | None:
        return None if self.kept[row] else self.verdict(row).reason


def rows(records: PartSet) -> list[dict[str, Any]]:
    return [row for i in range(len(records.parts)) for row in records.table(i).to_pylist()]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "run.json" and "_dedup" not in p.relative_to(folder).parts
    }


def write_jsonl(path: Path, *records: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return str(path)
