"""Every example in a docstring runs and says what it shows."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")
MODULES = [
    "webtext." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for stage in STAGES
    for path in sorted((ROOT / stage).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and "native" not in path.parts
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
