"""Renders the documentation that Python itself carries, as pydoc shows it: real text, free, always there.

Run as `python -m webtext.app.demo.pages FOLDER [MODULE...]`: importing the whole standard library is better done in a process of
its own. Writes FOLDER/NAME.html for each module and language topic, and FOLDER/names.json when all are written.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import io
import json
import pkgutil
import pydoc
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

SKIPPED_MODULES = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "test", "tkinter", "turtle", "encodings"}
"""Modules that act on import (a browser, a window, a poem), or hold no prose."""
NAMES = "names.json"


def render_pages(folder: Path, modules: Iterable[str] | None = None) -> list[str]:
    """Write one HTML page for each module (of the standard library, unless some are named) and for each topic.

    Returns the names of those that can be documented here, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, page in _pages(_module_names() if modules is None else modules):
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        names.append(name)
    (folder / NAMES).write_text(json.dumps(names), encoding="utf-8")
    return names


def _pages(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in modules:
        page = _module_page(name)
        if page is not None:
            yield name, page
    from pydoc_data.topics import topics

    for name, text in sorted(topics.items()):
        body = f"<h1>{html.escape(name)}</h1><pre>{html.escape(text)}</pre>"
        yield f"topic-{name}", pydoc.html.page(f"Python topic: {name}", body)


def _module_names() -> Iterator[str]:
    for name in sorted(sys.stdlib_module_names - SKIPPED_MODULES):
        if name.startswith("_"):
            continue
        yield name
        with contextlib.suppress(Exception), _silence():
            for inner in pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", ())):
                if not inner.name.startswith(("_", "test")):
                    yield f"{name}.{inner.name}"


def _module_page(name: str) -> str | None:
    try:
        with _silence():
            module = importlib.import_module(name)
            return pydoc.html.page(name, pydoc.html.document(module, name))
    except (Exception, SystemExit):
        return None  # modules of other systems, and what cannot be documented


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


if __name__ == "__main__":
    render_pages(Path(sys.argv[1]), sys.argv[2:] or None)
