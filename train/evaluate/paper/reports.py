"""What `inspect grep` and `inspect memorized` found in a build, for table 1, table 6 and figure 5 of the GPT-2 paper."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webtext.train.evaluate.paper.published import OVERLAP, TABLE_6
from webtext.train.evaluate.paper.sets import GREP, MEMORIZED, SETS
from webtext.train.evaluate.texts import read_file

Answer = dict[str, Any]
OVERLAPS = {f"{OVERLAP}{task}": SETS[task] for task in (*TABLE_6, "lambada")}


def read_reports(found: Mapping[str, str]) -> dict[str, Answer]:
    """Return an answer per task, from the reports in `found` (name -> path): missing, or an error if one is damaged."""
    return _read(found, GREP, ["grep"], _grep) | _read(found, MEMORIZED, ["memorized", *OVERLAPS], _memorized)


def _read(
    found: Mapping[str, str],
    name: str,
    tasks: Sequence[str],
    answers_of: Callable[[bytes, Mapping[str, str]], dict[str, Answer]],
) -> dict[str, Answer]:
    if name not in found:
        return dict.fromkeys(tasks, {"missing": name})
    try:
        return answers_of(read_file(found[name]), found)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        wrong = f"'{found[name]}' is not what `inspect {name.partition('.')[0]}` writes: {error!r}"
        return dict.fromkeys(tasks, {"error": wrong})


def _grep(data: bytes, _: Mapping[str, str]) -> dict[str, Answer]:
    """Read a line of `inspect grep --json` per pattern; "shown" has the documents with one."""
    rows = [json.loads(line) for line in data.splitlines()]
    counts = [
        result(f"occurrences of {row['pattern']}", f"in {row['documents']:,} documents", 1, int(row["occurrences"]))
        for row in rows
    ]
    shown = [
        {"pattern": str(row["pattern"]), **{name: str(each[name]) for name in ("id", "karma", "context")}}
        for row in rows
        for each in row["shown"]
    ]
    return {"grep": {"results": counts, "shown": shown}}


def _memorized(data: bytes, found: Mapping[str, str]) -> dict[str, Answer]:
    """Read figure 5, and table 6 of the sets whose files have the hashes in the report."""
    report = json.loads(data)
    curves = {"held-out texts": report["held_out"], "samples": report["generated"]}
    results = [
        result(f"{measure}, {who}", "text", int(curve["texts"]), curve[measure] and float(curve[measure]))
        for measure in ("median", "without")
        for who, curve in curves.items()
    ]
    shares = {who: [float(share) for share in curve["shares"]] for who, curve in curves.items()}
    if not all(0 <= share <= 1 for curve in shares.values() for share in curve):
        raise ValueError("a share is not from 0 to 1")
    answers: dict[str, Answer] = {"memorized": {"results": results, "shares": shares}}
    by_hash = {
        row["sha256"]: result("8-grams", "8-gram", int(row["ngrams"]), float(row["overlap_ratio"]))
        for row in report["sets"]
    }
    for task, name in OVERLAPS.items():
        row = by_hash.get(hashlib.sha256(read_file(found[name])).hexdigest()) if name in found else None
        lacks = f"{name} in {MEMORIZED}" if name in found else name
        answers[task] = {"results": [row]} if row else {"missing": lacks}
    return answers


def result(measure: str, unit: str, units: int, value: float | None) -> Answer:
    """Return a row of results as in `evaluate_task`."""
    return {"measure": measure, "unit": unit, "units": units, "value": value}
