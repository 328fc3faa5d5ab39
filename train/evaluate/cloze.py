"""Evaluation sets with a missing word: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2016).

LAMBADA is a JSONL file of {"text": ...} as OpenAI published it. The model predicts a passage's last word. The word is
right if each of its tokens is the likeliest ("word"), or if its last token is ("last token"); the paper's accuracies
are close to the latter. Table 3's accuracies use a list of stop words, which is not published. With such a list, a token
that would complete a stop word is not a candidate, so a last word that is a stop word counts as wrong.

CBT is cbtest_CN_test_2500ext.txt or cbtest_NE_…: each question has twenty sentences, then one with a word left out and
ten words to choose from. As in the paper, a choice is scored by the probability of itself and of the rest of the
sentence.
"""

from __future__ import annotations

import itertools
import json
import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from webtext.base.errors import InputError
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.measured import Judge
from webtext.train.evaluate.texts import decoded
from webtext.train.model.gpt2 import GPT2

BLANK = "XXXXX"
N_SENTENCES = 21


@dataclass(frozen=True, slots=True)
class Cloze:
    """A text, and its continuation that is scored."""

    before: str
    target: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Several endings of one passage; `answer` is the index of the right one."""

    clozes: tuple[Cloze, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class Scores:
    """For each cloze, [n]: -log p of its target in nats, its number of tokens, whether all or the last are likeliest.

    The same with the filter of stop words; and whether the text before didn't fit.
    """

    loss: Tensor
    n_tokens: Tensor
    all_likeliest: Tensor
    last_likeliest: Tensor
    all_filtered: Tensor
    last_filtered: Tensor
    context_cut: Tensor


def read_lambada(data: bytes, place: str) -> list[Cloze]:
    """Return each passage split before its last word, which keeps the blank before it. InputError names a bad line."""
    clozes = []
    for number, line in enumerate(decoded(data, place).rstrip("\n").split("\n"), 1):
        try:
            before, blank, word = json.loads(line)["text"].rpartition(" ")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            before = blank = word = ""
        if not (before.strip() and word.strip()):
            raise InputError(
                f"'{place}', line {number:,}: not a passage", 'expected {"text": "all with the last word"}'
            )
        clozes.append(Cloze(before, blank + word))
    return clozes


def read_cbt(data: bytes, place: str) -> list[Choice]:
    """Return the questions, de-tokenized. InputError names the first damaged question."""
    choices = []
    lines = ((number, line) for number, line in enumerate(decoded(data, place).split("\n"), 1) if line.strip())
    while block := list(itertools.islice(lines, N_SENTENCES)):
        try:
            choices.append(_choice([line for _, line in block]))
        except ValueError as error:
            raise InputError(
                f"'{place}', the question from line {block[0][0]:,}: {error}",
                "expected 20 numbered sentences, then 21 with XXXXX, and after tabs the answer and the choices",
            ) from None
    if not choices:
        raise InputError(f"'{place}' has no questions", "name a file of the Children's Book Test")
    return choices


@torch.no_grad()
def score_clozes(judge: Judge, clozes: Sequence[Cloze], stop_words: Sequence[str] = ()) -> Scores:
    """Score every target, given an end-of-text and as much of the text before the target as fits into the context."""
    model, tokenizer, world = judge.model, judge.tokenizer, judge.world
    scores, size = torch.zeros(7, len(clozes), dtype=torch.float64), judge.settings.batch_size
    completions = _completions(stop_words, tokenizer)
    mine = sorted(range(len(clozes))[world.rank :: world.size], key=lambda i: len(clozes[i].before))
    with judge.run.console.progress(len(clozes), "eval", "examples") as progress:
        for numbers in (mine[start : start + size] for start in range(0, len(mine), size)):
            rows = [_tokens(clozes[number], tokenizer, model.config.context) for number in numbers]
            scores[:, numbers] = _scores(model, rows, tokenizer.eot_id, completions)
            progress.advance(len(numbers))
    losses, n_tokens, *facts_n = world.sum(scores.to(world.device)).cpu()
    return Scores(losses, n_tokens, *(each.bool() for each in facts_n))


def _scores(
    model: GPT2, rows: Sequence[tuple[list[int], int]], eot_id: int, completions: dict[tuple[int, ...], list[int]]
) -> Tensor:
    """Return `Scores`, [7, b], of rows: tokens, and how many of the last are the target.

    Rows are padded on the right, which a causal model doesn't see at the scored positions.
    """
    tokens_bt = pad_sequence([torch.tensor(tokens) for tokens, _ in rows], batch_first=True).to(model.device)
    places = [(i, at) for i, (tokens, n) in enumerate(rows) for at in range(len(tokens) - n, len(tokens))]
    rows_n, at_n = torch.tensor(places).T
    logits_nv, targets_n = model.logits(model.hidden(tokens_bt[:, :-1])[rows_n, at_n - 1]), tokens_bt[rows_n, at_n]
    loss_n = functional.cross_entropy(logits_nv.double(), targets_n, reduction="none")
    right_n = logits_nv.argmax(-1) == targets_n
    barred_n = (_barred(tokens[-n:], i, completions) for tokens, n in rows for i in range(n))
    for logits_v, barred in zip(logits_nv, barred_n, strict=True):
        logits_v[barred] = -torch.inf
    judged_3n = torch.stack([loss_n, right_n, logits_nv.argmax(-1) == targets_n]).cpu().double()
    judged = zip(rows, torch.split(judged_3n, [n for _, n in rows], dim=1), strict=True)
    scores = [
        [loss_t.sum(), n, right_t.all(), right_t[-1], filtered_t.all(), filtered_t[-1], tokens[0] != eot_id]
        for (tokens, n), (loss_t, right_t, filtered_t) in judged
    ]
    return torch.tensor(scores, dtype=torch.float64).T


def _completions(words: Sequence[str], tokenizer: Any) -> dict[tuple[int, ...], list[int]]:
    """Map the first tokens of each word, after a blank and in any usual case, to the tokens that complete it."""
    completions: dict[tuple[int, ...], list[int]] = {}
    for form in {form for word in words for form in (word, word.lower(), word.capitalize(), word.upper())}:
        *first, last = tokenizer.encode(f" {form}")
        completions.setdefault(tuple(first), []).append(last)
    return completions


def _barred(target: list[int], i: int, completions: dict[tuple[int, ...], list[int]]) -> list[int]:
    """Return the tokens that may not follow a target's first i tokens; its own next one may, unless it is the last."""
    return [token for token in completions.get(tuple(target[:i]), []) if token != target[i] or i == len(target) - 1]


