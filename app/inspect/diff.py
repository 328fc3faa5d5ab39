"""Compare two builds: recipes, and documents lost and gained by reason.

The result is one JSON value, which `diff_text.py` prints. Only scratch files are written, and they are removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from webtext.app.chain import Layout
from webtext.app.inspect.diff_documents import Compared, Left, compare_documents
from webtext.app.inspect.diff_recipes import SETS, Built, changed_settings
from webtext.app.inspect.lookup import find_rows
from webtext.app.inspect.stale import stale_in
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet

SHOWN_OF_CORPUS = ["id", "url", "title", "domain", "karma", "text"]
SHOWN_OF_DECISION = ["id", "value", "threshold", "duplicate_of"]
REMOVED = "remove"
"""Stage of documents removed on request: their text is not shown, although the older build still has it."""


def make_diff(a: str, b: str) -> dict[str, Any]:
    """Return what changed from the build in folder `a` to the one in `b`. InputError when a folder has no build."""
    built = (Built.open(a), Built.open(b))
    for each in built:
        if not each.sets:
            raise InputError(f"there is no build in '{each.root}'", "name the folder that `webtext build` wrote")
    settings = changed_settings(*built)
    stages = list(_stages(*built))
    documents = None
    if all("corpus" in each.sets for each in built):
        with tempfile.TemporaryDirectory(prefix="webtext-diff-") as scratch:
            documents = _documents(*built, compare_documents(*built, Path(scratch)))
    return {
        "a": a,
        "b": b,
        "equal": not settings and all(stage["same_records"] for stage in stages),
        "missing": {side: each.missing for side, each in zip("ab", built, strict=True)},
        "stale": {side: stale_in(Layout(each.root)) for side, each in zip("ab", built, strict=True)},
        "stages": stages,
        "settings": settings,
        "documents": documents,
    }


def _stages(a: Built, b: Built) -> Iterator[dict[str, Any]]:
    """Yield each set's number of records in both builds, and whether the records are identical."""
    for name in SETS:
        if name in a.sets or name in b.sets:
            sets = [each.sets.get(name) for each in (a, b)]
            records = [None if each is None else each.records for each in sets]
            digests = [None if each is None else [part.record_digest for part in each.parts] for each in sets]
            yield {"name": name, "a": records[0], "b": records[1], "same_records": digests[0] == digests[1]}


def _documents(a: Built, b: Built, found: Compared) -> dict[str, Any]:
    return {
        "kept_a": a.sets["corpus"].records,
        "kept_b": b.sets["corpus"].records,
        "common": found.common,
        "fetched_again": found.fetched_again,
        "text_changed": found.text_changed,
        "lost": _left(found.lost, a, b),
        "gained": _left(found.gained, b, a),
    }


def _left(left: Left, here: Built, there: Built) -> dict[str, Any]:
    """Return the documents that `here` keeps and `there` doesn't, by reason."""
    reasons = sorted(left.reasons.items(), key=lambda item: (-item[1], item[0]))
    wanted = [identifier for _, identifier, _, _ in left.samples]
    rows = _by_id(here.sets["corpus"], wanted, SHOWN_OF_CORPUS)
    decisions = _by_id(there.sets.get("dropped"), wanted, SHOWN_OF_DECISION)
    samples = []
    for _, identifier, stage, reason in left.samples:
        sample = {"stage": stage, "reason": reason} | decisions.get(identifier, {}) | rows[identifier]
        samples.append(sample | ({"text_start": None, "title": None} if stage == REMOVED else {}))
    return {
        "documents": left.n,
        "reasons": [{"stage": stage, "reason": reason, "documents": n} for (stage, reason), n in reasons],
        "samples": samples,
    }


def _by_id(opened: PartSet | None, wanted: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in find_rows(opened, "id", wanted, columns)}
