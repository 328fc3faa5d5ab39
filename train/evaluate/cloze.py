"""Evaluation sets in which a word is missing: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2016).

LAMBADA, a JSONL file of {"text": ...} as OpenAI published it: the model predicts a passage's last word. It counts as right
where each of its tokens is the likeliest ("word"), or the last of them is ("last token"): the paper's accuracies are near
the latter. The paper also leaves out stop words, by a list that was not published; here none is left out.

CBT, cbtest_CN_test_2500ext.txt or cbtest_NE_…: twenty sentences, and one with a word left out and ten to choose from. As
in the paper each choice is scored by the probability of itself and of the rest of the sentence.
"""

from __future__ import annotations

import itertools
import json
import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from webtext.base.errors import InputError
from webtext.base.progress import Progress
from webtext.train.distributed import World
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.texts import decoded

BLANK = "XXXXX"
N_SENTENCES = 21


class Asked(Protocol):
    """What can be asked: this package's GPT2, or another language model in such a coat."""

    def log_likelihood(self, tokens_bt: Tensor, /) -> Tensor:
        """Natural log-probability of each token after the first: [b, t - 1]."""

    def __call__(self, tokens_bt: Tensor, /) -> Tensor:
        """Logits of the token after each position: [b, t, v]."""


@dataclass(frozen=True, slots=True)
class Cloze:
    """What stands before, and what is scored after it."""

    before: str
    target: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Several ends of one passage, and which of them is right."""

    clozes: tuple[Cloze, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Of each cloze: -log p of its target in nats, its tokens, whether all of them and the last are the likeliest."""

    loss: Tensor
    n_tokens: Tensor
    all_likeliest: Tensor
    last_likeliest: Tensor


def read_lambada(data: bytes, place: str) -> list[Cloze]:
    """The passages without their last word, and that word with the blank before it."""
    clozes = []
    for number, line in enumerate(decoded(data, place).rstrip("\n").split("\n"), 1):
        try:
            before, blank, word = json.loads(line)["text"].rpartition(" ")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            before = blank = word = ""
        if not (before.strip() and word.strip()):
            raise InputError(
                f"'{place}', line {number:,}: no passage", 'expected {"text": "a passage and its last word"}'
            )
        clozes.append(Cloze(before, blank + word))
    return clozes


def read_cbt(data: bytes, place: str, *, detokenize: bool = True) -> list[Choice]:
    """The questions, de-tokenized or as they are."""
    choices = []
    lines = ((number, line) for number, line in enumerate(decoded(data, place).split("\n"), 1) if line.strip())
    while block := list(itertools.islice(lines, N_SENTENCES)):
        try:
            choices.append(_choice([line for _, line in block], detokenize))
        except ValueError as error:
            raise InputError(
                f"'{place}', the question from line {block[0][0]:,}: {error}",
                "expected 20 numbered sentences, then 21 with XXXXX, and after tabs the answer and the choices",
            ) from None
    if not choices:
        raise InputError(f"'{place}' holds no questions", "name a file of the Children's Book Test")
    return choices


def score_clozes(
    model: Asked,
    clozes: Sequence[Cloze],
    tokenizer: Any,
    *,
    context: int,
    batch_size: int,
    world: World,
    predicts: bool,
    progress: Progress | None = None,
) -> Scores:
    """Score every target after an end-of-text and as much of what stands before as the context holds.

    What is likeliest is asked only where `predicts`: it takes the logits of a whole batch at once.
    """
    scores = torch.zeros(4, len(clozes), dtype=torch.float64)
    mine = sorted(range(world.rank, len(clozes), world.size), key=lambda i: len(clozes[i].before))
    for numbers in _batches(mine, batch_size):
        rows = [_tokens(clozes[number], tokenizer, context) for number in numbers]
        # Filled up on the right, which a causal model does not see from where it is scored.
        tokens_bt = torch.full((len(rows), max(len(tokens) for tokens, _ in rows)), int(tokenizer.eot_id))
        for row, (tokens, _) in enumerate(rows):
            tokens_bt[row, : len(tokens)] = torch.tensor(tokens)
        log_p_bt, right_bt = _ask(model, tokens_bt.to(world.device), predicts)
        for row, (number, (tokens, n)) in enumerate(zip(numbers, rows, strict=True)):
            scored = slice(len(tokens) - n - 1, len(tokens) - 1)
            right_t = right_bt[row, scored]
            loss = -log_p_bt[row, scored].double().sum().item()
            scores[:, number] = torch.tensor([loss, n, right_t.all(), right_t[-1]], dtype=torch.float64)
        if progress is not None:
            progress.advance(len(numbers))
    loss_n, n_tokens_n, all_n, last_n = world.sum(scores.to(world.device)).cpu()
    return Scores(loss_n, n_tokens_n, all_n.bool(), last_n.bool())


@torch.no_grad()
def _ask(model: Asked, tokens_bt: Tensor, predicts: bool) -> tuple[Tensor, Tensor]:
    """Of each token after the first its log-probability, and whether it is the likeliest (False where not asked)."""
    if not predicts:
        log_p_bt = model.log_likelihood(tokens_bt)
        return log_p_bt, torch.zeros_like(log_p_bt, dtype=torch.bool)
    logits_btv, targets_bt = model(tokens_bt[:, :-1]).float(), tokens_bt[:, 1:]
    losses_bt = functional.cross_entropy(logits_btv.transpose(1, 2), targets_bt, reduction="none")
    return -losses_bt, logits_btv.argmax(-1) == targets_bt


def _tokens(cloze: Cloze, tokenizer: Any, context: int) -> tuple[list[int], int]:
    """What the model reads, and how many of the last of it are the target."""
    target = tokenizer.encode(cloze.target)
    if len(target) > context:
        raise InputError(
            f"{len(target):,} tokens are to be predicted together and the model's context is {context:,}: "
            f"{cloze.target[:40]!r}",
            "evaluate a model with a longer context on this set",
        )
    before = [tokenizer.eot_id, *tokenizer.encode(cloze.before)]
    return [*before[-(context + 1 - len(target)) :], *target], len(target)


def _batches(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _choice(lines: Sequence[str], detokenize: bool) -> Choice:
    """One question; ValueError says what is wrong with it."""
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
        raise ValueError(f"the answer {answer!r} is none of {'|'.join(choices)[:60]!r}")
    written = _written if detokenize else str
    before = "".join(written(text) + "\n" for text in texts[:-1])
    filled = [written(question.replace(BLANK, choice)) for choice in choices]
    common = len(os.path.commonprefix([*filled, written(question)]).rstrip(" "))
    clozes = tuple(Cloze(before + text[:common], text[common:]) for text in filled)
    return Choice(clozes, choices.index(answer))


def _written(words: str) -> str:
    return TREEBANK.detokenize(" ".join(filter(None, words.split(" "))))
