"""Functions of the task files: CoQA's questions, first sentences, and scores by the words of lm-eval and rouge-score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lm_eval.tasks.qasper.metrics import f1_abstractive, normalize_answer

ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rougeLsum"}  # of complete summaries, as the script of 2004
_END = re.compile(r"[.!?][\"'”’»)\]]{0,3}\s{1,50}(?=[^a-z\s])|\n\s*")  # bounded, so that no text takes long
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sen|Gen|Gov|Rep|Prof|No|vs)\.\s+\Z")


def coqa_questions(stories: Any) -> Any:
    """Return a row for each question of a datasets.Dataset of stories: its prompt and its human answers."""
    rows = []
    for story in stories:
        prompt = f"{story['story']}\n\n"
        more = (story.get("additional_answers") or {}).values()
        answers = zip(*([turn["input_text"] for turn in turns] for turns in (story["answers"], *more)), strict=True)
        for question, golds in zip(story["questions"], answers, strict=True):
            prompt += f"Q: {question['input_text']}\n\nA:"
            rows.append({"id": story["id"], "turn": question["turn_id"], "prompt": prompt, "answers": golds})
            prompt += f" {golds[0]}\n\n"
    return stories.from_list(rows)


def coqa_f1(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return the F1 of the answer's first line, as the official script does.

    Of several human answers each is left out in turn and the best of the others counts, because a human answer is
    judged in the same way.
    """
    answer, golds = results[0].strip().split("\n")[0], doc["answers"]
    scores = [f1_abstractive([answer], [gold]) for gold in golds]
    others = [[*scores[:i], *scores[i + 1 :]] for i in range(len(golds))] if len(golds) > 1 else [scores]
    return {"f1": sum(map(max, others)) / len(others)}


def exact_match(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return whether an answer has the words of a given one, without case, punctuation and articles."""
    return {"exact_match": float(normalize_answer(results[0]) in map(normalize_answer, doc["answer"]))}


def rouge(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return ROUGE's F1 with Porter's stems, 0 to 1; sentences are lines."""
    from rouge_score.rouge_scorer import RougeScorer

    found = RougeScorer(list(ROUGE.values()), use_stemmer=True).score(doc["highlights"], results[0])
    scores = {name: found[key].fmeasure for name, key in ROUGE.items()}
    return scores | {"rouge": sum(scores.values()) / len(scores)}


def _first_of_each(n: int, answers: Sequence[Sequence[str]], _docs: object) -> list[list[str]]:
    return [[first_sentences(text, n) for text in some] for some in answers]


first_sentence, three_sentences = (partial(_first_of_each, n) for n in (1, 3))  # filters of task files


def first_sentences(text: str, n: int) -> str:
    """Return the first n sentences, one per line; the paper doesn't say where one ends.

    >>> first_sentences("Mr. A. Cat sat. He slept.", 1)
    'Mr. A. Cat sat.'
    """
    text = text.strip()
    found = [(end.start(), end.end()) for end in _END.finditer(text)]
    ends = [end for start, end in found if not _ABBREVIATION.search(text, max(0, start - 5), end)]
    parts = (text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True))
    return "\n".join([part for part in parts if part][:n])
