"""What the GPT-2 paper prints: tables 2 to 6, figures 1 to 5, and the values in its text (Radford et al. 2019).

Most of its figures are curves. A value that is printed nowhere is left out: nothing was read off a curve. Accuracies and
shares are from 0 to 1, probabilities too; F1, BLEU and ROUGE are from 0 to 100, as the paper prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webtext.train.evaluate.table3 import FILTERED, LAMBADA_UNFILTERED, SIZES, TABLE_3, UNFILTERED
from webtext.train.shape import GPT2Config

LARGEST = SIZES[-1]


class Published(NamedTuple):
    """One row: a task's measure, by the paper's model size or by who else has the value. A `measure` is a beginning."""

    place: str
    section: str
    task: str
    measure: str
    values: Mapping[str, float]


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
IN_TEXT: Mapping[str, str] = {
    "table 1": "The paper has examples, no counts. WebText has 10 MB of French (3.7), and '<UNK>' 26 times (3.1).",
    "table 5": "4.1 % of all answers are right, and 63.1 % of the most confident 1 % (3.8).",
    "figure 1": "The paper shows curves. These values are in its text. The smallest model has at most 1.0 % of answers (3.8).",
    "figure 2": "The curves' values are those of table 3. Human accuracy is a line without a number.",
    "figure 3": "The paper shows curves for full and partial scoring, and doesn't say which one its value in the text has.",
    "figure 4": "The paper shows curves without a value.",
    "figure 5": "The paper shows curves: most samples share less than 1 %, over 30 % of them nothing.",
}
"""What else the paper says with a table or figure."""
STATE_OF_THE_ART: Mapping[tuple[str, str], float] = {
    ("lambada", "perplexity"): 99.8,
    ("lambada", FILTERED): 0.5923,
    ("cbt-cn", "accuracy"): 0.857,
    ("cbt-ne", "accuracy"): 0.823,
    ("wikitext-2", "perplexity"): 39.14,
    ("ptb", "perplexity"): 46.54,
    ("enwik8", "bits"): 0.99,
    ("text8", "bits"): 1.08,
    ("wikitext-103", "perplexity"): 18.3,
    ("1bw", "perplexity"): 21.8,
}
TABLE_4: Mapping[str, tuple[float, float, float, float]] = {  # ROUGE-1, -2, -L, and their mean
    "Bottom-Up Sum": (41.22, 18.68, 38.34, 32.75),
    "lead-3": (40.38, 17.66, 36.62, 31.55),
    "Seq2Seq + Attn": (31.33, 11.81, 28.83, 23.99),
    "TL;DR:": (29.34, 8.27, 26.58, 21.40),
    "random-3": (28.78, 8.63, 25.52, 20.98),
    "no hint": (21.58, 4.03, 19.47, 15.03),
}
TABLE_5 = tuple(
    (rank, percent / 100, rank not in (7, 13, 14, 17, 18, 19, 21, 30))
    for rank, percent in enumerate(
        # fmt: off
        (
            83.4,
            82.0,
            81.1,
            76.8,
            76.4,
            71.4,
            70.6,
            69.3,
            66.8,
            65.3,
            64.0,
            59.6,
            59.2,
            56.5,
            55.6,
            53.3,
            52.3,
            52.1,
            51.5,
            50.7,
            50.2,
            48.6,
            48.3,
            47.0,
            46.8,
            46.5,
            46.4,
            45.7,
            45.7,
            45.2,
        ),
        # fmt: on
        1,
    )
)
"""(rank, the model's probability of its answer, whether the answer is right)."""
TABLE_6: Mapping[str, tuple[float, float]] = {  # in the set's own training split, in WebText
    "ptb": (0.0267, 0.0088),
    "wikitext-2": (0.0066, 0.0163),
    "enwik8": (0.0750, 0.0631),
    "text8": (0.0234, 0.0394),
    "wikitext-103": (0.0909, 0.0242),
    "1bw": (0.1319, 0.0375),
}


def published() -> Iterator[Published]:
    """Yield every row in the paper's order; figures repeat the values of tables that they show."""
    shapes = [GPT2Config.named(size) for size in SIZES]
    yield _by_size("table 2", "2.3", "model", "layers", [shape.n_layer for shape in shapes])
    yield _by_size("table 2", "2.3", "model", "d_model", [shape.n_embd for shape in shapes])
    table_3 = [(task, measure, row) for task, measures in TABLE_3.items() for measure, row in measures.items()]
    sections = {"lambada": "3.3", "cbt-cn": "3.2", "cbt-ne": "3.2"}
    for task, measure, row in table_3:
        best = {"state of the art": STATE_OF_THE_ART[task, measure]}
        yield Published("table 3", sections.get(task, "3.1"), task, measure, best | dict(zip(SIZES, row, strict=True)))
    yield Published("table 3", "3.3", "lambada", UNFILTERED, LAMBADA_UNFILTERED)
    for i, name in enumerate(("ROUGE-1", "ROUGE-2", "ROUGE-L", "mean ROUGE")):
        for system, scores in TABLE_4.items():
            who = LARGEST if system in ("TL;DR:", "no hint") else system
            yield Published("table 4", "3.6", "cnn-dm", f"{name}, {system}", {who: scores[i]})
    yield Published("table 5", "3.8", "nq", "accuracy, most confident 1 %", {LARGEST: 0.631})
    for task, (own, webtext) in TABLE_6.items():
        yield Published("table 6", "4", task, "overlap", {"own training split": own, "WebText": webtext})
    yield Published("table 6", "4", "lambada", "overlap", {"WebText": 0.012})
    yield Published("figure 1", "3.5", "coqa", "F1", {LARGEST: 55, "human": 89})
    yield Published("figure 1", "3.7", "wmt14-fr-en", "BLEU", {LARGEST: 11.5, "best unsupervised": 33.5})
    yield Published("figure 1", "3.7", "wmt14-en-fr", "BLEU", {LARGEST: 5})
    yield Published("figure 1", "3.6", "cnn-dm", "mean ROUGE, TL;DR:", {LARGEST: TABLE_4["TL;DR:"][3]})
    yield Published("figure 1", "3.8", "nq", "accuracy", {LARGEST: 0.041})
    for task in ("cbt-cn", "cbt-ne"):
        yield _by_size("figure 2", "3.2", task, "accuracy", TABLE_3[task]["accuracy"])
    yield Published("figure 3", "3.4", "winograd", "accuracy", {LARGEST: 0.7070})
    yield Published("figure 5", "8.2", "memorized", "median overlap of a held-out text", {"WebText": 0.026})


def _by_size(place: str, section: str, task: str, measure: str, row: Sequence[float]) -> Published:
    return Published(place, section, task, measure, dict(zip(SIZES, row, strict=True)))
