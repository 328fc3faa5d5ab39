"""Runs a task: reads its items, fits prompts into the context, gets the model's answers, and judges them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webtext.base.run import Run
from webtext.train.data.windows import spread
from webtext.train.evaluate.cloze import Cloze, Scores, score_clozes
from webtext.train.evaluate.tasks import coqa, natural_questions, summaries, translation, winograd
from webtext.train.evaluate.tasks.item import Item, Task, examples_before, fitted
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.sample import sample_texts
from webtext.train.resilience.distributed import World
from webtext.train.settings import EvalSettings

TASKS: Mapping[str, Task] = {
    "coqa": coqa.TASK,
    "cnn-dailymail": summaries.TASK,
    "wmt14-en-fr": translation.task("en", "fr"),
    "wmt14-fr-en": translation.task("fr", "en"),
    "natural-questions": natural_questions.TASK,
    "winograd": winograd.TASK,
}


@dataclass(frozen=True, slots=True)
class Judge:
    """A model on its device, with everything that a measurement needs."""

    model: GPT2
    tokenizer: Any
    settings: EvalSettings
    world: World
    run: Run
    stop_words: Sequence[str] = ()

    def score(self, clozes: Sequence[Cloze]) -> Scores:
        """Score clozes, with a progress bar."""
        how: dict[str, Any] = {
            "batch_size": self.settings.batch_size,
            "world": self.world,
            "stop_words": self.stop_words,
        }
        with self.run.console.progress(len(clozes), "eval", "examples") as progress:
            return score_clozes(self.model, clozes, self.tokenizer, progress=progress, **how)


def measure_task(judge: Judge, name: str, path: str, shots: int | None, shots_from: str | None) -> dict[str, Any]:
    """Return the rows of results, the number of contexts that were cut, and a row for each item in "predictions".

    Before each item are `shots` examples, by default the task's own number: the first of `shots_from`, or of the set
    itself, that are not the item's own.
    """
    task = TASKS[name]
    if task.library:
        importlib.import_module(task.library)  # a missing one is an error before the model answers, not after
    every = task.read(path)
    items = [every[i] for i in spread(len(every), judge.settings.windows)]
    own = [item.example for item in items]
    pool = [item.example for item in (every if shots_from is None else task.read(shots_from))]
    n = shots if shots is not None else task.shots or int(shots_from is not None)
    examples = examples_before(own, pool, n, shots_from or path)
    prompts, n_cut = [], []
    for item, before in zip(items, examples, strict=True):
        units = (*before, *item.units)
        prompts.append(fitted(units, _room(judge, task, item), judge.tokenizer, item.id))
        n_cut.append(len(units) - len(prompts[-1]))
    texts = ["".join(prompt).lstrip() for prompt in prompts]
    log_p: list[float] = []
    if task.sampling is None:
        answers: Sequence[Any] = _choice_losses(judge, items, prompts)
    else:
        generated = _generated(judge, task, texts)
        answers = list(map(task.clean, generated))
        if task.needs_log_p:
            ended = [f"{text}{task.stops[0]}" for text in generated]
            log_p = (-judge.score(list(map(Cloze, texts, ended))).loss).tolist()
    judgement = task.judge(items, answers, log_p)
    columns = zip(items, texts, n_cut, answers, judgement.scores, strict=True)
    return {
        "part": "all" if len(items) == len(every) else f"{len(items):,} of {len(every):,} items",
        "shots": n,
        "contexts_cut": sum(map(bool, n_cut)),
        "detokenizer": None,
        "results": judgement.results,
        **judgement.more,
        "predictions": [
            {"id": item.id, "prompt": text, "units_cut": cut, "answer": said, "gold": [*item.golds], "score": score}
            for item, text, cut, said, score in columns
        ],
    }


def _room(judge: Judge, task: Task, item: Item) -> int:
    """Return how many tokens a prompt may have beside the answer or the longest choice."""
    choices = (len(judge.tokenizer.encode(choice + item.rest)) for choice in item.choices)
    return judge.model.context - (task.sampling.max_tokens if task.sampling is not None else max(choices))


def _generated(judge: Judge, task: Task, prompts: Sequence[str]) -> list[str]:
    """Return the continuation of each prompt. Its draws depend on its place by length, not on batches or processes."""
    assert task.sampling is not None
    order, size = sorted(range(len(prompts)), key=lambda i: len(prompts[i])), judge.settings.batch_size
    mine: dict[int, str] = {}
    with judge.run.console.progress(len(prompts), "eval", "items") as progress:
        for start in range(0, len(order), size)[judge.world.rank :: judge.world.size]:
            numbers, how = order[start : start + size], replace(task.sampling, seed=start)
            begins = [prompts[i] for i in numbers]
            texts = sample_texts(judge.model, judge.tokenizer, begins, how, task.stops)
            mine |= {i: text.removeprefix(prompts[i]) for i, text in zip(numbers, texts, strict=True)}
            progress.advance(len(numbers))
    found = {i: text for some in judge.world.gather(mine) for i, text in some.items()}
    return [found[i] for i in range(len(prompts))]


def _choice_losses(judge: Judge, items: Sequence[Item], prompts: Sequence[tuple[str, ...]]) -> list[list[list[float]]]:
    """Return for each item and choice -log p in nats of the complete text, and of what follows the choice."""
    clozes = []
    for item, (*before, asks) in zip(items, prompts, strict=True):
        examples = "".join(before)
        for choice in item.choices:
            clozes += [Cloze(examples, asks + choice + item.rest), Cloze(examples + asks + choice, item.rest)]
    losses: list[list[list[float]]] = judge.score(clozes).loss.view(len(items), -1, 2).tolist()
    return losses
