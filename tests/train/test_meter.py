"""The meter by worked numbers, no matter how fast this machine is, and metrics.jsonl, of which only complete rows are read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_runs import rows

from webtext.base.console import Console, Progress
from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.distributed import World
from webtext.train.metrics import METRICS, metrics_log, read_metrics, steps_made
from webtext.train.run import meter
from webtext.train.run.meter import memory_bytes
from webtext.train.shape import GPT2Config

CPU = torch.device("cpu")
OTHERS = ("NVIDIA GeForce GTX 1050", "Tesla T4", "AMD Instinct MI300X", "")
CARDS = [("NVIDIA H100 80GB HBM3", "bfloat16", 0.4323), ("NVIDIA H100 80GB HBM3", "float32", None)]
CARDS += [(name, "bfloat16", None) for name in OTHERS]  # without a data sheet; the last one is a CPU


@pytest.mark.parametrize(("card", "dtype", "mfu_ratio"), CARDS)
def test_mfu_is_the_models_operations_over_the_data_sheets_of_all_gpus(
    card: str, dtype: str, mfu_ratio: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000,000 tokens per second of 855,166,464 FLOP each, on two cards of 989e12 FLOP/s in bfloat16: 43.23 %."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: card)
    monkeypatch.setattr(meter, "memory_bytes", lambda _: 3 * 2**29)
    monkeypatch.setattr(meter, "time", SimpleNamespace(perf_counter=iter((0.0, 2.0)).__next__))
    world, progress = World(0, 2, torch.device("cuda", 0) if card else CPU), Progress(1, "", "", 0)
    record = meter.Record(GPT2Config.named("124M"), world, Console("quiet"), {"dtype": dtype})
    record.log = io.StringIO()
    record.start_clock()
    record.add_step(progress, 1, 2_000_000, 1e-3, 2.5, 1.0, None)
    row = json.loads(record.log.getvalue())
    assert (row["tokens_per_second"], row["mfu_ratio"], row["memory_bytes"]) == (1e6, mfu_ratio, 3 * 2**29)
    assert progress.note.endswith(f", 1,000,000 tokens/s{', MFU 43%' if mfu_ratio else ''}, 1.5 GiB")


def test_the_memory_of_a_process_is_that_of_its_peak() -> None:
    before = memory_bytes(CPU)
    held = torch.ones(2**26)
    assert memory_bytes(CPU) >= max(before, held.nbytes)


def test_a_row_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with metrics_log(tmp_path, 0, Console("quiet")) as log:
        for step in (1, 2):
            log.write(f'{{"step": {step}}}\n')
            assert steps_made(tmp_path) == step
            assert len(read_metrics(Folder(tmp_path), "")) == step


def test_a_resumed_run_keeps_the_rows_up_to_its_step_and_a_new_run_keeps_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / METRICS).write_text('{"step": 0}\n{"step": 1}\nnothing\n{"step": 2}\n{"step": 3}\n{"st')
    with metrics_log(tmp_path, 2, Console("quiet")):
        pass
    assert rows(tmp_path) == [{"step": 0}, {"step": 1}, {"step": 2}]
    assert capsys.readouterr().err == f"warning: 1 of 5 rows of '{tmp_path / METRICS}' cannot be read and are dropped\n"
    with metrics_log(tmp_path, 0, Console("quiet")):
        pass
    assert rows(tmp_path) == []


def test_a_row_that_is_being_written_is_left_out_and_any_other_must_be_an_object(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 1, "loss": null, "other": []}\n{"step": 2')
    (row,) = read_metrics(Folder(tmp_path), "")
    assert (row.step, row.loss) == (1, None)
    (tmp_path / METRICS).write_text("[1]\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl:1' is damaged: .*\nname another"):
        read_metrics(Folder(tmp_path), "name another")
    with pytest.raises(InputError, match=r"no' contains no metrics\.jsonl\nname another"):
        read_metrics(Folder(tmp_path / "no"), "name another")


@pytest.mark.parametrize("text", [None, "", "\n", "[1]\n", '{"step": "1"}\n', '{"step": 5'])
def test_a_row_without_a_step_has_none(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / METRICS).write_text(text)
    assert steps_made(tmp_path) == 0


def test_the_steps_made_are_read_from_the_end_of_a_file_of_any_length(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text("".join(json.dumps({"step": i, "more": "x" * 99}) + "\n" for i in range(2000)))
    assert steps_made(tmp_path) == 1999
