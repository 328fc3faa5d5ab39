"""One file for all stages: `build` and `pretrain` read their sections and check those of the verbs that are called alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from webtext.app.config import BuildConfig
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
