"""pyarrow without pandas, until a data frame is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
import pyarrow as pa
from webtext.base.parts.lean_arrow import keep_pandas_out
keep_pandas_out()
table = pa.Table.from_pylist([{"a": "x", "b": [1]}])
assert table.to_pylist() == [{"a": "x", "b": [1]}]
assert "pandas" not in sys.modules
print(table.select(["a"]).to_pandas().a[0], "pandas" in sys.modules)
"""


def test_pandas_stays_out_until_a_data_frame_is_asked_for() -> None:
    pytest.importorskip("pandas", reason="needs pandas, which datasets brings along")
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert child.stdout.split() == ["x", "True"], child.stderr


STAGE = """
import sys
sys.path.insert(0, sys.argv[1])
import stage_functions
from webtext.base.console import Console
from webtext.base.workers.engine import LocalEngine
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.parts.stage import PartTask, run_parts
outputs = {name: (f"{sys.argv[2]}/{name}", "dropped") for name in ("kept", "dropped")}
tasks = [PartTask(index=0, sources=(), payload={"numbers": [1, 2, 3]}, depends="")]
with LocalEngine(workers=1) as engine:
    recipe = Recipe(stage="test.double", code_version=1, settings={})
    made = run_parts(stage_functions.double, tasks, recipe=recipe, outputs=outputs, parents=[], run=Run(engine, Console("quiet")))
    assert made["dropped"].table(0)["id"].to_numpy().tolist() == ["1", "3"]
    engine.map(stage_functions.is_loaded, ["pyarrow", "pandas"], on_done=lambda index, loaded: print(index, loaded))
print("pandas" in sys.modules)
"""


def test_no_stage_imports_pandas_and_neither_do_its_workers(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas, which datasets brings along")
    command = [sys.executable, "-c", STAGE, str(Path(__file__).parent), str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.stdout.split() == ["0", "True", "1", "False", "False"], child.stderr
