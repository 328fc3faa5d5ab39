"""How large the project may be: `make size` prints each count beside its ceiling, `make check` fails above one.

Ceilings only fall: a cut lowers them to what it reached. Raising one takes a line in docs/CHANGELOG.md that says for whom.
Lines are all lines of a file; tokens are what Python's `tokenize` finds, without comments and docstrings, so that packing
more into a line saves nothing. The length of lines and the complexity of functions are limited by ruff.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")
CEILINGS = {
    "Python, lines": 43_605,
    "Python in base/, lines": 8156,
    "Python in crawl/, lines": 8977,
    "Python in clean/, lines": 7930,
    "Python in tokenizer/, lines": 4670,
    "Python in shards/, lines": 2424,
    "Python in train/, lines": 7870,
    "Python in app/, lines": 3578,
    "Python in base/, tokens": 53_164,
    "Python in crawl/, tokens": 59_288,
    "Python in clean/, tokens": 63_349,
    "Python in tokenizer/, tokens": 31_646,
    "Python in shards/, tokens": 16_766,
    "Python in train/, tokens": 60_176,
    "Python in app/, tokens": 27_506,
    "modules": 316,
    "settings": 137,
    "C++, lines": 9369,
    "tests, lines": 62_767,
    "benches, lines": 5268,
    "templates, scripts, TOML and JSON, lines": 2472,
}
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


def main() -> int:
    """Print every count beside its ceiling and the import circles; 1 if a count is above its ceiling."""
    files = listed()
    above = []
    for name, n in counts(files).items():
        ceiling = CEILINGS[name]
        above += [f"{name}: {n:,}, the ceiling is {ceiling:,}"] if n > ceiling else []
        print(f"{name:<48}{n:>10,}{ceiling:>12,}")
    pages = [file for file in files if file.suffix == ".md" and "measurements" not in file.parts]
    print(f"{'words of documentation, measurements aside':<48}{sum(len(text(page).split()) for page in pages):>10,}")
    python = [file for file in files if file.suffix == ".py"]
    for stage in STAGES:
        if found := circle(stage, python):
            print(f"import circle in {stage}: {found}")
    for line in above:
        print(f"too large: {line}; delete something, or raise the ceiling and say for whom in docs/CHANGELOG.md")
    return bool(above)


def listed() -> list[Path]:
    """Return the files that git knows, those not added yet included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [Path(name) for name in names if (ROOT / name).is_file()]


def counts(files: list[Path]) -> dict[str, int]:
    """Return the name of each thing that has a ceiling, and its count."""
    source = [file for file in files if file.parts[0] in STAGES]
    python = [file for file in source if file.suffix == ".py"]
    native = [file for file in source if file.suffix in (".cpp", ".hpp")]
    tests = [file for file in files if file.parts[0] == "tests" and file.suffix in (".py", ".c")]
    benches = [file for file in tests if file.parts[1] == "bench"]
    other = [file for file in source if file.suffix not in (".py", ".cpp", ".hpp", ".md")]
    other += [file for file in files if file.parts[0] == ".ci" or file.name in ("Makefile", "CMakeLists.txt")]
    found = {"Python, lines": lines(python)}
    for stage in STAGES:
        found[f"Python in {stage}/, lines"] = lines(file for file in python if file.parts[0] == stage)
    for stage in STAGES:
        found[f"Python in {stage}/, tokens"] = sum(n_tokens(file) for file in python if file.parts[0] == stage)
    found["modules"] = len(python)
    found["settings"] = sum(map(n_settings, python))
    found["C++, lines"] = lines(native)
    found["tests, lines"] = lines(file for file in tests if file not in benches)
    found["benches, lines"] = lines(benches)
    found["templates, scripts, TOML and JSON, lines"] = lines(other)
    return found


def text(file: Path) -> str:
    """Return a file's text."""
    return (ROOT / file).read_text(encoding="utf-8")


def lines(files: Iterable[Path]) -> int:
    """Return the number of lines of all files."""
    return sum(len(text(file).splitlines()) for file in files)


def n_tokens(file: Path) -> int:
    """Return the number of tokens of a Python file, without comments, docstrings and layout."""
    n, at_start = 0, True
    with open(ROOT / file, "rb") as stream:
        for token in tokenize.tokenize(stream.readline):
            if token.type in COUNTED and not (at_start and token.type == tokenize.STRING):
                n += 1
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                at_start = token.type not in COUNTED
    return n


def n_settings(file: Path) -> int:
    """Return how many fields of settings classes a file declares: those made by `setting`."""
    declared = (node for node in ast.walk(ast.parse(text(file))) if isinstance(node, ast.AnnAssign))
    calls = (node.value.func for node in declared if isinstance(node.value, ast.Call))
    return sum(isinstance(call, ast.Name) and call.id == "setting" for call in calls)


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
    sys.exit(main())
