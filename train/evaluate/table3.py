"""The evaluation sets and tasks of the GPT-2 paper, and its values for them: Radford et al. 2019, Table 3 and the text.

LAMBADA's accuracies in that table use a stop-word filter; section 3.3 has one value without it, for the largest model.

The paper's units, strides and de-tokenizers are not published, so its values are printed next to ours but are not a
target: the released 117M model has 29.9 per token and 37.4 per word on the same WikiText
(huggingface/transformers#13761).
"""

from __future__ import annotations

from collections.abc import Mapping

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
LAMBADA_UNFILTERED = {"1542M": 0.5266}
ROUGE = ("ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE")
TABLE_4: Mapping[str, tuple[float, float, float, float]] = {  # "ROUGE" is their mean
    "Bottom-Up Sum": (41.22, 18.68, 38.34, 32.75),
    "lead-3": (40.38, 17.66, 36.62, 31.55),
    "Seq2Seq + Attn": (31.33, 11.81, 28.83, 23.99),
    "TL;DR:": (29.34, 8.27, 26.58, 21.40),
    "random-3": (28.78, 8.63, 25.52, 20.98),
    "no hint": (21.58, 4.03, 19.47, 15.03),
}
TASKS_3_4_TO_3_8: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "coqa": {"F1": {"1542M": 55}},
    "cnn-dailymail": {
        **{name: {"1542M": value} for name, value in zip(ROUGE, TABLE_4["TL;DR:"], strict=True)},
        **{
            f"{name}, {who}": {who: value}
            for who in ("lead-3", "random-3")
            for name, value in zip(ROUGE, TABLE_4[who], strict=True)
        },
    },
    "wmt14-en-fr": {"BLEU": {"1542M": 5}},
    "wmt14-fr-en": {"BLEU": {"1542M": 11.5}},
    "natural-questions": {
        "accuracy, exact match": {"1542M": 0.041},
        "accuracy, most confident 1 %": {"1542M": 0.631},
    },
    "winograd": {"accuracy, partial": {"1542M": 0.7070}},
}
"""Sections 3.4 to 3.8, and Table 4 for the summaries: values of the tasks in `tasks/`, by measure and model."""
TASKS = ("text", *TABLE_3, *TASKS_3_4_TO_3_8)
"""Values of `train eval --task`: the paper's sets, and any other text."""
