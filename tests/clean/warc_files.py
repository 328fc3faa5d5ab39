"""Builds WARC files and pages sets for the tests of clean, and part functions that their workers import."""

from __future__ import annotations

import ctypes
import io
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, SetWriter
from webtext.clean.extract import pages as stage

DATE = "2017-06-01T12:00:00Z"
CAPTURED = 1496318400
TOPICS = ("harbour", "granite", "evening", "railway", "orchard", "lantern", "winter", "market", "garden", "bridge")


def article(seed: int, n_sentences: int = 30) -> str:
    """English enough for the language rule, and different for each seed."""
    sentences = []
    for i in range(n_sentences):
        first, second, third = (TOPICS[(seed * k + i * j + seed) % len(TOPICS)] for k, j in ((1, 3), (3, 7), (7, 1)))
        sentences.append(
            f"In the {first} number {seed * 31 + i} there was a {second} that nobody had seen before the {third} came."
        )
    return " ".join(sentences)


def page(text: str, title: str = "A page") -> bytes:
    return f"<html><head><title>{title}</title></head><body><article><p>{text}</p></article></body></html>".encode()


def site(name: object, text: str, **row: Any) -> dict[str, Any]:
    """The row of a page at http://NAME.example/ with this text."""
    return {"url": f"http://{name}.example/", "body": page(text)} | row


def write_warc(path: Path, answers: Sequence[tuple[str, bytes]], **options: Any) -> list[tuple[int, int]]:
    """Write (url, body) as responses; return the offset and length of each."""
    status, content_type = options.get("status", "200 OK"), options.get("content_type", "text/html; charset=utf-8")
    more = [("Content-Encoding", options["encoding"])] if "encoding" in options else []
    more += options.get("headers", [])
    places = []
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for url, body in answers:
            headers = StatusAndHeaders(status, [("Content-Type", content_type), *more], protocol="HTTP/1.1")
            start = file.tell()
            writer.write_record(
                writer.create_warc_record(
                    url, "response", io.BytesIO(body), http_headers=headers, warc_headers_dict={"WARC-Date": DATE}
                )
            )
            places.append((start, file.tell() - start))
    return places


def write_pages(folder: Path, parts: Sequence[Sequence[Mapping[str, Any]]]) -> PartSet:
    """Write a pages set with one part per list of rows. A row has url and body, or outcome and final_url."""
    sets = SetWriter(str(folder), "pages", Recipe(stage="test", code_version=1, settings={}))
    done = []
    for index, rows in enumerate(parts):
        writer = sets.part(index, key=f"test {index}")
        name = f"part-{index:05d}.warc.gz"
        fetched = [row for row in rows if "body" in row]
        places = write_warc(writer.attach(name), [(row.get("final_url", row["url"]), row["body"]) for row in fetched])
        place_of = {id(row): place for row, place in zip(fetched, places, strict=True)}
        for row in rows:
            place = place_of.get(id(row))
            writer.write(
                [
                    {
                        "link_id": link_id(row["url"]),
                        "url": row["url"],
                        "final_url": row.get("final_url", row["url"] if place else None),
                        "redirects": [],
                        "outcome": "fetched" if place else row.get("outcome", "failed"),
                        "reason": None if place else "redirects_to_link",
                        "status": 200,
                        "source": "web",
                        "captured": CAPTURED if place else None,
                        "voted": 1,
                        "karma": row.get("karma", 3),
                        "split": row.get("split", "train"),
                        "warc_file": name if place else None,
                        "warc_offset": place[0] if place else None,
                        "warc_length": place[1] if place else None,
                        "milliseconds": 5,
                        "requests": 1,
                        "cause": None,
                        "opt_outs": row.get("opt_outs", []),
                        "opt_out_evidence": [],
                        "posts": row.get("posts", []),
                    }
                ]
            )
        done.append(writer.publish())
    return sets.seal(done)


def extract_with_killers(context: PartContext, task: PartTask) -> None:
    """The part function of extraction, with an extractor that pages can cause to crash, hang, eat memory or raise."""
    real = stage.extract_body

    def extract(body: bytes, content_type: str, settings: Any) -> Any:
        if b"SEGFAULT" in body:
            ctypes.string_at(0)
        elif b"HANG" in body:
            Path(os.environ["WEBTEXT_TEST_HANGS"]).touch()
            time.sleep(600)
        elif b"EAT" in body:
            eaten = []
            while True:
                eaten.append(bytearray(b"x" * (1 << 20)))
        elif b"RAISE" in body:
            raise RecursionError("too clever a page")
        return real(body, content_type, settings)

    stage.extract_body = extract  # type: ignore[assignment]
    try:
        stage._extract_part(context, task)
    finally:
        stage.extract_body = real
