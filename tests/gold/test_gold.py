"""Gold by worked examples: what counts as a source's text, which pages count, and what bad packages do."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from gold import align, forums, pairs, sources, truth
from gold.align import LeftOut
from gold.truth import Block, Book

SENTENCES = " ".join(f"Sentence number {n} of the guide says something new." for n in range(12))
RST = f"""
Guide
=====
.. toctree::

   other

{SENTENCES} See :doc:`other`.

.. note:: Mind the gap.

* first
* second

.. code-block:: python

   def f():
       return 1

.. list-table:: Sizes

   * - small
     - 1
"""
GOLD = [
    Block("heading", "Guide"),
    Block("paragraph", f"{SENTENCES} See Other page."),
    Block("paragraph", "Mind the gap."),
    Block("item", "first"),
    Block("item", "second"),
    Block("code", "def f():\n    return 1"),
    Block("caption", "Sizes"),
    Block("row", "small\t1"),
]


def book(folder: Path, format: str, **texts: str) -> Book:
    """Return a book of sources that are written into `folder`."""
    suffixes = {"rst": ".rst.txt", "docbook": ".docbook", "mallard": ".page", "man": ".1", "markdown": ".md"}
    for name, text in texts.items():
        (folder / f"{name}{suffixes[format]}").write_text(text, encoding="utf-8")
    return Book(format, folder, "en", {name: folder / f"{name}{suffixes[format]}" for name in texts})


def html_page(*paragraphs: str) -> bytes:
    return f"<html><body>{''.join(f'<p>{text}</p>' for text in paragraphs)}</body></html>".encode()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked package with the pages that Sphinx makes of its sources, and with the sources, as packages have them."""
    root = tmp_path_factory.mktemp("package") / "usr/share/doc/guide/html"
    written = book(
        tmp_path_factory.mktemp("written"), "rst", index=RST, other="Other page\n==========\n\n.. nosuch::\n"
    )
    truth.sphinx_project(written, root.parent / "project")
    truth.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", root.parent / "project", root])
    return root.parents[4]


def test_the_text_of_a_sphinx_source_is_found_in_its_page(project: Path) -> None:
    """The menu of pages, the label of the note and the permalinks are not text; the title that `:doc:` takes is."""
    (given,) = sources.books(project)
    assert (given.format, given.generator, given.language) == ("rst", "sphinx", "en")
    text = truth.read(given)
    pair = align.align(text["index"], given.pages["index"])
    assert pair.blocks == GOLD
    assert pair.found == 1
    assert pair.neutral[-2:] == ["note", "1"] or "note" in pair.neutral


def test_a_source_with_an_unknown_directive_is_left_out(project: Path) -> None:
    (given,) = sources.books(project)
    with pytest.raises(LeftOut, match="unknown_directive"):
        align.align(truth.read(given)["other"], given.pages["other"])


def test_a_book_in_docbook_is_cut_into_its_pages(tmp_path: Path) -> None:
    given = book(
        tmp_path,
        "docbook",
        index="<!DOCTYPE book [<!ENTITY app 'Program'>]><book><title>The &app;</title><chapter id='a'><title>A</title>"
        "<para>See <xref linkend='b'/>.<footnote><para>Noted.</para></footnote> Then this.</para>"
        "<section id='b'><title>B</title><itemizedlist><listitem><para>one</para></listitem></itemizedlist></section>"
        "</chapter></book>",
    )
    main = given.sources["index"]
    cut = truth.read(Book("docbook", tmp_path, "en", dict.fromkeys(["index", "a", "b", "c"], main)))
    assert cut["index"] == [Block("heading", "The Program")]
    assert cut["a"] == [Block("heading", "A"), Block("paragraph", "See B. Then this."), Block("paragraph", "Noted.")]
    assert cut["b"] == [Block("heading", "B"), Block("item", "one")]
    assert str(cut["c"]) == "no_such_section"


MALLARD = '<page xmlns="http://projectmallard.org/1.0/"><info><desc>no</desc></info><title>{}</title><p>{}</p></page>'

TERMS = "<terms><item><title>term</title><p>meaning</p></item></terms></page>"


