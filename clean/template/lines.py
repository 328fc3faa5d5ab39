"""Which lines of a text are its site's template, given the lines that recur on the site's pages.

`Parameters:` and `import numpy as np` recur on a manual's pages, too. So a recurring line is left out only in a run
of such lines that begins or ends the text, or has RUN_CHARACTERS. Indented lines, as of code, stay; lines without a
letter, as in tables, go with the run that they are inside.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container

from webtext.clean.text.clean_text import clean_text

RUN_CHARACTERS = 80  # a printed line of text
_LETTER = re.compile(r"[^\W\d_]")


def candidates(text: str) -> list[str]:
    """Return the distinct lines of a text that may belong to a template, in their order: with a letter, not indented."""
    return [line for line in dict.fromkeys(text.split("\n")) if not line[:1].isspace() and _LETTER.search(line)]


def without_template(text: str, recurring: Container[str]) -> str:
    """Return the text without the runs of recurring lines; in linear time.

    >>> menu = ["Home", "About us", "(c) Ann Lee"]
    >>> without_template("Home\\n|\\nAbout us\\nThe news\\nAbout us\\nNobody came.\\n\\n(c) Ann Lee", menu)
    'The news\\nAbout us\\nNobody came.'
    """
    lines = text.split("\n")
    lettered = [i for i, line in enumerate(lines) if _LETTER.search(line)]
    for recurs, group in itertools.groupby(lettered, key=lambda i: lines[i] in recurring):
        run = list(group)
        at_edge = run[0] == lettered[0] or run[-1] == lettered[-1]
        if recurs and (at_edge or sum(len(lines[i]) for i in run) >= RUN_CHARACTERS):
            lines[run[0] : run[-1] + 1] = [""] * (run[-1] + 1 - run[0])
    return clean_text("\n".join(lines))
