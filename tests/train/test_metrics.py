"""metrics.jsonl: what is told stands there at once, what goes on is cut back, and what is read is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.metrics import METRICS, metrics_log, read_metrics, steps_made


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def test_a_row_is_there_as_soon_as_it_is_told(tmp_path: Path) -> None:
    with metrics_log(tmp_path, 0, Console("quiet")) as log:
        for step in (1, 2):
            log.tell({"step": step})
            assert steps_made(tmp_path) == step
            assert len(read_metrics(Folder(tmp_path), "")) == step


def test_a_run_that_goes_on_keeps_the_rows_until_its_step_and_one_that_begins_keeps_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / METRICS).write_text('{"step": 0}\n{"step": 1}\nnothing\n{"step": 2}\n{"step": 3}\n{"st')
    with metrics_log(tmp_path, 2, Console("quiet")):
        pass
    assert rows_of(tmp_path) == [{"step": 0}, {"step": 1}, {"step": 2}]
    assert capsys.readouterr().err == f"warning: 1 of 5 rows of '{tmp_path / METRICS}' cannot be read: left out\n"
    with metrics_log(tmp_path, 0, Console("quiet")):
        pass
    assert rows_of(tmp_path) == []


def test_a_row_that_is_being_written_is_left_out_and_any_other_must_be_an_object(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 1, "loss": NaN}\n{"step": 2')
    (row,) = read_metrics(Folder(tmp_path), "")
    assert row["step"] == 1
    (tmp_path / METRICS).write_text("[1]\n")
    with pytest.raises(InputError, match="holds no JSON object\nname another"):
        read_metrics(Folder(tmp_path), "name another")
    with pytest.raises(InputError, match=r"no' holds no metrics\.jsonl\nname another"):
        read_metrics(Folder(tmp_path / "no"), "name another")


@pytest.mark.parametrize("text", [None, "", "\n", "[1]\n", '{"step": "1"}\n', '{"step": 5'])
def test_what_tells_no_step_tells_none(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / METRICS).write_text(text)
    assert steps_made(tmp_path) == 0


def test_the_steps_made_are_read_from_the_end_of_a_file_of_any_length(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text("".join(json.dumps({"step": i, "more": "x" * 99}) + "\n" for i in range(2000)))
    assert steps_made(tmp_path) == 1999
