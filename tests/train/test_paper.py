"""`train paper`: the paper's numbers agree with each other, and a page shows a model's own beside them."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from browser import shown
from test_zero_shot import CBT, LAMBADA, WIKITEXT, jsonl

from webtext.app.main import run as command
from webtext.tokenizer import Tokenizer
from webtext.train import GPT2, GPT2Config
from webtext.train.evaluate.paper import measure as measuring
from webtext.train.evaluate.paper.published import (
    STATE_OF_THE_ART,
    TABLE_5,
    TABLE_6,
    TITLES,
    published,
)
from webtext.train.evaluate.paper.sets import SETS
from webtext.train.evaluate.table3 import SIZES, TABLE_3, TABLE_4


def test_the_papers_numbers_are_those_that_its_text_derives_from_them() -> None:
    """Sections 3.6 and 4: the mean of ROUGE, 6.4 points without the hint, overlaps of 5.9 % and 3.2 % on average."""
    for *scores, mean in TABLE_4.values():
        assert fmean(scores) == pytest.approx(mean, abs=0.0051)
    assert TABLE_4["TL;DR:"][3] - TABLE_4["no hint"][3] == pytest.approx(6.4, abs=0.05)
    own, webtext = zip(*TABLE_6.values(), strict=True)
    assert (round(100 * fmean(own), 1), round(100 * fmean(webtext), 1)) == (5.9, 3.2)
    probabilities, right = zip(*TABLE_5, strict=True)
    assert (len(right), list(probabilities)) == (30, sorted(probabilities, reverse=True))


def test_rows_of_the_page_are_those_of_table_3() -> None:
    rows = {(row.task, row.measure): row.paper for row in published() if row.place == "table 3"}
    for task, measures in TABLE_3.items():
        for measure, values in measures.items():
            row = rows[task, measure]
            assert [row[size] for size in SIZES] == list(values)
    assert [row["state of the art"] for row in rows.values() if len(row) > 1] == list(STATE_OF_THE_ART)
    figure_2 = {row.task: list(row.paper.values()) for row in published() if row.place == "figure 2"}
    assert figure_2 == {task: list(TABLE_3[task]["accuracy"]) for task in ("cbt-cn", "cbt-ne")}
    assert rows["lambada", "accuracy, no stop-word filter"] == {"1542M": 0.5266}


def test_every_row_belongs_to_a_table_or_figure() -> None:
    assert {row.place for row in published()} <= TITLES.keys()
    assert len(TITLES) == 6 + 5


SHAPE: dict[str, Any] = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 600}
TASKS = Path(__file__).parent / "tasks"
TEXTS = {
    "lambada_test.jsonl": jsonl(LAMBADA),
    "stop-words.txt": "the\n",
    "cbtest_CN_valid_2000ext.txt": CBT,
    "cbtest_NE_valid_2000ext.txt": CBT,
    "wikitext-2/wiki.test.tokens": WIKITEXT,
    "wikitext-103/wiki.test.tokens": WIKITEXT,
    "ptb.test.txt": " the cat sat on the <unk> \n" * 9,
    "news.en.heldout-00000-of-00050": "The cat sat , he said .\n" * 9,
    "enwik8": "<page> the cat </page>\n" * 9,
    "text8": "the cat sat " * 9,
}


GREP: dict[str, Any] = {  # as `inspect grep --json` prints, as far as it is read
    "pattern": "<UNK>",
    "documents": 9,
    "occurrences": 3,
    "shown": [{"id": "a", "url": None, "karma": 5, "occurrences": 3, "context": "an <UNK> word"}],
}


def overlap(shares: list[float]) -> dict[str, Any]:
    return {"texts": 4, "ngrams": 40, "shares": shares, "median": shares[2], "without": 0.25}


def memorized(sets: Path) -> dict[str, Any]:
    """What `inspect memorized` writes, as far as it is read, for the sets in a folder."""
    digests = [hashlib.sha256((sets / name).read_bytes()).hexdigest() for name in TEXTS]
    rows = [{"sha256": digest, "ngrams": 100, "overlap_ratio": i / 100} for i, digest in enumerate(digests)]
    return {"held_out": overlap([0, 0.01, 0.02, 0.5]), "generated": overlap([0, 0, 0.01, 0.02]), "sets": rows}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a random GPT-2 that has room for every prompt, and of its tokenizer."""
    texts = [
        *TEXTS.values(),
        "the cat sat on the mat and he said no. " * 20,
        *(path.read_text() for path in TASKS.rglob("*") if path.is_file()),
    ]
    tokenizer = Tokenizer.train(texts, vocab_size=600, special_tokens=["<|endoftext|>"])
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("model")
    GPT2(GPT2Config(**SHAPE)).to_huggingface(str(folder), tokenizer)
    return str(folder)


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A folder with the sets of table 3, in folders of their own."""
    folder = tmp_path / "sets"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "memorized.json").write_text(json.dumps(memorized(folder)))
    (folder / "grep.jsonl").write_text(json.dumps(GREP) + "\n")
    return folder


Paper = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def paper(model: str, sets: Path, tmp_path: Path) -> Paper:
    """paper(...) runs the verb with those options on the folder `sets`: its exit code and what it wrote."""

    def paper(*options: str) -> tuple[int, dict[str, Any]]:
        out = tmp_path / "out"
        code = command(["train", "paper", model, "--data", str(sets), "--out", str(out), "--quiet", *options])
        return code, json.loads((out / "paper.json").read_text()) if (out / "paper.json").exists() else {}

    return paper


def ours(found: dict[str, Any], task: str) -> list[dict[str, Any]]:
    return [each for row in found["rows"] if row["task"] == task for each in row["ours"]]


def lacks(found: dict[str, Any]) -> dict[str, str]:
    return {row["task"]: row["lack"] for row in found["rows"] if row["lack"]}


def test_what_is_there_is_measured_and_what_is_not_is_named(paper: Paper, sets: Path, tmp_path: Path) -> None:
    code, found = paper()
    names = {
        SETS[task] for task in ("coqa", "cnn-dailymail", "wmt14-en-fr", "wmt14-fr-en", "natural-questions", "winograd")
    }
    assert code == 0
    assert set(lacks(found).values()) == {f"missing: {name}" for name in (*names, "--tokens TOKENS")}
    page = (tmp_path / "out/paper.html").read_text()
    assert all(f"missing: {name}" in page for name in names)
    alone = json.loads((tmp_path / "out/evaluation-ptb.json").read_text())
    assert ours(found, "ptb") == [row for row in alone["results"] if row["measure"] == "perplexity"]
    assert f"{ours(found, 'ptb')[0]['value']:,.6g}</b> <small>word</small>" in page
    assert "ptb: " + alone["data"] in page
    assert [each["measure"] for each in ours(found, "lambada")][-2:] == ["accuracy, no stop-word filter"] * 2
    assert [each["value"] for each in ours(found, "overlap of ptb")] == [list(TEXTS).index("ptb.test.txt") / 100]
    assert {each["measure"]: each["value"] for each in ours(found, "memorized")}["median, held-out texts"] == 0.02
    assert [each["value"] for each in ours(found, "grep")] == [3]
    assert "<td>an &lt;UNK&gt; word</td>" in page
    assert (found["closest"], found["parameters"]) == ("117M", GPT2Config(**SHAPE).n_parameters)


@pytest.mark.slow
def test_a_folder_with_every_set_fills_every_row(paper: Paper, model: str, sets: Path, tmp_path: Path) -> None:
    shutil.copytree(TASKS, sets / "tasks")
    (sets / "tasks/stories").rename(sets / "cnn-dailymail")
    tokens, text = str(tmp_path / "tokens"), str(tmp_path / "texts.jsonl")
    Path(text).write_text(jsonl(LAMBADA) + json.dumps({"text": "He was here.", "split": "validation"}))
    pack = ["shards", "pack", text, "--tokenizer", f"{model}/tokenizer.json", "--validation-ratio", "0"]
    assert command([*pack, "--out", tokens, "--quiet"]) == 0
    code, found = paper("--tokens", tokens)
    assert (code, lacks(found)) == (0, {})
    page = (tmp_path / "out/paper.html").read_text()
    assert "missing" not in page
    assert [page.index(f"<h2>{place.capitalize()}: ") for place in TITLES] == sorted(
        page.index(f"<h2>{place.capitalize()}: ") for place in TITLES
    )
    assert [each["measure"] for each in ours(found, "tokens")][:2] == ["perplexity, held-out", "perplexity, training"]
    answers = found["answers"]["natural-questions"]["most_confident"]
    assert len(answers) == 20
    assert all(f"<td>{escape(each['question'])}</td>" in page for each in answers)
    assert page.count("<td>right</td>") == 22 + sum(each["right"] for each in answers)
    assert {row["task"] for row in found["rows"]} == found["answers"].keys()
    assert {each["measure"] for each in ours(found, "winograd")} == {"accuracy, full", "accuracy, partial"}
    assert (tmp_path / "out/predictions-coqa.jsonl").exists()
    assert "predictions" not in found["answers"]["coqa"]
    assert paper("--tokens", tokens) == (0, found)


def test_an_empty_folder_lists_every_name(paper: Paper, sets: Path, tmp_path: Path) -> None:
    shutil.rmtree(sets)
    assert paper()[0] == 3  # not a folder
    sets.mkdir()
    code, found = paper()
    assert code == 0
    page = (tmp_path / "out/paper.html").read_text()
    for name in (*SETS.values(), "memorized.json", "grep.jsonl", "--tokens TOKENS"):
        assert f"missing: {name}" in page
    assert {row["task"] for row in found["rows"] if row["ours"]} == {"model"}


def test_a_set_that_is_there_twice_is_refused_before_anything_is_measured(
    paper: Paper, sets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sets / "old").mkdir()
    (sets / "old/ptb.test.txt").write_text("the cat")
    assert paper() == (3, {})
    error = capsys.readouterr().err
    assert f"two candidates for 'ptb.test.txt': '{sets}/old/ptb.test.txt' and '{sets}/ptb.test.txt'" in error


def test_files_that_cannot_be_used_are_named_in_their_place_and_the_others_are_measured(
    paper: Paper, sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sets / "lambada_test.jsonl").write_text(jsonl(LAMBADA) + "[1]\n")
    (sets / "memorized.json").write_text('{"held_out": <b>')
    (sets / "grep.jsonl").write_text(json.dumps(GREP | {"shown": 1}))
    code, found = paper()
    assert code == 3
    wrong = f"'{sets}/lambada_test.jsonl', line 4: not a passage"
    assert lacks(found)["lambada"].startswith(wrong)
    assert "is not what `inspect memorized` writes: JSONDecodeError" in lacks(found)["memorized"]
    assert "is not what `inspect grep` writes: TypeError" in lacks(found)["grep"]
    assert ours(found, "ptb")
    page = (tmp_path / "out/paper.html").read_text()
    assert "line 4: not a passage" in page
    error = capsys.readouterr().err
    assert "could not measure lambada, grep, memorized, overlap of ptb" in error
    assert wrong in error
    assert not (tmp_path / "out/evaluation-lambada.json").exists()


@pytest.mark.parametrize("shares", [[0.1, math.nan], [math.inf], [-1], ["x"], 3])
def test_a_report_with_impossible_shares_is_named(shares: Any, paper: Paper, sets: Path) -> None:
    for name in TEXTS:
        (sets / name).unlink()
    report = {"held_out": overlap([0, 0, 0]), "generated": overlap([0, 0, 0]) | {"shares": shares}, "sets": []}
    (sets / "memorized.json").write_text(json.dumps(report))
    code, found = paper()
    assert code == 3
    assert "is not what `inspect memorized` writes" in lacks(found)["memorized"]


def test_a_rerun_measures_only_what_has_changed(
    paper: Paper, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    evaluate = measuring.evaluate_task

    def counted(model: Any, task: str, *rest: Any, **how: Any) -> Any:
        measured.append(task)
        return evaluate(model, task, *rest, **how)

    monkeypatch.setattr(measuring, "evaluate_task", counted)
    code, first = paper()
    page = (tmp_path / "out/paper.html").read_bytes()
    every, measured[:] = set(measured), []
    assert (code, every) == (0, set(TABLE_3))
    assert paper() == (0, first)
    assert (measured, (tmp_path / "out/paper.html").read_bytes()) == ([], page)
    (sets / "ptb.test.txt").write_text(TEXTS["ptb.test.txt"] * 2)
    (sets / "stop-words.txt").write_text("the\ncat\n")
    (tmp_path / "out/evaluation-text8.json").write_text('{"key": ')
    assert paper()[0] == 0
    assert set(measured) == {"ptb", "lambada", "text8"}
    measured.clear()
    assert paper("--stride", "9")[0] == 0
    assert set(measured) == every


@pytest.mark.slow
def test_two_processes_measure_what_one_does(
    paper: Paper, model: str, sets: Path, tmp_path: Path, torchrun: Callable[..., list[str]]
) -> None:
    for name in ("enwik8", "text8", "ptb.test.txt"):
        (sets / name).unlink()
    _, one = paper()
    verb = ["train", "paper", model, "--data", str(sets), "--out", str(tmp_path / "two"), "--quiet"]
    done = subprocess.run(torchrun(2, "-m", "webtext.app.main", *verb), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    two = json.loads((tmp_path / "two/paper.json").read_text())
    values = [[each["value"] for row in found["rows"] for each in row["ours"]] for found in (one, two)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_a_part_of_a_set_is_said_to_be_one_at_each_number(paper: Paper, tmp_path: Path) -> None:
    code, found = paper("--windows", "2", "--stride", "5")
    assert code == 0
    page = (tmp_path / "out/paper.html").read_text()
    assert "word, 2 of 3 passages</small>" in page
    ratio = found["answers"]["ptb"]["scored_ratio"]
    assert ratio < 1
    assert f"word, {ratio:.2%} of tokens</small>" in page


def test_a_model_without_its_tokenizer_is_refused(
    paper: Paper, model: str, sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(model) / name, bare)
    assert command(["train", "paper", str(bare), "--data", str(sets), "--out", str(tmp_path / "out")]) == 2
    assert "contains no tokenizer.json" in capsys.readouterr().err
    assert command(["train", "paper", str(bare), "--data", str(sets)]) == 2
    assert "no --out given" in capsys.readouterr().err


def test_text_of_others_is_escaped_on_the_page(paper: Paper, sets: Path, tmp_path: Path) -> None:
    (sets / "ptb.test.txt").write_text("<b>bold\n")
    assert paper()[0] == 3
    page = (tmp_path / "out/paper.html").read_text()
    assert "line 1 is not in the tokenised form ptb: &#x27;&lt;b&gt;bold" in page


@pytest.mark.slow
def test_a_browser_shows_the_page(paper: Paper, tmp_path: Path) -> None:
    paper()
    with shown(tmp_path / "out/paper.html") as page:
        assert page.locator("h2").count() == len(TITLES)
        assert page.locator("svg").count() == 2  # CBT over sizes, and figure 5; others would have a single size
        assert "occurrences of <UNK>" in page.inner_text("body")
