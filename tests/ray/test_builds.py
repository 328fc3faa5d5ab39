"""A corpus and its tokens from pages, through the verbs: the same bytes from this machine and from a Ray cluster."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.base.parts.partset import PartSet

HERE = Path(__file__).parent
for place in (HERE, HERE.parent / "base", HERE.parent / "clean"):
    sys.path.append(str(place))
from ray_nodes import Nodes  # noqa: E402
from stage_functions import files  # noqa: E402
from warc_files import article, site, write_pages  # noqa: E402


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five parts of eight pages, of which one has the same text in all parts, and another nearly the same."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [
        [
            site(f"copied{part}", article(99)),
            site(f"nearly{part}", article(98) + f" It was seen again in the year {1900 + part}."),
            *(site(f"own{part}-{i}", article(8 * part + i)) for i in range(6)),
        ]
        for part in range(5)
    ]
    write_pages(folder, rows)
    return folder


@pytest.fixture(scope="module")
def local(pages: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a build by one worker on this machine. Four copies and four near duplicates were found."""
    out = tmp_path_factory.mktemp("local")
    files = build(pages, out, "--workers", "1")
    assert PartSet.open(str(out / "clean" / "dropped"), "dropped").records == 8
    assert len([name for name in files if name.startswith("tokens/") and name.endswith(".tok")]) == 5
    return files


def build(pages: Path, out: Path, *options: str) -> dict[str, bytes]:
    """Clean the pages, train a tokenizer and pack the corpus; return the bytes of all files but times and hosts."""
    corpus, tokenizer = str(out / "clean" / "corpus"), str(out / "tokenizer.json")
    call("clean", "run", str(pages), "--out", str(out / "clean"), "--keep-index", str(out / "index"), *options)
    call("tokenizer", "train", corpus, "--out", tokenizer, "--vocab-size", "400", *options)
    call("shards", "pack", corpus, "--tokenizer", tokenizer, "--out", str(out / "tokens"), *options)
    return files(out)


def call(*arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as error:
        assert run([*arguments, "--quiet"]) == 0, error.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["2", "4"])
def test_more_workers_give_the_same_bytes(workers: str, pages: Path, local: dict[str, bytes], tmp_path: Path) -> None:
    assert build(pages, tmp_path, "--workers", workers) == local


@pytest.mark.slow
@pytest.mark.parametrize("n_nodes", [1, 3])
def test_a_ray_cluster_gives_the_same_bytes(
    n_nodes: int, nodes: Nodes, pages: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    nodes.grow_to(n_nodes)
    assert build(pages, tmp_path, "--engine", "ray", "--address", nodes.address) == local
