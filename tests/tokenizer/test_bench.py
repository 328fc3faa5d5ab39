"""The tokenizer's benchmark: figures, ratios and the table from made-up runs, and one small real row."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "bench"
MODULES = ("tokenizer_texts", "tokenizer_rows", "tokenizer_table", "tokenizer_peers", "tokenizer_child")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the benchmark's modules, which import each other like scripts in one folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return {name: importlib.import_module(name) for name in MODULES}


def run(*cpu: float, **more: Any) -> dict[str, Any]:
    """Return a run over two million bytes whose passes took these CPU seconds; wall time is twice that."""
    passes = [{"cpu": seconds, "wall": 2 * seconds} for seconds in cpu]
    return {"n_bytes": 2_000_000, "passes": passes, "loaded_bytes": 0, "peak_bytes": 0, "right": True} | more


def test_the_examples_of_the_bench_hold(bench: dict[str, Any]) -> None:
    results = [doctest.testmod(module) for module in bench.values()]
    assert sum(result.attempted for result in results) >= 5
    assert not any(result.failed for result in results)


def test_a_figure_is_the_median_over_runs_of_the_first_pass_or_of_the_later_ones(bench: dict[str, Any]) -> None:
    """Cold: 4, 1 and 2 s, so 2 s for 2 MB. Warm: medians 0.5, 0.25, 9, so 0.5 s."""
    runs = [run(4, 0.5, 0.1, 0.9), run(1, 0.25, 0.25, 0.25), run(2, 9, 9, 9)]
    figure = bench["tokenizer_table"].figure
    assert figure(runs, "cold") == 1.0
    assert figure(runs, "warm") == 4.0
    assert figure(runs, "wall") == 2.0
    assert figure([run(3)], "warm") == pytest.approx(2 / 3)  # engines that get one pass are the same in all
    assert figure([{"error": "it broke"}], "cold") is None
    assert figure([run(1, loaded_bytes=10_000_000, peak_bytes=5_000_000)], "memory") == 15.0


def test_a_line_counts_the_fastest_call_of_the_first_peer(bench: dict[str, Any]) -> None:
    rows, table = bench["tokenizer_rows"], bench["tokenizer_table"]
    row = rows.encoding("text-en", "one text", "text", "en", ("gigatoken", "tiktoken"))
    slow, fast, tiktoken = row.peers
    runs = {row.ours: [run(1)], slow: [run(8)], fast: [run(2)], tiktoken: [run(20)]}
    warm, cold, _ = (table.line_of(row, measure, runs) for measure in row.measures)
    assert (warm.ours, warm.peer_name, warm.peer, warm.ratio) == (2.0, "gigatoken", 1.0, 2.0)
    assert (warm.is_right, warm.others) == (True, {"tiktoken": 0.1})
    assert (cold.ours, cold.ratio) == (2.0, 2.0)


def test_wrong_ids_have_no_ratio_in_the_table_and_missing_peers_are_no_error(bench: dict[str, Any]) -> None:
    rows, table = bench["tokenizer_rows"], bench["tokenizer_table"]
    row = rows.encoding("x", "texts", "documents", "en", ("gigatoken",))
    wrong = {row.ours: [run(1, right=False)], row.peers[0]: [run(4, right=False)]}
    line = table.line_of(row, row.measures[0], wrong)
    assert "| wrong ids" in table.as_table([line])
    assert line.notes == [f"{name}, documents: gpt2's ids are not tiktoken's" for name in ("webtext", "gigatoken")]
    line = table.line_of(row, row.measures[0], {row.ours: [run(1)]})
    assert (line.peer, line.ratio) == (None, None)


def test_the_slowest_hostile_text_counts(bench: dict[str, Any]) -> None:
    rows, table = bench["tokenizer_rows"], bench["tokenizer_table"]
    row = rows.hostile(1000)
    texts = {"a": {"cpu": 0.02}, "b": {"cpu": 0.07}}
    line = table.line_of(row, row.measures[0], {row.ours: [{"texts": texts}], row.peers[0]: [{"texts": texts}]})
    assert (line.ours, line.ratio) == (0.07, 1.0)
    assert line.notes[0] == "webtext, hostile: slowest are b 0.07 s, a 0.02 s"


def test_odd_texts_with_other_ids_are_counted(bench: dict[str, Any]) -> None:
    rows, table = bench["tokenizer_rows"], bench["tokenizer_table"]
    row = rows.ugly("gpt2", 10, ("gigatoken",))
    runs = {row.ours: [{"n_different": 0}], row.peers[0]: [{"n_different": 2, "shortest": ["'a'"], "right": False}]}
    line = table.line_of(row, row.measures[0], runs)
    assert (line.ours, line.peer, line.ratio, line.is_right) == (0, 2, None, True)
    assert line.notes == ["gigatoken, ugly: gpt2's ids are not tiktoken's, e.g. of 'a'"]


def test_the_table_is_aligned_and_the_json_holds_every_run(bench: dict[str, Any]) -> None:
    rows, table = bench["tokenizer_rows"], bench["tokenizer_table"]
    chosen = rows.rows()[:3]
    runs = {job: [run(1)] for row in chosen for job in (row.ours, *row.peers)}
    lines = [table.line_of(row, measure, runs) for row in chosen for measure in row.measures]
    text = table.as_table(lines).splitlines()
    assert len(text) == 2 + len(lines)
    assert len({line[: line.rindex(" | ")].rfind(" | ") for line in text[2:]}) == 1
    stored = json.loads(json.dumps(table.as_json({"cores": 2}, lines, runs)))
    assert stored["cores"] == 2
    assert sum(len(job["runs"]) for job in stored["jobs"]) == len(runs)


def test_names_of_rows_are_unique_and_every_call_they_need_exists(bench: dict[str, Any], data: Path) -> None:
    rows, peers = bench["tokenizer_rows"].rows(), bench["tokenizer_peers"]
    assert len({row.name for row in rows}) == len(rows)
    for engine in ("webtext", "tiktoken", "tokenizers"):
        calls = peers.ENCODERS[engine](data / "gpt2", "gpt2", 1)
        jobs = [job for row in rows for job in (row.ours, *row.peers) if job.engine == engine]
        assert {job.task for job in jobs} - {"train", "ugly", "load"} <= calls.keys()


def test_documents_are_whole_lines_and_hostile_texts_are_as_long_as_asked(bench: dict[str, Any]) -> None:
    texts = bench["tokenizer_texts"]
    data = b"".join(b"%d\n" % number for number in range(5000)) + b"no end of line"
    parts = texts.cut_documents(data)
    assert b"".join(parts) == data
    assert all(4096 <= len(part) < 4103 and part.endswith(b"\n") for part in parts[:-1])
    made = {name: make() for name, make in texts.hostile_texts(1001).items()}
    assert {len(text) for text in made.values()} == {1001}
    assert all(text.encode() for text in made.values())


@pytest.mark.slow
def test_one_quick_row_runs_with_the_peers_that_are_here_and_all_bytes_are_right(
    shared_data: Path, tmp_path: Path
) -> None:
    command = [sys.executable, str(FOLDER / "bench_tokenizer.py"), str(shared_data), "--quick", "--only", "decode-en"]
    done = subprocess.run([*command, "--json", str(tmp_path / "all.json")], capture_output=True, text=True, check=True)
    assert "| numpy → bytes, en, warm, MB/s" in done.stdout
    stored = json.loads((tmp_path / "all.json").read_text())
    assert all(run["right"] for job in stored["jobs"] for run in job["runs"])
    assert all(row["ours"] for row in stored["rows"])
