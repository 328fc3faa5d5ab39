"""Removal lists: documents without a post left are removed; what a line of requests names, and which are invalid."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
from pathlib import Path

import pytest
from elsewhere import only_tasks_read
from hypothesis import given
from hypothesis import strategies as st
from set_contents import rows
from warc_files import article, page, site, write_pages

from webtext.base.errors import InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, filter_documents
from webtext.clean.removal import requests as requests_module
from webtext.clean.removal.removals import Removals
from webtext.clean.removal.requests import Requests
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import RemovalSettings


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


def test_removals_are_found_elsewhere_and_the_driver_reads_no_document(tmp_path: Path, elsewhere: Run) -> None:
    """Eleven parts in groups of two: withdrawn links, links that are no longer collected, and lines."""
    writer = SetWriter(str(tmp_path / "documents"), "documents", Recipe(stage="test", code_version=1, settings={}))
    made = []
    for index in range(11):
        with writer.part(index, key=str(index)) as part:
            for name in "abcd":
                url = f"http://{name}{index}.example/"
                row = {"id": url, "link_ids": [link_id(url)], "url": url, "posts": [], "text": ""}
                part.write([row | {"text_digest": "", "split": "train"}])
            made.append(part.publish())
    documents = writer.seal(made)
    withdrawn = removal_list(tmp_path / "removals", {"http://a3.example/": 0, "http://b10.example/": 0})
    collected = {f"http://{name}{i}.example/": 1 for name in "abd" for i in range(11)}
    others = "".join(f"http://other{number}.example/\n" for number in range(2000))
    (tmp_path / "requests.txt").write_text("d7.example\nd11.example\n" + others)
    elsewhere.engine.max_message_bytes = 16 << 10  # type: ignore[attr-defined]
    settings = RemovalSettings(remove=(withdrawn, str(tmp_path / "requests.txt")))
    removals = dataclasses.replace(
        Removals.of(settings), links=SetName.of(PartSet.open(removal_list(tmp_path / "links", collected)))
    )
    with only_tasks_read():
        found = removals.find(documents, elsewhere)
    assert [rows.tolist() for rows in found.withdrawn] == [[0] if i == 3 else [1] if i == 10 else [] for i in range(11)]
    assert [rows.tolist() for rows in found.unlinked] == [[2]] * 11
    assert [[*rows] for rows in found.requested] == [[3] if i == 7 else [] for i in range(11)]
    assert [line.written for line in found.unmatched[:2]] == ["d11.example", "http://other0.example/"]


def test_a_list_of_requests_that_changes_before_a_worker_reads_it_is_an_error(tmp_path: Path) -> None:
    requests = read(tmp_path, "one.example\ntwo.example\n")
    assert pickle.loads(pickle.dumps(requests)).lines == requests.lines
    call = pickle.dumps(requests)
    read(tmp_path, "one.example\nthree.example\n")
    requests_module._read_again.cache_clear()
    with pytest.raises(InputError, match="changed while it was read"):
        pickle.loads(call)


def test_a_set_of_another_kind_is_rejected_as_removal_list(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1, 60))]])
    with pytest.raises(InputError, match="contains pages, not removals"):
        cleaned(pages, tmp_path / "build", run, pages.folder.url)


ID = "0f115db062b7c0dd030b16878c99dea5"


def read(folder: Path, text: str | bytes, name: str = "requests.txt") -> Requests:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Requests.read([str(folder / name)])


def named(requests: Requests, identifier: str = "x", links: tuple[str, ...] = (), url: str | None = None) -> list[str]:
    return [line.written for line in requests.lines_for(identifier, links, url)]


def test_a_line_is_a_url_a_domain_or_an_id_and_text_after_a_hash_is_a_comment(tmp_path: Path) -> None:
    requests = read(
        tmp_path,
        f"\ufeff# asked for in May\r\nhttps://example.org/a?b=1  # a page\n\n  example.net\t# a domain\n{ID}\nid:urn:uuid:1#c\n",
    )
    assert [line.number for line in requests.lines] == [2, 4, 5, 6]
    assert named(requests, url="https://example.org/a?b=1") == ["https://example.org/a?b=1"]
    assert named(requests, url="http://other.example/") == []
    assert named(requests, ID) == [ID]
    assert named(requests, "urn:uuid:1#c") == ["id:urn:uuid:1#c"]


@pytest.mark.parametrize(
    ("url", "is_named"),
    [
        ("https://example.org/", True),
        ("http://www.example.org:8080/a", True),
        ("http://EXAMPLE.org./a", True),
        ("http://notexample.org/", False),
        ("http://example.org.evil.example/", False),
        ("http://other.example/?u=example.org", False),
        ("no url", False),
        (None, False),
    ],
)
def test_a_domain_includes_its_subdomains(tmp_path: Path, url: str | None, is_named: bool) -> None:
    assert named(read(tmp_path, "Example.ORG."), url=url) == ["Example.ORG."] * is_named


def test_a_domain_in_any_script_and_an_address_are_domains(tmp_path: Path) -> None:
    requests = read(tmp_path, "bücher.example\n192.0.2.7\n[2001:db8::1]\n")
    assert named(requests, url="http://shop.xn--bcher-kva.example/") == ["bücher.example"]
    assert named(requests, url="http://192.0.2.7/a") == ["192.0.2.7"]
    assert named(requests, url="http://[2001:DB8::1]/") == ["[2001:db8::1]"]


def test_a_url_covers_both_schemes_any_spelling_and_every_document_its_link_led_to(tmp_path: Path) -> None:
    requests = read(tmp_path, "HTTPS://Example.org:443/a/../b#part")
    for url in ("http://example.org/b", "https://example.org/b"):
        assert named(requests, url=url) == ["HTTPS://Example.org:443/a/../b#part"]
        assert len(named(requests, links=("0" * 32, link_id(url)), url="http://elsewhere.example/")) == 1
    assert named(requests, url="https://example.org/b/c") == []


def test_all_lines_that_name_a_document_are_returned_the_most_specific_first(tmp_path: Path) -> None:
    requests = read(tmp_path, f"example.org\na.example.org\nhttp://a.example.org/\n{ID}\nexample.org # again")
    lines = requests.lines_for(ID, (), "https://a.example.org/")
    assert [line.number for line in lines] == [4, 3, 2, 1]


def test_the_parent_is_the_set_of_matching_lines_in_any_order_and_file(tmp_path: Path) -> None:
    one = read(tmp_path, "a.example # x\nb.example\nc.example", "one.txt")
    two = read(tmp_path, "b.example\n# y\na.example", "two.txt")
    assert one.parent(one.lines[:2]).hash == two.parent(two.lines).hash != one.parent(one.lines).hash


@pytest.mark.parametrize(
    "line",
    ["localhost", "example.org/page", "ftp://example.org/", "*.example.org", ".example.org", "two words", "id:",
     "someone@example.org", "http://", "ABC", ID + "0", "\0", "http ://x.y"],
)  # fmt: skip
def test_an_invalid_line_is_rejected_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, f"# first\nexample.org\n{line}\n")
    assert "requests.txt' line 3: " in refused.value.lines[0]
    assert len(refused.value.lines) <= 3


def test_a_list_that_is_not_utf_8_or_does_not_exist_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        read(tmp_path, b"example.org\nb\xfccher.example\n")
    with pytest.raises(InputError, match="nowhere.txt' does not exist"):
        Requests.read([str(tmp_path / "nowhere.txt")])


def test_a_list_of_comments_names_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# nobody asked yet\n\n").lines == []


@given(st.text(max_size=60))
def test_any_line_is_read_or_rejected(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with contextlib.suppress(InputError):
        read(tmp_path_factory.getbasetemp(), text.encode("utf-8", "replace")).lines_for(text, (text,), text)
