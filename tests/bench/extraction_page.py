"""Write a page that shows extracted texts of WCXB's pages beside the pages' own text and the gold text.

    python tests/bench/extraction_page.py OUT [DATA] [--texts FILE]

docs/measurements/extraction.html was written by this program. Above the texts are the mean F1 of each extractor and kind
of page, with the interval of its difference to bare trafilatura, and the numbers of pages that an extractor wins. FILE
has our texts made elsewhere, in the form that `bench_extract.py` describes, such as those of a model that hasn't seen
the page's domain. Without it, the texts are those of the default extractor.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))
from arguments import parser
from bench_extract import BARE, TRAFILATURA, by_kind, measure, rows, texts_made_elsewhere
from extraction_sets import F1, Page, groups, rates, read_set, scores
from real_data import real_data

from webtext.clean.extract.charset import decode
from webtext.clean.extract.html import parse
from webtext.train.evaluate.page import page as framed
from webtext.train.evaluate.page import paragraphs, table

RESILIPARSE = "resiliparse"
SHOWN = {"article": 10}
OTHERS_SHOWN = 5
WON_BY = 0.02
EXCERPT = 1500
"""Characters shown of a text, without markup; the pages are their publishers'."""
BEFORE, BEGINNING, END, AFTER = 8, 24, 8, 4
"""Words shown before a difference, of its beginning and its end, and after it."""
_TOKEN = re.compile(r"\w+\W*|\W+")
_WORD = re.compile(r"\w+")
_INLINE = frozenset(
    ("a", "b", "cite", "code", "em", "font", "i", "mark", "q", "small", "span", "strong", "sub", "sup", "time", "u")
)
_SHOWN_TEXT = "//body//text()[not(ancestor::script or ancestor::style or ancestor::template)]"
_STYLE = """
body{max-width:90rem}
section{border-top:1px solid var(--line);margin-top:1.5rem}
h3{font-size:1rem;margin:1rem 0 0;overflow-wrap:anywhere}
h4{font-size:.9rem;font-weight:500;color:var(--soft);margin:.5rem 0 .2rem}
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:0 1.5rem}
.text{font-size:.85rem;white-space:pre-line;overflow-wrap:anywhere}
del{background:#d55e0033;text-decoration:line-through}
ins{background:#0072b233;text-decoration:underline}
small{color:var(--soft);font-size:.75rem}
td.n{white-space:nowrap}
"""
Mark = str
"""The element that marks a word, or "" for one that is right."""


