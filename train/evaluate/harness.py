"""The paper's tasks through lm-evaluation-harness: its interface over our model, and a run of the task files in `tasks/`.

lm-eval makes the prompts, collects the answers and judges them. Every text begins with an end-of-text, and a prompt that
leaves no room for the answer is cut from the left. Every process gets all requests and answers its share of them, so that
lm-eval sees one process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from tqdm import tqdm

from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.train.evaluate.cloze import Cloze, score_clozes
from webtext.train.evaluate.measured import Judge, Measured
from webtext.train.model.sample import growth
from webtext.train.settings import EvalSettings, SampleSettings

TASK_FILES = Path(__file__).parent / "tasks"


class HarnessModel(LM):  # type: ignore[misc]  # lm-eval has no types
    """A model as lm-eval sees it; `n_cut` counts the prompts that were cut."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge, self.n_cut = judge, 0

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Return log p in nats of each (context, continuation), and whether all tokens of it are the likeliest."""
        scores = score_clozes(self.judge, [Cloze(*request.args) for request in requests])
        self.n_cut += int(scores.context_cut.sum())
        return list(zip((-scores.loss).tolist(), scores.all_likeliest.tolist(), strict=True))

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        raise NotImplementedError("no task of the paper scores a text without a context")

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Return the text after each context; all have the options of the first, because they belong to one task.

        Draws depend on a context's place by length among all, not on batches or processes.
        """
        judge, how = self.judge, requests[0].args[1]
        settings = SampleSettings(
            max_tokens=how["max_gen_toks"],
            temperature=how.get("temperature", 1.0) if how["do_sample"] else 0.0,
            top_k=how.get("top_k"),
        )
        room = judge.model.config.context - settings.max_tokens
        if room < 1:
            raise ConfigError(
                f"an answer may have {settings.max_tokens} tokens, but the model's context is {judge.model.config.context}",
                "evaluate a model with a longer context on this task",
            )
        starts = [[judge.tokenizer.eot_id, *judge.tokenizer.encode(request.args[0])] for request in requests]
        self.n_cut += sum(len(start) > room for start in starts)
        order, size = sorted(range(len(starts)), key=lambda i: len(starts[i])), judge.settings.batch_size
        mine: dict[int, str] = {}
        with judge.run.console.progress(len(starts), "eval", "items") as progress:
            for first in range(0, len(order), size)[judge.world.rank :: judge.world.size]:
                numbers, drawn = order[first : first + size], replace(settings, seed=first)
                begins = [starts[i][-room:] for i in numbers]
                steps = growth(judge.model, judge.tokenizer, begins, drawn, how["until"])
                mine |= zip(numbers, map("".join, zip(*steps, strict=True)), strict=True)
                progress.advance(len(numbers))
        found = {i: text for some in judge.world.gather(mine) for i, text in some.items()}
        return [found[i] for i in range(len(starts))]


def evaluate_tasks(
    measured: Measured, names: Sequence[str], data: str, settings: EvalSettings, run: Run
) -> list[dict[str, Any]]:
    """Measure a model on tasks, by their names in `tasks/`, whose data files are in the folder `data`.

    An answer is as that of `evaluate_task`; "samples" are lm-eval's own rows, one for each item.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it remarks on every task's settings
    lm_eval.api.task.tqdm = partial(tqdm, disable=True)  # as for the data sets' bars: a console may be quiet
    datasets.disable_progress_bars()
    measured.text_tokenizer()  # raises if there is none
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=False)
    tasks = {name: _load(manager, name, data) for name in names}
    answers = []
    with measured.judge(settings, run) as judge:
        for name, task in tasks.items():
            model = HarnessModel(judge)
            found = evaluate(lm=model, task_dict={"tasks": {name: task}}, limit=settings.windows, bootstrap_iters=0)
            answers.append(_answer(measured, name, data, task, model, found))
    return answers


def _answer(measured: Measured, name: str, data: str, task: Any, model: HarnessModel, found: Any) -> dict[str, Any]:
    samples, total = found["samples"][name], len(task.eval_docs)
    n = len(samples)
    results = [
        {"measure": measure, "unit": "item", "units": n, "value": float(found["results"][name][f"{measure},{kind}"])}
        for kind in {row["filter"]: 0 for row in samples}
        for measure in task.aggregation()
    ]
    return {
        **measured.answer(model.judge.model, name, data),
        "lm_eval": version("lm-eval"),
        "part": "all" if n == total else f"first {n:,} of {total:,} items",
        "shots": task.config.num_fewshot,
        "contexts_cut": model.n_cut,
        "detokenizer": None,
        "results": results,
        "samples": samples,
    }


def _load(manager: TaskManager, name: str, data: str) -> Any:
    source = manager.task_index[name].cfg["dataset_kwargs"]
    path = Path(data, source["data_files"]["test"])
    spec = {"group": "paper", "task": [{"task": name, "dataset_kwargs": {**source, "data_dir": data}}]}
    try:
        task = manager.load(spec)["tasks"][name]
        for number, doc in enumerate(task.eval_docs, 1):
            if lacking := [key for key, value in doc.items() if value in (None, "", [])]:
                raise ValueError(f"item {number:,} has no '{lacking[0]}'")
    except Exception as error:  # whatever lm-eval, datasets and jinja2 raise for a file of another form
        first = next(iter(str(error).splitlines()), type(error).__name__)
        what = f"task '{name}' can't read '{path}': {first:.200}"
        raise InputError(what, "copy the file again; docs/reference/train.md, Tasks, lists the files") from None
    return task
