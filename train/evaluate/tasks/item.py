"""An item of a task: the prompt that the model reads, the examples before it, and what is cut if they don't fit.

A prompt is made of units: words of a document, turns of a conversation. Units are cut from the left, examples first.
The last unit, which asks, is never cut.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from webtext.base.errors import ConfigError, InputError
from webtext.train.settings import SampleSettings


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a set. `example` is the item with its answer, as it stands before other items."""

    id: str
    units: tuple[str, ...]
    golds: tuple[str, ...]
    example: str
    domain: str = ""
    choices: tuple[str, ...] = ()  # instead of an answer: what may stand between the prompt and `rest`
    rest: str = ""


class Judgement(NamedTuple):
    """Rows of results as in `evaluate_task`, the score of each item, and what else belongs into the answer."""

    results: Sequence[Mapping[str, Any]]
    scores: Sequence[Any]
    more: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Task:
    """How a set is read, answered and judged; `judge` gets the items, the answers and the answers' log p in nats.

    `clean` cuts from a generated text what counts as the answer. Without `sampling` an item's choices are scored, and
    its answer is -log p of each, [choice][of the complete text, of the rest]. The log p of answers, with the first of
    `stops` after them, are computed if `needs_log_p`. `library` is a package that `judge` imports.
    """

    read: Callable[[str], list[Item]]
    judge: Callable[[Sequence[Item], Sequence[Any], Sequence[float]], Judgement]
    sampling: SampleSettings | None
    stops: tuple[str, ...] = ()
    clean: Callable[[str], str] = str.strip
    shots: int = 0
    needs_log_p: bool = False
    library: str = ""


def greedy(max_tokens: int) -> SampleSettings:
    """Return settings that always take the likeliest token."""
    return SampleSettings(max_tokens=max_tokens, temperature=0, top_k=None)


def row(measure: str, unit: str, values: Sequence[float], scale: float = 1) -> dict[str, Any]:
    """Return a row of results: the mean of the values, times `scale`."""
    return {"measure": measure, "unit": unit, "units": len(values), "value": scale * sum(values) / len(values)}


def examples_before(own: Sequence[str], pool: Sequence[str], n: int, place: str) -> list[tuple[str, ...]]:
    """Return for each item the first n examples of the pool that are not its own; InputError without items."""
    if not own:
        raise InputError(f"'{place}' has no items", "name another file")
    examples = list(dict.fromkeys(pool))
    chosen = [tuple(itertools.islice((each for each in examples if each != mine), max(n, 0))) for mine in own]
    if any(len(found) != n for found in chosen):
        raise ConfigError(
            f"--shots is {n}, but '{place}' has {len(examples):,} examples, and an item is not its own example",
            "ask for fewer, or name a larger file: --shots-from FILE",
        )
    return chosen


def fitted(units: Sequence[str], room: int, tokenizer: Any, item_id: str) -> tuple[str, ...]:
    """Return as many of the last units as have at most `room` tokens together; InputError if the last one has more."""

    def fits(start: int) -> bool:
        return len(tokenizer.encode("".join(units[start:]))) <= room

    start = 0 if fits(0) else bisect_left(range(len(units)), True, key=fits)
    if start == len(units):
        n = len(tokenizer.encode(units[-1]))
        raise InputError(
            f"item '{item_id}' asks in {n:,} tokens, but beside the answer the context has room for {max(room, 0):,}",
            "evaluate a model with a longer context on this set",
        )
    return tuple(units[start:])


@contextmanager
def expected(place: str, form: str) -> Iterator[None]:
    """Turn an error of looking into data of another form into an InputError that names the place."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        wrong = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{place}: {wrong[:150]}", f"expected {form}") from None


def text_of(value: Any) -> str:
    """Return the value if it is a text with more than blanks, else raise ValueError."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r:.60} is not a text")
    return value


def texts_of(values: Any) -> tuple[str, ...]:
    """Return a list of at least one text, else raise ValueError."""
    if not isinstance(values, list) or not values:
        raise ValueError(f"{values!r:.60} is not a list of texts" if values != [] else "the list of answers is empty")
    return tuple(map(text_of, values))
