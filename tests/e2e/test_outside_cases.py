"""Small inputs after public bug reports, through the command line: pages and raw answers of servers, and WARC files."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from webtext.app.main import run as webtext
from webtext.base.parts.partset import PartSet

sys.path.append(str(Path(__file__).parent.parent / "crawl"))
from local_web import LocalWeb  # noqa: E402


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> Path:
    if not (shared_data / "cases" / "pages.json").is_file():
        pytest.skip("no outside cases among the real data")
    return shared_data / "cases"


@pytest.fixture(scope="module")
def texts(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The text of each page and live answer by its id, and of all documents of WARC files under ''."""
    out = tmp_path_factory.mktemp("outside")
    answers: dict[str, bytes] = {path.stem: path.read_bytes() for path in (cases / "live").glob("*.bin")}
    for case in listed(cases, "pages"):
        body = (cases / "pages" / f"{case['id']}.html").read_bytes()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {case['content_type']}\r\nContent-Length: {len(body)}\r\n\r\n"
        answers[case["id"]] = head.encode() + body
    web = LocalWeb([f"127.0.0.{i}" for i in range(1, len(answers) + 1)])
    urls = [web.plant(f"/{name}", sending(data), host) for host, (name, data) in enumerate(answers.items(), 1)]
    (out / "urls.txt").write_text("\n".join(urls))
    archives = sorted(str(cases / "warc" / case["file"]) for case in listed(cases, "warc"))
    allowed = ["--allow-address", f"127.0.0.0/8:{web.port}"]
    try:
        links, pages = str(out / "links"), str(out / "pages")
        defaults = ["--default-score", "5", "--default-created", "2017-12-31"]
        assert webtext(["crawl", "links", str(out / "urls.txt"), "--out", links, *defaults]) == 0
        assert webtext(["crawl", "fetch", links, "--out", pages, *allowed]) == 0
    finally:
        web.close()
    code = webtext(["clean", "extract", pages, *archives, "--out", str(out / "documents")])
    assert code in (0, 1), "damaged records are counted, never fatal"
    found: dict[str, str] = dict.fromkeys(answers, "") | {"": ""}
    documents = PartSet.open(str(out / "documents"))
    for part in range(len(documents.parts)):
        for row in documents.table(part, ["url", "text"]).to_pylist():
            name = row["url"].rpartition("/")[2] if f":{web.port}/" in row["url"] else ""
            found[name] += f"{row['text']}\n"
    return found


def listed(cases: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((cases / f"{name}.json").read_text())
    return found


def sending(data: bytes) -> Any:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


def test_the_pages_of_archives_become_documents(cases: Path, texts: Mapping[str, str]) -> None:
    markers = {case["id"]: case["expect"] for case in listed(cases, "warc")}
    assert markers
    missing = {name: [each for each in expected if each not in texts[""]] for name, expected in markers.items()}
    assert not {name: each for name, each in missing.items() if each}


def test_the_answers_of_servers_become_documents(cases: Path, texts: Mapping[str, str]) -> None:
    names = [path.stem for path in (cases / "live").glob("*.bin")]
    assert names
    assert [name for name in names if f"Marker {name}" not in texts[name]] == []


def test_the_text_of_a_page_is_extracted(cases: Path, texts: Mapping[str, str]) -> None:
    wrong: list[str] = []
    for case in listed(cases, "pages"):
        text = re.sub(r"\s+", " ", texts[case["id"]])
        wrong += [f"{case['id']} lacks {each!r}" for each in case["must"] if re.sub(r"\s+", " ", each) not in text]
        wrong += [f"{case['id']} has {each!r}" for each in case["must_not"] if re.sub(r"\s+", " ", each) in text]
        counts = {each: text.count(each) for each in case["counts"]}
        wrong += [f"{case['id']}: {counts}"] if counts != case["counts"] else []
    assert not wrong
