"""`train eval` prints every value, the paper's too, with the unit, stride, context and de-tokenizer it depends on."""

from __future__ import annotations

from typing import Any

from webtext.train.evaluate.published import COLUMNS, task_text

TEXT = {"part": "all", "stride": 256, "scored_ratio": 1.0, "context": 1024}
MODEL = {"dtype": "float32", "vocab_size": 50257, "tokenizer_hash": "3f9c2a1b" + "0" * 56}


def result(measure: str, unit: str, units: int, value: float | None) -> dict[str, Any]:
    return {"measure": measure, "unit": unit, "units": units, "value": value}


def cells(text: str) -> list[list[str]]:
    """The rows of the printed table; two blanks or more are between two cells."""
    lines = [line for line in text.splitlines() if line.startswith("  ") and "compare only" not in line]
    return [[cell.strip() for cell in line.strip().split("  ") if cell.strip()] for line in lines]


def test_each_row_is_complete_and_the_papers_rows_say_what_is_not_published() -> None:
    answer = {
        **{"task": "wikitext-2", "detokenizer": "wikitext"},
        **TEXT,
        **MODEL,
        "results": [
            result("perplexity", "word", 241211, 51.25),
            result("perplexity", "word or line end", 245569, 47.8912),
            result("bits", "byte", 1256449, 1.08765),
            result("perplexity", "token", 283287, 28.5),
        ],
        "paper": {"perplexity": {"117M": 29.41, "345M": 22.76, "762M": 19.93, "1542M": 18.34}},
    }
    assert task_text(answer) == "\n".join(
        [
            "wikitext-2 (all), tokenizer 3f9c2a1b of 50,257, float32",
            "  whose             measure   value              unit      units       stride  context  de-tokenizer",
            "  this model     perplexity  51.250              word    241,211          256    1,024      wikitext",
            "  this model     perplexity  47.891  word or line end    245,569          256    1,024      wikitext",
            "  this model     perplexity  28.500             token    283,287          256    1,024      wikitext",
            "  paper's 117M   perplexity  29.410       unpublished          -  unpublished    1,024   unpublished",
            "  paper's 345M   perplexity  22.760       unpublished          -  unpublished    1,024   unpublished",
            "  paper's 762M   perplexity  19.930       unpublished          -  unpublished    1,024   unpublished",
            "  paper's 1542M  perplexity  18.340       unpublished          -  unpublished    1,024   unpublished",
            "  this model           bits   1.088              byte  1,256,449          256    1,024      wikitext",
            "  compare only rows of equal unit, stride, context and de-tokenizer; per token, of one tokenizer too",
        ]
    )


def test_both_measures_of_one_set_come_with_the_papers() -> None:
    answer = {
        **{"task": "lambada", "part": "2 of 3 passages", "detokenizer": None, "context": 64},
        **MODEL,
        "results": [
            result("perplexity", "word", 2, None),
            result("perplexity", "token", 3, 311.466),
            result("accuracy", "word", 2, 0.5),
            result("accuracy", "last token", 2, 1.0),
        ],
        "paper": {"perplexity": {"117M": 35.13}, "accuracy": {"117M": 0.4599}},
    }
    text = task_text(answer)
    assert cells(text) == [
        list(COLUMNS),
        ["this model", "perplexity", "inf", "word", "2", "-", "64", "none"],
        ["this model", "perplexity", "311.466", "token", "3", "-", "64", "none"],
        ["paper's 117M", "perplexity", "35.130", "unpublished", "-", "-", "1,024", "unpublished"],
        ["this model", "accuracy", "50.00%", "word", "2", "-", "64", "none"],
        ["this model", "accuracy", "100.00%", "last token", "2", "-", "64", "none"],
        ["paper's 117M", "accuracy", "45.99%", "unpublished", "-", "-", "1,024", "unpublished"],
    ]
    assert text.splitlines()[0].startswith("lambada (2 of 3 passages), ")


def test_the_papers_unit_is_shown_where_its_table_names_it() -> None:
    """Bits per byte of enwik8, bits per character of text8, and choices."""
    for unit, measure in (("byte", "bits"), ("character", "bits"), ("choice", "accuracy")):
        rows = [result(measure, unit, 9, 0.9)]
        answer = {**TEXT, **MODEL, "task": "t", "detokenizer": None, "results": rows, "paper": {measure: {"117M": 1.0}}}
        assert cells(task_text(answer))[-1][3] == unit
        assert "per token" not in task_text(answer)
