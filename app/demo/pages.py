"""Render Python's own documentation as the pages of a small web: real, free text that every machine has.

Run as `python -m webtext.app.demo.pages FOLDER [MODULE...]`, because importing the entire standard library is best done
in a separate process. Writes FOLDER/NAME.html for each language topic and each module with enough text, and finally
FOLDER/names.json.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from webtext.app.demo.layout import Section, article, listing, thread

SKIPPED_MODULES = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "test", "tkinter", "turtle", "encodings"}
"""Modules with side effects on import (a browser, a window, a poem), or without prose."""
LAYOUTS = (article, thread, listing)
MIN_WORDS = 120  # words of docstrings; a page with fewer is only a list of names
MIN_DOCSTRING_WORDS = 8
MAX_SOURCE_LINES = 30
NAMES = "names.json"


def render_pages(folder: Path, modules: Iterable[str] | None = None) -> list[str]:
    """Write an HTML page for each topic and each of `modules` (default: the standard library).

    Returns the names of the pages in order. The same version of Python always produces the same pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, page in _pages(_module_names() if modules is None else modules):
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        names.append(name)
    (folder / NAMES).write_text(json.dumps(names), encoding="utf-8")
    return names


def _pages(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics

    seen: set[str] = set()
    for name in modules:
        sections = list(_sections(name, seen))
        if sum(len(section.text.split()) for section in sections) >= MIN_WORDS:
            yield name, LAYOUTS[crc32(name.encode()) % len(LAYOUTS)](name, sections, sorted(topics)[:5])
    for name, text in sorted(topics.items()):
        title, _, text = text.strip().partition("\n")
        yield f"topic-{name}", article(title, [Section(name, text.partition("\n")[2])], sorted(topics)[:5])


def _module_names() -> Iterator[str]:
    for name in sorted(sys.stdlib_module_names - SKIPPED_MODULES):
        if name.startswith("_"):
            continue
        yield name
        with contextlib.suppress(Exception):
            for inner in pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", ())):
                if not inner.name.startswith(("_", "test")):
                    yield f"{name}.{inner.name}"


def _sections(name: str, seen: set[str]) -> Iterator[Section]:
    """Yield the docstrings of a module and its public members, except those in `seen`, which aliases repeat."""
    for title, thing in _documented(name):
        text = inspect.cleandoc(thing.__doc__) if isinstance(thing.__doc__, str) else ""
        if len(text.split()) >= MIN_DOCSTRING_WORDS and text not in seen and " at 0x" not in text:
            seen.add(text)
            yield Section(title, text, _source(thing))


def _documented(name: str) -> Iterator[tuple[str, Any]]:
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):
        return  # a module of another operating system
    yield name, module
    for title, thing in sorted(vars(module).items()):
        defined_here = getattr(thing, "__module__", None) in (name, f"_{name}", "posix")
        if defined_here and not title.startswith("_") and (inspect.isclass(thing) or inspect.isroutine(thing)):
            yield title, thing
            for inner, attribute in sorted(vars(thing).items()) if inspect.isclass(thing) else ():
                if not inner.startswith("_") and (inspect.isroutine(attribute) or isinstance(attribute, property)):
                    yield f"{title}.{inner}", attribute


def _source(thing: Any) -> str:
    """Return the source of a short function without its docstring; "" for anything else."""
    source = ""
    if inspect.isfunction(thing):
        with contextlib.suppress(OSError):
            source = re.sub(r"""\n *r?("{3}|'{3}).*?\1""", "", inspect.getsource(thing), count=1, flags=re.S)
    return textwrap.dedent(source) if source.count("\n") <= MAX_SOURCE_LINES else ""


if __name__ == "__main__":
    render_pages(Path(sys.argv[1]), sys.argv[2:] or None)
