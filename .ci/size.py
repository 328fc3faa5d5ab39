"""Prints how large the project is, and the import circles within each stage: `make size`."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")


def main() -> None:
    """Print one line per count, then one per stage."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [Path(name) for name in listed if (ROOT / name).is_file()]
    source = [file for file in files if file.parts[0] in STAGES]
    python = [file for file in source if file.suffix == ".py"]
    pages = [file for file in files if file.suffix == ".md" and "measurements" not in file.parts]
    rows = {
        "Python source, lines": lines(python),
        "C++, lines": lines(file for file in source if file.suffix in (".cpp", ".hpp")),
        "tests and benches, lines": lines(file for file in files if file.parts[0] == "tests" and file.suffix == ".py"),
        "train/, lines": lines(file for file in python if file.parts[0] == "train"),
        "modules in all stages": len(python),
        "words in READMEs and docs, measurements aside": sum(len((ROOT / page).read_text().split()) for page in pages),
    }
    for name, n in rows.items():
        print(f"{name:<48}{n:>8,}")
    for stage in STAGES:
        print(f"import circle in {stage}: {circle(stage, python) or 'none'}")


def lines(files: Iterable[Path]) -> int:
    """Return the number of lines of all files."""
    return sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)


def circle(stage: str, python: list[Path]) -> str:
    """Return a circle of modules of a stage that import each other; empty if there is none."""
    modules = {".".join(("webtext", *file.with_suffix("").parts)): file for file in python if file.parts[0] == stage}
    modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}
    graph = {name: imports(ROOT / file, name, set(modules)) for name, file in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " → ".join(error.args[1])
    return ""


def imports(file: Path, own: str, modules: set[str]) -> set[str]:
    """Return the modules that a file imports anywhere: at its top, in functions, under `if TYPE_CHECKING`.

    Not the packages that it is in, which are loaded before it.
    """
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found & modules if not f"{own}.".startswith(f"{name}.")}


if __name__ == "__main__":
    main()
