"""Evaluation sets in which a word is missing: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2016).

LAMBADA, a JSONL file of {"text": ...} as OpenAI published it: the model predicts a passage's last word. It counts as right
where each of its tokens is the likeliest ("word"), or the last of them is ("last token"): the paper's accuracies are near
the latter. With a list of stop words, as the paper's 63.24 % (section 3.3; its list is not published), a token that would
complete one of them is not a candidate, so a last word that is a stop word counts as wrong.

CBT, cbtest_CN_test_2500ext.txt or cbtest_NE_…: twenty sentences, and one with a word left out and ten to choose from. As
in the paper each choice is scored by the probability of itself and of the rest of the sentence.
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
from webtext.base.progress import Progress
from webtext.train.cache import empty_caches
from webtext.train.cross_entropy import chunk_rows, sum_dtype
from webtext.train.distributed import World
from webtext.train.evaluate.detokenize import TREEBANK
from webtext.train.evaluate.texts import decoded
from webtext.train.model import GPT2

BLANK = "XXXXX"
N_SENTENCES = 21


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
    """Of each cloze: -log p of its target in nats, its tokens, whether all of them and the last are the likeliest.

    The last two are the same with a stop-word filter; without stop words they repeat the two before.
    """

    loss: Tensor
    n_tokens: Tensor
    all_likeliest: Tensor
    last_likeliest: Tensor
    all_filtered: Tensor
    last_filtered: Tensor


def read_stop_words(data: bytes, place: str) -> list[str]:
    """The words of a list, one per line; blank lines are skipped. InputError names the first line that is not a word."""
    words = [line.strip() for line in decoded(data, place).split("\n")]
    for number, word in enumerate(words, 1):
        if len(word.split()) > 1 or not word.isprintable():
            raise InputError(f"'{place}', line {number:,}: {word[:40]!r} is not a word", "expected one word per line")
    if not any(words):
        raise InputError(f"'{place}' holds no words", "expected one word per line")
    return list(filter(None, words))


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


@torch.no_grad()
def score_clozes(
    model: GPT2,
    clozes: Sequence[Cloze],
    tokenizer: Any,
    *,
    batch_size: int,
    world: World,
    progress: Progress | None = None,
    stop_words: Sequence[str] = (),
) -> Scores:
    """Score every target after an end-of-text and as much of what comes before it as the context holds.

    Targets after one text (neighbours in `clozes`) are scored by one process, which reads the text once.
    """
    scores = torch.zeros(6, len(clozes), dtype=torch.float64)
    completions = _completions(stop_words, tokenizer)
    groups = [list(group) for _, group in itertools.groupby(range(len(clozes)), key=lambda i: clozes[i].before)]
    mine = sorted(groups[world.rank :: world.size], key=lambda group: len(clozes[group[0]].before))
    for numbers in _batches(mine, batch_size):
        rows = [_tokens(clozes[number], tokenizer, model.config.context) for number in numbers]
        targets = [tokens[-n:] for tokens, n in rows]
        targets_n = torch.tensor(list(itertools.chain(*targets)), device=world.device)
        barred_n = [_barred(target, i, completions) for target in targets for i in range(len(target))]
        hidden_nc = _hidden_of_targets(model, rows, int(tokenizer.eot_id), world.device)
        judged = _judge(model, hidden_nc, targets_n, barred_n)
        sizes = [n for _, n in rows]
        parts = zip(*(torch.split(judged_n, sizes) for judged_n in judged), strict=True)
        for number, (loss_t, right_t, filtered_t) in zip(numbers, parts, strict=True):
            likeliest = [right_t.all(), right_t[-1], filtered_t.all(), filtered_t[-1]]
            scores[:, number] = torch.tensor([loss_t.double().sum(), len(loss_t), *likeliest], dtype=torch.float64)
        if progress is not None:
            progress.advance(len(numbers))
    losses, n_tokens, *likeliest = world.sum(scores.to(world.device)).cpu()
    return Scores(losses, n_tokens, *(each.bool() for each in likeliest))


def _completions(words: Sequence[str], tokenizer: Any) -> dict[tuple[int, ...], list[int]]:
    """The first tokens of each word, after a blank and in any usual case, and those that complete one after them."""
    completions: dict[tuple[int, ...], list[int]] = {}
    for form in {form for word in words for form in (word, word.lower(), word.capitalize(), word.upper())}:
        *first, last = tokenizer.encode(f" {form}")
        completions.setdefault(tuple(first), []).append(last)
    return completions


def _barred(target: list[int], i: int, completions: dict[tuple[int, ...], list[int]]) -> list[int]:
    """The tokens that may not follow the first i of a target; the next one may, unless it is the target's last."""
    return [token for token in completions.get(tuple(target[:i]), []) if token != target[i] or i == len(target) - 1]


def _judge(
    model: GPT2, hidden_nc: Tensor, targets_n: Tensor, barred_n: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """On the CPU: -log p of each target in nats, whether it is the likeliest, and whether it is among those not barred."""
    losses, right, filtered = [], [], []
    for rows in chunk_rows(len(targets_n), model.token_embedding.weight):
        logits_nv = model.logits(hidden_nc[rows]).to(sum_dtype(hidden_nc))
        losses.append(functional.cross_entropy(logits_nv, targets_n[rows], reduction="none"))
        right.append(logits_nv.argmax(-1) == targets_n[rows])
        for logits_v, tokens in zip(logits_nv, barred_n[rows], strict=True):
            logits_v[tokens] = -torch.inf
        filtered.append(logits_nv.argmax(-1) == targets_n[rows])
    return torch.cat(losses).cpu(), torch.cat(right).cpu(), torch.cat(filtered).cpu()


def _hidden_of_targets(model: GPT2, rows: Sequence[tuple[list[int], int]], filler: int, device: torch.device) -> Tensor:
    """What the targets' logits are made of, row after row, [n, c]; a row is its tokens, and how many of the last are the target.

    Rows are filled up on the right, which a causal model does not see from where it is scored. Where they differ in their
    targets alone, what stands before is read once, and each row goes on from its keys and values.
    """
    befores = {tuple(tokens[:-n]) for tokens, n in rows}
    if len(rows) > 1 and len(befores) == 1:
        caches = empty_caches(model.config, len(rows), model.final_norm.weight)
        before_btc = model.hidden(torch.tensor([befores.pop()], device=device), caches)  # fills the caches of all rows
        hidden_btc = before_btc[:, -1:].expand(len(rows), -1, -1)
        after = [tokens[-n:-1] for tokens, n in rows]
        if any(after):
            hidden_btc = torch.cat([hidden_btc, model.hidden(_filled(after, filler).to(device), caches)], 1)
        return torch.cat([hidden_tc[:n] for hidden_tc, (_, n) in zip(hidden_btc, rows, strict=True)])
    hidden_btc = model.hidden(_filled([tokens[:-1] for tokens, _ in rows], filler).to(device))
    ends = [(len(tokens) - 1, n) for tokens, n in rows]
    return torch.cat([hidden_tc[end - n : end] for hidden_tc, (end, n) in zip(hidden_btc, ends, strict=True)])


def _filled(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


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


def _batches(groups: Sequence[Sequence[int]], size: int) -> Iterator[Sequence[int]]:
    """At most `size` numbers at once: of a group of several alone, of groups of one together."""
    for is_alone, some in itertools.groupby(groups, key=lambda group: len(group) > 1):
        for numbers in some if is_alone else [[number for group in some for number in group]]:
            yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


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
