"""Evaluation sets with a missing word: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2016).

LAMBADA is a JSONL file of {"text": ...} as OpenAI published it. The model predicts a passage's last word. The word is
right if each of its tokens is the likeliest ("word"), or if its last token is ("last token"); the paper's accuracies
are close to the latter. The paper's 63.24 % (section 3.3) use a list of stop words, which is not published.

CBT is cbtest_CN_test_2500ext.txt or cbtest_NE_…: each question has twenty sentences, then one with a word left out and
ten words to choose from. As in the paper, a choice is scored by the probability of itself and of the rest of the
sentence.
"""

from __future__ import annotations

import itertools
import json
import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from webtext.base.errors import InputError
from webtext.base.run import Run
from webtext.train.distributed import World
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.texts import decoded
from webtext.train.model.gpt2 import GPT2
from webtext.train.settings import EvalSettings

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
class Judge:
    """A model on its device, with everything that a measurement needs."""

    model: GPT2
    tokenizer: Any
    settings: EvalSettings
    world: World
    run: Run


@dataclass(frozen=True, slots=True)
class Scores:
    """For each cloze, [n]: -log p of its target in nats, its number of tokens, whether all or the last are likeliest.

    `context_cut` says whether the text before didn't fit.
    """

    loss: Tensor
    n_tokens: Tensor
    all_likeliest: Tensor
    last_likeliest: Tensor
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
                f"'{place}', line {number:,}: not a passage", 'expected {"text": "a passage and its last word"}'
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
def score_clozes(judge: Judge, clozes: Sequence[Cloze]) -> Scores:
    """Score every target, given an end-of-text and as much of the text before the target as fits into the context.

    Neighbours in `clozes` that share the text before their target go to one process, which reads that text once.
    """
    model, tokenizer, world = judge.model, judge.tokenizer, judge.world
    scores = torch.zeros(5, len(clozes), dtype=torch.float64)
    groups = [list(group) for _, group in itertools.groupby(range(len(clozes)), key=lambda i: clozes[i].before)]
    mine = sorted(groups[world.rank :: world.size], key=lambda group: len(clozes[group[0]].before))
    with judge.run.console.progress(len(clozes), "eval", "examples") as progress:
        for numbers in _batches(mine, judge.settings.batch_size):
            rows = [_tokens(clozes[number], tokenizer, model.config.context) for number in numbers]
            sizes = [n for _, n in rows]
            targets_n = torch.tensor([token for tokens, n in rows for token in tokens[-n:]], device=world.device)
            logits_nv = _target_logits(model, rows, int(tokenizer.eot_id))
            loss_n = torch.split(functional.cross_entropy(logits_nv, targets_n, reduction="none").cpu(), sizes)
            right_n = torch.split((logits_nv.argmax(-1) == targets_n).cpu(), sizes)
            for number, (tokens, n), loss_t, right_t in zip(numbers, rows, loss_n, right_n, strict=True):
                facts = right_t.all(), right_t[-1], tokens[0] != tokenizer.eot_id
                scores[:, number] = torch.tensor([loss_t.double().sum(), n, *facts], dtype=torch.float64)
            progress.advance(len(numbers))
    losses, n_tokens, *facts_n = world.sum(scores.to(world.device)).cpu()
    return Scores(losses, n_tokens, *(each.bool() for each in facts_n))


def _target_logits(model: GPT2, rows: Sequence[tuple[list[int], int]], filler: int) -> Tensor:
    """Return the logits that predict the targets, row after row, [n, v].

    A row has its tokens, and how many of the last are the target. Rows are padded on the right, which a causal model
    does not see at the scored positions. If rows differ only in their targets, the text before is read once, and each
    row continues from its keys and values.
    """
    befores = {tuple(tokens[:-n]) for tokens, n in rows}
    if len(rows) == 1 or len(befores) > 1:
        places = [(i, len(tokens) - 1 - k) for i, (tokens, n) in enumerate(rows) for k in range(n, 0, -1)]
        return _logits_at(model, [tokens[:-1] for tokens, _ in rows], places, filler)
    cache = model.empty_cache(len(rows))
    first_1v = model.next_logits(torch.tensor([befores.pop()], device=model.device), cache)[:1]
    after = [tokens[-n:-1] for tokens, n in rows]
    parts = [first_1v] * len(rows)
    if any(after):
        places = [(i, k) for i, tokens in enumerate(after) for k in range(len(tokens))]
        rest_nv = _logits_at(model, after, places, filler, cache)
        rests = torch.split(rest_nv, [len(tokens) for tokens in after])
        parts = [part for pair in zip(parts, rests, strict=True) for part in pair]
    return torch.cat(parts)


def _logits_at(
    model: GPT2, rows: Sequence[Sequence[int]], places: Sequence[tuple[int, int]], filler: int, cache: Any = None
) -> Tensor:
    rows_n, positions_n = torch.tensor(places).T
    longest = max(map(len, rows))
    tokens_bt = torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
    return model.next_logits(tokens_bt.to(model.device), cache, (rows_n, positions_n))


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


def _batches(groups: Sequence[Sequence[int]], size: int) -> Iterator[Sequence[int]]:
    """Yield batches of at most `size` numbers. A group of several is not mixed with others; groups of one are."""
    for is_alone, some in itertools.groupby(groups, key=lambda group: len(group) > 1):
        for numbers in some if is_alone else [[number for group in some for number in group]]:
            yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def _choice(lines: Sequence[str]) -> Choice:
    """Parse one question; the ValueError says what is wrong with it."""
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
