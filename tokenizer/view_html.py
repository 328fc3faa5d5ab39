"""Tokens as HTML: boxes in a notebook, or a self-contained page. No scripts; the page fetches nothing.

Every text goes through `Token.text` (which removes control characters) and `escape`. Each box lays out its own text
(`unicode-bidi: isolate`), so Arabic or Hebrew tokens keep their order and can't reorder their neighbours.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from webtext.tokenizer.overview import facts

if TYPE_CHECKING:
    from webtext.tokenizer.tokenizer import Tokenizer
    from webtext.tokenizer.view import Token, TokenView

MAX_IN_NOTEBOOK = 2_000  # boxes; more make a notebook slow
MAX_ON_PAGE = 100_000
_N_COLOURS = 5

TOKEN_STYLE = """
.wt-tokens{font:14px/1.35 ui-monospace,"SF Mono",Menlo,Consolas,monospace;direction:ltr}
.wt-tokens span{display:inline-block;max-width:100%;margin:2px 1px 2px 0;padding:.1em .12em;border-radius:3px;
color:#16202c;unicode-bidi:isolate;cursor:default;white-space:pre-wrap;overflow-wrap:anywhere;vertical-align:top}
.wt-tokens i{font-style:normal;opacity:.45}
.wt-tokens span:hover{outline:2px solid #e0653a}
.wt-tokens .s{box-shadow:inset 0 0 0 1.5px #16202c;font-weight:600}
.wt-0{background:#bcd7f5}.wt-1{background:#fbd9a8}.wt-2{background:#c2e8bd}.wt-3{background:#f6c6d6}.wt-4{background:#d6cdf5}
"""
PAGE_STYLE = """
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


def fragment(view: TokenView) -> str:
    """Return boxes for a notebook: at most MAX_IN_NOTEBOOK tokens."""
    return f"<style>{TOKEN_STYLE}</style>{_boxes(view, MAX_IN_NOTEBOOK)}<div>{escape(view.summary())}</div>"


def page(view: TokenView, tokenizer: Tokenizer) -> str:
    """Return a page: the tokenizer's properties, then the boxes. Hovering shows id and bytes, a switch all ids."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>webtext tokens</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><style>{PAGE_STYLE}{TOKEN_STYLE}</style></head>\n<body>\n'
        f"<h1>{len(view):,} tokens</h1><p>{escape(view.summary())}</p>\n{card(tokenizer)}\n"
        '<input type="checkbox" id="ids"> <label for="ids">show ids</label>\n'
        f"{_boxes(view, MAX_ON_PAGE)}\n</body></html>\n"
    )


def card(tokenizer: Tokenizer) -> str:
    """Return a table of the tokenizer's properties."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts(tokenizer).items())
    return f"<table>{''.join(rows)}</table>"


def _boxes(view: TokenView, limit: int) -> str:
    boxes = "".join(_box(place, token) for place, token in enumerate(view.tokens[:limit]))
    more = f"<div>… and {len(view) - limit:,} more tokens</div>" if len(view) > limit else ""
    return f'<div class="wt-tokens">{boxes}</div>{more}'


def _box(place: int, token: Token) -> str:
    text = escape(token.text).replace("␣", "<i>␣</i>")
    kind = f"wt-{place % _N_COLOURS}" + (" s" if token.is_special else "")
    title = escape(f"id {token.id}, {len(token.bytes)} bytes: {token.bytes[:64].hex(' ')}")
    line_end = "<br>" if token.bytes.endswith(b"\n") else ""
    return f'<span class="{kind}" data-id="{token.id}" title="{title}">{text}</span>{line_end}'
