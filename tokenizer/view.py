"""Views of a text's tokens for a terminal, a notebook or an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webtext.tokenizer.shown import shown_bytes

if TYPE_CHECKING:
    from webtext.tokenizer.special import AllowedSpecial
    from webtext.tokenizer.text import AnyText
    from webtext.tokenizer.tokenizer import Tokenizer

_COLOURS = (153, 223, 157, 218, 189)
"""Light background colours (256-colour palette), legible with black text; neighbouring tokens differ."""


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
class TokenView(Sequence[Token]):
    """The tokens of a text. `str` separates them with bars; a notebook shows coloured boxes with ids and bytes.

    >>> from webtext.tokenizer import Tokenizer
    >>> print(Tokenizer.train(["low low"], vocab_size=260).view("low lower"))
    low|␣low|e|r
    """

    tokens: tuple[Token, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.tokens[index]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def ids(self) -> list[int]:
        """The ids of the tokens."""
        return [token.id for token in self.tokens]

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
        width = max((len(str(id_)) for id_ in self.ids), default=0)
        return "\n".join(f"{token.id:>{width}}  {token.text}" for token in self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the tokens as plain values."""
        tokens = [{"id": token.id, "bytes": token.bytes.hex(), "text": token.text} for token in self.tokens]
        return {"tokens": tokens, "n_characters": self.n_characters, "n_bytes": self.n_bytes}

    def _repr_html_(self) -> str:
        from webtext.tokenizer.view_html import fragment

        return fragment(self)


def view(tokenizer: Tokenizer, text: AnyText, allowed_special: AllowedSpecial = ()) -> TokenView:
    """Encode a text and return its tokens for display."""
    specials = set(tokenizer.special_tokens.values())
    ids = tokenizer.encode(text, allowed_special)
    return TokenView(tuple(Token(id_, tokenizer.decode_bytes([id_]), id_ in specials) for id_ in ids))
