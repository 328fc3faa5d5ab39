"""Collecting pages with known text: every format of fixtures, and which pages are left out."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from learn.fixtures import main

NAMES = ("news", "goose", "fundus", "forum", "recipe", "parser", "java", "known")
TEXTS = [" ".join(f"{name}{i}" for i in range(14)) + ' it\'s "so"' for name in NAMES]
NEWS, GOOSE, FUNDUS, FORUM, RECIPE, PARSER, JAVA, KNOWN = TEXTS


def html(text: str) -> bytes:
    return f"<html><body><ul><li>Menu</ul><p>{text}</p><p>More.</p></body></html>".encode()


def write(path: Path, content: bytes | str | Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A page of each set that the extractor learns from anyway."""
    for name in ("wcxb", "extract"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
            member = tarfile.TarInfo(f"pages/{name}.html")
            member.size = len(html(KNOWN))
            tar.addfile(member, io.BytesIO(html(KNOWN)))
        write(tmp_path / f"data/{name}/pages.tar.xz", buffer.getvalue())
    gold = json.dumps({"id": "wcxb", "url": "https://known.example/a"}).encode()
    write(tmp_path / "data/wcxb/gold.jsonl.xz", lzma.compress(gold))
    write(tmp_path / "data/extract/evaldata.json", {"https://known.example/b": {"file": "extract.html"}})
    return tmp_path / "data"


def rows(checkouts: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    out = checkouts.parent / "out.parquet"
    monkeypatch.setattr(sys, "argv", ["fixtures", str(checkouts), str(out), "--data", str(data)])
    main()
    return pq.read_table(out).to_pylist()


def test_of_each_kind_of_fixture_a_page_has_its_text_and_what_is_stated_of_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "checkouts"
    folder = made / "codelucas+newspaper/tests/data"
    write(folder / "html/of-news.net2.html", html(NEWS))
    write(folder / "text/of-news.net2.txt", NEWS)
    folder = made / "goose3+goose3/tests/data/content"
    write(folder / "a.html", html(GOOSE))
    write(folder / "a.json", {"url": "http://goose.net/a", "expected": {"cleaned_text": GOOSE, "title": "Of Gosport"}})
    folder = made / "flairNLP+fundus/tests/test_data/de"
    body = {"summary": [], "sections": [{"headline": [FUNDUS.split()[0]], "paragraphs": FUNDUS.split()[1:]}]}
    stated = {"body": body, "title": "Bremen", "authors": ["A", "B"], "publishing_date": "2024-05-06"}
    write(folder / "Paper_2024_05_06.html.gz", gzip.compress(html(FUNDUS)))
    write(folder / "Paper.json", {"V1": stated})
    write(
        folder / "meta.info",
        {name: {"url": "https://paper.net/1"} for name in ("Gone_1.gz", "Paper_2024_05_06.html.gz")},
    )
    post = {"post_text": {"surface_form": FORUM.replace("forum3", "[forum3](http://x.y/z)")}}
    document = {"url": "https://forum.net/1", "html": html(FORUM).decode(), "gold_standard_annotation": [post]}
    write(made / "fhgr+harvest/corpus/goldDocuments/a.json", document)
    folder = made / "hhursev+recipe-scrapers/tests/test_data/cook.net"
    for name in ("1", "2"):
        write(folder / f"{name}.testhtml", html(RECIPE))
        write(
            folder / f"{name}.json",
            {"ingredients": RECIPE.split()[:5], "instructions_list": RECIPE.split()[5:], "author": "Cook"},
        )
    folder = made / "postlight+parser"
    case = f"url = 'https://parser.net/1'; read('./fixtures/a.html'); it('returns the content', equal(text, `{PARSER}`"
    write(folder / "fixtures/a.html", html(PARSER))
    code = f"beforeAll({case}; beforeAll({case.replace('a.html', 'gone.html')}"
    write(folder / "src/extractors/custom/a/index.test.js", f"{code}; equal(title, 'It\\'s Brest'")
    folder = made / "smallrivers+snacktory/src/test"
    literal = json.dumps(JAVA)
    code = f'@Test // http://java.net/1\n AsStream("a.html"); a({literal[:-1]}", r.getTitle()); getText().startsWith({literal})'
    write(folder / "resources/de/jetwick/snacktory/a.html", html(JAVA))
    write(folder / "java/a/ArticleTextExtractorTest.java", code)
    found = {row["url"]: row for row in rows(made, data, monkeypatch)}
    urls = (
        "https://of-news.net/",
        "http://goose.net/a",
        "https://paper.net/1",
        "https://forum.net/1",
        "https://cook.net/",
    )
    urls += "https://parser.net/1", "http://java.net/1"
    texts = {url: row["text"].replace("\n", " ") for url, row in found.items()}
    assert texts == dict(zip(urls, TEXTS[:-1], strict=True))
    assert [url for url, row in found.items() if row["is_whole"]] == [urls[0], *urls[2:4]]
    paper = found["https://paper.net/1"]
    assert (paper["title"], paper["author"], paper["published"]) == ("Bremen", "A; B", "2024-05-06")
    assert (paper["source"], paper["licence"]) == ("flairNLP/fundus", "MIT")
    assert paper["id"] == "tests/test_data/de/Paper_2024_05_06.html.gz"
    assert [found[url]["title"] for url in ("http://goose.net/a", "http://java.net/1")] == ["Of Gosport", JAVA]
    assert found["https://cook.net/"]["author"] == "Cook"
    assert found["https://forum.net/1"]["html"] == html(FORUM)


def test_pages_without_their_text_or_domain_and_pages_seen_before_are_left_out_and_counted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "checkouts"
    pages = {
        "first": (NEWS, NEWS, "http://a.net/1"),
        "text-again": (NEWS, NEWS, "http://b.net/1"),
        "url-again": (GOOSE, GOOSE, "http://a.net/1"),
        "known-text": (KNOWN, KNOWN, "http://b.net/2"),
        "known-url": (FUNDUS, FUNDUS, "https://known.example/b"),
        "not-in-order": (RECIPE, " ".join(reversed(RECIPE.split())), "http://b.net/3"),
        "short": (FORUM, FORUM[:15], "http://b.net/4"),
        "made-up": (PARSER, PARSER, "http://exemple.com/a"),
    }
    for name, (page, text, url) in pages.items():
        write(made / f"goose3+goose3/{name}.html", html(page))
        write(made / f"goose3+goose3/{name}.json", {"url": url, "expected": {"cleaned_text": text}})
    assert [row["id"] for row in rows(made, data, monkeypatch)] == ["first.html"]
    counts = capsys.readouterr().out.split("\n")[4].split("\t")
    assert counts[0] == "goose3/goose3"
    assert json.loads(counts[1].replace("'", '"')) == {
        "taken": 1,
        "seen before": 4,
        "words not found": 1,
        "few words": 1,
        "no domain": 1,
    }
