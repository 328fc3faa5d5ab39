"""Make a build's report as one JSON value: the funnel by stage and reason, alarms, samples, the loss curve.

Everything is read from manifests, parts and `metrics.jsonl`; nothing is measured here, and sets are streamed.
`app/reports/report_html.py` draws it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from webtext.app.chain import BuildLayout
from webtext.app.inspect.trace import Tracer, find_rows, thresholds_of
from webtext.app.inspect.trace_text import trace_text
from webtext.app.reports.report_charts import CURVES, curve
from webtext.app.reports.report_html import report_page
from webtext.app.reports.signals import histograms, moved_rules
from webtext.base.errors import InputError
from webtext.base.html_pages.charts import thinned
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import RUN, PartSet, RunFacts
from webtext.base.parts.schemas import DECISION
from webtext.base.storage import Folder, strict_json
from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.clean.dedup.losses import known_losses
from webtext.train.metrics import METRICS, read_metrics

UNITS = {"links": "posts", "pages": "links", "documents": "pages", "corpus": "documents", "tokens": "documents"}
"""Stage -> unit of its funnel."""

ALARM_RATIO = 0.2
"""A reason or duplicate cluster that drops more than this share of the documents is an alarm."""

SAMPLES_PER_REASON = 20
KEPT_SAMPLES = 12
CLUSTERS = 10
CLUSTER_MEMBERS = 5
TOP_DOMAINS = 20
FAILURES_NAMED = 200
CURVE_POINTS = 400

KARMA_BOUNDS = [1, 2, 3, *(step * 10**power for power in range(5) for step in (5, 10, 20))]
"""Lower bounds of the bins of karma; 3 is the paper's rule."""


def make_report(root: str) -> dict[str, Any]:
    """Return the report of the build in `root`; stages that haven't run are left out.

    Samples are the records with the smallest ids. Ids are hashes, so the choice is random but repeatable.
    """
    layout = BuildLayout.existing(root)
    sets = {name: found for name in UNITS if (found := layout.open(name))}
    corpus, dropped = sets.get("corpus"), layout.open("dropped")
    signals = layout.open("signals")
    reasons, clusters, sizes, domains = _dropped(dropped, corpus)
    _trace_samples(root, reasons)
    (words, *others), n_characters = histograms(signals, dropped, thresholds_of(corpus))
    return {
        "title": Path(root).resolve().name,
        "stages": [_stage(name, opened) for name, opened in sets.items()],
        "alarms": [*_alarms(sets, clusters), *_losses(root, dropped)],
        "sample": sets["pages"].recipe["settings"].get("sample") if "pages" in sets else None,
        "dropped": reasons,
        "dropped_domains": domains,
        "clusters": clusters,
        "cluster_sizes": sizes,
        "failures": list(itertools.islice(_failures(sets), FAILURES_NAMED)),
        "n_failures": sum(sum(opened.counts.failed.values()) for opened in sets.values()),
        "corpus": _corpus(corpus),
        "lengths": words and words | {"kept_characters": n_characters},
        "histograms": others,
        "rules": moved_rules(signals, corpus, dropped),
        "tokens": _tokens(sets.get("tokens"), n_characters),
        "training": _training(Folder(layout.model)),
        "paper": _paper(Folder(layout.model)),
    }


class _Drawn(msgspec.Struct):
    """The figures of evaluation.json that are drawn."""

    perplexity: Annotated[float, msgspec.Meta(gt=0)] | None = None
    sample: str = ""


class _Measure(msgspec.Struct):
    measure: str
    value: float | None = None


class _TaskEvaluation(msgspec.Struct):
    """The figures of evaluation-TASK.json that are shown."""

    task: str
    results: list[_Measure] = []
    paper: dict[str, dict[str, float]] = {}


EVALUATION = "evaluation.json"
_REMEDY = "rerun the command that wrote it, or remove the file"


