"""The verbs of `webtext tokenizer`, as a user types them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
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
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "text.txt")


def test_train_writes_a_tokenizer(tmp_path: Path, text_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "new" / "tokenizer.json")
    assert run(["tokenizer", "train", text_file, "--vocab-size", "270", "--out", out, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"out": out, "vocab_size": 270, "hash": Tokenizer.load(out).hash}


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the fourth of eight blocks, with much spilling: exit code 130, and no file except the input."""
    random_ = random.Random(0)
    text = " ".join("".join(random_.choices("abcdefgh", k=9)) for _ in range(100_000))
    (tmp_path / "text.txt").write_text(text * 30)
    (tmp_path / "temporary").mkdir()
    code = """
import signal, sys
from webtext.tokenizer.files import corpus
from webtext.app.main import run
signal.signal(signal.SIGALRM, signal.default_int_handler)
original, blocks = corpus.TrainingProgress.counted, []
def called(self, n_bytes, share):
    original(self, n_bytes, share)
    blocks.append(n_bytes)
    if len(blocks) == 3:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
corpus.TrainingProgress.counted = called
sys.exit(run(["tokenizer", "train", "text.txt", "--out", "new/x.json", "--memory-mb", "1"]))
"""
    command, env = [sys.executable, "-c", code], os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert "interrupted" in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["temporary", "text.txt"]


