"""Counts of groups of inputs in an object store: the tokenizer that a disk gives, and a file of counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.tokenizer.files import counting
from webtext.tokenizer.files.corpus import CountSettings, TokenizerSettings, count_corpus, train_tokenizer


@pytest.mark.usefixtures("store")
def test_groups_counted_into_a_store_give_the_bytes_of_a_disk(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "GROUP_BYTES", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"the {name} and the other {name} " * 50)
    inputs = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    for out in (str(tmp_path), place):
        train_tokenizer(inputs, f"{out}/t.json", TokenizerSettings(vocab_size=270), Run.quiet())
        count_corpus(inputs, f"{out}/all.counts", CountSettings(), Run.quiet())
    for name in ("t.json", "all.counts", "t.json.parts/part-00001.counts"):
        folder, last = Folder.split(f"{place}/{name}")
        assert folder.read_bytes(last) == (tmp_path / name).read_bytes()
