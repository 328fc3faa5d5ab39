"""The worst that the web and other people's files contain, run through all of `clean run`.

Every record is kept or has a reason, nothing crashes, and no worker comes near its memory limit.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import pytest
from set_contents import contents, rows
from warc_files import DATE, article, page
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine, WorkerLimits
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages
from webtext.clean.reasons import FAILED
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.steps import Cleaning

LIMITS = WorkerLimits(memory_bytes=700 << 20)
EVERY_LANGUAGE = CleanSettings(language=LanguageSettings(language=("all",)))
HTML, PLAIN = "text/html; charset=utf-8", "text/plain; charset=utf-8"
HEAD, WORDS = b"<html><body>", article(1).encode()
KEPT, EMPTY_TEXT = "kept", "empty_text"
UNNAMED = (EMPTY_TEXT, "not_html")  # counted, but no row names the pages
LATIN = "Der Bär läuft über die Brücke, während größere Tiere träge in der Sonne dösen. " * 20

PAGES: dict[str, tuple[bytes, str, str]] = {
    # what it is: (body, its Content-Type, its outcome)
    "an empty body": (b"", HTML, EMPTY_TEXT),
    "an empty page": (b"<html><head></head><body></body></html>", HTML, EMPTY_TEXT),
    "an image that says it is a page": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40, HTML, "not_html"),
    "bytes without sense": (random.Random(1).randbytes(40_000), HTML, EMPTY_TEXT),
    "bytes without sense that say they are text": (random.Random(2).randbytes(40_000), PLAIN, "not_html"),
    "text with a stray NUL": (article(10).encode().replace(b" ", b"\0", 1), PLAIN, KEPT),
    "100 MB of one tag": (b"<b>" * 33_400_000, HTML, "body_too_large"),
    "9 MB of one tag": (b"<b>" * 3_000_000, HTML, "too_many_nodes"),
    "9 MB of one closing tag": (b"</b>" * 2_250_000, HTML, "too_many_nodes"),
    "one tag of 9 MB": (b"<p " + b"x" * 9_000_000 + b">" + WORDS, HTML, EMPTY_TEXT),
    "a tag that never ends": (b"<p " * 3_000_000, HTML, "too_many_nodes"),
    "50,000 nested elements": (HEAD + b"<div>" * 50_000 + WORDS + b"</div>" * 50_000, HTML, "too_deep"),
    "nested tables": (HEAD + b"<table><tr><td>" * 20_000 + WORDS, HTML, "too_deep"),
    "one line of 9 MB": (HEAD + b"<p>" + b"words and words " * 560_000, HTML, KEPT),
    "a charset that is not the header's": (page(LATIN).decode().encode("windows-1252"), HTML, KEPT),
    "a charset that nobody knows": (page(article(2)), "text/html; charset=x-nobody", KEPT),
    "NUL bytes": (page(article(3)).replace(b" there ", b" \0there\0 "), HTML, KEPT),
    "UTF-16 without a mark": (page(article(5)).decode().encode("utf-16-le"), "text/html; charset=utf-16le", KEPT),
    "surrogates as references": (page("&#xD800;&#56320; " + article(6)), HTML, KEPT),
    "surrogates as bytes": (page(article(7)).replace(b"harbour", b"har\xed\xa0\x80bour"), HTML, KEPT),
    "controls": (page(article(8)).replace(b"evening", b"eve\x01\x02\x1b[31mning"), HTML, KEPT),
    "one word of 10 MB": (b"w" * 10_000_000, PLAIN, "too_few_words"),
    "one word of 10 MB in a page": (HEAD + b"<p>" + b"w" * 9_999_000 + b"</p>", HTML, "too_few_words"),
    "only emoji": ("\N{GRINNING FACE}".encode() * 5000, PLAIN, "too_few_words"),
    "only emoji, apart": ("\N{GRINNING FACE} ".encode() * 5000, PLAIN, "too_little_prose"),
    "only line ends": (b"\n" * 1_000_000, PLAIN, EMPTY_TEXT),
    "only marks": ("\u0301".encode() * 100_000, PLAIN, "too_few_words"),
    "right to left and back": (page(article(9).replace(" ", " \u202e\u2066", 50)), HTML, KEPT),
}
RECORDS: dict[str, tuple[str, str]] = {
    # what it is: (line, its outcome)
    "an empty text": ('{"text": ""}', EMPTY_TEXT),
    "no text": ('{"body": "x"}', "no_text"),
    "a number": ("7", "not_json"),
    "half an object": ('{"text": "x"', "not_json"),
    "deep brackets": ('{"text": ' + "[" * 100_000 + "}", "not_json"),
    "a lone surrogate": (json.dumps({"text": "\ud800 " + article(11), "url": "http://\udc00/"}), KEPT),
    "NUL": (json.dumps({"text": article(12).replace(" ", " \0", 9), "title": "a\0b"}), KEPT),
    "one word of 1 MB": (json.dumps({"text": "w" * 1_000_000}), "too_few_words"),
    "only emoji": (json.dumps({"text": "\N{PILE OF POO}" * 2000}), "too_few_words"),
    "numbers without end": ('{"text": "x", "karma": ' + "9" * 4000 + "}", "karma_not_integer"),
    "a date that is not a number": (json.dumps({"text": article(13), "date": float("nan")}), KEPT),
    "an address that is none": (json.dumps({"text": article(14), "url": "http://[::1"}), KEPT),
}


def run_with(workers: int, inputs: list[Path], out: Path) -> Cleaning:
    with LocalEngine(workers=workers, limits=LIMITS, quiet=True) as engine:
        return clean_pages([str(name) for name in inputs], str(out), EVERY_LANGUAGE, Run(engine, Console("quiet")))


def outcomes(result: Cleaning) -> dict[str, str]:
    """URL -> 'kept' or the reason, from the corpus, from `dropped` and, for failed pages, from the manifest."""
    named = {row["url"]: KEPT for row in rows(result.corpus)}
    named |= {row["url"]: row["reason"] for row in rows(result.dropped)}
    failed = {f.id.split(" ", 1)[1]: f.reason for f in result.documents.failures()}
    return named | failed


@pytest.fixture(scope="module")
def bad_pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two WARC files of all PAGES; bodies have gzip as their content coding, so that 100 MB stay small."""
    folder = tmp_path_factory.mktemp("bad")
    paths = [folder / "even.warc.gz", folder / "odd.warc.gz"]
    for first, path in enumerate(paths):
        with open(path, "wb") as file:
            writer = WARCWriter(file, gzip=True)
            for number, (body, content_type, _) in list(enumerate(PAGES.values()))[first::2]:
                fields = [("Content-Type", content_type), ("Content-Encoding", "gzip")]
                record = writer.create_warc_record(
                    f"http://example.org/{number}",
                    "response",
                    io.BytesIO(gzip.compress(body, 1)),
                    http_headers=StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1"),
                    warc_headers_dict={"WARC-Date": DATE},
                )
                writer.write_record(record)
    return paths