def chosen(pages: Sequence[Page], f1: np.ndarray) -> Iterator[tuple[Page, int]]:
    """Yield pages and their places: of each kind, those in the middle of equal parts of its pages ordered by F1."""
    for kind in sorted({page.kind for page in pages}):
        ordered = sorted((f1[i], page.name, i) for i, page in enumerate(pages) if page.kind == kind)
        n = min(SHOWN.get(kind, OTHERS_SHOWN), len(ordered))
        for part in range(n):
            place = ordered[(2 * part + 1) * len(ordered) // (2 * n)][-1]
            yield pages[place], place


def page_text(body: bytes) -> str:
    """Return all text of a page that isn't a script or style; block elements begin a line."""
    tree = parse(decode(body, "text/html"))
    nodes = [] if tree is None else tree.xpath(_SHOWN_TEXT)
    words = ((" " if node.getparent().tag in _INLINE else "\n", " ".join(node.split())) for node in nodes)
    return "".join(before + line for before, line in words if line).strip()


def sides(page: Page, ours: str) -> str:
    """Return the columns: the page's text, ours and the gold text, their differences marked."""
    assert page.text is not None
    texts = [re.sub(r"\s*\n\s*", "\n", text) for text in (page_text(page.body), ours, page.text)]
    tokens = [_TOKEN.findall(text) for text in texts]
    whole, own, gold = ([_word(token) for token in of] for of in tokens)
    in_own, in_gold = _aligned(whole, own), _aligned(whole, gold)
    both = {(True, True): "", (True, False): "del", (False, True): "ins", (False, False): "small"}
    marks = (
        [both[pair] for pair in zip(in_own, in_gold, strict=True)],
        ["" if same else "del" for same in _aligned(own, gold)],
        ["" if same else "ins" for same in _aligned(gold, own)],
    )
    columns = [
        f'<div><h4>{title}, {len(of):,} words</h4><div class="text">{excerpt(of, of_words)}</div></div>'
        for title, of, of_words in zip(("page", "webtext", "gold"), tokens, marks, strict=True)
    ]
    return f'<div class="sides">{"".join(columns)}</div>'


def _word(token: str) -> str:
    return "".join(_WORD.findall(token.lower()))


def _aligned(words: Sequence[str], others: Sequence[str]) -> list[bool]:
    """Return for each word whether it is in the alignment with the others; punctuation always is."""
    found = [not word for word in words]
    at = [i for i, word in enumerate(words) if word]
    pairs = SequenceMatcher(None, [words[i] for i in at], [word for word in others if word])
    for block in pairs.get_matching_blocks():
        for i in at[block.a : block.a + block.size]:
            found[i] = True
    return found


def excerpt(tokens: Sequence[str], marks: Sequence[Mark]) -> str:
    """Return the text around the differences, the longest first until EXCERPT characters are shown, as HTML."""
    shown: set[int] = set()
    n_characters = 0
    for start, end in sorted(_differences(marks), key=lambda run: run[0] - run[1]) or [(0, len(tokens))]:
        head, tail = range(start - BEFORE, min(start + BEGINNING, end)), range(max(start, end - END), end + AFTER)
        more = ({*head, *tail} & set(range(len(tokens)))) - shown
        n_characters += sum(len(tokens[i]) for i in more)
        if n_characters > EXCERPT and shown:
            break
        shown |= more
    parts, last, mark = [], -1, ""
    for i in sorted(shown):
        if i != last + 1 or marks[i] != mark:
            parts.append(f"</{mark}>" if mark else "")
            parts.append(" … " if i != last + 1 else "")
            mark = marks[i]
            parts.append(f"<{mark}>" if mark else "")
        parts.append(escape(tokens[i]))
        last = i
    parts.append(f"</{mark}>" if mark else "")
    return "".join(parts) + (" …" if last + 1 < len(tokens) else "")


def _differences(marks: Sequence[Mark]) -> list[tuple[int, int]]:
    """Return the stretches of equally marked words that are superfluous or missing."""
    runs, start = [], 0
    for i in range(1, len(marks) + 1):
        if i == len(marks) or marks[i] != marks[start]:
            if marks[start] in ("del", "ins"):
                runs.append((start, i))
            start = i
    return runs


def wins(pages: Sequence[Page], f1: Mapping[str, np.ndarray]) -> str:
    """Return the table of pages that one of the extractors wins from all others."""
    best = np.sort(np.array(list(f1.values())), axis=0)
    is_won = best[-1] - best[-2] > WON_BY
    lines = []
    for kind, mask in groups(pages).items():
        of_kind = mask & is_won
        counts = [int((of_kind & (of == best[-1])).sum()) for of in f1.values()]
        lines.append([escape(kind), str(mask.sum()), *map(str, counts), str(mask.sum() - of_kind.sum())])
    return table(["kind", "pages", *map(escape, f1), "none"], lines)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("out", type=Path, help="the HTML file to write")
    arguments.add_argument("data", nargs="?", help="folder of real data; default: WEBTEXT_TEST_DATA")
    arguments.add_argument("--texts", type=Path, metavar="FILE", help="our texts made elsewhere")
    given = arguments.parse_args()
    pages = read_set("wcxb", real_data(given.data))
    ours, *others = (name for name in rows() if name not in TRAFILATURA or name == BARE)
    texts, _ = measure(pages, {name: rows()[name] for name in (ours, *others)}, 1)
    if given.texts:
        made = texts_made_elsewhere(given.texts, pages)
        assert made is not None, f"'{given.texts}' has no text of WCXB"
        texts[ours] = made
    found = {row: scores(pages, of) for row, of in texts.items()}
    f1 = {row: rates("wcxb", found[row])[:, F1] for row in (ours, BARE, RESILIPARSE)}
    parts, kind = [], ""
    for page, place in chosen(pages, f1[ours]):
        precision, recall, own = rates("wcxb", found[ours][place])
        theirs = ", ".join(f"{escape(row)} {of[place]:.3f}" for row, of in f1.items() if row != ours)
        parts.append("" if page.kind == kind else f"<h2>{escape(page.kind)}</h2>")
        kind = page.kind
        parts.append(
            f"<section><h3>{escape(page.name)} · {escape(page.url)}</h3>"
            f"<h4>F1 {own:.3f} (precision {precision:.3f}, recall {recall:.3f}); {theirs}</h4>"
            f"{sides(page, texts[ours][place])}</section>"
        )
    head, *lines = zip(*by_kind(pages, found), strict=True)  # kinds from top to bottom
    whose = "of folds that haven't seen the page's domain" if given.texts else "of the default extractor"
    html = framed(
        "Extracted text beside the page and the gold text",
        paragraphs(
            (
                f"Pages and gold text: WCXB, the Web Content eXtraction Benchmark, by Murrough Foley (CC BY 4.0), {len(pages)} "
                "pages of its development split, shown in excerpts with marks added; the pages remain their publishers'. "
                f"Our texts are those {whose}.",
                "F1 of the words of a text, by WCXB's rule, averaged over the pages of a kind. Brackets have the 95 % interval "
                f"of the difference to {BARE}, over domains.",
            )
        ),
        table([*map(escape, head)], [[escape(cell) for cell in line] for line in lines]),
        f"<p>Pages on which one of three extractors is better than both others by more than {WON_BY}:</p>",
        wins(pages, f1),
        "<p>Shown are, of each kind, the pages in the middle of five equal parts (articles: ten) of its pages ordered by "
        "our F1. Texts are compared word by word in order. In our text, <del>struck</del> words are superfluous; in the "
        "gold text, <ins>underlined</ins> words are missing in ours. In the page's text, both are marked, and "
        "<small>small grey</small> words are in neither. Of each text, up to "
        f"{EXCERPT:,} characters around the longest differences are shown.</p>",
        *parts,
        style=_STYLE,
    )
    given.out.write_text(html, "utf-8")
    print(f"{given.out}: {html.count('<section>')} pages, {len(html.encode()):,} bytes")


if __name__ == "__main__":
    main()
