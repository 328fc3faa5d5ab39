"""Learning merges from texts: count the pieces, then merge the most frequent pair repeatedly.

The merges equal those of HF tokenizers' BpeTrainer with a ByteLevel pre-tokenizer and the complete byte alphabet.
Counts have 64 bits. Texts are read once and not kept; memory is bounded (`counts.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError
from webtext.tokenizer.arguments import MAX_INT, checked_int
from webtext.tokenizer.patterns.named import GPT2, UNICODE_VERSION, checked_version, cut, pattern_name
from webtext.tokenizer.text import Texts, in_place
from webtext.tokenizer.train.counts import DEFAULT_MEMORY, PieceCounts
from webtext.tokenizer.train.progress import TrainingProgress
from webtext.tokenizer.vocabulary import BYTE_ORDER, EOT, MAX_ID, Vocabulary, byte_characters, special_ids

GPT2_VOCAB_SIZE = 50_257  # GPT-2 paper, section 2.3: 256 bytes, 50,000 merges, <|endoftext|>


def train_vocabulary(
    texts: Texts | PieceCounts,
    *,
    vocab_size: int = GPT2_VOCAB_SIZE,
    pattern: str = GPT2,
    unicode_version: str = UNICODE_VERSION,
    special_tokens: Iterable[str] | Mapping[str, int] = (EOT,),
    min_frequency: int = 1,
    max_token_length: int | None = None,
    base: Vocabulary | None = None,
    threads: int | None = None,
    max_memory: int = DEFAULT_MEMORY,
    progress: TrainingProgress | None = None,
) -> Vocabulary:
    """Learn a vocabulary of `vocab_size` tokens: the 256 bytes, one token per merge, then the special tokens.

    `texts` may also be counts of pieces made earlier with the same pattern. The vocabulary is smaller if no remaining
    pair occurs `min_frequency` times. Special tokens inside texts are plain text. A token of more than two bytes is
    shorter than `max_token_length` bytes, as in HF tokenizers.

    With `base`, its ids, special tokens and pattern are kept, and the new tokens get the ids after them: pieces are
    encoded by the base and then merged further. If the base is a rank vocabulary (`merges` is None), the result is one,
    too: any two tokens whose joined bytes are a token merge, so a rare piece may be encoded differently from how it was
    merged in training.

    Counting takes at most `max_memory` bytes, and so does merging (`counts.py`). An exception from `progress`, or from
    the iterable, ends training.
    """
    vocab_size = checked_int("vocab_size", vocab_size, 256, MAX_ID - 1, f"256 or more, and less than {MAX_ID:,}")
    checked_int("min_frequency", min_frequency, 1, MAX_INT, "1 or more")
    if max_token_length is not None:
        checked_int("max_token_length", max_token_length, 2, MAX_INT, "2 bytes or more, or None for no limit")
    if base is not None:
        pattern, unicode_version = rule_of_base(base, pattern, unicode_version, special_tokens)
    specials = list(special_ids(special_tokens, 0))
    if base is None:
        check_names(specials, pattern)
    n_tokens, least = (vocab_size - len(specials), 256 + len(specials)) if base is None else (vocab_size, base.size)
    needed = "256 bytes and the special tokens" if base is None else "the ids of the base"
    checked_int("vocab_size", vocab_size, least, MAX_ID - 1, f"{least} or more ({needed}), less than {MAX_ID:,}")
    if progress is not None:
        progress.n_merges = vocab_size - least
    if not isinstance(texts, PieceCounts):
        counts = PieceCounts(pattern, unicode_version, threads=threads, max_memory=max_memory)
        read = in_place(texts)
        counts.add(read if progress is None or isinstance(texts, str | bytes) else progress.watch(read))
    else:
        counts = texts
        _check_rule(counts, pattern, unicode_version)
    on_merges = None if progress is None else progress.merged
    learn = functools.partial(counts.train, n_tokens, min_frequency, max_token_length, on_merges=on_merges)
    if base is None:
        merges = learn()
        tokens = with_merged((bytes([byte]) for byte in BYTE_ORDER), merges)
        vocabulary = Vocabulary(
            tokens=tokens,
            merges=merges,
            pattern=counts.pattern,
            unicode_version=counts.unicode_version,
            special_tokens=special_ids(specials, first=len(tokens)),
        )
    else:
        tokens = [*base.tokens, *[b""] * (base.size - len(base.tokens))]
        merges = learn(base=(tokens, base.merges, base.whole_pieces))
        kept = None if base.merges is None else [*base.merges, *merges]
        vocabulary = dataclasses.replace(base, tokens=with_merged(tokens, merges), merges=kept)
    if progress is not None:
        progress.finish(vocabulary.size - least)
    return vocabulary


def check_names(special_tokens: Iterable[str], pattern: str) -> None:
    """Raise ConfigError for a special token that is empty or a byte's name, or that texts could teach as a word.

    A file writes each byte of such a piece as one character, so it couldn't distinguish the token from the special one.
    """
    of_bytes = byte_characters()[0]
    for name in special_tokens:
        if not name:
            raise ConfigError("a special token is empty", "name it like <|sep|>")
        if not of_bytes.keys() >= set(name) or (len(name) > 1 and name[0] + name[-1] in ("<>", "[]")):
            continue
        text = bytes(map(of_bytes.__getitem__, name)).decode("utf-8", "replace")
        if len(name) == 1 or ("\ufffd" not in text and len(list(cut(pattern_name(pattern), text))) == 1):
            raise ConfigError(f"the special token {name!r} could also be learned from texts", "name it like <|sep|>")


def about_size(vocabulary: Vocabulary, vocab_size: int) -> str:
    """Return a warning if there are fewer tokens than asked for, else ''."""
    if vocabulary.size >= vocab_size:
        return ""
    return (
        f"the vocabulary has {vocabulary.size:,} tokens instead of {vocab_size:,}: "
        "no pair is left in the texts that is frequent and short enough"
    )


def _check_rule(counts: PieceCounts, pattern: str, unicode_version: str) -> None:
    name = pattern_name(pattern)
    if counts.pattern != name:
        raise ConfigError(f"the counts are for the pattern {counts.pattern!r}, not {pattern!r}", "pass their pattern")
    if counts.unicode_version != checked_version(name, unicode_version):
        raise ConfigError(
            f"the counts are for Unicode {counts.unicode_version}, not {unicode_version}", "pass their unicode_version"
        )


def rule_of_base(
    base: Vocabulary, pattern: str, unicode_version: str, special_tokens: Iterable[str] | Mapping[str, int]
) -> tuple[str, str]:
    """Return the base's pattern and Unicode version. Raises ConfigError if the arguments contradict the base."""
    if base.preparation:
        raise ConfigError(f"base has {base.preparation}", "training doesn't apply it: give a base without it")
    if base.lacking:
        raise ConfigError(f"base has no token for the byte 0x{base.lacking[:1].hex()}", "give a base with all bytes")
    if pattern_name(pattern) not in (GPT2, base.pattern):
        raise ConfigError(f"base has the pattern {base.pattern!r}, not {pattern!r}", "leave out the pattern")
    if unicode_version not in (UNICODE_VERSION, base.unicode_version):
        raise ConfigError(f"base uses Unicode {base.unicode_version}", "leave out unicode_version")
    for name in special_ids(special_tokens, 0):
        if name not in base.special_tokens and name != EOT:
            raise ConfigError(f"base has no special token {name!r}", "leave out special_tokens: the base's are kept")
    return base.pattern, base.unicode_version


def with_merged(tokens: Iterable[bytes], merges: Iterable[tuple[int, int]]) -> list[bytes]:
    """Return tokens and then each merge's result."""
    extended = list(tokens)
    for left, right in merges:
        extended.append(extended[left] + extended[right])
    return extended
