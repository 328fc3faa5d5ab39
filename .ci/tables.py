"""Write the tables of the documents that the code defines: `tables.py`. A test compares them.

Each table follows a marker `<!-- RENDERER ARGUMENTS -->`, which names a function below and its arguments. A column's
text is in its schema; the text of a field or a key is the comment at the end of its line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from itertools import groupby
from pathlib import Path
from pkgutil import resolve_name
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa

from webtext.base.parts import schemas
from webtext.base.web.opt_outs import AI_TRAINING_CRAWLERS, OPT_OUTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / name for name in ("formats.md", "reference/clean.md", "reference/crawl-fetch.md")]
JSON = {int: "integer", float: "number", str: "string", bool: "boolean", tuple: "list"}
STRUCTS = {"post": schemas.POST, "notice": schemas.NOTICE}
Row = tuple[str, ...]


def main() -> None:
    """Write the pages."""
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")


def page(path: Path) -> str:
    """Return a page with its tables as the code has them now."""

    def fill(found: re.Match[str]) -> str:
        renderer, *arguments = found[2].split()
        return found[1] + RENDERERS[renderer](*arguments)

    return re.sub(r"^(<!-- (.+) -->\n)(?:\|.*\n)*", fill, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def table(head: str, rows: Iterable[Row]) -> str:
    """Return a table in Markdown."""
    lines = [tuple(head.split(",")), *((cell.replace("|", r"\|") for cell in row) for row in rows)]
    drawn = ["|" + "|".join(row) + "|\n" for row in lines]
    return "".join([drawn[0], "|---" * len(head.split(",")) + "|\n", *drawn[1:]])


def columns(kind: str, like: str = "") -> str:
    """Columns of a record kind, without columns that `like` also has; n-grams of all sizes are one row."""
    known = list(schemas.SCHEMAS[like]) if like else []
    rows = []
    for pattern, group in groupby(schemas.SCHEMAS[kind], lambda field: re.sub(r"\d+gram", "{n}gram", field.name)):
        first, *others = group
        sizes = [re.findall(r"\d+", field.name)[0] for field in (first, *others)] if others else []
        meaning = (first.metadata or {}).get(b"meaning", b"").decode()
        if sizes:
            meaning = meaning.replace(f"{sizes[0]}-gram", "n-gram") + f"; n from {sizes[0]} to {sizes[-1]}"
        if not any(first.equals(each, check_metadata=True) for each in known):
            rows.append((f"`{pattern if sizes else first.name}`", arrow_type(first), meaning))
    return table("column,type,meaning", rows)


def struct(name: str) -> str:
    """Fields of a struct in Arrow."""
    source = inspect.getsource(schemas).partition(f"\n{name.upper()} = ")[2].partition("\n)")[0]
    texts = comments(source)
    return table("field,type,meaning", [(f"`{f.name}`", arrow_type(f), texts[f.name]) for f in STRUCTS[name]])


def arrow_type(field: pa.Field) -> str:
    """Return the type's name; a `?` if a value may be null."""
    kind, of = field.type, ""
    if pa.types.is_list(kind):
        kind, of = kind.value_type, "list of "
    name = next((name for name, struct in STRUCTS.items() if struct.equals(kind)), str(kind))
    return of + name + "?" * field.nullable


def keys(*paths: str) -> str:
    """Keys of JSON objects: `module:Class` for the fields of dataclasses, `module:function` for the keys of a dictionary.

    `NAME=module:Class` is an object nested under that name.
    """
    rows = []
    for path in paths:
        parent, _, place = path.rpartition("=")
        found: Any = resolve_name(place)
        hints = get_type_hints(found) if is_dataclass(found) else {}
        for name, text in comments(inspect.getsource(found)).items():
            if name in hints and not re.match(r"[a-z]+\??: ", text):  # a comment may state the type
                text = f"{json_type(hints[name])}: {text}"
            kind, meaning = text.split(": ", 1)
            rows.append((f"`{parent}.{name}`" if parent else f"`{name}`", kind, meaning))
    return table("key,type,meaning", rows)


def comments(source: str) -> dict[str, str]:
    """Return the comments at the ends of lines that begin with a field or a key, by its name."""
    return dict(re.findall(r'^ +(?:pa\.field\()?"?(\w+)"?[:,] .*  # (.+)$', source, re.MULTILINE))


def json_type(hint: Any) -> str:
    """Return what JSON calls a type."""
    if isinstance(hint, UnionType):
        return json_type(get_args(hint)[0]) + "?"
    return JSON.get(get_origin(hint) or hint, "object")


def reasons(place: str, outcome: str = "") -> str:
    """Reasons with their meanings, but not the opt-outs, which have a table of their own."""
    found = resolve_name(place)
    texts = {
        name: text if outcome else ("", text)
        for name, text in found.items()
        if name.removeprefix("opt_out_") not in OPT_OUTS
    }
    return table("reason,meaning", [(f"`{name}`", text[1]) for name, text in texts.items() if text[0] == outcome])


def opt_outs() -> str:
    """Opt-outs, who defined them, and the settings that obey them."""
    rows = [(f"`{name}`", each.meaning, each.source, f"`{each.setting}`") for name, each in OPT_OUTS.items()]
    return table("opt-out,what is checked,defined by,setting", rows)


def crawlers() -> str:
    """AI-training crawlers by operator."""
    found = groupby(sorted(AI_TRAINING_CRAWLERS.items(), key=lambda each: each[1]), lambda each: each[1])
    return table(
        "operator,names in robots.txt",
        [(f"[{operator}]({url})", ", ".join(f"`{name}`" for name, _ in group)) for (operator, url), group in found],
    )


def rules() -> str:
    """Rules of the profiles: what drops a document."""
    from webtext.clean.rules.thresholds import PROFILES, RULES

    rows = [
        (f"`{rule.reason}`", f"`{rule.column}` {'below' if rule.bound == 'min' else 'above'}")
        + tuple(f"{each[rule.reason]:,}" if rule.reason in each else "" for each in PROFILES.values())
        for rule in RULES.values()
    ]
    return table(",".join(["reason", "value", *PROFILES]), rows)


RENDERERS: dict[str, Callable[..., str]] = {
    each.__name__: each for each in (columns, struct, keys, reasons, opt_outs, crawlers, rules)
}


if __name__ == "__main__":
    main()
