"""The fuzzers' targets pass on the inputs in corpus/."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
INPUTS = sorted(HERE.glob("corpus/*/*"))


def target(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        return importlib.import_module(name)


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_a_kept_input_breaks_no_promise(file: Path) -> None:
    target(file.parent.name).check(file.read_bytes())


@pytest.mark.parametrize("name", sorted({file.parent.name for file in INPUTS}))
def test_a_target_runs_outside_of_the_tests(name: str) -> None:
    """As `make fuzz` starts it, without pytest's paths."""
    file = next(file for file in INPUTS if file.parent.name == name)
    subprocess.run([sys.executable, str(HERE / "run.py"), name, str(file)], check=True)


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    targets = {file.stem for file in HERE.glob("*.py") if "def check(" in file.read_text(encoding="utf-8")}
    assert {file.parent.name for file in INPUTS} == targets - {Path(__file__).stem}


def test_mutated_tokenizer_files_break_no_promise() -> None:
    """The fuzzer's own mutator, without the fuzzer: few of its files are only bad JSON."""
    module = target("tokenizer_json")
    seeds = [file.read_bytes() for file in INPUTS if file.parent.name == "tokenizer_json"]
    for seed in range(60):
        module.check(module.mutate(seeds[seed % len(seeds)], 1 << 14, seed))
