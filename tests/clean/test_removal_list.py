"""Lists of removal requests: what a line names, and which lines are invalid."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.base.parts.identifiers import link_id
from webtext.clean.removal.requests import Requests

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
