"""`train eval` on evaluation sets and any text: one loss, divided by each unit, with the values of the paper's Table 3.

Every value comes with its unit, stride and de-tokenizer. Perplexity is exp(loss / units) and bits are loss / (ln 2 ·
units), where loss is that of the complete text in nats, whatever the tokenizer. So "word" is per word of the text as it
was published, although the model reads it de-tokenized and in tokens.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.train.data.windows import Windows, spread, total_loss
from webtext.train.distributed import join_world
from webtext.train.evaluate.cloze import Choice, Judge, read_cbt, read_lambada, read_stop_words
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.measured import Measured
from webtext.train.evaluate.published import FILTERED, OVERLAPS, UNFILTERED, published
from webtext.train.evaluate.texts import RunningText, read_file, read_running_text
from webtext.train.settings import EvalSettings

BITS = ("byte", "character")
LARGEST = 700  # nats per unit whose perplexity is still a finite float


def evaluate_task(
    measured: Measured,
    task: str,
    path: str,
    settings: EvalSettings,
    run: Run,
    *,
    detokenize: bool = True,
    overlap: str | None = None,
    stop_words: str | None = None,
) -> dict[str, Any]:
    """Measure a model on a file of one of `published.FILES`.

    In the answer, "results" has rows {"measure", "unit", "units", "value"}: "measure" is perplexity, bits or an
    accuracy, "units" is the number that the loss is divided by, or of examples. "paper" has the paper's values of the
    same measures by model size. `overlap` is an overlap.json of `clean decontaminate`, whose row for this file (by
    SHA-256) is added. `stop_words` is a list of words that do not end a LAMBADA passage: the accuracy is measured with
    that filter too. "contexts_cut" counts the items whose context didn't fit.
    """
    tokenizer, data = measured.text_tokenizer(), read_file(path)
    answer: dict[str, Any] = {"model": measured.path, "task": task, "data": path}
    if overlap is not None:
        answer["overlap"] = overlap_of(hashlib.sha256(data).hexdigest(), path, overlap)
    words: list[str] = []
    if stop_words is not None:
        if task != "lambada":
            raise ConfigError(f"--stop-words is given and the task is '{task}'", "only --task lambada takes it")
        listed = read_file(stop_words)
        words = read_stop_words(listed, stop_words)
        answer["stop_words"] = {"file": stop_words, "sha256": hashlib.sha256(listed).hexdigest()}
    judged: Callable[[Judge], dict[str, Any]]
    if task == "lambada":
        judged = partial(_judge_words, choices=read_lambada(data, path))
    elif task in ("cbt-cn", "cbt-ne"):
        judged = partial(_judge_choices, choices=read_cbt(data, path, detokenize=detokenize))
        answer["detokenizer"] = TREEBANK.name if detokenize else None
    else:
        judged = partial(_judge_text, text=read_running_text(task, data, path, detokenize=detokenize))
    with join_world() as world:
        measured.check_same_checkpoint(world)
        model = measured.on(world.device, settings.dtype)
        answer |= judged(Judge(model, tokenizer, settings, world, run, words))
    return answer | measured.protocol(model) | published(task, answer["results"])


def overlap_of(sha256: str, path: str, report: str) -> dict[str, Any]:
    """Return the row of `report`, an overlap.json of `clean decontaminate`, for the file with this hash."""
    try:
        measured = json.loads(read_file(report))
        for row in measured["sets"]:
            if row["sha256"] == sha256:
                shares = {name: row[name] and float(row[name]) for name in OVERLAPS}
                return {**row, **shares, "overlap_words": int(measured["overlap_words"])}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"'{report}' is not an overlap report ({error!r})", "name an overlap.json") from None
    raise InputError(
        f"'{report}' has no set with the SHA-256 of '{path}'",
        f"measure it: webtext clean decontaminate … --against {path}",
    )


def _judge_text(judge: Judge, text: RunningText) -> dict[str, Any]:
    tokenizer, settings = judge.tokenizer, judge.settings
    stream = np.insert(tokenizer.encode_numpy(text.text), 0, tokenizer.eot_id)
    windows = Windows([stream], context=judge.model.context, stride=settings.stride, limit=settings.windows)
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


def _judge_words(judge: Judge, choices: Sequence[Choice]) -> dict[str, Any]:
    numbers = spread(len(choices), judge.settings.windows)
    scores = judge.score([choices[i].clozes[0] for i in numbers])
    n, loss = len(numbers), float(scores.loss.sum())
    right_of = {UNFILTERED: (scores.all_likeliest, scores.last_likeliest)}
    if judge.stop_words:
        right_of[FILTERED] = (scores.all_filtered, scores.last_filtered)
    return {
        "part": _part(n, len(choices), "passages"),
        "detokenizer": None,
        "contexts_cut": int(scores.context_cut.sum()),
        "loss": loss,
        "results": [
            _result("perplexity", "word", n, loss),
            _result("perplexity", "token", int(scores.n_tokens.sum()), loss),
            *(
                _result(measure, unit, n, float(right.sum()))
                for measure, both in right_of.items()
                for unit, right in zip(("word", "last token"), both, strict=True)
            ),
        ],
    }


def _judge_choices(judge: Judge, choices: Sequence[Choice]) -> dict[str, Any]:
    numbers = spread(len(choices), judge.settings.windows)
    taken = [choices[i] for i in numbers]
    scores = judge.score([cloze for choice in taken for cloze in choice.clozes])
    losses, cut = iter(scores.loss.tolist()), iter(scores.context_cut.tolist())
    n_right = n_cut = 0
    for choice in taken:
        mine = [next(losses) for _ in choice.clozes]
        n_right += mine.index(min(mine)) == choice.answer
        n_cut += sum(next(cut) for _ in choice.clozes) > 0
    return {
        "part": _part(len(taken), len(choices), "questions"),
        "contexts_cut": n_cut,
        "results": [_result("accuracy", "choice", len(taken), n_right)],
    }


def _part(n: int, total: int, what: str) -> str:
    return "all" if n == total else f"{n:,} of {total:,} {what}"


def _result(measure: str, unit: str, units: int, total: float) -> dict[str, Any]:
    """Make a row; `total` is the loss in nats, or the number of right examples. An infinite perplexity becomes None."""
    value: float | None = total / units
    if measure == "perplexity":
        value = math.exp(total / units) if total / units < LARGEST else None
    elif measure == "bits":
        value = total / units / math.log(2)
    return {"measure": measure, "unit": unit, "units": units, "value": value}
