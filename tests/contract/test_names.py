"""Names: no two public classes share one, and every import of the package, also inside a function, finds its name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sources(*STAGES):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("folder", [*STAGES, "tests", ".ci"])
def test_every_import_of_the_package_finds_its_name(folder: str) -> None:
    """Read from the sources: benches and scripts import inside functions that no test calls."""
    missing = [f"{path.relative_to(ROOT)}:{line}" for path in sources(folder) for line in unresolved(path)]
    assert missing == []


def unresolved(path: Path) -> Iterator[str]:
    """Yield `line module.name` of each import without its name; native modules, `_name`, are built elsewhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("webtext."):
            names = [each.name for each in node.names if not f"{node.module}.{each.name}".count("._")]
            yield from (
                f"{node.lineno} {node.module}.{name}" for name in names if name not in names_of(str(node.module))
            )


@cache
def names_of(module: str) -> set[str]:
    """Return the names that a module defines or imports, with its submodules; nothing for one that doesn't exist."""
    place = ROOT.joinpath(*module.split(".")[1:])
    files = [each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()]
    return {each.stem for each in place.glob("*")}.union(*(defined(ast.parse(file.read_text())) for file in files))


def defined(tree: ast.AST) -> set[str]:
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
    return names
