"""`train eval` on evaluation sets and any text: one loss, divided by each unit, with the values of the paper's Table 3.

Perplexity is exp(loss / units) and bits are loss / (ln 2 · units), where loss is that of the complete text in nats,
whatever the tokenizer. So "word" is per word of the text as it was published, although the model reads it de-tokenized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from webtext.base.errors import InputError
from webtext.base.run import Run
from webtext.train.data.windows import LARGEST_LOSS, Windows, spread, total_loss
from webtext.train.evaluate.cloze import Choice, Cloze, read_cbt, read_lambada, score_clozes
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.measured import Judge, Measured
from webtext.train.evaluate.published import FILTERED, UNFILTERED
from webtext.train.evaluate.texts import RunningText, decoded, read_file, read_running_text
from webtext.train.settings import EvalSettings

BITS = ("byte", "character")


def evaluate_task(
    measured: Measured, task: str, path: str, settings: EvalSettings, run: Run, stop_words: str | None = None
) -> dict[str, Any]:
    """Measure a model on a file of one of `published.FILES`.

    In the answer, "results" has rows {"measure", "unit", "units", "value"}; "units" is the number that the loss is divided
    by, or of examples. "contexts_cut" counts the items whose context didn't fit. `stop_words` is a file of words that end
    no passage of LAMBADA: the accuracy is then measured with that filter too.
    """
    measured.text_tokenizer()  # raises if there is none
    data = read_file(path)
    with measured.judge(settings, run) as judge:
        answer = measured.answer(judge.model, task, path)
        if task == "lambada":
            return answer | _judge_words(judge, read_lambada(data, path), stop_words)
        if task in ("cbt-cn", "cbt-ne"):
            return answer | _judge_choices(judge, read_cbt(data, path))
        return answer | _judge_text(judge, read_running_text(task, data, path))


def _judge_text(judge: Judge, text: RunningText) -> dict[str, Any]:
    tokenizer, settings = judge.tokenizer, judge.settings
    stream = np.insert(tokenizer.encode_numpy(text.text), 0, tokenizer.eot_id)
    windows = Windows([stream], context=judge.model.config.context, stride=settings.stride, limit=settings.windows)
    if not len(windows):
        raise InputError("the file has no text", "name another file")
    with judge.run.console.progress(len(windows), "eval", "windows") as progress:
        loss, n_tokens = total_loss(judge.model, windows, settings.batch_size, judge.world, progress)
    # For some of the windows only the tokens are counted; other units are estimated at the full text's rate per token.
    scored_ratio = n_tokens / (len(stream) - 1)
    units = {unit: round(n * scored_ratio) for unit, n in text.units.items()} | {"token": n_tokens}
    return {
        "part": text.part,
        "stride": windows.stride,
        "detokenizer": text.detokenizer,
        "scored_ratio": scored_ratio,
        "loss": loss,
        "results": [_result("bits" if unit in BITS else "perplexity", unit, n, loss) for unit, n in units.items() if n],
    }


def _judge_words(judge: Judge, clozes: Sequence[Cloze], stop_words: str | None) -> dict[str, Any]:
    taken = [clozes[i] for i in spread(len(clozes), judge.settings.windows)]
    words = [] if stop_words is None else decoded(read_file(stop_words), stop_words).split()
    scores = score_clozes(judge, taken, words)
    n, loss = len(taken), float(scores.loss.sum())
    right = {UNFILTERED: (scores.all_likeliest, scores.last_likeliest)}
    if words:
        right[FILTERED] = (scores.all_filtered, scores.last_filtered)
    return {
        **({} if stop_words is None else {"stop_words": {"file": stop_words, "words": len(words)}}),
        "part": _part(n, len(clozes), "passages"),
        "detokenizer": None,
        "contexts_cut": int(scores.context_cut.sum()),
        "loss": loss,
        "results": [
            _result("perplexity", "word", n, loss),
            _result("perplexity", "token", int(scores.n_tokens.sum()), loss),
            *(
                _result(measure, unit, n, float(each.sum()))
                for measure, both in right.items()
                for unit, each in zip(("word", "last token"), both, strict=True)
            ),
        ],
    }


def _judge_choices(judge: Judge, choices: Sequence[Choice]) -> dict[str, Any]:
    taken = [choices[i] for i in spread(len(choices), judge.settings.windows)]
    sizes = [len(choice.clozes) for choice in taken]
    scores = score_clozes(judge, [cloze for choice in taken for cloze in choice.clozes])
    losses, cuts = (torch.split(each, sizes) for each in (scores.loss, scores.context_cut))
    n_right = sum(int(of.argmin()) == choice.answer for of, choice in zip(losses, taken, strict=True))
    return {
        "part": _part(len(taken), len(choices), "questions"),
        "detokenizer": TREEBANK.name,
        "contexts_cut": sum(bool(of.any()) for of in cuts),
        "results": [_result("accuracy", "choice", len(taken), n_right)],
    }


def _part(n: int, total: int, what: str) -> str:
    return "all" if n == total else f"{n:,} of {total:,} {what}"


def _result(measure: str, unit: str, units: int, total: float) -> dict[str, Any]:
    """Make a row; `total` is the loss in nats, or the number of right examples. An infinite perplexity becomes None."""
    value: float | None = total / units
    if measure == "perplexity":
        value = math.exp(total / units) if total / units < LARGEST_LOSS else None
    elif measure == "bits":
        value = total / units / math.log(2)
    return {"measure": measure, "unit": unit, "units": units, "value": value}
