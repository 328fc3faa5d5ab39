"""One file for all stages: `build` and `pretrain` read their sections and check those of the verbs that are called alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from webtext.app.config import BuildConfig
from webtext.app.main import run
from webtext.base.errors import ConfigError

BUILD = '[build]\nlinks = ["RS_2017-01.zst"]\n'


def read(folder: Path, text: str) -> BuildConfig:
    (folder / "build.toml").write_text(BUILD + text)
    return BuildConfig.read(str(folder / "build.toml"))


def test_a_file_may_hold_what_only_other_verbs_read(tmp_path: Path) -> None:
    config = read(tmp_path, "[train.sweep]\nseeds = 2\n[train.scale]\n")
    assert config["crawl.fetch"].delay == 1.0
    assert "train.sweep" not in config.to_json(), "it says nothing about this build"


def test_a_build_holds_its_documents_against_the_evaluation_sets_that_are_named(tmp_path: Path) -> None:
    assert read(tmp_path, "")["clean.decontaminate"].against == ()
    config = read(tmp_path, '[clean.decontaminate]\nagainst = ["lambada.jsonl"]\ndrop = true\n')
    assert (config["clean.decontaminate"].against, config["clean.decontaminate"].drop) == (("lambada.jsonl",), True)


def test_a_wrong_key_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'seds' in \[train.sweep\]\ndid you mean 'seeds'\?"):
        read(tmp_path, "[train.sweep]\nseds = 2\n")
    with pytest.raises(ConfigError, match="seeds is 0"):
        read(tmp_path, "[train.sweep]\nseeds = 0\n")
    with pytest.raises(ConfigError, match=r"^\[build\] out is empty\nname a folder"):
        read(tmp_path, 'out = ""')


def test_an_error_that_only_follows_from_another_is_left_out() -> None:
    for wrong, message in (
        ({"links": "a.zst"}, r"^\[build\] links = 'a.zst': expected a list of strings$"),
        ({"links": ["a"], "pages": ["b"], "out": 3}, "^2 errors:\n.* out = 3: .*\n.* needs either links or pages"),
    ):
        with pytest.raises(ConfigError, match=message):
            BuildConfig({"build": wrong})


ALL = """
[trian]
[crawl.links]
min_karm = 3
[tokenizer]
pattern = "gpt4("
weight = ["books=2"]
[train]
model = "124m"
batch_size = 500
[train.shape]
n_head = 5
[train.data]
weights = [0.5, 0.5]
[clean.decontaminate]
against = ["no-such-file"]
"""


@pytest.mark.parametrize("verb", ["build", "pretrain"])
def test_all_that_later_stages_would_reject_is_told_at_once_before_the_first(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys, values, files, and for `pretrain` whether the batch divides; the dump doesn't exist, but isn't opened."""
    (tmp_path / "build.toml").write_text(f'{BUILD}out = "{tmp_path}/build"{ALL}')
    assert run([verb, str(tmp_path / "build.toml")]) == 2
    (first, *lines), out = capsys.readouterr().err.splitlines(), tmp_path / "build"
    expected = [
        "unknown section [trian]; did you mean 'train'?",
        "unknown key 'min_karm' in [crawl.links]; did you mean 'min_karma'?",
        "the pattern 'gpt4(' is neither a name nor a regular expression: missing ) at position 5; "
        "did you mean 'gpt2'?; or give an expression of the `regex` module",
        "unknown model size '124m'; did you mean '124M'?",
        "n_embd 768 is not a multiple of n_head 5; each head takes an equal share",
        "'no-such-file' does not exist; check the path",
        "[crawl.fetch] contact is not set, so no page may be fetched; "
        "set contact (crawl fetch: --contact) to an e-mail address or a URL, which is sent in the User-Agent",
        "weights has several values, but a build has one token set; leave out weights",
        f"the weight 'books=2' doesn't match any input; known: {out}/corpus",
        "batch_size 500 is not a multiple of 1 x 8 (data ranks x microbatch_size); "
        "choose batch_size = 496 or batch_size = 504 or microbatch_size = 5",
    ]
    assert [line.strip() for line in lines] == (expected if verb == "pretrain" else expected[:-1])
    assert first == f"error: {len(lines)} errors:"
    assert not out.exists()


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ('[train]\nmodel = "345m"', "did you mean '345M'"),
        ("[train.shape]\nn_layer = 0", "n_layer is 0"),
        ('[train]\ndevice = "cuda"', "torch sees no GPU"),
        ('[train.machine]\nmesh = "dp=2"', "needs 2 processes, but there is 1"),
        ('[tokenizer]\nbase = "none.json"', "none.json"),
        ('[tokenizer]\npattern = "(a|aa)+"', "repeats a part that can match in several ways"),
    ],
)
def test_what_only_training_or_the_tokenizer_would_reject_is_found_before_the_first_stage(
    section: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in section and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "build.toml").write_text(f'{BUILD}out = "{tmp_path}/build"\n{section}\n')
    assert run(["pretrain", str(tmp_path / "build.toml")]) > 0
    assert error in (told := capsys.readouterr().err)
    assert "1/6 links" not in told


def test_a_model_that_needs_more_memory_than_there_is_is_told_before_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = "[train]\nmicrobatch_size = 500\nbatch_size = 5000\ncontext = 8192\n"
    (tmp_path / "build.toml").write_text(f'{BUILD}[crawl.fetch]\ncontact = "me@example.org"\n{large}')
    assert run(["pretrain", str(tmp_path / "build.toml"), "--dry-run"]) == 3, "there is no dump"
    warning, stage, *_ = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: a process is estimated to take")
    assert stage == "1/6 links: who voted for what"