@pytest.mark.parametrize(
    ("format", "texts", "expected"),
    [
        (
            "mallard",
            {"a": MALLARD.format("A", 'See <link xref="b"/>.'), "b": MALLARD.format("B", "x"), "c": "<page>"},
            {"a": [("heading", "A"), ("paragraph", "See B.")], "c": "source_not_parsed"},
        ),
        (
            "mallard",
            {"a": MALLARD.format("A", "<gui>Edit</gui><gui>Undo</gui>.").replace("</page>", TERMS)},
            {"a": [("heading", "A"), ("paragraph", "Edit Undo."), ("item", "term"), ("item", "meaning")]},
        ),
        (
            "markdown",
            {"a": "# T\n\n- x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n    code\n", "b": "{{ made() }}"},
            {
                "a": [("heading", "T"), ("item", "x"), ("row", "a\tb"), ("row", "1\t2"), ("code", "code")],
                "b": "unknown_directive",
            },
        ),
        pytest.param(
            "man",
            {"a": ".TH A 1\n.SH NAME\na \\- does\n.SH OPTIONS\n.TP\n.B \\-v\nprints\n"},
            {
                "a": [("heading", "NAME"), ("paragraph", "a - does"), ("heading", "OPTIONS"), ("item", "-v")]
                + [("item", "prints")]
            },
            marks=pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed"),
        ),
    ],
)
def test_the_text_of_a_source_is_its_parsers(
    tmp_path: Path, format: str, texts: dict[str, str], expected: dict[str, list[tuple[str, str]] | str]
) -> None:
    """A link without text has its target's title; what a template makes isn't known."""
    read = truth.read(book(tmp_path, format, **texts))
    for name, text in expected.items():
        assert (str(read[name]) if isinstance(text, str) else read[name]) == text


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (html_page("Guide", SENTENCES[:400]), "words_not_found"),
        (html_page("Guide", SENTENCES[:200], "word " * 9, SENTENCES[200:]), "page_has_more"),
        (html_page("<script>" + SENTENCES + "</script>"), "words_not_found"),
        (b"", "page_not_parsed"),
    ],
)
def test_a_page_that_is_not_made_of_its_source_is_left_out(page: bytes, reason: str) -> None:
    with pytest.raises(LeftOut, match=reason):
        align.align([Block("heading", "Guide"), Block("paragraph", SENTENCES)], page)


def test_menus_of_titles_and_short_additions_do_not_harm_a_page() -> None:
    """The menu before the text repeats its title; the title of the text is the later one. Titles between are a menu."""
    titles = "one two three four five six seven eight nine ten"
    page = html_page("Guide", "Home", "Guide", SENTENCES[:204], titles, "Note:", SENTENCES[204:])
    blocks = [Block("heading", "Guide"), Block("paragraph", SENTENCES)]
    with pytest.raises(LeftOut, match="page_has_more"):
        align.align(blocks, page)
    pair = align.align(blocks, page, frozenset(titles.split()) | {"note"})
    assert (pair.blocks, pair.neutral, pair.more) == (blocks, [], 0)
    ours = ["guide", *align.words(SENTENCES)]
    assert align.matches(ours, align.words(align.page_text(page)))[0] == (0, 2)


def test_a_package_that_changed_or_vanished_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its archive holds another package under the pinned version, then none; then the pinned one, without any source."""
    monkeypatch.setattr(pairs, "WORK", tmp_path)
    (tmp_path / "small").mkdir()
    tree = tmp_path / "tree/DEBIAN"
    tree.mkdir(parents=True)
    (tree / "control").write_text("Package: a\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: a\n")
    subprocess.run(["dpkg-deb", "-b", str(tree.parent), str(tmp_path / "a.deb")], check=True, capture_output=True)
    run = pairs._run

    def archive(*command: str, cwd: str | None = None) -> str:
        if "download" in command and (tmp_path / "a.deb").exists():
            shutil.copy(tmp_path / "a.deb", str(cwd))
        return "" if "download" in command else run(*command, cwd=cwd)

    monkeypatch.setattr(pairs, "_run", archive)
    pinned = pairs.Package("a", "1", hashlib.sha256((tmp_path / "a.deb").read_bytes()).hexdigest())
    assert pairs.make(pairs.Package("a", "1", "0" * 64), "small") == {"package_changed": 1}
    assert pairs.make(pinned, "small")["pairs"] == 0
    assert pq.read_table(tmp_path / "small/a.parquet").schema == pairs.SCHEMA
    (tmp_path / "a.deb").unlink()
    assert pairs.make(pinned, "small") == {"package_gone": 1}


def test_all_pages_of_a_source_package_are_in_one_split_and_sealed_combinations_only_in_the_test() -> None:
    assert {pairs.split_of(name) for name in "abcdefgh"} == {"train", "development", "test"}
    assert pairs.split_of("kate") == pairs.split_of("kate")
    assert len(pairs.SEALED) >= 4


@pytest.mark.parametrize("layout", ["table", "boxes", "articles", "questions", "archive"])
def test_the_text_of_a_forum_page_is_its_posts_and_not_what_boards_say_about_their_authors(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is rendered by the tests' own environment, which has what boards.jinja needs."""
    monkeypatch.setattr(forums, "VENV", Path(sys.prefix))
    texts = [f"Paragraph number {n} says that the {n}th switch must be turned to the left & held." for n in range(40)]
    given = [{"kind": "heading", "text": "Switches"}, *({"kind": "paragraph", "text": text} for text in texts)]
    row = dict.fromkeys(("version", "source", "licence", "split", "format"), "x")
    row |= {"id": "0", "package": "guide", "language": "de"}
    thread = forums.thread([row | {"blocks": given}], random.Random(7))
    assert thread is not None
    (made,) = forums.pages(layout, [thread])
    assert made["found"] == 1
    assert len({block["text"] for block in made["blocks"]} & set(texts)) > 5
    gold, page = " ".join(block["text"] for block in made["blocks"]), align.page_text(made["html"])
    for post in thread["posts"]:
        assert post["user"]["username"] in page
        assert post["user"]["username"] not in gold
        assert set(align.words(post["user"]["username"])) <= set(made["neutral"])
        assert str(post["user"]["post_count"]) not in made["neutral"]
