"""The categories of characters are those of Unicode 14, whichever Python runs, and so are the tables in C++."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from webtext.clean.text.unicode import UNICODE_VERSION, category_of
from webtext.tokenizer import _bpe

CLEAN = Path(__file__).parents[2] / "clean"


def test_a_character_that_a_later_version_assigned_is_unassigned() -> None:
    """U+0CF3 came with Unicode 15.0, U+2EBF0 with 15.1, U+1C89 with 16.0, U+088F with 17.0."""
    assert [category_of(each) for each in "é\u0cf3\U0002ebf0\u1c89\u088f"] == ["Ll", "Cn", "Cn", "Cn", "Cn"]


@pytest.mark.parametrize("major", "LMNPS")
def test_major_categories_are_those_of_the_tokenizers_table_of_that_version(major: str) -> None:
    ranges = _bpe.character_ranges(major, UNICODE_VERSION)
    table = {code for first, last in ranges for code in range(first, last + 1)}
    assert {code for code in range(0x110000) if category_of(chr(code))[0] == major} == table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "rule", "digest"),
    [
        ("fold", "dedup/key.py", "b30b6c6adc2b518ffc5ecadad6906dd213c3c0d7191b5944cfd69c32279a7b20"),
        ("characters", "rules/characters.py", "f02864186da59ad5da0e2e9c168969aa5ecf6004c66378c3d41af1b35db90db1"),
    ],
)
def test_every_python_makes_the_recorded_table_for_cpp(which: str, rule: str, digest: str, tmp_path: Path) -> None:
    command = [sys.executable, CLEAN / "native" / "make_table.py", which, CLEAN / rule, tmp_path / "table.hpp"]
    subprocess.run(command, check=True)
    assert hashlib.sha256((tmp_path / "table.hpp").read_bytes()).hexdigest() == digest
