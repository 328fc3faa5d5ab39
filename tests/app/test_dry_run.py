"""`--dry-run` over the chain: it says what is to do, stops at the first stage with work, and writes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from webtext.app.main import run

CONTACT = '[crawl.fetch]\ncontact = "me@example.org"\n'


def write_config(folder: Path, inputs: str) -> str:
    path = folder / "build.toml"
    path.write_text(f'[build]\n{inputs}\nout = "{folder}/build"\n[tokenizer]\nvocab_size = 600\n{CONTACT}')
    return str(path)


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "RS_2017-01"
    post = {"id": "a", "url": "http://127.0.0.1:9/", "score": 5, "created_utc": 1_483_228_800, "is_self": False}
    path.write_text(json.dumps(post) + "\n")
    return path


@pytest.mark.parametrize("verb", ["build", "pretrain"])
def test_nothing_is_there_so_the_links_are_to_do_and_nothing_is_written(
    verb: str, dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, f'links = ["{dump}"]')
    before = files(tmp_path)
    assert run([verb, config, "--dry-run"]) == 0
    assert files(tmp_path) == before
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["1/6 links: who voted for what", "links: 1 part, 0 done, 1 to do"]
    assert captured.out == ""
    assert run([verb, config, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"plan": captured.err.splitlines()}


def test_links_are_there_so_the_pages_are_to_do(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, f'links = ["{dump}"]')
    assert run(["crawl", "links", str(dump), "--out", str(tmp_path / "build/links"), "--quiet"]) == 0
    before = files(tmp_path)
    assert run(["build", config, "--dry-run"]) == 0
    assert files(tmp_path) == before
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "2/6 pages: fetch what they voted for",
        "crawl.fetch: 1 link, 0 done, 1 to fetch",
    ]


def test_a_missing_input_is_an_error_in_a_dry_run_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", write_config(tmp_path, f'links = ["{tmp_path}/RS_none"]'), "--dry-run"]) == 3
    assert "RS_none" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_an_output_that_is_a_file_is_named_before_the_first_stage(
    more: list[str], dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, f'links = ["{dump}"]')
    for out in (dump, dump / "build"):
        assert run(["build", config, f"--set=build.out={out}", *more]) == 2
        assert capsys.readouterr().err == f"error: [build] out = '{out}': '{dump}' is a file\n  name a folder\n"


def test_what_is_done_is_passed_and_the_first_work_told(
    small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole demo has nothing to do; another rule means that the corpus is made again, and no more is known."""
    build = shutil.copytree(small_demo / "build", tmp_path / "build")
    config = (small_demo / "build.toml").read_text().replace(f'out = "{small_demo}/build"', f'out = "{build}"')
    path = tmp_path / "build.toml"
    path.write_text(config)
    before = files(build)
    assert run(["build", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().err.endswith(f"all parts of '{build}' are done\n")
    assert run(["build", str(path), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"][-1] == f"all parts of '{build}' are done"
    assert run(["pretrain", str(path), "--dry-run"]) == 0
    assert "all 30 steps are done" in capsys.readouterr().err
    assert run(["pretrain", str(path), "--dry-run", "--set", "train.steps=31"]) == 3
    capsys.readouterr()
    assert run(["build", str(path), "--dry-run", "--set", "clean.rules.rule=['too_few_words=50']"]) == 0
    assert capsys.readouterr().err.splitlines()[-2] == "3/6 documents: extract, judge, deduplicate"
    assert files(build) == before


def test_verbs_with_one_output_say_where_it_would_go_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, tokenizer = tmp_path / "text.txt", tmp_path / "tokenizer.json"
    text.write_text("one two two")
    (tmp_path / "ids.txt").write_text("1 2")
    assert run(["tokenizer", "train", str(text), "--vocab-size", "257", "--out", str(tokenizer), "--quiet"]) == 0
    before, target = files(tmp_path), str(tmp_path / "new")
    for verb in (
        ["tokenizer", "encode", str(text), "--tokenizer", str(tokenizer), "--out", target],
        ["tokenizer", "decode", str(tmp_path / "ids.txt"), "--tokenizer", str(tokenizer), "--out", target],
        ["tokenizer", "convert", str(tokenizer), target],
        ["demo", "--out", target],
    ):
        assert run([*verb, "--dry-run"]) == 0
        assert capsys.readouterr().err == f"would write '{target}'\n"
    assert files(tmp_path) == before
