"""Training reports one fraction for counting and merging: it never falls, and is 1 at the end and not before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.text import Text
from webtext.tokenizer.train import progress as progress_
from webtext.tokenizer.train.progress import TrainingProgress

Reported = list[tuple[float | None, int, int]]


def reported(texts: Iterable[Text], vocab_size: int = 400, base: Tokenizer | None = None) -> Reported:
    """Return all reports of a training, whose last one must be the only one that says it is done."""
    reports: Reported = []
    Tokenizer.train(texts, vocab_size=vocab_size, base=base, progress=lambda *report: reports.append(report), threads=2)
    for (before, *counts), (after, *later) in itertools.pairwise(reports):
        assert before is None or (after is not None and before <= after)
        assert counts <= later
        assert before is None or before < 1
    assert reports[-1][0] == 1
    return reports


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[Text]:
    monkeypatch.setattr(progress_, "REPORTED_BYTES", 1000)
    return [f"text {number} and {number * 7919 % 1000} more words, été" for number in range(300)]


def test_a_list_has_a_fraction_from_the_start(texts: list[Text]) -> None:
    reports = reported(texts)
    n_characters = sum(map(len, texts))
    fractions = [fraction for fraction, _, n_merges in reports if n_merges == 0 and fraction is not None]
    assert len(fractions) > 5
    assert fractions[0] < fractions[-1] / 4
    assert reports[-1] == (1, n_characters, 400 - 257)


def test_an_iterator_shows_how_much_was_counted(texts: list[Text]) -> None:
    reports = reported(iter(texts))
    unknown = [n for fraction, n, _ in reports if fraction is None]
    assert unknown == sorted(set(unknown))
    assert len(unknown) > 5


def test_training_that_ends_early_ends_with_1() -> None:
    """Only three merges are possible, and none for an empty text or a vocabulary of bytes."""
    assert reported(["abcd"], vocab_size=50_000)[-1] == (1, 4, 3)
    assert reported([], vocab_size=50_000)[-1] == (1, 0, 0)
    assert reported(["", "abcd"], vocab_size=257)[-1] == (1, 4, 0)
    base = Tokenizer.train(["ab"], vocab_size=258)
    assert reported(["abcd"], vocab_size=259, base=base)[-1] == (1, 4, 1)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.none() | st.floats(0, 1)), max_size=9), st.integers(0, 99))
def test_whatever_is_reported_the_fraction_rises(steps: list[tuple[int, float | None]], n_merges: int) -> None:
    fractions: list[float] = []
    progress = TrainingProgress(lambda fraction, *_: fractions.append(fraction or 0), threads=2, n_merges=n_merges)
    for n_bytes, share in steps:
        progress.counted(n_bytes, share)
    for done in range(n_merges + 1):
        progress.merged(done)
    assert fractions == sorted(fractions)
    assert all(fraction < 1 for fraction in fractions)


def test_an_exception_passes_through(texts: list[Text]) -> None:
    """From the iterator or from the callback, while counting or while merging."""

    def broken() -> Iterator[Text]:
        yield from texts
        raise LookupError("the source")

    with pytest.raises(LookupError, match="the source"):
        Tokenizer.train(broken(), vocab_size=300)

    def stop(at_merge: int) -> Callable[[float | None, int, int], None]:
        def report(fraction: float | None, n_bytes: int, n_merges: int) -> None:
            if n_merges >= at_merge:
                raise KeyError

        return report

    for at_merge in (0, 1):
        with pytest.raises(KeyError):
            Tokenizer.train(texts, vocab_size=300, progress=stop(at_merge))
    with pytest.raises(ConfigError, match="progress is 3"):
        Tokenizer.train(texts, vocab_size=300, progress=3)  # type: ignore[arg-type]