@pytest.fixture(scope="module")
def cleaned(bad_pages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cleaning]:
    out = tmp_path_factory.mktemp("out")
    return out, run_with(1, bad_pages, out)


@pytest.mark.slow
def test_every_bad_page_has_its_reason_and_none_kills_a_worker(cleaned: tuple[Path, Cleaning]) -> None:
    _, result = cleaned
    found = outcomes(result)
    reported = {what: found.get(f"http://example.org/{i}") for i, what in enumerate(PAGES)}
    expected = {what: None if outcome in UNNAMED else outcome for what, (*_, outcome) in PAGES.items()}
    assert {what: outcome for what, outcome in reported.items() if outcome != expected[what]} == {}
    assert "killed_worker" not in result.documents.counts.failed
    assert result.documents.manifest["reproducible"]
    for step in (result.documents, result.corpus):
        assert step.counts.balanced
    assert result.documents.counts.records_in == len(PAGES)
    all_outcomes = [outcome for *_, outcome in PAGES.values()]
    assert result.documents.counts.dropped == {reason: all_outcomes.count(reason) for reason in UNNAMED}


@pytest.mark.slow
def test_the_text_kept_from_bad_pages_is_clean(cleaned: tuple[Path, Cleaning]) -> None:
    _, result = cleaned
    by_url = {row["url"]: row["text"] for row in rows(result.corpus)}
    numbers = {what: f"http://example.org/{i}" for i, what in enumerate(PAGES)}
    assert by_url[numbers["a charset that is not the header's"]].startswith("Der Bär läuft über die Brücke")
    assert by_url[numbers["NUL bytes"]].replace("\ufffd", "").split() == article(3).split()
    for text in by_url.values():
        assert not any(ord(c) < 32 and c not in "\n\t" or 0xD800 <= ord(c) < 0xE000 for c in text)


