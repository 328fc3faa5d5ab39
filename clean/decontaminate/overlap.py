"""The overlap report of evaluation sets: Table 6 of Radford et al. (2019), overall and by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.clean.decontaminate.evaluation import Examples


def overlap_rows(
    overlap: Examples, in_documents: npt.NDArray[np.bool_], in_corpus: npt.NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Return for each set the share of its n-grams that occur in the documents, and in the kept documents.

    `in_documents` and `in_corpus` are masks over the distinct n-grams. An n-gram that occurs several times in a set is
    counted each time, as in the paper. `mean_example_ratio` is the mean over the examples that have an n-gram. A ratio
    is None if there are no n-grams.
    """
    sizes = np.diff(overlap.ends)
    rows = []
    for number, name in enumerate(overlap.names):
        mine = overlap.set_of == number
        row: dict[str, Any] = {
            "name": name,
            "examples": int(mine.sum()),
            "too_short": int((mine & (sizes == 0)).sum()),
            "ngrams": int(sizes[mine].sum()),
        }
        for prefix, mask in (("", in_documents), ("corpus_", in_corpus)):
            found = _by_example(overlap, mask)
            some = mine & (sizes > 0)
            row |= {
                f"{prefix}overlap_ratio": float(found[some].sum() / sizes[some].sum()) if some.any() else None,
                f"{prefix}mean_example_ratio": float((found[some] / sizes[some]).mean()) if some.any() else None,
            }
        rows.append(row)
    return rows


def shared_examples(shared: Examples, in_documents: npt.NDArray[np.bool_]) -> list[int]:
    """Return for each set how many of its examples share an n-gram with the documents."""
    found = _by_example(shared, in_documents) > 0
    return [int((found & (shared.set_of == number)).sum()) for number in range(len(shared.names))]


def overlap_table(report: Mapping[str, Any]) -> str:
    """Format the report as an aligned table, with percentages as in the paper."""
    n, longer = report["overlap_words"], report["shared_words"]
    head = ["evaluation set", "examples", f"{n}-grams", "in documents", "mean", "in corpus", "mean"]
    return aligned([[*head, f"examples sharing {longer}", "documents"], *map(_cells, report["sets"])])


def _cells(row: Mapping[str, Any]) -> list[str]:
    ratios = ("overlap_ratio", "mean_example_ratio", "corpus_overlap_ratio", "corpus_mean_example_ratio")
    counts = [f"{row[name]:,}" for name in ("examples", "ngrams", "shared_examples", "documents")]
    return [row["name"], *counts[:2], *(percent(row[name]) for name in ratios), *counts[2:]]


def percent(ratio: float | None) -> str:
    """Return a ratio as the tables show it."""
    return "-" if ratio is None else f"{ratio:.2%}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines as a table: the first column flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *cells[1:]]) for line, cells in zip(lines, padded, strict=True)
    )


def _by_example(examples: Examples, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return how many n-grams of each example are in the mask."""
    before = np.concatenate([[0], np.cumsum(mask[examples.numbers], dtype=np.int64)])
    return np.asarray(np.diff(before[examples.ends]))