def _tokens(cloze: Cloze, tokenizer: Any, context: int) -> tuple[list[int], int]:
    """Return the tokens that the model reads, and how many of the last are the target."""
    target = tokenizer.encode(cloze.target)
    if len(target) > context:
        raise InputError(
            f"{len(target):,} tokens have to be predicted together, but the model's context is {context:,}: "
            f"{cloze.target[:40]!r}",
            "evaluate a model with a longer context on this set",
        )
    before = [tokenizer.eot_id, *tokenizer.encode(cloze.before)]
    return [*before[-(context + 1 - len(target)) :], *target], len(target)


def _choice(lines: Sequence[str]) -> Choice:
    """Parse one question; the ValueError names its error."""
    texts = []
    for number, line in enumerate(lines, 1):
        found, blank, text = line.partition(" ")
        if found != str(number) or not blank:
            raise ValueError(f"sentence {number} is {line[:40]!r}")
        texts.append(text)
    question, *rest = texts[-1].split("\t")
    if len(texts) != N_SENTENCES or len(rest) < 2 or question.split(" ").count(BLANK) != 1:
        raise ValueError(f"its last line is {lines[-1][:40]!r}")
    answer, choices = rest[0], rest[-1].split("|")
    if answer not in choices or not all(choices):
        raise ValueError(f"the answer {answer!r} is not one of {'|'.join(choices)[:60]!r}")
    before = "".join(_written(text) + "\n" for text in texts[:-1])
    filled = [_written(question.replace(BLANK, choice)) for choice in choices]
    common = len(os.path.commonprefix([*filled, _written(question)]).rstrip(" "))
    clozes = tuple(Cloze(before + text[:common], text[common:]) for text in filled)
    return Choice(clozes, choices.index(answer))


def _written(words: str) -> str:
    return TREEBANK.detokenize(" ".join(filter(None, words.split(" "))))