def test_encode_then_decode_gives_the_text(
    tmp_path: Path, tokenizer: str, text_file: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ids = Tokenizer.load(tokenizer).encode(TEXT)
    assert run(["tokenizer", "encode", text_file, "--tokenizer", tokenizer]) == 0
    assert [int(word) for word in capfdbinary.readouterr().out.split()] == ids
    out = str(tmp_path / "out")
    for name in ("ids.npy", "ids.txt"):
        assert run(["tokenizer", "encode", text_file, "--tokenizer", tokenizer, "--out", str(tmp_path / name)]) == 0
        assert run(["tokenizer", "decode", str(tmp_path / name), "--tokenizer", tokenizer, "--out", out]) == 0
        assert Path(out).read_text(encoding="utf-8") == TEXT
    assert np.load(tmp_path / "ids.npy").dtype == np.uint16
    Path(text_file).write_text("!")
    assert run(["tokenizer", "encode", text_file, "--tokenizer", tokenizer, "--out", out]) == 0
    assert capfdbinary.readouterr().out.splitlines()[-1] == f"1 token in '{out}'".encode()


def test_inspect_shows_pieces_and_ids(tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "inspect", "the dog\n\xff", "--tokenizer", tokenizer, "--ids"]) == 0
    *pieces, _, _, _, _, _, total = lines = capsys.readouterr().out.splitlines()
    assert pieces == [r"the|␣dog|\n", r"\xc3|\xbf"]
    assert lines[2].split() == [str(Tokenizer.load(tokenizer).encode("the")[0]), "the"]
    assert total == "5 tokens, 9 characters, 10 bytes, 2.00 bytes per token"
    assert run(["tokenizer", "inspect", "the dog", "--tokenizer", tokenizer]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_convert_writes_other_formats_and_says_what_they_leave_out(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks, folder, back = (str(tmp_path / name) for name in ("ranks.tiktoken", "vocab.json", "back.json"))
    assert run(["tokenizer", "convert", tokenizer, ranks]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"276 tokens in '{ranks}' (")
    assert captured.out.endswith("), pattern gpt2, Unicode 16.0.0\n")
    assert captured.err.splitlines() == [
        "note: a rank file doesn't store the pattern: read it with pattern='gpt2'",
        "note: nor the special tokens: read it with special_tokens={'<|endoftext|>': 275}",
    ]
    for name in ("<|endoftext|>", "<|endoftext|>=275"):
        again = ["--pattern", "gpt2", "--special-token", name]
        assert run(["tokenizer", "convert", ranks, folder, *again, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["remarks"] == []
        assert Tokenizer.load(folder).hash == Tokenizer.load(tokenizer).hash
    assert run(["tokenizer", "convert", folder, back]) == 0
    assert Path(back).read_bytes() == Path(tokenizer).read_bytes()


def test_convert_keeps_what_it_does_not_apply_and_refuses_what_would_change_ids(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(Path(tokenizer).read_text())
    found["model"]["vocab"]["zzz"] = 276
    found["post_processor"] = {"type": "RobertaProcessing", "sep": ["a", 64], "cls": ["b", 65]}
    Path(tokenizer).write_text(json.dumps(found))
    assert run(["tokenizer", "convert", tokenizer, str(tmp_path / "b.json"), "--json"]) == 0
    capsys.readouterr()
    assert json.loads((tmp_path / "b.json").read_text())["post_processor"] == found["post_processor"]
    assert run(["tokenizer", "convert", tokenizer, str(tmp_path / "b.tiktoken")]) == 3
    assert "by rank would produce b'zzz', which no merge produces" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["package.json", "notes.tiktoken", "folder"])
def test_convert_overwrites_tokenizers_only(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = tmp_path / name
    assert run(["tokenizer", "convert", tokenizer, str(target)]) == 0
    assert run(["tokenizer", "convert", tokenizer, str(target)]) == 0
    precious = target / "tokenizer.json" if target.is_dir() else target
    precious.write_text('{"name": "precious"}')
    assert run(["tokenizer", "convert", tokenizer, str(target)]) == 2
    assert f"'{target}' exists and is not a tokenizer" in capsys.readouterr().err
    assert precious.read_text() == '{"name": "precious"}'


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["encode", "nothing.txt", "--tokenizer", "{tokenizer}"], 3, "no file"),
        (["encode", "{text}", "--tokenizer", "nothing.json"], 3, "no file"),
        (["decode", "{text}", "--tokenizer", "{tokenizer}"], 3, "not a token id"),
        (["encode", "{text}", "--tokenizer", "{tokenizer}", "--out", "{text}"], 2, "is both source and target"),
        (["decode", "{text}", "--tokenizer", "{tokenizer}", "--out", "{tokenizer}"], 2, "is both source and target"),
        (["train", "{text}"], 2, "no --out given"),
        (["train", "{text}", "--out", "x.json", "--parts", "1/2"], 2, "No such option '--parts'"),
        (["count", "{text}", "--out", "x.counts"], 2, "No such command 'count'"),
        (["train", "{text}", "--out", "x.json", "--weight", "text=2"], 2, "weight 'text=2' doesn't match any input"),
        (["train", "{text}", "--out", "x.json", "--memory-mb", "0"], 2, "tokenizer.memory_mb is 0"),
        (["train", "{text}", "--out", "x.json", "--vocab-size", "7"], 2, "tokenizer.vocab_size is 7"),
        (["train", "{text}", "--out", "x.json", "--special-tokens", ""], 2, "a special token is empty"),
        (["train", "{text}", "--out", "{text}/x.json"], 4, "text.txt' isn't a folder that you may write to"),
        (["train", "{text}", "--out", "x.txt"], 2, "is not a known tokenizer format"),
        (["train", "{text}", "--out", "vocab.json", "--pattern", "o200k"], 3, "can't store the pattern"),
        (["encode", "{text}", "--tokenizer", "{tokenizer}", "--allowed-special", "<x>"], 2, "no special token '<x>'"),
        (["convert", "{tokenizer}", "x.json", "--special-token", "<a>", "--special-token", "<b>=300"], 2, "some --spe"),
        (["convert", "{tokenizer}", "x.json", "--pattern", "."], 2, "names its own pattern 'gpt2'"),
        (["convert", "{tokenizer}", "{tokenizer}"], 2, "is both source and target"),
        (["convert", "{tokenizer}", "x.txt"], 2, "is not a known tokenizer format"),
    ],
)
def test_errors_are_short_have_their_exit_code_and_come_before_training(
    tokenizer: str,
    text_file: str,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webtext.tokenizer.files.corpus.count_inputs", None)
    assert run(["tokenizer", *(each.format(tokenizer=tokenizer, text=text_file) for each in arguments)]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert len(captured.err.splitlines()) <= 3


def test_importing_and_using_the_tokenizer_loads_nothing_heavy(tmp_path: Path) -> None:
    """Neither other stages' packages, numpy and regex, nor slow modules of the standard library that are seldom needed."""
    slow = ["datetime", "decimal", "platform", "tempfile", "uuid"]
    heavy = ["torch", "pyarrow", "aiohttp", "fsspec", "click", "msgspec", "numpy", "regex"]
    code = (
        "import sys; from webtext.tokenizer import Tokenizer\n"
        f"assert not [name for name in {slow} if name in sys.modules]\n"
        "Tokenizer.train(['the dog'] * 3, vocab_size=260).save(sys.argv[1])\n"
        "tokenizer = Tokenizer.load(sys.argv[1]); assert tokenizer.decode(tokenizer.encode('the cat')) == 'the cat'\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
    )
    path = str(tmp_path / "tokenizer.json")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_the_verbs_on_text_files_need_the_core_packages_alone(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the dog chased the other dogs\n" * 20)
    (tmp_path / "text.jsonl.gz").write_bytes(gzip.compress(b'{"text": "the dog"}'))
    (tmp_path / "text.xz").write_bytes(lzma.compress(b"the dog"))
    (tmp_path / "text.bz2").write_bytes(bz2.compress(b"the dog"))
    for name in ("table.parquet", "text.zst"):
        (tmp_path / name).touch()
    code = """
import sys
for name in ("pyarrow", "zstandard", "fsspec", "msgspec", "rich", "aiohttp", "torch"):
    sys.modules[name] = None  # as if it weren't installed
from webtext.app.main import run
texts = ["text.txt", "text.jsonl.gz", "text.xz", "text.bz2"]
assert run(["tokenizer", "train", *texts, "--out", "c.json", "--vocab-size", "270", "--quiet"]) == 0
assert run(["tokenizer", "train", "table.parquet", "--out", "x.json", "--quiet"]) == 4
assert run(["tokenizer", "train", "text.zst", "--out", "x.json", "--quiet"]) == 4
assert run(["tokenizer", "train", "text.txt", "--out", "t.json", "--vocab-size", "270", "--quiet"]) == 0
assert run(["tokenizer", "encode", "text.txt", "--tokenizer", "t.json", "--out", "ids.npy", "--quiet"]) == 0
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, check=True, timeout=300, capture_output=True, text=True)
    for package in ("pyarrow", "zstandard"):
        assert (
            f"the package '{package}' is not installed\n  in a checkout of webtext, run: pip install '.[build]'"
            in done.stderr
        )
    assert (tmp_path / "ids.npy").is_file()
