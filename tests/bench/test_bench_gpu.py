"""The GPU's bench: all its rows at toy size, on a machine that has torch and little else; rows that fail or take too long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))
import bench_gpu  # noqa: E402

ALONE = """
import importlib.abc, sys

HAS = {"torch", "numpy", "safetensors", "click", "msgspec", "webtext", *sys.stdlib_module_names}
OURS = {"bench_gpu", "gpu_rows", "train_peers", "arguments", "real_data"}
CHECKOUT = ROOT

class Alone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        frame = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        places = (CHECKOUT, "/tree/webtext/")
        if not frame or ".venv" in frame.f_code.co_filename or not any(p in frame.f_code.co_filename for p in places):
            return None  # torch's own packages come with it
        if name.partition(".")[0] not in HAS | OURS or "webtext._" in name or "._" in name and name.startswith("webtext"):
            raise ModuleNotFoundError(f"{name} is missing: {frame.f_code.co_filename}", name=name)
        return None

sys.meta_path = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
sys.meta_path.insert(0, Alone())
"""


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine with torch, numpy, safetensors, click and msgspec, and without our C++ cores."""
    (tmp_path / "sitecustomize.py").write_text(ALONE.replace("ROOT", repr(str(bench_gpu.ROOT))))
    return {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}


def bench(out: Path, environment: dict[str, str], *options: str) -> tuple[dict[str, bench_gpu.Row], str]:
    places = "--out", str(out), "--carried", str(out)
    command = [sys.executable, str(HERE / "bench_gpu.py"), "--dry-run", *places, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rows: dict[str, bench_gpu.Row] = json.loads((out / "bench_gpu.json").read_text())["rows"]
    return rows, done.stdout


def test_a_machine_with_torch_alone_refuses_what_it_lacks(alone: dict[str, str], tmp_path: Path) -> None:
    """Otherwise the other tests would show nothing."""
    tree = bench_gpu.link_tree(tmp_path)
    alone["PYTHONPATH"] += f":{tree}"
    for module, lacks in (("webtext.base.parts.schemas", "pyarrow"), ("webtext.tokenizer", "_bpe")):
        done = subprocess.run([sys.executable, "-c", f"import {module}"], env=alone, capture_output=True, text=True)
        assert done.returncode == 1
        assert lacks in done.stderr.splitlines()[-1]


def test_a_failed_row_is_recorded_and_the_next_is_measured_and_neither_again(
    alone: dict[str, str], tmp_path: Path
) -> None:
    rows, _ = bench(tmp_path / "out", alone, "--rows", "124M nanoGPT,124M")
    assert rows["124M nanoGPT"]["failed"] == "name a checkout of nanoGPT with --nanogpt"
    assert list(rows) == ["124M", "124M nanoGPT"]
    assert rows["124M"]["tokens_per_second"] > 0
    again, said = bench(tmp_path / "out", alone, "--minutes", "0")
    assert again == rows
    assert {line.partition(":")[0] for line in said.splitlines() if "not started" in line} == set(bench_gpu.ROWS) - set(
        rows
    )
    assert "- 124M nanoGPT: not measured: name a checkout" in (tmp_path / "out" / "bench_gpu.md").read_text()


@pytest.mark.slow  # a minute of processes that each import torch
def test_all_rows_are_measured_at_toy_size(alone: dict[str, str], tmp_path: Path) -> None:
    names = [name for name in bench_gpu.ROWS if name not in ("124M uncompiled", "124M nanoGPT")]
    rows, said = bench(tmp_path / "out", alone, "--rows", ",".join(names))
    assert {name: row["failed"] for name, row in rows.items() if "failed" in row} == {}
    assert list(rows) == names
    assert rows["124M deterministic"]["repeated_bit_for_bit"] is True
    assert rows["124M resumed"]["resumed_bit_for_bit"] is True
    assert rows["16M losses"]["last_100_difference"] == 0
    assert rows["124M saver"]["second_saved_seconds"] > 0
    assert len(rows["124M kernels"]["kernels"]) == 10
    assert all(f"|{name}|" in said or f"- {name}: " in said for name in names)


def test_what_is_carried_has_packages_and_nanogpt_and_tokens_and_is_refused_above_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = subprocess.run, []

    def without_pip(command: list[str], **more: object) -> object:
        return asked.append(command) if "pip" in command else real(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", without_pip)
    theirs, tokens, folder = tmp_path / "nanoGPT", tmp_path / "tokens", tmp_path / "carried"
    theirs.mkdir(), tokens.mkdir(), (theirs / "model.py").touch(), (tokens / "manifest.json").touch()
    bench_gpu.pack(folder, "3.12", str(theirs), tokens)
    assert "--python-version=3.12" in asked[0]
    assert asked[0][-2:] == ["click", "msgspec"]
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {
        "nanogpt/model.py",
        "tokens/manifest.json",
    }
    with open(tokens / "train.tok", "wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(SystemExit, match="more than 64 MiB: give --tokens a smaller token set"):
        bench_gpu.pack(folder, "3.12", str(theirs), tokens)


def test_a_row_that_the_end_of_the_minutes_cut_off_is_measured_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_gpu, "measured", lambda *a: {"failed": "it took too long", "row_seconds": a[-1]})
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", "--out", str(tmp_path), "--dry-run", "--minutes", "1"])
    bench_gpu.main()
    assert "card: killed, because 1 minutes are over; rerun to measure it" in capsys.readouterr().out
    assert not (tmp_path / "bench_gpu.json").exists()


def test_a_row_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    child = f"import subprocess, pathlib, time; p = subprocess.Popen(['sleep', '600']); pathlib.Path({str(tmp_path / 'pid')!r})"
    says = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)"
    command = [sys.executable, "-c", f"{says}; {child}.write_text(str(p.pid)); time.sleep(600)"]
    row = bench_gpu.measured(command, os.environ, tmp_path / "row.json", 3.0)
    assert 'File "<string>", line 1 in <module>' in "".join(row.pop("log"))
    assert row == {"failed": "it took more than 3 s", "row_seconds": 3.0}
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the row's child still runs")


def test_trainers_whose_losses_differ_are_marked() -> None:
    results = {"124M": [[10.0, 1.0], [9.0, 1.0]], "124M uncompiled": [[10.0], [9.04]], "124M nanoGPT": [[10.0], [9.06]]}
    rows: dict[str, bench_gpu.Row] = {name: {"results": losses} for name, losses in results.items()}
    bench_gpu.check_losses(rows | {"1558M offloaded": {"results": [[float("nan")]]}})
    assert {name for name, row in rows.items() if "failed" in row} == {"124M nanoGPT"}
    pair: dict[str, bench_gpu.Row] = {"1558M": {"results": [[9.0]]}, "1558M offloaded": {"results": [[float("nan")]]}}
    bench_gpu.check_losses(pair)
    assert "failed" in pair["1558M offloaded"]


def test_results_of_another_machine_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_gpu.json").write_text(json.dumps({"machine": {"card": "NVIDIA L4"}, "rows": {}}))
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", "--out", str(tmp_path), "--dry-run"])
    with pytest.raises(SystemExit, match="is of another machine \\(card NVIDIA L4\\): choose another --out"):
        bench_gpu.main()


def test_the_peak_is_that_of_the_cards_data_sheet() -> None:
    import gpu_rows

    names = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-80GB", "NVIDIA L4")
    assert [gpu_rows.data_sheet_peak(name) for name in names] == [989e12, 756e12, 835e12, 312e12, 121e12]
    assert gpu_rows.data_sheet_peak("NVIDIA GH200 480GB") == 989e12
    for other in ("NVIDIA L40", "NVIDIA A10G", "NVIDIA H20"):
        assert gpu_rows.data_sheet_peak(other) is None


def test_time_that_is_covered_twice_counts_once() -> None:
    import gpu_rows

    union = gpu_rows.merged([(3, 5), (0, 2), (1, 2), (4, 6), (6, 7)])
    assert union == [(0, 2), (3, 7)]
    assert gpu_rows.length(union) == 6
