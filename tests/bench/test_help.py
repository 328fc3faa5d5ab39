"""Every bench answers --help in any folder, also where its peers are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = [
    path
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if "__main__" in path.read_text() and path.name[:5] != "test_"
]


@pytest.mark.slow  # imports of all peers
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_bench_answers_help(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(program), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {program.name}")