def test_bad_lines_of_records_have_their_reasons(tmp_path: Path, run: Run) -> None:
    lines = [line for line, _ in RECORDS.values()]
    (tmp_path / "bad.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = clean_pages([str(tmp_path / "bad.jsonl")], str(tmp_path / "out"), EVERY_LANGUAGE, run)
    expected = [outcome for _, outcome in RECORDS.values()]
    failures = {failure.id: failure.reason for failure in result.documents.failures()}
    assert failures == {f"row {i}": outcome for i, outcome in enumerate(expected) if outcome in FAILED}
    assert result.documents.counts.dropped == {EMPTY_TEXT: 1}
    judged = [outcome for outcome in expected if outcome in (KEPT, "too_few_words")]
    assert (result.corpus.records, result.counts.dropped) == (judged.count(KEPT), {"too_few_words": 2})
    assert "ab" in {row["title"] for row in rows(result.corpus)}
    assert result.documents.records == len(judged)


@pytest.mark.slow
def test_bad_pages_have_the_same_result_with_one_worker_and_four(
    bad_pages: list[Path], cleaned: tuple[Path, Cleaning], tmp_path: Path
) -> None:
    run_with(4, bad_pages, tmp_path)
    assert contents(tmp_path) == contents(cleaned[0])


def test_many_equal_documents_leave_one(tmp_path: Path, run: Run) -> None:
    (tmp_path / "equal.jsonl").write_text((json.dumps({"text": article(1)}) + "\n") * 200)
    result = clean_pages([str(tmp_path / "equal.jsonl")], str(tmp_path / "out"), EVERY_LANGUAGE, run)
    assert result.corpus.records == 1
    assert set(result.counts.dropped) == {"exact_duplicate", "near_duplicate_of_train"}


def test_texts_without_a_letter_are_in_no_language_and_equal_only_to_themselves(tmp_path: Path, run: Run) -> None:
    """Dedup finds no words in them: one of several equal texts is kept, and they have no near duplicates."""
    faces = ["\N{GRINNING FACE} ", "\N{GRINNING FACE} \N{PILE OF POO} ", "!? "]
    (tmp_path / "faces.jsonl").write_text("\n".join(json.dumps({"text": face * 300}) for face in faces * 2))
    default = clean_pages([str(tmp_path / "faces.jsonl")], str(tmp_path / "default"), CleanSettings(), run)
    assert default.counts.dropped == {"other_language": 6}
    rules = RuleSettings(profile="minimal", rule=("too_few_words=none",))
    settings = CleanSettings(language=LanguageSettings(language=("all",)), rules=rules)
    result = clean_pages([str(tmp_path / "faces.jsonl")], str(tmp_path / "out"), settings, run)
    assert (result.corpus.records, result.counts.dropped) == (3, {"exact_duplicate": 3})
