"""Counting by part tasks: the merges of one process, whatever the tasks are; only what is missing is counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from webtext.base.errors import RunFailed
from webtext.base.run import Parts, Run
from webtext.tokenizer.files import counting
from webtext.tokenizer.files.corpus import CountSettings, TokenizerSettings, count_corpus, train_tokenizer

from .test_corpus import document, write_set

NINE = [f"the {animal} and the other {animal} {index} " * 9 for index, animal in enumerate(["dog", "cat", "ox"] * 3)]


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """A set of nine parts, text files, JSON lines, and counts."""
    rows = [[document(f"{i}", text), document(f"v{i}", "held out", "validation")] for i, text in enumerate(NINE)]
    found = [write_set(tmp_path / "corpus", rows)]
    for index in range(4):
        found.append(str(tmp_path / f"{index}.txt"))
        Path(found[-1]).write_text(f"plain text of the file {index} " * 30)
    found.append(str(tmp_path / "records.jsonl"))
    Path(found[-1]).write_text('{"text": "a record of the dog"}\n{"other": 1}\n{"text": "another record"}\n')
    found.append(str(tmp_path / "known.counts"))
    count_corpus([found[1]], found[-1], CountSettings(), Run.quiet())
    return found


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "GROUP_BYTES", 20_000)  # two parts of the set


def train(inputs: list[str], out: Path, run: Run, **settings: Any) -> Mapping[str, Any]:
    """Train and return the manifest, without the hashes of the part set that is beside the tokenizer."""
    train_tokenizer(inputs, str(out), TokenizerSettings(vocab_size=400, **settings), run)
    return dict(json.loads(out.with_name("tokenizer.manifest.json").read_text()))


def parts(out: Path) -> list[Path]:
    return sorted(out.with_name("tokenizer.json.parts").glob("part-*.counts"))


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_give_the_tokenizer_and_the_manifest_of_one_process(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    weight = (f"{inputs[0]}=2.5", f"{inputs[3]}=1/3")
    expected = train(inputs, tmp_path / "one" / "tokenizer.json", Run.quiet(), weight=weight)
    assert not parts(tmp_path / "one" / "tokenizer.json")
    for group_bytes, n_groups in ((1, 14), (20_000, 8)):
        monkeypatch.setattr(counting, "GROUP_BYTES", group_bytes)
        out = tmp_path / str(group_bytes) / "tokenizer.json"
        assert train(inputs, out, Run.quiet(workers), weight=weight) == expected
        assert len(parts(out)) == n_groups
    assert expected["counts"]["dropped"] == {"held_out": 9}
    assert expected["counts"]["failed"] == {"no_text": 1}


@pytest.mark.usefixtures("small_groups")
def test_only_groups_that_changed_are_counted_again(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out" / "tokenizer.json"
    train(inputs, out, Run.quiet())
    before = {path.name: path.stat().st_ino for path in parts(out)}
    Path(inputs[-2]).write_text('{"text": "an entirely new record"}\n')
    parts(out)[0].unlink()
    train(inputs, out, Run.quiet())
    after = {path.name: path.stat().st_ino for path in parts(out)}
    changed = [name for name in before if after[name] != before[name]]
    assert len(before) == len(after) == 6
    assert changed == ["part-00000.counts", "part-00005.counts"]


@pytest.mark.usefixtures("small_groups")
def test_runs_of_some_groups_and_one_of_all_give_the_same_tokenizer(inputs: list[str], tmp_path: Path) -> None:
    expected = train(inputs, tmp_path / "one" / "tokenizer.json", Run.quiet())
    out, run = tmp_path / "shared" / "tokenizer.json", Run.quiet()
    run.parts = Parts(1, 2)
    with pytest.raises(RunFailed):
        train(inputs, out, run)
    assert len(parts(out)) == 3
    assert train(inputs, out, Run.quiet()) == expected


@pytest.mark.usefixtures("small_groups")
def test_other_weights_and_sizes_count_nothing_again(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out" / "tokenizer.json"
    train(inputs, out, Run.quiet(), weight=(f"{inputs[0]}=2",))
    before = [path.stat().st_mtime_ns for path in parts(out)]
    train(inputs, out, Run.quiet(), weight=(f"{inputs[0]}=3",), min_frequency=2)
    assert [path.stat().st_mtime_ns for path in parts(out)] == before


@pytest.mark.usefixtures("small_groups")
def test_a_group_whose_file_is_cut_short_is_counted_again(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out" / "tokenizer.json"
    expected = train(inputs, out, Run.quiet())
    data = parts(out)[1].read_bytes()
    parts(out)[1].write_bytes(data[:-1])
    out.unlink()
    assert train(inputs, out, Run.quiet()) == expected
    assert parts(out)[1].read_bytes() == data


@pytest.mark.usefixtures("small_groups")
def test_counts_of_parts_are_a_file_of_counts_like_any_other(inputs: list[str], tmp_path: Path) -> None:
    one, many = tmp_path / "one.counts", tmp_path / "many.counts"
    assert count_corpus(inputs, str(many), CountSettings(), Run.quiet(2)) == 25
    assert (tmp_path / "many.counts.parts").is_dir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "GROUP_BYTES", 1 << 30)
        for index, source in enumerate(inputs):  # each is one group
            count_corpus([source], str(tmp_path / f"s{index}.counts"), CountSettings(), Run.quiet())
        count_corpus(
            [str(tmp_path / f"s{i}.counts") for i in range(len(inputs))], str(one), CountSettings(), Run.quiet()
        )
    assert one.read_bytes() == many.read_bytes()
