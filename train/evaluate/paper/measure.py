"""Measures a model on every set of the GPT-2 paper that a folder has. Each answer is kept, so that a rerun resumes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.train.evaluate.measured import Measured
from webtext.train.evaluate.paper.published import PARAMETERS, TITLES, Published, published
from webtext.train.evaluate.paper.reports import Answer, read_reports, result
from webtext.train.evaluate.paper.sets import SETS, STOP_WORDS, find
from webtext.train.evaluate.perplexity import CODE_VERSION, evaluate_model, kept_evaluation, write_evaluation
from webtext.train.evaluate.table3 import FILTERED
from webtext.train.evaluate.zero_shot import evaluate_task
from webtext.train.resilience.distributed import join_world
from webtext.train.settings import EvalSettings

WEIGHTS = (".safetensors",)
BASELINES = {"perplexity_before": "untrained", "unigram_perplexity": "unigrams", "bigram_perplexity": "bigrams"}


def measure_paper(
    measured: Measured, data: str, tokens: str | None, out: Folder, settings: EvalSettings, run: Run
) -> dict[str, Any]:
    """Return the content of paper.json: an answer per task, and the paper's rows with our results as "ours".

    An answer is that of `evaluate_task`, or {"missing": FILE}, or {"error": TEXT} if a file can't be used; the others
    are measured then, too. `tokens` is a token set, whose splits are measured for figure 4. Several processes measure
    each set together, and the first one keeps the answers in `out`.
    """
    found = find(data)
    weights = measured.facts.get("files") or _versions(measured.path, WEIGHTS)
    same = [CODE_VERSION, weights, measured.text_tokenizer().hash, recipe_settings(settings)]

    def kept(task: str, parts: list[Any], measure: Callable[[], Answer]) -> Answer:
        key = sha256_json([*same, *parts])
        if answer := kept_evaluation(out, f"evaluation-{task}.json", key):
            return answer
        try:
            answer = measure() | {"task": task, "key": key}
        except (InputError, ConfigError) as error:
            return {"error": "; ".join(error.lines)}
        if world.rank == 0:
            write_evaluation(out, answer)
        return {name: value for name, value in answer.items() if name != "predictions"}

    shape = zip(("parameters", "layers", "d_model"), measured.model.shape, strict=True)
    answers: dict[str, Answer] = {"model": {"results": [result(name, "", 1, n) for name, n in shape]}}
    with join_world(settings.device) as world:
        for task, name in SETS.items():
            words = found.get(STOP_WORDS) if task == "lambada" else None
            measure = partial(evaluate_task, measured, task, found.get(name, ""), settings, run, stop_words=words)
            parts: list[Any] = [_versions(path) for path in (found.get(name), words) if path]
            answers[task] = kept(task, parts, measure) if name in found else {"missing": name}
        answers["tokens"] = {"missing": "--tokens TOKENS"}
        if tokens is not None:
            parts = [TokenShards(tokens, split="validation").hash]
            answers["tokens"] = kept("tokens", parts, partial(_measure_tokens, measured, tokens, settings, run))
    answers |= read_reports(found)
    in_order = sorted(published(), key=lambda row: list(TITLES).index(row.place))
    rows = [row._asdict() | _ours(row, answers[row.task]) for row in in_order]
    n = measured.model.shape[0]
    closest = min(PARAMETERS, key=lambda size: abs(math.log(PARAMETERS[size] / n)))
    about = {"model": measured.path, "parameters": n, "closest": closest, "data": data}
    return {**about, "answers": answers, "rows": rows}


def _ours(row: Published, answer: Answer) -> dict[str, Any]:
    """Return our results of the row's measure and of its variants, whose names begin with it; or what they lack."""
    ours = [each for each in answer.get("results", []) if f"{each['measure']},".startswith(f"{row.measure},")]
    missing = answer.get("missing", STOP_WORDS if row.measure == FILTERED else None)
    lack = answer.get("error") or (f"missing: {missing}" if missing else "not measured")
    return {"ours": ours, "lack": None if ours else lack}


def _versions(path: str, suffixes: tuple[str, ...] = ("",)) -> dict[str, tuple[int, str]]:
    """Return the size and version of a file and of those that belong to it, or of a folder's files."""
    folder, name = (Folder(path), "") if (files := Folder(path).files()) else Folder.split(path)
    begin = name.partition("-src.")[0]  # WMT-14 has its references in the same folder
    files = files or folder.files()
    return {name: files[name] for name in files if name.startswith(begin) and name.endswith(suffixes)}


def _measure_tokens(measured: Measured, tokens: str, settings: EvalSettings, run: Run) -> Answer:
    """Measure both splits per token, the training split by as many windows as the held-out one has."""
    answer = evaluate_model(measured, tokens, settings, run)
    n = settings.windows or -(-answer["tokens"] // answer["stride"])
    same = replace(settings, windows=n, untrained=False, baselines=False)
    training = evaluate_model(measured, tokens, same, run, split="train")
    values = {"held-out": answer["perplexity"], "training": training["perplexity"]}
    values |= {f"held-out, {name}": answer[key] for key, name in BASELINES.items() if key in answer}
    results = [result(f"perplexity, {name}", "token", answer["tokens"], value) for name, value in values.items()]
    return answer | {"results": results, "part": f"{answer['tokens']:,} tokens of each split"}
