"""Fuzz a reader of untrusted bytes: python tests/fuzz/run.py TARGET --minutes 10, or run some inputs: TARGET FILES.

A target is a module here: `check(data)` raises if the code breaks a promise that the module's docstring states. It may
have DICTIONARY, byte strings to insert, and `mutate(data, max_size, seed)`, a mutator of its own. libFuzzer, which comes
with atheris, mutates the inputs in corpus/TARGET and in build/fuzz/TARGET, and writes there every input that reaches a
new branch of the package's Python, and the first that fails, as crash-*, timeout-* or oom-*. A fixed failure becomes an
input in corpus/TARGET: test_corpus.py runs them all, also under sanitizers (`make sanitize`).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from pathlib import Path
from types import FunctionType

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # as pytest does, for tests/reference
TARGETS = sorted(folder.name for folder in (HERE / "corpus").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("inputs", type=Path, nargs="*", help="run these inputs only")
    parser.add_argument("--minutes", type=float, default=10)
    arguments = parser.parse_args()
    for each in arguments.inputs:
        importlib.import_module(arguments.target).check(each.read_bytes())
    if not arguments.inputs:
        fuzz(arguments.target, arguments.minutes)


def fuzz(name: str, minutes: float) -> None:
    import atheris

    target = importlib.import_module(name)
    for each in gc.get_objects():  # not `instrument_imports`, which doesn't follow the editable install
        if isinstance(each, FunctionType) and str(each.__module__).startswith("webtext."):
            atheris.instrument_func(each)
    found = HERE.parents[1] / "build" / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    words = found.with_suffix(".dict")
    lines = (f'"{_escaped(word)}"\n' for word in getattr(target, "DICTIONARY", ()))
    words.write_text("# words to insert\n" + "".join(lines))
    options = [f"-max_total_time={60 * minutes:.0f}", f"-max_len={getattr(target, 'MAX_BYTES', 4096)}", "-timeout=30"]
    options += ["-rss_limit_mb=3000", "-print_final_stats=1", f"-artifact_prefix={found}/", f"-dict={words}"]
    mutators = {"custom_mutator": target.mutate} if hasattr(target, "mutate") else {}
    atheris.Setup([sys.argv[0], *options, str(found), str(HERE / "corpus" / name)], target.check, **mutators)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
