"""The table of exit codes in app/README.md, with a cause for each."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.base import storage
from webtext.tokenizer import Tokenizer

README = Path(__file__).parents[2] / "app" / "README.md"
CODES = {int(code): cause for code, cause in re.findall(r"^\| (\d+) \| (.*) \|$", README.read_text(), re.MULTILINE)}
FILES = {
    "empty.txt": "",
    "blank.jsonl": "\n",
    "short.jsonl": '{"text": "too short"}\n',
    "other.jsonl": '{"body": "some words"}\n',
    "links.csv": "url,score,created\nhttp://a.example/,1,2015-01-01\n",
    "columns.csv": "url,points,when\nhttp://a.example/,9,2015-01-01\n",
    "urls.txt": "http://127.0.0.1:9/\n",
    "page.warc": "WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
    "tokens.bin": "",
}
KEPT_NOTHING = {
    "crawl links {in}/links.csv": "1 is 'too_little_karma'",
    "crawl links {in}/columns.csv": "no column 'score', 'created': its columns are url, points, when",
    "crawl links {in}/urls.txt": "no column 'score', 'created': its columns are url",
    "crawl fetch {in}/links --contact a@example.org": "1 is 'address_not_public'",
    "clean extract {in}/page.warc": "kept 0",
    "clean run {in}/short.jsonl": "kept 0 of 1 record",
    "clean run {in}/other.jsonl": "other.jsonl: 1 no_text",
    "clean run {in}/empty.txt": "kept 0 of 1 record",
    "clean filter {in}/blank.jsonl": "the input contains none",
    "clean dedup {in}/blank.jsonl": "the input contains none",
    "clean release {in}/nothing": "the input contains none",
    "shards pack {in}/empty.txt --tokenizer {in}/tokenizer.json": "kept 0",
    "shards pack {in}/other.jsonl --tokenizer {in}/tokenizer.json": "no field 'text' among body",
    "shards convert {in}/tokens.bin --from nanogpt --tokenizer {in}/tokenizer.json": "kept 0",
    "tokenizer train {in}/empty.txt": "no text to train on",
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    Tokenizer.train(["the words"], vocab_size=260).save(folder / "tokenizer.json")
    defaults = ["--default-score", "3", "--default-created", "2015-01-01"]
    assert run(["crawl", "links", f"{folder}/urls.txt", *defaults, "--out", f"{folder}/links"]) == 0
    assert run(["clean", "filter", f"{folder}/short.jsonl", "--out", f"{folder}/nothing"]) == 3
    return folder


@pytest.mark.parametrize("command", KEPT_NOTHING)
def test_a_run_that_keeps_nothing_ends_with_3_and_says_why(
    given: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, most of these ended with 0."""
    assert run([*command.format_map({"in": given}).split(), "--out", str(tmp_path / "out")]) == 3
    assert KEPT_NOTHING[command] in capsys.readouterr().err
    assert "nothing was kept" in CODES[3]


def test_what_this_machine_lacks_ends_with_4(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, all of it ended with 1, which means finished."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    train = ["tokenizer", "train", str(given / "short.jsonl"), "--vocab-size", "260", "--out"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["view", str(given), "--port", str(taken.getsockname()[1])]) == 4
    assert "cannot be used" in capsys.readouterr().err
    assert run([*train, "/proc/no/tokenizer.json"]) == 4
    assert "cannot write" in capsys.readouterr().err
    monkeypatch.setattr(storage, "_publish_local", full)
    assert run([*train, str(tmp_path / "tokenizer.json")]) == 4
    assert "no space left" in capsys.readouterr().err
    for cause in ("extra", "disk space", "memory", "GPU", "port", "permission"):
        assert cause in CODES[4]


def test_a_gpu_that_is_missing_ends_with_4(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    lines = "".join(f'{{"text": "words of a text {i}", "split": "{"train" if i else "test"}"}}\n' for i in range(600))
    (tmp_path / "texts.jsonl").write_text(lines)
    tokens = str(tmp_path / "tokens")
    pack = f"shards pack {tmp_path}/texts.jsonl --tokenizer {given}/tokenizer.json --out {tokens}"
    assert run(pack.split()) == 0
    assert run(["train", "run", tokens, "--out", str(tmp_path / "model"), "--set", "train.device=cuda"]) == 4


def test_every_code_is_in_the_table() -> None:
    from webtext.base.errors import WebtextError

    def all_of(kind: type[WebtextError]) -> Iterator[int]:
        yield kind.exit_code
        for each in kind.__subclasses__():
            yield from all_of(each)

    assert {0, *all_of(WebtextError)} == set(CODES)
