"""OpenAI's rank files (*.tiktoken): each line has a token in base64 and its id; the smallest id merges first.

A rank file contains neither the pattern nor the special tokens. OpenAI's published files are recognised by their
SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import _bpe
from webtext.tokenizer.patterns.named import GPT2, pattern_name
from webtext.tokenizer.vocabulary import EOT, MAX_ID, Vocabulary, special_ids

# SHA-256 of a published file: its pattern and special tokens (tiktoken 0.14, `tiktoken_ext/openai_public.py`).
PUBLISHED: dict[str, tuple[str, dict[str, int]]] = {
    # r50k_base
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": (GPT2, {EOT: 50256}),
    # p50k_base
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": (GPT2, {EOT: 50256}),
    # cl100k_base
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
        "cl100k",
        {EOT: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
        | {"<|endofprompt|>": 100276},
    ),
    # o200k_base
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (
        "o200k",
        {EOT: 199999, "<|endofprompt|>": 200018},
    ),
}


def parse(
    data: bytes, place: str, pattern: str | None, special_tokens: Iterable[str] | Mapping[str, int] | None
) -> Vocabulary:
    """Read a rank file; special tokens passed as a list get the ids after the largest id.

    Raises InputError for a damaged file, and ConfigError if `pattern` isn't the one the file was published with.
    """
    known_pattern, known_specials = PUBLISHED.get(hashlib.sha256(data).hexdigest(), (None, {}))
    if known_pattern is None and pattern is None:
        raise InputError(
            f"'{place}' is not one of OpenAI's published rank files, and a rank file doesn't name its pattern",
            "pass the one it was made with: pattern='gpt2', another name or a regular expression",
        )
    tokens, n_read = _bpe.read_ranks(data, MAX_ID)
    if n_read < len(data):
        line, number = data[n_read : n_read + 100].splitlines()[0], data.count(b"\n", 0, n_read) + 1
        raise InputError(
            f"line {number} of '{place}' is {line[:60]!r}",
            "expected a token in base64 and a rank of its own",
            "download it again",
        )
    if known_pattern and pattern and pattern_name(pattern) != pattern_name(known_pattern):
        raise ConfigError(f"'{place}' is published with the pattern {known_pattern!r}", "leave out pattern=")
    return Vocabulary(
        tokens=tokens,
        merges=None,
        pattern=known_pattern or pattern or GPT2,
        special_tokens=_special_tokens(special_tokens, known_specials, len(tokens)),
        whole_pieces=True,
    )


def dump(vocabulary: Vocabulary, place: str) -> bytes:
    """Return the file's bytes. Raises InputError if merging by rank or the default Unicode version would change ids."""
    check(vocabulary, f"'{place}': a rank file")
    return b"".join(b"%b %d\n" % (base64.b64encode(token), id_) for id_, token in enumerate(vocabulary.tokens) if token)


def check(vocabulary: Vocabulary, what: str) -> None:
    """Raise InputError if `what`, which merges by rank and knows no Unicode versions, would give other ids."""
    if vocabulary.preparation:
        raise InputError(f"{what} can't represent {vocabulary.preparation}", "save as tokenizer.json")
    if vocabulary.unreachable:
        raise InputError(f"{what} can't represent {min(vocabulary.unreachable)!r}", "save as tokenizer.json")
    if not vocabulary.has_default_version:
        raise InputError(
            f"{what} can't name the Unicode version, which is {vocabulary.unicode_version}", "save as tokenizer.json"
        )
    if vocabulary.merges is not None:
        if list(vocabulary.merges) != vocabulary.merges_by_rank():
            raise InputError(f"{what} can't represent these merges", "save as tokenizer.json")
        alone = vocabulary.larger_first() or ([] if vocabulary.whole_pieces else vocabulary.unmerged())
        if alone:
            token = vocabulary.tokens[alone[0]]
            raise InputError(
                f"{what}: merging by rank would produce {token!r}, which no merge produces", "save as tokenizer.json"
            )


def about_ranks(vocabulary: Vocabulary) -> str:
    """Return a warning if libraries that use a list of merges return different ids than the ranks do, else ''."""
    backwards = vocabulary.larger_first() if vocabulary.merges is None else []
    if not backwards:
        return ""
    named = ", ".join(f"{id_} {vocabulary.tokens[id_][:30]!r}" for id_ in backwards[:3])
    return (
        f"tokens merged via larger ids: {named}{', …' if len(backwards) > 3 else ''}; libraries that use a list of "
        "merges return different ids for texts that contain them"
    )


def _special_tokens(
    named: Iterable[str] | Mapping[str, int] | None, published: Mapping[str, int], n_ranks: int
) -> dict[str, int]:
    """Return a mapping unchanged, else the published special tokens, and new names with ids after all others."""
    if named is None or isinstance(named, Mapping):
        return dict(published if named is None else named)
    new = [name for name in special_ids(named, 0) if name not in published]
    return {**published, **special_ids(new, first=max(n_ranks, *(id_ + 1 for id_ in published.values()), 0))}
