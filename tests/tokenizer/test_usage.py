"""Examples in the README and docstrings run as shown."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from webtext.tokenizer import Tokenizer

README = Path(__file__).resolve().parents[2] / "tokenizer" / "README.md"


def test_the_examples_of_the_readme_run(gpt2: Tokenizer) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    results = doctest.testfile(
        str(README), module_relative=False, globs={"tok": gpt2, "np": np, "pyarrow": pyarrow}, verbose=False
    )
    assert results.attempted > 12
    assert results.failed == 0


def test_help_says_what_every_public_method_does() -> None:
    for name, member in inspect.getmembers(Tokenizer):
        if not name.startswith("_"):
            said = inspect.getdoc(member) or ""
            assert said.split("\n")[0].endswith("."), f"{name}: {said!r}"


def test_the_readme_names_every_file() -> None:
    """A header and its source file may share a name: `bpe.*`."""
    named = set(re.findall(r"`([\w.*]+)`", README.read_text()))
    for file in [*README.parent.rglob("*.?pp"), *README.parent.rglob("*.py")]:
        assert named & {file.name, f"{file.stem}.*"} or file.name == "__init__.py", file
