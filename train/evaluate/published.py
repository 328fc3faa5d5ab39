"""The GPT-2 paper's evaluation sets and values (Radford et al. 2019, Table 3 and sections 3.3 to 3.8), and the table beside ours.

LAMBADA's accuracies in Table 3 use a stop-word filter; section 3.3 has one value without it, for the largest model. The
paper's units, strides and de-tokenizers are not published, so its values are printed next to ours but are not a target:
the released 117M model has 29.9 per token and 37.4 per word on the same WikiText (huggingface/transformers#13761).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

SIZES = ("117M", "345M", "762M", "1542M")
UNFILTERED, FILTERED = "accuracy, no stop-word filter", "accuracy, stop-word filter"
PAPER: Mapping[str, Mapping[str, tuple[float, ...]]] = {  # for tasks of lm-eval, measures by its names for them
    "lambada": {
        "perplexity": (35.13, 15.60, 10.87, 8.63),
        FILTERED: (0.4599, 0.5548, 0.6012, 0.6324),
        UNFILTERED: (0.5266,),
    },
    "cbt-cn": {"accuracy": (0.8765, 0.9235, 0.9345, 0.9330)},
    "cbt-ne": {"accuracy": (0.834, 0.871, 0.880, 0.8905)},
    "wikitext-2": {"perplexity": (29.41, 22.76, 19.93, 18.34)},
    "ptb": {"perplexity": (65.85, 47.33, 40.31, 35.76)},
    "enwik8": {"bits": (1.16, 1.01, 0.97, 0.93)},
    "text8": {"bits": (1.17, 1.06, 1.02, 0.98)},
    "wikitext-103": {"perplexity": (37.50, 26.37, 22.05, 17.48)},
    "1bw": {"perplexity": (75.20, 55.72, 44.575, 42.16)},
    "coqa": {"f1": (0.55,)},
    "cnn_dm": {"rouge1": (0.2934,), "rouge2": (0.0827,), "rougeL": (0.2658,), "rouge": (0.2140,)},
    "wmt14_en_fr": {"bleu": (5,)},
    "wmt14_fr_en": {"bleu": (11.5,)},
    "nq": {"exact_match": (0.041,)},
    "winograd_full": {"acc": (0.7070,)},
    "winograd_partial": {"acc": (0.7070,)},
}
"""Values of Table 3 for SIZES, and of sections 3.3 to 3.8 (Table 4 for the summaries) for the largest of them."""
TASKS: Mapping[str, tuple[str, ...]] = {
    "coqa": ("coqa",),
    "cnn_dm": ("cnn_dm",),
    "wmt14": ("wmt14_en_fr", "wmt14_fr_en"),
    "nq": ("nq",),
    "winograd": ("winograd_full", "winograd_partial"),
}
"""Values of `train eval --task` that lm-eval measures: the task files in `tasks/`."""
FILES = ("text", *(name for name in PAPER if name not in itertools.chain(*TASKS.values())))
"""The other values: the paper's sets of text, and any other text."""
FRACTIONS = ("acc", "f1", "rouge", "exact_match")
COLUMNS = ("whose", "measure", "value", "unit", "units", "stride", "context", "de-tokenizer")
NONE, UNPUBLISHED = "-", "unpublished"


def published(task: str) -> dict[str, Any]:
    """Return {"paper": the paper's values of a task by measure and model size}, or nothing if it has none."""
    values = PAPER.get(task, {}).items()
    rows = {measure: dict(zip(SIZES[-len(row) :], row, strict=True)) for measure, row in values}
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
    context, form = f"{answer['context']:,}", answer["detokenizer"] or "none"
    stride, unknown = (f"{answer['stride']:,}", UNPUBLISHED) if "stride" in answer else (NONE, NONE)
    rows: list[Sequence[str]] = [COLUMNS]
    for measure in dict.fromkeys([*(row["measure"] for row in answer["results"]), *paper]):
        ours = [row for row in answer["results"] if row["measure"] == measure]
        units = {row["unit"] for row in ours}
        # the paper's table names the unit only of bits and of choices
        unit = units.pop() if units in ({"byte"}, {"character"}, {"choice"}) else UNPUBLISHED
        for row in ours:
            protocol = row["unit"], f"{row['units']:,}", stride, context, form
            rows.append(("this model", measure, _shown(measure, row["value"]), *protocol))
        for size, value in paper.get(measure, {}).items():
            protocol = unit, NONE, unknown, "1,024", UNPUBLISHED
            rows.append((f"paper's {size}", measure, _shown(measure, value), *protocol))
    note = "compare only rows of equal unit, stride, context and de-tokenizer"
    if any(row["unit"] == "token" for row in answer["results"]):
        note += "; per token, of one tokenizer too"
    return sections_text([Section(title=f"{answer['task']} ({part}), {tokenizer}", rows=rows, notes=[note])])


def _shown(measure: str, value: float | None) -> str:
    value = math.inf if value is None else value
    return f"{value:.2%}" if measure.startswith(FRACTIONS) else f"{value:,.3f}"
