"""Removal lists of votes: documents without a post left are removed; duplicates, redirects, imported files, resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from set_contents import rows
from warc_files import article, page, site, write_pages

from webtext.base.errors import InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, filter_documents
from webtext.clean.removal.settings import RemovalSettings
from webtext.clean.rules.thresholds import RuleSettings


def removal_list(folder: Path, left: dict[str, int]) -> str:
    """Write a removal list of these links with the given numbers of posts left."""
    post = {"source": "reddit", "post_id": "p", "reason": "deleted_by_user", "noticed": 1}
    writer = SetWriter(str(folder), "removals", Recipe(stage="test", code_version=1, settings={"left": left}))
    with writer.part(0, key=json.dumps(left)) as part:
        part.write([{"link_id": link_id(u), "url": u, "posts": [post], "posts_left": n} for u, n in left.items()])
        published = part.publish()
    writer.seal([published])
    return str(folder)


def cleaned(pages: PartSet, out: Path, run: Run, *lists: str) -> tuple[list[str], dict[str, str], PartSet]:
    """Return the URLs in the corpus, URL -> reason of the dropped documents, and the corpus."""
    settings = CleanSettings(remove=RemovalSettings(remove=lists))
    result = clean_pages([pages.folder.url], str(out), settings, run)
    kept = sorted(row["url"] for row in rows(result.corpus))
    dropped = rows(result.dropped)
    assert all(
        row["stage"] == "remove" and row["value"] is None for row in dropped if row["reason"] == "removed_by_user"
    )
    assert result.counts.records_in == len(kept) + len(dropped)
    return kept, {row["url"]: row["reason"] for row in dropped}, result.corpus


def test_a_document_without_a_post_left_is_removed_with_its_reason(tmp_path: Path, run: Run) -> None:
    sites = [f"http://{name}.example/" for name in ("gone", "halved", "untouched")]
    pages = write_pages(tmp_path / "pages", [[{"url": u, "body": page(article(i, 60))} for i, u in enumerate(sites)]])
    given = removal_list(tmp_path / "removals", {sites[0]: 0, sites[1]: 1})
    kept, dropped, _ = cleaned(pages, tmp_path / "build", run, given)
    assert kept == sites[1:]
    assert dropped == {sites[0]: "removed_by_user"}


def test_the_duplicate_of_a_removed_document_is_kept(tmp_path: Path, run: Run) -> None:
    """Of two equal pages the one with more karma would be kept; it was removed, so the other one is kept."""
    text = page(article(1, 60))
    twins = [{"url": f"http://{karma}.example/", "body": text, "karma": karma} for karma in (3, 90)]
    pages = write_pages(tmp_path / "pages", [twins])
    given = removal_list(tmp_path / "removals", {"http://90.example/": 0})
    kept, dropped, _ = cleaned(pages, tmp_path / "build", run, given)
    assert kept == ["http://3.example/"]
    assert dropped == {"http://90.example/": "removed_by_user"}


def test_a_page_that_two_links_led_to_is_removed_with_both(tmp_path: Path, run: Run) -> None:
    page_url, other = "http://page.example/", "http://leads-there.example/"
    pages = write_pages(
        tmp_path / "pages",
        [[{"url": page_url, "body": page(article(1, 60))}, {"url": other, "outcome": "linked", "final_url": page_url}]],
    )
    one = removal_list(tmp_path / "one", {page_url: 0})
    two = removal_list(tmp_path / "two", {other: 0})
    assert cleaned(pages, tmp_path / "build", run, one)[0] == [page_url]
    assert cleaned(pages, tmp_path / "build", run, two)[0] == [page_url]
    assert cleaned(pages, tmp_path / "build", run, one, two)[1] == {page_url: "removed_by_user"}


def test_another_list_decides_again_and_no_list_is_as_before(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1, 60))]])
    _, _, before = cleaned(pages, tmp_path / "build", run)
    unnamed = removal_list(tmp_path / "unnamed", {"http://a.example/": 2})
    kept, _, corpus = cleaned(pages, tmp_path / "build", run, unnamed)
    assert kept == ["http://a.example/"]
    assert corpus.hash == before.hash  # a list that takes nothing out changes nothing
    named = removal_list(tmp_path / "named", {"http://a.example/": 0})
    kept, _, corpus = cleaned(pages, tmp_path / "build", run, named, named)
    assert kept == []
    assert {"kind": "removals", "hash": PartSet.open(named).hash} in corpus.manifest["parents"]
    assert cleaned(pages, tmp_path / "build", run)[2].hash == before.hash


def test_imported_documents_are_looked_up_by_their_url(tmp_path: Path, run: Run) -> None:
    urls = ["HTTP://Gone.example", "http://gone.example/other", None, "no url at all"]
    lines = [json.dumps({"text": article(i, 60), "url": url}) for i, url in enumerate(urls)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    given = RemovalSettings(remove=(removal_list(tmp_path / "removals", {"http://gone.example/": 0}),))
    inputs, out = [str(tmp_path / "texts.jsonl")], str(tmp_path / "out")
    result = filter_documents(inputs, out, RuleSettings(), LanguageSettings(), run, given)
    assert result.counts.dropped == {"removed_by_user": 1}
    assert rows(result.dropped)[0]["url"] == "HTTP://Gone.example"


def test_a_set_of_another_kind_is_rejected_as_removal_list(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1, 60))]])
    with pytest.raises(InputError, match="contains pages, not removals"):
        cleaned(pages, tmp_path / "build", run, pages.folder.url)
