"""Natural Questions without documents (Kwiatkowski et al. 2019): NQ-open.dev.jsonl; section 3.8 of the paper.

The context begins with pairs of question and answer, which show how short an answer is; the paper doesn't say how
many. The model answers greedily, up to the line end. An answer is right if it equals one of the given answers by
SQuAD's words. Its probability is that of its tokens and of the line end after them. Beside all answers, the most
confident 1 % are judged, and the 30 most confident are listed, as in the paper's Table 5.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, greedy, row, text_of, texts_of
from webtext.train.evaluate.tasks.words import exact_match
from webtext.train.evaluate.texts import decoded, read_file

LISTED = 30


def _read(path: str) -> list[Item]:
    items = []
    for number, line in enumerate(decoded(read_file(path), path).rstrip("\n").split("\n"), 1):
        with expected(f"'{path}', line {number:,}", '{"question": "who …", "answer": ["…", …]}'):
            asked = json.loads(line)
            question, golds = text_of(asked["question"]).removesuffix("?"), texts_of(asked["answer"])
        items.append(Item(f"line {number}", (f"Q: {question}?\nA:",), golds, f"Q: {question}?\nA: {golds[0]}\n"))
    return items


def _judge(items: Sequence[Item], answers: Sequence[str], log_p: Sequence[float]) -> Judgement:
    right = [max(exact_match(text, gold) for gold in item.golds) for item, text in zip(items, answers, strict=True)]
    surest = sorted(range(len(items)), key=lambda i: -log_p[i])
    percent = surest[: max(1, len(items) // 100)]
    rows = [
        row("accuracy, exact match", "question", right),
        row("accuracy, most confident 1 %", "question", [right[i] for i in percent]),
    ]
    listed = [
        {
            "id": items[i].id,
            "question": items[i].units[-1].removeprefix("Q: ").removesuffix("\nA:"),
            "answer": answers[i],
            "right": bool(right[i]),
            "probability": math.exp(log_p[i]),
        }
        for i in surest[:LISTED]
    ]
    return Judgement(rows, right, {"most_confident": listed})


TASK = Task(_read, _judge, greedy(32), ("\n",), shots=5, needs_log_p=True)
