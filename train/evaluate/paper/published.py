"""What the GPT-2 paper prints: tables 2 to 6, figures 1 to 5, and the values in its text (Radford et al. 2019).

Most of its figures are curves. A value that is printed nowhere is left out: nothing was read off a curve. Accuracies and
shares are from 0 to 1, probabilities too; F1, BLEU and ROUGE are from 0 to 100, as the paper prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webtext.train.evaluate.table3 import (
    FILTERED,
    LAMBADA_UNFILTERED,
    ROUGE,
    SIZES,
    TABLE_3,
    TABLE_4,
    TASKS_3_4_TO_3_8,
    UNFILTERED,
)
from webtext.train.shape import GPT2Config

PARAMETERS = {size: GPT2Config.named(size).n_parameters for size in SIZES}
OVERLAP = "overlap of "


class Published(NamedTuple):
    """One row: a task's measure, by the paper's model size or by who else has the value. A `measure` is a beginning."""

    place: str
    section: str
    task: str
    measure: str
    paper: Mapping[str, float]


TITLES: Mapping[str, str] = {
    "table 1": "Translations that occur in the training set",
    "table 2": "The models",
    "table 3": "Language modelling, zero-shot",
    "table 4": "Summarisation of CNN and Daily Mail, ROUGE F1",
    "table 5": "The 30 most confident answers to Natural Questions",
    "table 6": "Share of the test sets' 8-grams that occur in training sets",
    "figure 1": "Tasks over the model's size",
    "figure 2": "Children's Book Test over the model's size",
    "figure 3": "Winograd schemas over the model's size",
    "figure 4": "Perplexity of the training and held-out text over the model's size",
    "figure 5": "8-grams that samples and held-out text share with the training set",
}
IN_TEXT: Mapping[str, tuple[str, ...]] = {
    "table 1": ("Examples without counts. WebText has 10 MB of French (3.7).",),
    "figure 1": ("Curves: only these values are in the text. The smallest model has at most 1.0 % of answers (3.8).",),
    "figure 2": ("The curves' values are those of table 3.",),
    "figure 3": ("Curves of full and partial scoring. The text has one value, without saying of which.",),
    "figure 4": ("The paper shows curves, and no value.",),
    "figure 5": ("Curves: most samples share less than 1 % of their 8-grams, and over 30 % of samples share nothing.",),
}
"""What else the paper says with a table or figure."""
STATE_OF_THE_ART = (99.8, 0.5923, 0.857, 0.823, 39.14, 46.54, 0.99, 1.08, 18.3, 21.8)  # by column of table 3
_PERCENT = """83.4 82.0 81.1 76.8 76.4 71.4 70.6 69.3 66.8 65.3 64.0 59.6 59.2 56.5 55.6
              53.3 52.3 52.1 51.5 50.7 50.2 48.6 48.3 47.0 46.8 46.5 46.4 45.7 45.7 45.2"""
_WRONG = (7, 13, 14, 17, 18, 19, 21, 30)
TABLE_5 = tuple((float(percent) / 100, rank not in _WRONG) for rank, percent in enumerate(_PERCENT.split(), 1))
"""(the model's probability of its answer, whether the answer is right), by rank."""
TABLE_6: Mapping[str, tuple[float, float]] = {  # in the set's own training split, in WebText
    "ptb": (0.0267, 0.0088),
    "wikitext-2": (0.0066, 0.0163),
    "enwik8": (0.0750, 0.0631),
    "text8": (0.0234, 0.0394),
    "wikitext-103": (0.0909, 0.0242),
    "1bw": (0.1319, 0.0375),
}


def published() -> Iterator[Published]:
    """Yield every row; figures repeat the values of tables that they show."""
    yield Published("table 1", "3.1", "grep", "occurrences of <UNK>", {"WebText": 26})
    shapes = [GPT2Config.named(size) for size in SIZES]
    yield _by_size("table 2", "2.3", "model", "parameters", [1e6 * int(size.removesuffix("M")) for size in SIZES])
    yield _by_size("table 2", "2.3", "model", "layers", [shape.n_layer for shape in shapes])
    yield _by_size("table 2", "2.3", "model", "d_model", [shape.n_embd for shape in shapes])
    columns = [(task, measure, row) for task, measures in TABLE_3.items() for measure, row in measures.items()]
    sections = {"lambada": "3.3", "cbt-cn": "3.2", "cbt-ne": "3.2"}
    for (task, measure, row), best in zip(columns, STATE_OF_THE_ART, strict=True):
        by_size = _by_size("table 3", sections.get(task, "3.1"), task, measure, row)
        yield by_size._replace(paper={"state of the art": best, **by_size.paper})
        if measure == FILTERED:
            yield Published("table 3", "3.3", task, UNFILTERED, LAMBADA_UNFILTERED)
    for name, *scores in zip(ROUGE, *TABLE_4.values(), strict=True):
        yield Published("table 4", "3.6", "cnn-dailymail", name, dict(zip(TABLE_4, scores, strict=True)))
    for task, (own, webtext) in TABLE_6.items():
        yield Published("table 6", "4", f"{OVERLAP}{task}", "8-grams", {"own training split": own, "WebText": webtext})
    yield Published("table 6", "4", f"{OVERLAP}lambada", "8-grams", {"WebText": 0.012})
    for place, section, task, measure, more in (
        ("table 5", "3.8", "natural-questions", "accuracy, most confident 1 %", {}),
        ("figure 1", "3.5", "coqa", "F1", {"human": 89}),
        ("figure 1", "3.7", "wmt14-fr-en", "BLEU", {"best unsupervised": 33.5}),
        ("figure 1", "3.7", "wmt14-en-fr", "BLEU", {}),
        ("figure 1", "3.6", "cnn-dailymail", "ROUGE", {}),
        ("figure 1", "3.8", "natural-questions", "accuracy, exact match", {}),
    ):
        yield Published(place, section, task, measure, {**TASKS_3_4_TO_3_8[task][measure], **more})
    for task in ("cbt-cn", "cbt-ne"):
        yield _by_size("figure 2", "3.2", task, "accuracy", TABLE_3[task]["accuracy"])
    yield Published("figure 3", "3.4", "winograd", "accuracy", TASKS_3_4_TO_3_8["winograd"]["accuracy, partial"])
    yield Published("figure 4", "4", "tokens", "perplexity", {})
    yield Published("figure 5", "8.2", "memorized", "median", {"WebText test set": 0.026})
    yield Published("figure 5", "8.2", "memorized", "without", {})


def _by_size(place: str, section: str, task: str, measure: str, row: Sequence[float]) -> Published:
    return Published(place, section, task, measure, dict(zip(SIZES, row, strict=True)))
