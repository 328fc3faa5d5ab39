"""The verbs of `webtext tokenizer`, as a user types them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from webtext.app.main import run
from webtext.tokenizer import Tokenizer

TEXT = "the dog and the naïve dog 😀\n"


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    path = str(tmp_path / "tokenizer.json")
    Tokenizer.train([TEXT] * 9, vocab_size=300).save(path)
    return path


@pytest.fixture
def text_file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_train_writes_a_tokenizer(tmp_path: Path, text_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "new" / "tokenizer.json")
    assert run(["tokenizer", "train", text_file, "--vocab-size", "270", "--out", out, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"out": out, "vocab_size": 270, "hash": Tokenizer.load(out).hash}


def test_encode_then_decode_gives_the_text(
    tmp_path: Path, tokenizer: str, text_file: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ids = Tokenizer.load(tokenizer).encode(TEXT)
    assert run(["tokenizer", "encode", text_file, "--tokenizer", tokenizer]) == 0
    printed = capfdbinary.readouterr().out
    assert [int(word) for word in printed.split()] == ids
    for name in ("ids.npy", "ids.txt"):
        assert run(["tokenizer", "encode", text_file, "--tokenizer", tokenizer, "--out", str(tmp_path / name)]) == 0
        capfdbinary.readouterr()
        back = str(tmp_path / "back.txt")
        assert run(["tokenizer", "decode", str(tmp_path / name), "--tokenizer", tokenizer, "--out", back]) == 0
        assert Path(back).read_text(encoding="utf-8") == TEXT
    assert np.load(tmp_path / "ids.npy").dtype == np.uint16


def test_encode_reads_standard_input(
    tokenizer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the <|endoftext|>")))
    arguments = ["tokenizer", "encode", "--tokenizer", tokenizer, "--allowed-special", "all", "--json"]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == Tokenizer.load(tokenizer).encode("the <|endoftext|>", "all")


def test_inspect_shows_pieces_and_ids(tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "inspect", "the dog\n\xff", "--tokenizer", tokenizer]) == 0
    first, *rows, total = capsys.readouterr().out.splitlines()
    assert first == r"the| dog|\n|\xc3|\xbf"
    assert rows[0].split() == [str(Tokenizer.load(tokenizer).encode("the")[0]), "the"]
    assert total == "5 tokens, 9 characters, 10 bytes"


def test_convert_writes_other_formats(tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    ranks, folder = str(tmp_path / "ranks.tiktoken"), str(tmp_path / "folder")
    assert run(["tokenizer", "convert", tokenizer, ranks]) == 0
    again = ["--pattern", "gpt2", "--special-token", "<|endoftext|>"]
    assert run(["tokenizer", "convert", ranks, folder, *again]) == 0
    assert Tokenizer.load(folder).hash == Tokenizer.load(tokenizer).hash


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["encode", "nothing.txt", "--tokenizer", "{tokenizer}"], 3, "no file"),
        (["encode", "{text}", "--tokenizer", "nothing.json"], 3, "no file"),
        (["decode", "{text}", "--tokenizer", "{tokenizer}"], 3, "holds no token ids"),
        (["train", "{text}"], 2, "no --out given"),
        (["train", "{text}", "--out", "x.json", "--vocab-size", "7"], 2, "tokenizer.vocab_size is 7"),
        (["encode", "{text}", "--tokenizer", "{tokenizer}", "--allowed-special", "<x>"], 2, "no special token '<x>'"),
    ],
)
def test_errors_are_short_and_have_their_exit_code(
    tokenizer: str,
    text_file: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    filled = [argument.format(tokenizer=tokenizer, text=text_file) for argument in arguments]
    assert run(["tokenizer", *filled]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert len(captured.err.splitlines()) <= 3


def test_importing_and_using_the_tokenizer_loads_nothing_heavy(tmp_path: Path) -> None:
    """Neither what other stages need nor numpy and regex, which alone would take longer than everything else."""
    heavy = ["torch", "pyarrow", "aiohttp", "fsspec", "click", "msgspec", "numpy", "regex"]
    code = (
        "import sys; from webtext.tokenizer import Tokenizer\n"
        "Tokenizer.train(['the dog'] * 3, vocab_size=260).save(sys.argv[1])\n"
        "tokenizer = Tokenizer.load(sys.argv[1]); assert tokenizer.decode(tokenizer.encode('the cat')) == 'the cat'\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
    )
    path = str(tmp_path / "tokenizer.json")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_the_verbs_on_text_files_need_the_core_packages_alone(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the dog chased the other dogs\n" * 20)
    code = """
import sys
for name in ("pyarrow", "fsspec", "msgspec", "rich", "aiohttp", "torch"):
    sys.modules[name] = None  # as if it were not installed
from webtext.app.main import run
assert run(["tokenizer", "train", "text.txt", "--out", "t.json", "--vocab-size", "270", "--quiet"]) == 0
assert run(["tokenizer", "encode", "text.txt", "--tokenizer", "t.json", "--out", "ids.npy", "--quiet"]) == 0
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "ids.npy").is_file()