def write_report(root: str) -> str:
    """Write `report.json` and `report.html` into the build's folder; return the page's path."""
    report = make_report(root)
    folder = Folder(root)
    data = strict_json(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    folder.write_bytes("report.json", data.encode(errors="backslashreplace"))  # half a pair is JSON's escape, too
    folder.write_bytes("report.html", report_page(report).encode())
    return folder.location("report.html")


def _stage(name: str, opened: PartSet) -> dict[str, Any]:
    run = opened.folder.read_json(RUN, RunFacts, _REMEDY) if opened.folder.exists(RUN) else RunFacts()
    return {
        "name": name,
        "unit": UNITS[name],
        "counts": opened.counts.to_json(),
        "records": opened.records,
        "parts": len(opened.parts),
        "bytes": sum(part.bytes + sum(a.bytes for a in part.attachments) for part in opened.parts),
        "generation": opened.manifest["generation"],
        "reproducible": opened.manifest.get("reproducible", True),
        "recipe": opened.recipe,
        **{name: getattr(run, name) for name in ("seconds", "cpu_seconds", "peak_bytes")},
    }


def _alarms(sets: Mapping[str, PartSet], clusters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the reasons after fetching, and the clusters, that drop more than ALARM_RATIO of the stage's input."""
    found: list[dict[str, Any]] = []
    for name in ("documents", "corpus"):
        counts = sets[name].counts if name in sets else Counts()
        for reason, n in (counts.dropped | counts.failed).items():
            found.append({"stage": name, "reason": reason, "records": n, "ratio": n / counts.records_in})
    for cluster in clusters if "corpus" in sets else ():
        n = cluster["dropped"]
        ratio = n / sets["corpus"].counts.records_in
        found.append({"stage": "corpus", "cluster": cluster["id"], "records": n, "ratio": ratio})
    return [alarm for alarm in found if alarm["ratio"] > ALARM_RATIO]


def _losses(root: str, dropped: PartSet | None) -> Iterator[dict[str, Any]]:
    """Yield the domains and sources that dedup warned of."""
    known = known_losses(Folder(root))
    for each in known.get("losses", ()) if dropped and known.get("dropped") == dropped.hash else ():
        n, ratio = each["dropped"], each["dropped"] / each["compared"]
        yield {"stage": "corpus", each["of"]: each["name"], "records": n, "ratio": ratio}


def _rows(opened: PartSet, columns: list[str]) -> Iterator[dict[str, Any]]:
    for part in opened.parts:
        for batch in opened.batches(part, columns):
            yield from batch.to_pylist()


def _dropped(
    dropped: PartSet | None, corpus: PartSet | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[int, int]], list[tuple[str, int]]]:
    """Return counts and samples by reason, the largest clusters, clusters by size, and the domains that lost most."""
    domains: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    clusters: Counter[str] = Counter()
    for row in _rows(dropped, DECISION.names) if dropped else ():
        reason = (row["stage"], row["reason"])
        counts[reason] += 1
        domains[registrable_domain(canonical_url(row["url"] or "") or "") or "unknown"] += 1
        chosen = samples.setdefault(reason, [])
        chosen.append(row)
        if len(chosen) > 2 * SAMPLES_PER_REASON:
            chosen[:] = _smallest(chosen, SAMPLES_PER_REASON)
        if row["duplicate_of"]:
            clusters[row["duplicate_of"]] += 1
    reasons = [
        {"stage": stage, "reason": name, "records": n, "samples": _smallest(samples[stage, name], SAMPLES_PER_REASON)}
        for (stage, name), n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    sizes = Counter(1 << n.bit_length() for n in clusters.values())  # with the kept one: at most the next power of two
    return reasons, _clusters(clusters, dropped, corpus), sorted(sizes.items()), _most(domains)


def _trace_samples(root: str, reasons: Sequence[Mapping[str, Any]]) -> None:
    """Add the path from the posts to the end to every sample whose document is known."""
    samples = [row for reason in reasons for row in reason["samples"]]
    try:
        traces = Tracer(root).trace_documents({row["id"] for row in samples}) if samples else {}
    except InputError:  # a set of another version, or one that is being written: the rest of the report stands
        traces = {}
    for row in samples:
        row["trace"] = trace_text(traces[row["id"]]) if row["id"] in traces else None


def _clusters(sizes: Counter[str], dropped: PartSet | None, corpus: PartSet | None) -> list[dict[str, Any]]:
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:CLUSTERS]
    wanted = [identifier for identifier, _ in largest]
    kept = {row["id"]: row for row in find_rows(corpus, "id", wanted, ["id", "url", "karma", "text"])}
    members: dict[str, list[dict[str, Any]]] = {}
    for row in find_rows(dropped, "duplicate_of", wanted):
        some = members.setdefault(row["duplicate_of"], [])
        if len(some) < CLUSTER_MEMBERS:
            some.append({key: row[key] for key in ("id", "url", "reason", "value", "text_start")})
    return [
        {"id": identifier, "dropped": n, "kept": kept.get(identifier), "members": members[identifier]}
        for identifier, n in largest
    ]


def _smallest(rows: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    return heapq.nsmallest(n, rows, key=lambda row: row["id"])


def _failures(sets: Mapping[str, PartSet]) -> Iterator[dict[str, Any]]:
    for name, opened in sets.items():
        for failure in opened.failures():
            yield {"stage": name, "id": failure.id, "reason": failure.reason, "cause": failure.cause}


def _corpus(opened: PartSet | None) -> dict[str, Any] | None:
    if opened is None:
        return None
    domains: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    karma: Counter[int] = Counter()
    years: Counter[int] = Counter()
    both: Counter[tuple[int, int]] = Counter()
    chosen: list[dict[str, Any]] = []
    for row in _rows(opened, ["id", "domain", "split", "karma", "posts"]):
        domains[row["domain"] or "unknown"] += 1
        splits[row["split"]] += 1
        bound = None if row["karma"] is None else max(b for b in (0, *KARMA_BOUNDS) if b <= max(row["karma"], 0))
        year = min((_year(post["created"]) for post in row["posts"]), default=None)
        if bound is not None:
            karma[bound] += 1
        if year is not None:
            years[year] += 1
        if bound is not None and year is not None:
            both[year, bound] += 1
        chosen.append(row)
        if len(chosen) > 2 * KEPT_SAMPLES:
            chosen = _smallest(chosen, KEPT_SAMPLES)
    wanted = [row["id"] for row in _smallest(chosen, KEPT_SAMPLES)]
    columns = ["id", "url", "title", "domain", "karma", "split", "text", "link_ids"]
    return {
        "documents": opened.records,
        "splits": dict(sorted(splits.items())),
        "domains": _most(domains),
        "n_domains": len(domains),
        "karma": sorted(karma.items()),
        "years": sorted(years.items()),
        "karma_by_year": [[year, bound, n] for (year, bound), n in sorted(both.items())],
        "samples": list(find_rows(opened, "id", wanted, columns)),
    }


def _tokens(opened: PartSet | None, n_characters: int) -> dict[str, Any] | None:
    if opened is None:
        return None
    tokens: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for row in _rows(opened, ["shard", "length"]):
        split = row["shard"].partition("-")[0]
        tokens[split] += row["length"]
        documents[split] += 1
    n_tokens, n_documents = sum(tokens.values()), sum(documents.values())
    vocab_size = opened.recipe["settings"].get("vocab_size")
    text_tokens = n_tokens - n_documents  # each document opens with <|endoftext|>
    return {
        "tokens": dict(tokens),
        "documents": dict(documents),
        "vocab_size": vocab_size if isinstance(vocab_size, int) else None,
        "characters_per_token": n_characters / text_tokens if n_characters and text_tokens else None,
        "tokens_per_document": text_tokens / n_documents if n_documents else None,
    }


def _training(model: Folder) -> dict[str, Any] | None:
    if not model.exists(METRICS):
        return None
    rows = read_metrics(model, _REMEDY)
    evaluation = None
    if model.exists(EVALUATION):
        model.read_json(EVALUATION, _Drawn, _REMEDY)  # what is drawn has the right types
        evaluation = model.read_object(EVALUATION, _REMEDY)
    return {
        "training_loss": thinned(curve(rows, "loss"), CURVE_POINTS),
        "validation_loss": curve(rows, "validation_loss"),
        "curves": {name: thinned(points, CURVE_POINTS) for name in CURVES if (points := curve(rows, name))},
        "evaluation": evaluation,
    }


def _paper(model: Folder) -> list[dict[str, Any]]:
    """Return the measures that `train eval --out` wrote beside the paper's values of them."""
    rows = []
    for name in model.names(".json"):
        if name.startswith("evaluation-"):
            found = model.read_json(name, _TaskEvaluation, _REMEDY)
            ours = {row.measure: row.value for row in reversed(found.results)}  # the first unit's
            rows += [
                {"task": found.task, "measure": measure, "paper": paper, "ours": ours[measure]}
                for measure, paper in found.paper.items()
                if ours.get(measure) is not None
            ]
    return rows


def _most(domains: Counter[str]) -> list[tuple[str, int]]:
    return sorted(domains.items(), key=lambda item: (-item[1], item[0]))[:TOP_DOMAINS]


def _year(seconds: int) -> int:
    """Return the year of a time in UTC seconds, from 1970 to 2106: absurd times must not make a row each."""
    return int(np.datetime64(min(max(seconds, 0), 2**32), "s").astype("datetime64[Y]").astype(int)) + 1970
