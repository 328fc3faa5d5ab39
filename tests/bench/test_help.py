"""Every bench answers --help in any folder, also where its peers are not installed."""

from __future__ import annotations

import runpy
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
def test_a_bench_answers_help(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(program.parent)
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    said = capsys.readouterr()
    assert (ended.value.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: {program.name}")
