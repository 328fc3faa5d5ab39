"""The GPT-2 paper's evaluation sets and values (Radford et al. 2019, Table 3 and sections 3.3 to 3.8), and the table beside ours.

LAMBADA's accuracies in Table 3 use a stop-word filter; section 3.3 has one value without it, for the largest model. The
paper's units, strides and de-tokenizers are not published, so its values are printed next to ours but are not a target:
the released 117M model has 29.9 per token and 37.4 per word on the same WikiText (huggingface/transformers#13761).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SIZES = ("117M", "345M", "762M", "1542M")
UNFILTERED, FILTERED = "accuracy, no stop-word filter", "accuracy, stop-word filter"
TABLE_3: Mapping[str, Mapping[str, tuple[float, float, float, float]]] = {
    "lambada": {"perplexity": (35.13, 15.60, 10.87, 8.63), FILTERED: (0.4599, 0.5548, 0.6012, 0.6324)},
    "cbt-cn": {"accuracy": (0.8765, 0.9235, 0.9345, 0.9330)},
    "cbt-ne": {"accuracy": (0.834, 0.871, 0.880, 0.8905)},
    "wikitext-2": {"perplexity": (29.41, 22.76, 19.93, 18.34)},
    "ptb": {"perplexity": (65.85, 47.33, 40.31, 35.76)},
    "enwik8": {"bits": (1.16, 1.01, 0.97, 0.93)},
    "text8": {"bits": (1.17, 1.06, 1.02, 0.98)},
    "wikitext-103": {"perplexity": (37.50, 26.37, 22.05, 17.48)},
    "1bw": {"perplexity": (75.20, 55.72, 44.575, 42.16)},
}
LARGEST: Mapping[str, Mapping[str, float]] = {  # measures of lm-eval by its names for them, but for the first
    "lambada": {UNFILTERED: 0.5266},
    "coqa": {"f1": 0.55},
    "cnn_dm": {"rouge1": 0.2934, "rouge2": 0.0827, "rougeL": 0.2658, "rouge": 0.2140},
    "wmt14_en_fr": {"bleu": 5},
    "wmt14_fr_en": {"bleu": 11.5},
    "nq": {"exact_match": 0.041},
    "winograd_full": {"acc": 0.7070},
    "winograd_partial": {"acc": 0.7070},
}
"""Values of sections 3.3 to 3.8, and Table 4 for the summaries, of the largest model."""
FILES = ("text", *TABLE_3)
"""Values of `train eval --task`: the paper's sets of text, and any other text."""
TASKS: Mapping[str, tuple[str, ...]] = {
    "coqa": ("coqa",),
    "cnn_dm": ("cnn_dm",),
    "wmt14": ("wmt14_en_fr", "wmt14_fr_en"),
    "nq": ("nq",),
    "winograd": ("winograd_full", "winograd_partial"),
}
"""Further values of `--task`, measured by lm-eval: the task files in `tasks/`."""
FRACTIONS = ("acc", "f1", "rouge", "exact_match")
COLUMNS = ("whose", "measure", "value", "unit", "units", "stride", "context", "de-tokenizer")
NONE, UNPUBLISHED = "-", "unpublished"


def published(task: str) -> dict[str, Any]:
    """Return {"paper": the paper's values of a task by measure and model size}, or nothing if it has none."""
    rows = {measure: dict(zip(SIZES, row, strict=True)) for measure, row in TABLE_3.get(task, {}).items()}
    rows |= {measure: {SIZES[-1]: value} for measure, value in LARGEST.get(task, {}).items()}
    return {"paper": rows} if rows else {}


def task_text(answer: Mapping[str, Any]) -> str:
    """Format the results of `evaluate_task` or `evaluate_tasks`; each measure's rows are ours, then the paper's."""
    from webtext.base.html_pages.rendering import Section, sections_text

    part = answer["part"]
    if answer.get("scored_ratio", 1) < 1:
        part += f", {answer['scored_ratio']:.2%} of its tokens scored"
    if "shots" in answer:
        part += f", {answer['shots']} examples before each"
    if "contexts_cut" in answer:
        part += f", {answer['contexts_cut']:,} contexts cut"
    tokenizer = f"tokenizer {answer['tokenizer_hash'][:8]} of {answer['vocab_size']:,}, {answer['dtype']}"
    paper: Mapping[str, Mapping[str, float]] = answer.get("paper", {})
    rows: list[Sequence[str]] = [COLUMNS]
    for measure in dict.fromkeys([*(row["measure"] for row in answer["results"]), *paper]):
        rows += [_our_row(answer, row) for row in answer["results"] if row["measure"] == measure]
        rows += [_paper_row(answer, measure, size, value) for size, value in paper.get(measure, {}).items()]
    note = "compare only rows of equal unit, stride, context and de-tokenizer"
    if any(row["unit"] == "token" for row in answer["results"]):
        note += "; per token, of one tokenizer too"
    return sections_text([Section(title=f"{answer['task']} ({part}), {tokenizer}", rows=rows, notes=[note])])


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
    return (who, measure, _shown(measure, value), unit, NONE, stride, "1,024", UNPUBLISHED)


def _shown(measure: str, value: float) -> str:
    return f"{value:.2%}" if measure.startswith(FRACTIONS) else f"{value:,.3f}"
