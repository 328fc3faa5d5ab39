"""Trains the vote score: voted texts against background texts, judged on domains that it hasn't seen.

Equal texts count once, and those of both sides as voted. At most `per_domain` texts of a domain and `most` of a side are
taken: those with the smallest digests. Domains are divided into FOLDS by their hash, and a model of the others scores each
fold. Platt's sigmoid (1999) makes probabilities of these sums, and is judged on the folds in the same way; both sides weigh
the same. The model that is written is of all texts. BLAS has one thread, because its last digits depend on their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from threadpoolctl import threadpool_limits

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.clean.score.model import ScoreModel, features, write_model

SIDES = ("background", "voted")
BITS, FOLDS, C, MAX_STEPS, UNBOUND, N_RESAMPLES = 18, 5, 10.0, 1000, 1e9, 1000
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)

Array = npt.NDArray[Any]


def train_score(
    voted: Sequence[PartSet], background: Sequence[PartSet], out: str, *, per_domain: int, most: int
) -> ScoreModel:
    """Train a model on documents sets and write it to `out`; raises InputError if a side has too few texts or domains."""
    given = (background, voted)
    sides = [_chosen(sets, per_domain) for sets in given]
    in_both = sides[0].keys() & sides[1].keys()
    sides[0] = {digest: domain for digest, domain in sides[0].items() if digest not in in_both}
    chosen = {digest: (domain, i == 1) for i in (0, 1) for digest, domain in sorted(sides[i].items())[:most]}
    found = {digest: each for digest, each in _features([*background, *voted], chosen.keys()) if len(each)}
    domains = np.array([chosen[digest][0] for digest in sorted(found)], np.uint64)
    is_voted = np.array([chosen[digest][1] for digest in sorted(found)], bool)
    _check(domains, is_voted, len(in_both))
    rows = [found.pop(digest) for digest in sorted(found)]
    n = np.array([len(each) for each in rows])
    every, seen = np.concatenate(rows), np.zeros(1 << BITS, bool)
    seen[every] = True
    columns = (np.cumsum(seen, dtype=np.int32) - 1)[every]
    matrix = csr_matrix((np.repeat(1 / np.sqrt(n), n), columns, np.cumsum([0, *n])))
    folds = PredefinedSplit(domains % FOLDS)
    model = LogisticRegression(C=C, class_weight="balanced", max_iter=MAX_STEPS)
    platt = LogisticRegression(C=UNBOUND, class_weight="balanced")
    with threadpool_limits(1):
        sums = cross_val_predict(model, matrix, is_voted, cv=folds, method="decision_function")[:, None]
        scores = cross_val_predict(platt, sums, is_voted, cv=folds, method="predict_proba")[:, 1]
        model.fit(matrix, is_voted)
        slope = platt.fit(sums, is_voted).coef_[0, 0]
    offset = platt.intercept_[0] + slope * model.intercept_[0]
    card: dict[str, Any] = {"in_both": len(in_both), "without_words": len(chosen) - len(n)}
    card |= {"per_domain": per_domain, "most": most} | _judged(scores, is_voted, domains)
    for name, sets, mine in zip(SIDES, given, (~is_voted, is_voted), strict=True):
        about = {"documents": sum(each.records for each in sets), "taken": int(mine.sum())}
        card[name] = about | {"domains": len(np.unique(domains[mine])), "sets": [each.hash for each in sets]}
    scale = float(np.abs(model.coef_).max()) / np.iinfo(np.int16).max or 1.0
    weights = np.zeros(1 << BITS, np.int16)
    weights[seen] = np.rint(model.coef_[0] / scale)
    return write_model(out, weights, {"factor": slope * scale, "offset": offset, "card": card})


def _chosen(sets: Sequence[PartSet], per_domain: int) -> dict[str, int]:
    """Return digest -> hashed domain of at most `per_domain` texts per domain; a text without a domain is one by itself."""
    texts: dict[str, set[str]] = {}
    for batch in _batches(sets, ["text_digest", "domain"]):
        for digest, domain in zip(batch["text_digest"].to_pylist(), batch["domain"].to_pylist(), strict=True):
            of_domain = texts.setdefault(domain or digest, set())
            of_domain.add(digest)
            if len(of_domain) > 2 * per_domain:  # not at each text, which would take quadratic time
                texts[domain] = set(nsmallest(per_domain, of_domain))
    hashes = {domain: int(hashlib.sha256(domain.encode()).hexdigest()[:16], 16) for domain in sorted(texts)}
    return {digest: hashed for domain, hashed in hashes.items() for digest in nsmallest(per_domain, texts[domain])}


def _features(sets: Sequence[PartSet], chosen: Any) -> Iterator[tuple[str, Array]]:
    """Yield digest and features of the chosen texts."""
    for batch in _batches(sets, ["text_digest", "text"]):
        rows = [(i, digest) for i, digest in enumerate(batch["text_digest"].to_pylist()) if digest in chosen]
        every, ends = features(batch["text"].take(pa.array([i for i, _ in rows], pa.int64())), BITS)
        yield from ((digest, every[ends[i] : ends[i + 1]].copy()) for i, (_, digest) in enumerate(rows))


def _batches(sets: Sequence[PartSet], columns: list[str]) -> Iterator[pa.RecordBatch]:
    return (batch for each in sets for part in range(len(each.parts)) for batch in each.batches(part, columns))


def _check(domains: Array, is_voted: Array, n_both: int) -> None:
    """Raise InputError unless both sides have texts in two folds or more."""
    for name, of_side in zip(SIDES, (domains[~is_voted], domains[is_voted]), strict=True):
        if len(np.unique(of_side % FOLDS)) < 2:
            why = f"have texts of {len(np.unique(of_side))} domains" if len(of_side) else "have no texts with words"
            besides = f" beside the {n_both:,} that are voted, too" if n_both and name == SIDES[0] else ""
            raise InputError(f"the {name} pages {why}{besides}", "name more: scores are judged on unseen domains")


def _judged(scores: Array, is_voted: Array, domains: Array) -> dict[str, Any]:
    """Return the card's figures on held-out domains."""
    names, of = np.unique(domains, return_inverse=True)
    chance, areas = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        times = np.bincount(chance.integers(0, len(names), len(names)), minlength=len(names))[of]
        if len(np.unique(is_voted[times > 0])) == 2:
            areas.append(roc_auc_score(is_voted, scores, sample_weight=times))
    weights = np.where(is_voted, 0.5 / is_voted.sum(), 0.5 / (~is_voted).sum())
    bins = np.minimum((scores * 10).astype(int), 9)
    n, predicted, observed = (np.bincount(bins, weights * each, 10) for each in (1.0, scores, is_voted))
    means = {}
    for name, mine in zip(SIDES, (~is_voted, is_voted), strict=True):
        sizes = np.bincount(of[mine], minlength=len(names))
        totals = np.bincount(of[mine], scores[mine], len(names))
        means[name] = _rounded(np.quantile(totals[sizes > 0] / sizes[sizes > 0], LEVELS))
    return {
        "auc": _rounded(roc_auc_score(is_voted, scores)),
        "auc_interval": _rounded(np.quantile(areas, [0.025, 0.975])),
        "calibration_error": _rounded(np.abs(predicted - observed).sum()),
        "reliability": _rounded(np.stack([n, predicted, observed], axis=1)[n > 0] / n[n > 0, None] ** [0, 1, 1]),
        "domain_means": means,
        "curve": [_rounded([x, *((scores[is_voted == i] >= x).mean() for i in (1, 0))]) for x in np.arange(1, 10) / 10],
    }


def _rounded(values: Any) -> Any:
    return np.round(values, 4).tolist()
