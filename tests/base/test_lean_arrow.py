"""pyarrow without pandas, and with it as soon as somebody asks for a data frame."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import sys
import pyarrow as pa
from webtext.base.lean_arrow import keep_pandas_out
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
