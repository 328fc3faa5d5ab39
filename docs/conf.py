"""The documentation as a site: `make docs` writes it to build/site. Its pages are the Markdown files of the tree, as they are."""

from __future__ import annotations

import re
from typing import Any

import webtext

project = "webtext"
author = copyright = "the webtext authors"
version = release = webtext.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "*/README.md", "*/*/README.md", "README.md"]
exclude_patterns = ["build", ".*", "tests"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "webtext"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "code"  # docstrings have Markdown's backticks


def as_rst(_: Any, __: str, ___: str, ____: Any, _____: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup, outside code and examples."""
    for i, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = "".join(re.sub(r"[*|]", r"\\\g<0>", piece) if piece[:1] != "`" else piece for piece in pieces)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", as_rst)
