"""The output of `tokenizer inspect`: a text's tokens, or a tokenizer's properties; on one line each, with nothing hidden.

Untrusted text is escaped: every character is visible, and no control sequence reaches the terminal.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from webtext.tokenizer.vocabulary import Vocabulary

BLANK = "␣"
"""Shown instead of a space where spaces must be visible; U+2423 itself is shown as an escape."""
N_LONGEST = 10
_N_SPECIAL = 12
_N_IN_REPR = 4
_MAX_SHOWN = 60
_COLOURS = (153, 223, 157, 218, 189)
"""Light background colours (256-colour palette), legible with black text; neighbouring tokens differ."""
_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # controls, bidi overrides, zero width, unassigned, blanks


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its id, its bytes, and whether it is a special token."""

    id: int
    bytes: bytes
    is_special: bool

    @property
    def text(self) -> str:
        r"""The bytes as safe, visible text: spaces as ␣, invisible or invalid characters as \n, \xff, \u202e."""
        return shown_bytes(self.bytes)


@dataclass(frozen=True, slots=True)
class TokenView:
    """The tokens of a text; `str` separates them with bars."""

    tokens: tuple[Token, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the text."""
        return sum(len(token.bytes) for token in self.tokens)

    @property
    def n_characters(self) -> int:
        """Number of characters of the text; an invalid byte counts as one."""
        return len(b"".join(token.bytes for token in self.tokens).decode("utf-8", "surrogateescape"))

    def summary(self) -> str:
        """Return one line with the numbers of tokens, characters and bytes, and bytes per token."""
        each = f", {self.n_bytes / len(self):.2f} bytes per token" if len(self) else ""
        return f"{len(self):,} tokens, {self.n_characters:,} characters, {self.n_bytes:,} bytes{each}"

    def __str__(self) -> str:
        lines: list[list[str]] = [[]]
        for token in self.tokens:
            lines[-1].append(token.text)
            if token.bytes.endswith(b"\n"):
                lines.append([])
        return "\n".join("|".join(line) for line in lines if line)

    def coloured(self) -> str:
        """Return the tokens for a terminal, with alternating backgrounds (ANSI, 256 colours); special ones in bold."""
        parts = []
        for place, token in enumerate(self.tokens):
            style = f"{'1;' if token.is_special else ''}30;48;5;{_COLOURS[place % len(_COLOURS)]}"
            parts.append(f"\x1b[{style}m{token.text}\x1b[0m" + ("\n" if token.bytes.endswith(b"\n") else ""))
        return "".join(parts).removesuffix("\n")

    def rows(self) -> str:
        """Return one line per token: its id and its text."""
        width = max((len(str(token.id)) for token in self.tokens), default=0)
        return "\n".join(f"{token.id:>{width}}  {token.text}" for token in self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the tokens as plain values."""
        tokens = [{"id": token.id, "bytes": token.bytes.hex(), "text": token.text} for token in self.tokens]
        return {"tokens": tokens, "n_characters": self.n_characters, "n_bytes": self.n_bytes}


def view(vocabulary: Vocabulary, ids: Iterable[int]) -> TokenView:
    """Return the tokens of ids for display."""
    names = {id_: name.encode() for name, id_ in vocabulary.named.items()}
    return TokenView(tuple(Token(id_, names.get(id_) or vocabulary.tokens[id_], id_ in names) for id_ in ids))


def overview(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return all properties as plain values; takes about as long as loading the tokenizer."""
    ids = sorted(range(len(vocabulary.tokens)), key=lambda id_: (-len(vocabulary.tokens[id_]), id_))
    return {
        "vocab_size": vocabulary.size,
        "n_text_tokens": sum(map(bool, vocabulary.tokens)),
        "pattern": vocabulary.pattern,
        "unicode_version": vocabulary.unicode_version,
        "rules": "ranks" if vocabulary.merges is None else "merges",
        "n_merges": len(vocabulary.merges if vocabulary.merges is not None else vocabulary.merges_by_rank()),
        "whole_pieces": vocabulary.whole_pieces,
        "special_tokens": dict(vocabulary.special_tokens),
        "longest": [
            {"id": id_, "bytes": vocabulary.tokens[id_].hex(), "text": shown_bytes(vocabulary.tokens[id_])}
            for id_ in ids[:N_LONGEST]
        ],
        "hash": vocabulary.hash(),
    }


def overview_text(found: dict[str, Any]) -> str:
    """Format the result of `overview` as text."""
    rules = {"ranks": "any two tokens that join to a token, smallest id first", "merges": "a list, earliest first"}
    whole = "; a piece that is a token isn't merged" if found["whole_pieces"] else ""
    specials = sorted(found["special_tokens"].items(), key=lambda item: item[1])
    more = [f"and {len(specials) - _N_SPECIAL:,} more"] if len(specials) > _N_SPECIAL else []
    rows = {
        "size": [f"{found['vocab_size']:,} ids: {found['n_text_tokens']:,} tokens of text, {len(specials):,} special"],
        "pattern": [safe(found["pattern"])],
        "Unicode": [found["unicode_version"]],
        "merges": [f"{found['n_merges']:,}, {rules[found['rules']]}{whole}"],
        "special": [f"{id_} {safe(name)}" for name, id_ in specials[:_N_SPECIAL]] + more,
        "longest": [
            f"{each['id']} {each['text'][:_MAX_SHOWN]}{'…' * (len(each['text']) > _MAX_SHOWN)} ({len(each['bytes']) // 2} bytes)"
            for each in found["longest"]
        ],
        "hash": [found["hash"]],
    }
    return "\n".join(
        f"{label * (not i):<12}{value}" for label, values in rows.items() for i, value in enumerate(values)
    )


def facts(vocabulary: Vocabulary, digest: str) -> str:
    """Return the main properties as text that is safe to print, for `repr`; `digest` is its hash."""
    specials = sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
    named = ", ".join(f"{safe(name)} {id_}" for name, id_ in specials[:_N_IN_REPR])
    more = f" and {len(specials) - _N_IN_REPR:,} more" if len(specials) > _N_IN_REPR else ""
    rule = f"pattern {safe(vocabulary.pattern)}, Unicode {vocabulary.unicode_version}"
    return f"size {vocabulary.size:,}, {rule}, special tokens {named + more or 'none'}, hash {digest[:12]}"


def safe(text: str) -> str:
    """Escape a name or a pattern for one line of output, but keep spaces."""
    return shown_bytes(text.encode()).replace("␣", " ").replace("\\\\", "\\")


def shown_bytes(data: bytes) -> str:
    r"""Return a token's bytes as visible text: invalid UTF-8 as \x.., invisible characters as escapes.

    Different bytes always look different, so a backslash is doubled.

    >>> print(shown_bytes("é \n\u202e\x1b[31m".encode() + b"\xff\\"))
    é␣\n\u202e\x1b[31m\xff\\
    """
    return "".join(map(_shown, data.decode("utf-8", "surrogateescape")))


def wants_colour() -> bool:
    """Return whether standard output is a terminal that may show colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def _shown(character: str) -> str:
    if character == " ":
        return BLANK
    if character == "\\":
        return r"\\"
    if "\udc80" <= character <= "\udcff":  # a byte that isn't valid UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if "\x80" <= character <= "\xff" and unicodedata.category(character) in _UNSEEN:
        return f"\\u{ord(character):04x}"  # because \\x80 and above denotes a byte
    if character == BLANK or unicodedata.category(character) in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
