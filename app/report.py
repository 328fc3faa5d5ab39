"""What a build did, as one JSON value: the funnel by stage and reason, samples of what was dropped, the loss curve.

Everything is read from manifests, parts and `metrics.jsonl`; nothing is measured here. `app/report_html.py` draws it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from webtext.app.chain import Layout
from webtext.base.errors import InputError
from webtext.base.partset import RUN, PartSet
from webtext.base.schemas import DECISION
from webtext.base.storage import Folder

STAGES = ("links", "pages", "documents", "corpus", "tokens")
SAMPLES_PER_REASON = 20
TOP_DOMAINS = 20
HISTOGRAM_BINS = 24
CURVE_POINTS = 400


def make_report(root: str) -> dict[str, Any]:
    """The report of the build in `root`; stages that have not run are left out."""
    layout = Layout(root)
    sets = {name: opened for name in STAGES if (opened := _open(getattr(layout, name), name)) is not None}
    if not sets:
        raise InputError(f"there is no build in '{root}'", "name the folder that `webtext build` wrote")
    return {
        "title": Path(root).name,
        "stages": [_stage(name, opened) for name, opened in sets.items()],
        "dropped": _dropped(layout),
        "failures": _failures(sets),
        "corpus": _corpus(sets.get("corpus")),
        "tokens": _tokens(sets.get("tokens")),
        "training": _training(Path(layout.model)),
    }


def write_report(root: str) -> Path:
    """Write `report.json` and `report.html` into the build's folder; returns the path of the page."""
    from webtext.app.report_html import render

    report = make_report(root)
    folder = Folder(root)
    folder.write_bytes(
        "report.json", (json.dumps(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    )
    folder.write_bytes("report.html", render(report).encode())
    return folder.local_path("report.html")


def _open(url: str, kind: str) -> PartSet | None:
    return PartSet.open(url, kind) if Folder(url).exists("manifest.json") else None


def _stage(name: str, opened: PartSet) -> dict[str, Any]:
    run = json.loads(opened.folder.read_bytes(RUN)) if opened.folder.exists(RUN) else {}
    return {
        "name": name,
        "counts": opened.counts.to_json(),
        "records": opened.records,
        "parts": len(opened.parts),
        "bytes": sum(part.bytes + sum(a.bytes for a in part.attachments) for part in opened.parts),
        "generation": opened.manifest["generation"],
        "reproducible": opened.manifest["reproducible"],
        "recipe": opened.recipe,
        "seconds": run.get("seconds"),
    }


def _rows(opened: PartSet, columns: list[str]) -> Iterator[dict[str, Any]]:
    for part in opened.parts:
        for batch in opened.batches(part, columns):
            yield from batch.to_pylist()


def _dropped(layout: Layout) -> list[dict[str, Any]]:
    """Per reason: how many, and the first samples with value, threshold and the start of the text."""
    opened = _open(layout.dropped, "dropped")
    counts: Counter[tuple[str, str]] = Counter()
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(opened, DECISION.names) if opened else ():
        reason = (row["stage"], row["reason"])
        counts[reason] += 1
        if len(samples.setdefault(reason, [])) < SAMPLES_PER_REASON:
            samples[reason].append(row)
    return [
        {"stage": stage, "reason": reason, "records": n, "samples": samples[stage, reason]}
        for (stage, reason), n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _failures(sets: Mapping[str, PartSet]) -> list[dict[str, Any]]:
    return [
        {"stage": name, "id": failure.id, "reason": failure.reason, "cause": failure.cause}
        for name, opened in sets.items()
        for part in opened.parts
        for failure in part.failures
    ]


def _corpus(opened: PartSet | None) -> dict[str, Any] | None:
    if opened is None:
        return None
    domains: Counter[str] = Counter()
    lengths: list[int] = []
    samples: list[dict[str, Any]] = []
    splits: Counter[str] = Counter()
    for row in _rows(opened, ["id", "url", "domain", "karma", "split", "text", "link_ids"]):
        domains[row["domain"] or ""] += 1
        splits[row["split"]] += 1
        lengths.append(len(row["text"]))
        if len(samples) < SAMPLES_PER_REASON:
            samples.append(row | {"text": row["text"][:200], "characters": len(row["text"])})
    return {
        "documents": len(lengths),
        "characters": sum(lengths),
        "splits": dict(sorted(splits.items())),
        "domains": domains.most_common(TOP_DOMAINS),
        "length_histogram": _histogram(lengths),
        "samples": samples,
    }


def _histogram(lengths: list[int]) -> list[tuple[int, int]]:
    """(upper bound, documents) over doubling-by-half bounds, so that short and long documents both show."""
    bounds = [round(50 * 1.5**step) for step in range(HISTOGRAM_BINS)]
    counts = [0] * len(bounds)
    for length in lengths:
        counts[next((i for i, bound in enumerate(bounds) if length <= bound), len(bounds) - 1)] += 1
    return list(zip(bounds, counts, strict=True))


def _tokens(opened: PartSet | None) -> dict[str, Any] | None:
    if opened is None:
        return None
    tokens: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for row in _rows(opened, ["shard", "length"]):
        split = row["shard"].partition("-")[0]
        tokens[split] += row["length"]
        documents[split] += 1
    return {"tokens": dict(tokens), "documents": dict(documents)}


def _training(model: Path) -> dict[str, Any] | None:
    metrics = model / "metrics.jsonl"
    if not metrics.is_file():
        return None
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines() if line.strip()]
    evaluation = model / "evaluation.json"
    return {
        "training_loss": _thinned([(row["step"], row["loss"]) for row in rows if "loss" in row]),
        "validation_loss": [(row["step"], row["validation_loss"]) for row in rows if "validation_loss" in row],
        "evaluation": json.loads(evaluation.read_text(encoding="utf-8")) if evaluation.is_file() else None,
    }


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    stride = -(-len(points) // CURVE_POINTS) or 1
    return points[::stride]
