"""The corpus in Croissant: mlcroissant finds no error, and reads from it what the parts contain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
from huggingface_hub import DatasetCard
from set_contents import rows
from warc_files import article, page, write_pages

from webtext.base.parts.partset import PartSet
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.run import Run
from webtext.clean.card.croissant import CROISSANT
from webtext.clean.pipeline import CleanSettings, clean_pages
from webtext.clean.settings import CardSettings

NAME = "a corpus </script>, ünïcode"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, run: Run) -> PartSet:
    """Two parts, one with a document that is held out."""
    folder = tmp_path_factory.mktemp("croissant")
    post = {"source": "reddit", "post_id": "p", "subreddit": "test", "score": 9, "created": 1}
    votes = {"karma": 9, "posts": [post | {"retrieved": None}]}
    pages = write_pages(
        folder / "pages",
        [
            [{"url": f"http://{i}.example.org/", "body": page(article(i, 50)), **votes} for i in range(2)],
            [{"url": "http://two.example.com/", "body": page(article(7, 50)), "split": "validation", **votes}],
        ],
    )
    settings = CleanSettings(card=CardSettings(name=NAME, license="CC0-1.0"))
    return clean_pages([pages.folder.url], str(folder / "build"), settings, run).corpus


def described(corpus: PartSet) -> Path:
    return Path(corpus.folder.local_path(CROISSANT))


def test_mlcroissant_finds_no_error(corpus: PartSet) -> None:
    issues = mlcroissant.Dataset(jsonld=described(corpus)).metadata.issues
    assert issues.errors == set()
    assert {issue.split('"')[1].rpartition("/")[2] for issue in issues.warnings} == {
        "citeAs",  # nobody has published the dataset
        "datePublished",
        "version",
    }


def test_mlcroissant_reads_the_documents(corpus: PartSet) -> None:
    read = list(mlcroissant.Dataset(jsonld=described(corpus)).records("documents"))
    expected = rows(corpus)
    assert len(read) == len(expected) == 3
    for found, row in zip(read, expected, strict=True):
        assert set(found) == {f"documents/{name}" for name in DOCUMENT.names}
        for name in ("id", "text", "split", "url"):
            assert found[f"documents/{name}"].decode() == row[name]
        assert found["documents/karma"] == row["karma"]
        assert [each.decode() for each in found["documents/link_ids"]] == row["link_ids"]
        (voted,) = found["documents/posts"]
        assert (voted["documents/posts/post_id"], voted["documents/posts/score"]) == (b"p", 9)


def test_a_part_that_was_altered_is_noticed(corpus: PartSet) -> None:
    value = json.loads(described(corpus).read_text())
    files = [each for each in value["distribution"] if each["@type"] == "cr:FileObject"]
    assert [(each["@id"], each["sha256"]) for each in files] == [(part.name, part.sha256) for part in corpus.parts]
    assert value["name"] == NAME


def test_hugging_face_parses_the_card(corpus: PartSet) -> None:
    card = DatasetCard(corpus.folder.read_bytes("README.md").decode())
    head: dict[str, Any] = card.data.to_dict()
    assert head["pretty_name"] == NAME
    assert head["license"] == "CC0-1.0"
    assert head["size_categories"] == ["n<1K"]
    assert "## Funnel" in card.text
