"""CoQA, questions in a conversation about a document (Reddy et al. 2018): coqa-dev-v1.0.json; section 3.5 of the paper.

The model reads the document, the questions before with their given answers, and "A:" after the last question, and
answers greedily. F1 is the official script's, by the words of SQuAD: if a question has several human answers, each is
left out in turn and the best of the others counts, because a human answer is judged in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, greedy, row, text_of, texts_of
from webtext.train.evaluate.tasks.words import f1
from webtext.train.evaluate.texts import decoded, read_file

FORM = 'coqa-dev-v1.0.json: {"data": [{"id", "source", "story", "questions", "answers", "additional_answers"?}]}'


def turn_f1(answer: str, golds: Sequence[str]) -> float:
    """Return the F1 of an answer to one question, 0 to 1, by the human answers."""
    others = [[*golds[:i], *golds[i + 1 :]] for i in range(len(golds))] if len(golds) > 1 else [golds]
    return sum(max(f1(answer, gold) for gold in some) for some in others) / len(others)


def _read(path: str) -> list[Item]:
    with expected(f"'{path}'", FORM):
        stories = list(json.loads(decoded(read_file(path), path))["data"])
    items: list[Item] = []
    for n, story in enumerate(stories):
        with expected(f"'{path}', data[{n}]", FORM):
            items += _turns(story)
    return items


def _turns(story: Any) -> list[Item]:
    text, domain, name = (text_of(story[key]) for key in ("story", "source", "id"))
    more = story.get("additional_answers", {}).values()
    columns = [[turn["input_text"] for turn in turns] for turns in (story["questions"], story["answers"], *more)]
    questions, *answers = map(texts_of, columns)
    by_turn = list(zip(*answers, strict=True))
    turns = [f"Q: {question}\n\nA: {golds[0]}\n\n" for question, golds in zip(questions, by_turn, strict=True)]
    document = (*re.findall(r"\S+\s*", text), "\n\n")
    return [
        Item(
            f"{name} turn {i + 1}",
            (*document, *turns[:i], f"Q: {questions[i]}\n\nA:"),
            by_turn[i],
            f"{text}\n\n{''.join(turns)}",
            domain,
        )
        for i in range(len(turns))
    ]


def _judge(items: Sequence[Item], answers: Sequence[str], _: Sequence[float]) -> Judgement:
    scores = [turn_f1(answer, item.golds) for item, answer in zip(items, answers, strict=True)]
    rows = [row("F1", "question", scores, 100)]
    for domain in sorted({item.domain for item in items}):
        mine = [score for item, score in zip(items, scores, strict=True) if item.domain == domain]
        rows.append(row(f"F1, {domain}", "question", mine, 100))
    return Judgement(rows, scores)


def _first_line(said: str) -> str:
    return said.strip().split("\n")[0]


TASK = Task(_read, _judge, greedy(64), ("\nQ:",), _first_line)
