"""The table that `train eval` prints for an evaluation set: our values and the paper's, each with what it depends on.

Each row has its measure, unit, stride, context and de-tokenizer, so that values that can't be compared don't look
alike. The paper publishes few of these; its rows say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

OVERLAPS = ("overlap_ratio", "corpus_overlap_ratio")
COLUMNS = ("whose", "measure", "value", "unit", "units", "stride", "context", "de-tokenizer")
NUMBERS = ("value", "units", "stride", "context")
PAPER_CONTEXT = 1024
NONE, UNPUBLISHED = "-", "unpublished"


def task_text(answer: Mapping[str, Any]) -> str:
    """Format the results of `evaluate_task`; each measure's rows are ours, then the paper's."""
    part = answer["part"]
    if answer.get("scored_ratio", 1) < 1:
        part += f", {answer['scored_ratio']:.2%} of its tokens scored"
    if "shots" in answer:
        part += f", {answer['shots']} examples before each, {answer['contexts_cut']:,} contexts cut"
    tokenizer = f"tokenizer {answer['tokenizer_hash'][:8]} of {answer['vocab_size']:,}"
    paper: Mapping[str, Mapping[str, float]] = answer.get("paper", {})
    rows: list[Sequence[str]] = [COLUMNS]
    for measure in dict.fromkeys(row["measure"] for row in answer["results"]):
        rows += [_our_row(answer, row) for row in answer["results"] if row["measure"] == measure]
        rows += [_paper_row(answer, measure, size, value) for size, value in paper.get(measure, {}).items()]
    notes = [_overlap_text(answer), "compare only rows of equal unit, stride, context and de-tokenizer"]
    if any(row["unit"] == "token" for row in answer["results"]):
        notes[-1] += "; per token, of one tokenizer too"
    return "\n".join([f"{answer['task']} ({part}), {tokenizer}", *_aligned(rows), *notes])


def _our_row(answer: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, ...]:
    stride = f"{answer['stride']:,}" if "stride" in answer else NONE
    value = _shown(row["measure"], math.inf if row["value"] is None else row["value"])
    context, form = f"{answer['context']:,}", answer["detokenizer"] or "none"
    return ("this model", row["measure"], value, row["unit"], f"{row['units']:,}", stride, context, form)


def _paper_row(answer: Mapping[str, Any], measure: str, size: str, value: float) -> tuple[str, ...]:
    """Format a value of the paper, whose table names the unit only of bits and of choices."""
    units = {row["unit"] for row in answer["results"] if row["measure"] == measure}
    unit = units.pop() if units in ({"byte"}, {"character"}, {"choice"}) else UNPUBLISHED
    stride = UNPUBLISHED if "stride" in answer else NONE
    who = f"paper's {size}"
    return (who, measure, _shown(measure, value), unit, NONE, stride, f"{PAPER_CONTEXT:,}", UNPUBLISHED)


def _shown(measure: str, value: float) -> str:
    return f"{value:.2%}" if measure.startswith("accuracy") else f"{value:,.3f}"


def _overlap_text(answer: Mapping[str, Any]) -> str:
    if "overlap" not in answer:
        return "contamination: not measured (--overlap FILE)"
    row = answer["overlap"]
    before, after = (NONE if row[name] is None else f"{row[name]:.2%}" for name in OVERLAPS)
    return f"contamination: {row['overlap_words']}-grams that are in the documents: {before}, in the corpus: {after}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in NUMBERS else "<" for name in COLUMNS]
    return [
        "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]
