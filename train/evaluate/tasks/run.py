"""Runs a task: reads its items, fits prompts into the context, gets the model's answers, and judges them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.base.progress import Progress
from webtext.train.data.windows import spread
from webtext.train.evaluate.cloze import Cloze, score_clozes
from webtext.train.evaluate.tasks import coqa, natural_questions, summaries, translation, winograd
from webtext.train.evaluate.tasks.item import Item, Task, examples_before, fitted
from webtext.train.model.language_model import LanguageModel
from webtext.train.model.sample import sample_texts
from webtext.train.resilience.distributed import World

TASKS: Mapping[str, Task] = {
    "coqa": coqa.TASK,
    "cnn-dailymail": summaries.TASK,
    "wmt14-en-fr": translation.task("en", "fr"),
    "wmt14-fr-en": translation.task("fr", "en"),
    "natural-questions": natural_questions.TASK,
    "winograd": winograd.TASK,
}


@dataclass(frozen=True, slots=True)
class Opened:
    """The items of a task that are measured, and the examples before each."""

    task: Task
    items: Sequence[Item]
    examples: Sequence[tuple[str, ...]]
    facts: Mapping[str, Any]


def open_task(name: str, path: str, limit: int | None, shots: int | None, shots_from: str | None) -> Opened:
    """Read a set and choose the examples: `shots` of them, by default the task's own number.

    They are the first of `shots_from`, or of the set itself, which are not the item's own.
    """
    task = TASKS[name]
    n, place = task.shots if shots is None else shots, shots_from or path
    if n < 0:
        raise ConfigError(f"--shots is {n}", "it must be 0 or more")
    if shots_from is not None and n == 0:
        raise ConfigError("--shots-from is given, but no example is read", "add --shots N")
    if task.library:
        importlib.import_module(task.library)  # a missing one is an error before the model answers, not after
    every = task.read(path)
    if not every:
        raise InputError(f"'{path}' has no items", "name another file")
    items = [every[i] for i in spread(len(every), limit)]
    examples = examples_before(items, every if shots_from is None else task.read(shots_from), n, place)
    part = "all" if len(items) == len(every) else f"{len(items):,} of {len(every):,} items"
    return Opened(task, items, examples, {"part": part, "shots": n, **({"shots_from": place} if n else {})})


def measure_items(
    opened: Opened, model: LanguageModel, tokenizer: Any, *, batch_size: int, world: World, progress: Progress
) -> dict[str, Any]:
    """Return the rows of results, the number of contexts that were cut, and a row for each item in "predictions"."""
    task, items = opened.task, opened.items
    how: dict[str, Any] = {"batch_size": batch_size, "world": world, "progress": progress}
    full = [(*examples, *item.units) for item, examples in zip(items, opened.examples, strict=True)]
    prompts = []
    for item, units in zip(items, full, strict=True):
        n = max((len(tokenizer.encode(choice + item.rest)) for choice in item.choices), default=0)
        n += task.sampling.max_tokens if task.sampling is not None else 0
        prompts.append(fitted(units, model.context - n, tokenizer, item.id))
    n_cut = [len(units) - len(prompt) for units, prompt in zip(full, prompts, strict=True)]
    log_p: list[float] = []
    if task.sampling is None:
        answers: Sequence[Any] = _choice_losses(model, tokenizer, items, prompts, how)
    else:
        texts = ["".join(prompt).lstrip() for prompt in prompts]
        said = _generated(model, tokenizer, task, texts, batch_size, world, progress)
        if task.needs_log_p:
            clozes = [Cloze(text, f"{answer}{task.stops[0]}") for text, answer in zip(texts, said, strict=True)]
            log_p = (-score_clozes(model, clozes, tokenizer, **how | {"progress": None}).loss).tolist()
        answers = list(map(task.clean, said))
    judgement = task.judge(items, answers, log_p)
    predictions = [
        {
            "id": item.id,
            "prompt": "".join(prompt).lstrip(),
            "units_cut": cut,
            "answer": answer,
            "gold": list(item.golds),
            "score": score,
        }
        for item, prompt, cut, answer, score in zip(items, prompts, n_cut, answers, judgement.scores, strict=True)
    ]
    return {
        **opened.facts,
        "contexts_cut": sum(map(bool, n_cut)),
        "detokenizer": None,
        "results": judgement.results,
        **judgement.more,
        "predictions": predictions,
    }


def _generated(
    model: LanguageModel,
    tokenizer: Any,
    task: Task,
    prompts: Sequence[str],
    size: int,
    world: World,
    progress: Progress,
) -> list[str]:
    """Return the continuation of each prompt. Its draws depend on its place by length, not on batches or processes."""
    assert task.sampling is not None
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    mine: dict[int, str] = {}
    for start in range(0, len(order), size)[world.rank :: world.size]:
        numbers = order[start : start + size]
        begins = [prompts[i] for i in numbers]
        texts = sample_texts(model, tokenizer, begins, replace(task.sampling, seed=start), task.stops)
        mine |= {i: text.removeprefix(prompts[i]) for i, text in zip(numbers, texts, strict=True)}
        progress.advance(len(numbers))
    found = {i: text for some in world.gather(mine) for i, text in some.items()}
    return [found[i] for i in range(len(prompts))]


def _choice_losses(
    model: LanguageModel, tokenizer: Any, items: Sequence[Item], prompts: Sequence[tuple[str, ...]], how: dict[str, Any]
) -> list[list[list[float]]]:
    """Return for each item and choice -log p in nats of the complete text, and of what follows the choice."""
    clozes = []
    for item, prompt in zip(items, prompts, strict=True):
        before, asks = "".join(prompt[:-1]), prompt[-1]
        for choice in item.choices:
            clozes += [Cloze(before, asks + choice + item.rest), Cloze(before + asks + choice, item.rest)]
    losses = score_clozes(model, clozes, tokenizer, **how).loss.view(len(items), -1, 2)
    return losses.tolist()
