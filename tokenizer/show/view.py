"""Views of a text's tokens for a terminal, a notebook or a self-contained HTML page. No scripts; it fetches nothing.

Every text in HTML goes through `Token.text` (which removes control characters) and `escape`. Each box lays out its own
text (`unicode-bidi: isolate`), so Arabic or Hebrew tokens keep their order and can't reorder their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from webtext.tokenizer.show.visible import shown_bytes
from webtext.tokenizer.vocabulary import Vocabulary

MAX_IN_NOTEBOOK = 2_000  # boxes; more make a notebook slow
MAX_ON_PAGE = 100_000

_COLOURS = (153, 223, 157, 218, 189)
"""Light background colours (256-colour palette), legible with black text; neighbouring tokens differ."""

TOKEN_STYLE = """
.wt-tokens{font:14px/1.35 ui-monospace,"SF Mono",Menlo,Consolas,monospace;direction:ltr}
.wt-tokens span{display:inline-block;max-width:100%;margin:2px 1px 2px 0;padding:.1em .12em;border-radius:3px;
color:#16202c;unicode-bidi:isolate;cursor:default;white-space:pre-wrap;overflow-wrap:anywhere;vertical-align:top}
.wt-tokens i{font-style:normal;opacity:.45}
.wt-tokens span:hover{outline:2px solid #e0653a}
.wt-tokens .s{box-shadow:inset 0 0 0 1.5px #16202c;font-weight:600}
.wt-0{background:#bcd7f5}.wt-1{background:#fbd9a8}.wt-2{background:#c2e8bd}.wt-3{background:#f6c6d6}.wt-4{background:#d6cdf5}
"""
_PAGE_STYLE = """
:root{--paper:#fff;--ink:#1c2430;--soft:#677281;--line:#e2e6eb;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#15191f;--ink:#e4e8ee;--soft:#96a1b0;--line:#2c333d}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--paper);
max-width:62rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.5rem;margin:0 0 .3rem}
p,label{color:var(--soft)}
table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.2rem 1.2rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);
overflow-wrap:anywhere}
th{font-weight:500;color:var(--soft);white-space:nowrap}
.wt-tokens{margin-top:1rem}
#ids:checked~.wt-tokens span::after{content:attr(data-id);display:block;font-size:.7em;color:#414e5b}
"""


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
        return f"<style>{TOKEN_STYLE}</style>{boxes(self, MAX_IN_NOTEBOOK)}<div>{escape(self.summary())}</div>"


def view(vocabulary: Vocabulary, ids: Iterable[int]) -> TokenView:
    """Return the tokens of ids for display."""
    names = {id_: name.encode() for name, id_ in vocabulary.special_tokens.items()}
    return TokenView(tuple(Token(id_, names.get(id_) or vocabulary.tokens[id_], id_ in names) for id_ in ids))


def page(view: TokenView, facts: Mapping[str, str]) -> str:
    """Return a page: the tokenizer's properties (`facts`), then the boxes. Hovering shows id and bytes, a switch all ids."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>webtext tokens</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><style>{_PAGE_STYLE}{TOKEN_STYLE}</style></head>\n<body>\n'
        f"<h1>{len(view):,} tokens</h1><p>{escape(view.summary())}</p>\n{card(facts)}\n"
        '<input type="checkbox" id="ids"> <label for="ids">show ids</label>\n'
        f"{boxes(view, MAX_ON_PAGE)}\n</body></html>\n"
    )


def card(facts: Mapping[str, str]) -> str:
    """Return a tokenizer's properties as an HTML table."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


def boxes(view: TokenView, limit: int) -> str:
    """Return the first tokens as coloured boxes, in HTML that TOKEN_STYLE draws."""
    boxes = "".join(_box(place, token) for place, token in enumerate(view.tokens[:limit]))
    more = f"<div>… and {len(view) - limit:,} more tokens</div>" if len(view) > limit else ""
    return f'<div class="wt-tokens">{boxes}</div>{more}'


def _box(place: int, token: Token) -> str:
    text = escape(token.text).replace("␣", "<i>␣</i>")
    kind = f"wt-{place % len(_COLOURS)}" + (" s" if token.is_special else "")
    title = escape(f"id {token.id}, {len(token.bytes)} bytes: {token.bytes[:64].hex(' ')}")
    line_end = "<br>" if token.bytes.endswith(b"\n") else ""
    return f'<span class="{kind}" data-id="{token.id}" title="{title}">{text}</span>{line_end}'
