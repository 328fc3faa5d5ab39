"""Requests of runs that have nothing to do: they grow with the pages of a listing, not with the parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import s3fs
from object_store import ObjectStore

from webtext.app.main import run
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter

N_PARTS = 120


def write_documents(folder: Path, n_parts: int) -> None:
    writer = SetWriter(str(folder), "documents", Recipe(stage="clean.extract", code_version=1, settings={}))
    parts = []
    for index in range(n_parts):
        with writer.part(index, key=str(index)) as part:
            for split in ("train", "validation"):
                text = f"The {split} page {index} has a sentence, and this is the second one of them."
                row = {"id": f"{split} {index}", "link_ids": [], "posts": [], "text": text, "split": split}
                part.write([row | {"text_digest": text_digest(text)}])
            parts.append(part.publish())
    writer.seal(parts)


def pages(url: str) -> int:
    """Requests that list the files of a set: one per 1,000."""
    return len(s3fs.S3FileSystem(skip_instance_cache=True).ls(url, refresh=True)) // 1_000 + 1


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["clean filter", "shards pack"])
def test_a_run_of_120_parts_that_is_done_makes_five_requests_per_set_and_one_per_1000_files(
    verb: str, store: ObjectStore, place: str, tmp_path: Path
) -> None:
    write_documents(tmp_path / "documents", N_PARTS)
    tokenizer = tmp_path / "tokenizer.json"
    assert run(f"tokenizer train {tmp_path}/documents --out {tokenizer} --vocab-size 300".split()) == 0
    s3fs.S3FileSystem(skip_instance_cache=True).put(f"{tmp_path}/documents", f"{place}/documents", recursive=True)
    keeps = "--language all --rule too_few_words=1"
    options = f"--tokenizer {tokenizer} --shard-tokens 20" if verb == "shards pack" else keeps
    command = f"{verb} {place}/documents --out {place}/out {options} --quiet".split()
    assert run(command) == 0
    outs = (
        [f"{place}/out"]
        if verb == "shards pack"
        else [f"{place}/out/{name}" for name in ("signals", "corpus", "dropped")]
    )
    sets = [f"{place}/documents", *outs]
    assert len(PartSet.open(sets[1]).parts) == N_PARTS
    n_pages = sum(map(pages, sets))
    store.requests.clear()
    assert run(command) == 0
    print(f"{verb}: {len(store.requests)} requests, {len(sets)} sets, {n_pages} pages: {store.counts}")
    assert len(store.requests) <= 5 * len(sets) + n_pages, store.requests
