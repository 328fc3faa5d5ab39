"""Blocklists: a user's list first, then valid lines, then rejected ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from webtext.base.errors import InputError
from webtext.crawl.blocklists import DomainBlocklists, SubredditBlocklists

LIST = """\
# name: sites that sell links
# Licence: CC0-1.0

example.org             # with its subdomains
  Bücher.Example
127.0.0.9
[::1]
"""


def write(folder: Path, text: str | bytes, name: str = "list.txt") -> str:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return str(folder / name)


def test_a_domain_blocks_itself_and_its_subdomains(tmp_path: Path) -> None:
    lists = DomainBlocklists.read([write(tmp_path, LIST)])
    blocked = ["example.org", "www.example.org", "a.b.example.org.", "xn--bcher-kva.example", "127.0.0.9", "[::1]"]
    assert all(lists.blocks(host) for host in blocked)
    for host in ("notexample.org", "example.org.example.com", "org", "example", "127.0.0.90", "[::2]", ""):
        assert not lists.blocks(host)


def test_a_recipe_records_name_licence_and_hash_but_not_the_path(tmp_path: Path) -> None:
    place = write(tmp_path, LIST)
    digest = hashlib.sha256(LIST.encode()).hexdigest()
    about = {"name": "sites that sell links", "licence": "CC0-1.0", "sha256": digest, "entries": 4}
    assert DomainBlocklists.read([place]).about() == [about]
    (tmp_path / "elsewhere").mkdir()
    assert DomainBlocklists.read([write(tmp_path / "elsewhere", LIST)]).about() == [about]


def test_a_list_without_a_header_has_its_files_name_and_no_licence(tmp_path: Path) -> None:
    (about,) = DomainBlocklists.read([write(tmp_path, "a.example\na.example\n")]).about()
    assert (about["name"], about["licence"], about["entries"]) == ("list.txt", None, 1)
    (about,) = DomainBlocklists.read([write(tmp_path, "a.example\n", "na\udcefve.txt")]).about()
    assert about["name"] == "na\\udcefve.txt", "a recipe is hashed in UTF-8"


def test_neither_the_order_of_lists_nor_a_repeated_list_changes_anything(tmp_path: Path) -> None:
    one, two = write(tmp_path, "a.example\n", "one"), write(tmp_path, "b.example\n", "two")
    lists = DomainBlocklists.read([one, two, one])
    assert lists.about() == DomainBlocklists.read([two, one]).about()
    assert len(lists.about()) == 2
    assert lists.blocks("a.example")
    assert lists.blocks("b.example")
    assert not DomainBlocklists.read([]).blocks("a.example")


def test_subreddits_are_recognized_in_any_case_and_spelling(tmp_path: Path) -> None:
    lists = SubredditBlocklists.read([write(tmp_path, "Books\r\nr/Music/\n/r/reddit.com # the first\nu_some-body\n")])
    for name in ("books", "BOOKS", "music", "reddit.com", "u_Some-Body"):
        assert lists.blocks(name)
    for name in ("book", "bookss", "r/books", "", None):
        assert not lists.blocks(name)


@pytest.mark.parametrize(
    "line",
    ["http://example.org", "example.org/page", "example.org:80", "*.example.org", "0.0.0.0 example.org", "books"]
    + ["user@example.org", ".", "exa mple.org", "example..\x00", "[::1", "1.2.3.4.5"],
)
def test_a_line_that_is_not_a_domain_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"list.txt' line 3: .* is not a domain\n"):
        DomainBlocklists.read([write(tmp_path, f"# name: x\na.example\n{line}\n")])


@pytest.mark.parametrize("line", ["two words", "r/a/b", "https://www.reddit.com/r/books", "-x", "é", "a" * 51])
def test_a_line_that_is_not_a_subreddit_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1: .* is not a subreddit"):
        SubredditBlocklists.read([write(tmp_path, line)])


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"# only a comment\n", "contains no domain"), (b"", "contains no domain"), (b"\xff\xfe", "not UTF-8")],
)
def test_an_empty_list_is_rejected(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        DomainBlocklists.read([write(tmp_path, content)])


def test_a_missing_list_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file '.*missing.txt'"):
        DomainBlocklists.read([str(tmp_path / "missing.txt")])
