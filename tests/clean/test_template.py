"""Site templates: which lines recur, which of them are left out, and documents that stay consistent and equal in any layout."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import warc_files
from dedup_sets import document, write_set
from hypothesis import given
from hypothesis import strategies as st
from set_contents import contents, rows
from warc_files import TOPICS, article, write_pages, write_warc

from webtext.app.inspect.trace import Tracer
from webtext.app.inspect.trace_text import trace_text
from webtext.base.console import Console
from webtext.base.errors import ConfigError
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import WHOLE, extract_documents
from webtext.clean.pipeline import CleanSettings, clean_pages, count_rule_yields
from webtext.clean.template import find
from webtext.clean.template.find import MAX_PAGES, leave_out_templates
from webtext.clean.template.lines import candidates, without_template
from webtext.clean.text.clean_text import clean_text

MENU = ["Home", "Products and services", "Contact"]
FOOTER = "© 2017 The Harbour Company. All rights reserved."
NOTICE = "This page is a part of the archive of the harbour, and nobody is allowed to copy it to other archives."
LINES = st.sampled_from([*MENU, NOTICE, "    return 1", "}", "", "|  |", "A line of its own", "Another one"])


def on_host(host: str, texts: Sequence[str], first: int = 0) -> list[dict[str, Any]]:
    """Documents of pages 0, 1, ... of a host."""
    return [
        document(f"{host}-{i}", text) | {"url": f"http://{host}/{i}", "language": "xx", "language_score": 0.5}
        for i, text in enumerate(texts, first)
    ]


def own(i: int) -> str:
    return f"The {TOPICS[i % 10]} of page {i} was painted by nobody, and it isn't like the others."


def left(tmp_path: Path, documents: list[dict[str, Any]], run: Run, n_parts: int = 3, ratio: float = 0.2) -> PartSet:
    whole = write_set(tmp_path / "given", documents, n_parts)
    return leave_out_templates(whole, str(tmp_path / "out"), ratio, [whole], run)


def texts(documents: PartSet) -> dict[str, str]:
    return {row["id"]: row["text"] for row in rows(documents)}


def test_a_menu_a_notice_and_a_footer_are_left_out_and_what_recurs_inside_a_text_stays() -> None:
    """`Contact` alone, of 7 characters, is too short; `}` has no letter, and the indented line is code."""
    news = ["News", "Contact", "int main() {", "    return 1;", "}", "More news."]
    text = "\n".join([*MENU[:2], "|  |", *MENU[2:], *news, NOTICE, "Even more.", FOOTER])
    recurring = {*MENU, NOTICE, FOOTER, "}", "    return 1;"} & set(candidates(text))
    assert recurring == {*MENU, NOTICE, FOOTER}
    assert without_template(text, recurring) == "\n".join([*news, "", "Even more."])


def test_a_run_that_is_inside_a_text_needs_80_characters() -> None:
    for last, expected in (("b" * 39, ["first", "a" * 40, "b" * 39, "last"]), ("b" * 40, ["first", "", "last"])):
        text = "\n".join(["first", "a" * 40, last, "last"])
        assert without_template(text, {"a" * 40, last}) == "\n".join(expected)


@given(st.lists(LINES), st.sets(LINES))
def test_what_is_kept_is_a_clean_text_of_lines_in_their_order(lines: list[str], recurring: set[str]) -> None:
    text = clean_text("\n".join(lines))
    kept = without_template(text, recurring)
    assert kept == clean_text(kept)
    remaining = iter(text.split("\n"))
    assert all(line in remaining for line in kept.split("\n") if line)
    assert {line for line in text.split("\n") if line} - set(kept.split("\n")) <= {*recurring, "}", "|  |"}
    assert without_template(text, set()) == text


def test_lines_of_a_host_are_left_out_and_what_depends_on_the_text_is_that_of_the_new_one(
    tmp_path: Path, run: Run
) -> None:
    pages = on_host("a.example", ["\n".join([*MENU, f"{own(i)} {article(i)}", FOOTER]) for i in range(12)])
    others = on_host("b.example", [f"{MENU[0]}\n{own(i)}" for i in range(9)])
    documents = left(tmp_path, [*pages, *others], run)
    expected = {f"a.example-{i}": f"{own(i)} {article(i)}" for i in range(12)}
    assert texts(documents) == expected | {row["id"]: row["text"] for row in others}  # 9 pages are too few
    for row in rows(documents):
        assert row["text_digest"] == text_digest(row["text"])
        assert row["language"] == ("en" if row["id"] in expected else "xx")
    assert documents.counts.to_json() == {"records_in": 21, "kept": 21, "dropped": {}, "failed": {}}


@pytest.mark.parametrize(
    ("n_pages", "n_with", "recurs"), [(50, 10, False), (50, 11, True), (12, 4, False), (12, 5, True)]
)
def test_a_line_recurs_if_more_than_a_fifth_of_the_pages_have_it_and_at_least_five(
    tmp_path: Path, run: Run, n_pages: int, n_with: int, recurs: bool
) -> None:
    pages = [f"{own(i)}\n{FOOTER}" if i < n_with else own(i) for i in range(n_pages)]
    found = texts(left(tmp_path, on_host("a.example", pages), run))
    assert sum(text.endswith(FOOTER) for text in found.values()) == (0 if recurs else n_with)


def test_copies_and_captures_of_one_page_make_no_template(tmp_path: Path, run: Run) -> None:
    """20 URLs have one text; one URL has 20 texts that differ in a line. Both are one page."""
    copies = on_host("copies.example", ["\n".join([*MENU, NOTICE])] * 20)
    captures = [
        row | {"url": "http://captures.example/"} for row in on_host("c", [f"{NOTICE}\n{own(i)}" for i in range(20)])
    ]
    given_texts = {row["id"]: row["text"] for row in [*copies, *captures]}
    assert texts(left(tmp_path, [*copies, *captures], run)) == given_texts
    pages = on_host("copies.example", [f"{own(i)}\n{NOTICE}" for i in range(9)], 20)  # with the copies' text: 10 pages
    found = texts(left(tmp_path / "more", [*copies, *pages], run))
    assert [text for text in found.values() if NOTICE in text] == []


def test_a_document_of_nothing_else_is_dropped_and_counted(tmp_path: Path, run: Run) -> None:
    pages = on_host("a.example", [*(f"{own(i)}\n{NOTICE}\n{FOOTER}" for i in range(12)), NOTICE, f"{FOOTER}\n{NOTICE}"])
    documents = left(tmp_path, pages, run)
    assert texts(documents) == {f"a.example-{i}": own(i) for i in range(12)}
    assert documents.counts.to_json() == {"records_in": 14, "kept": 12, "dropped": {"only_template": 2}, "failed": {}}


@pytest.mark.parametrize("url", [None, "", "no url", "mailto:a@a.example", "http://", "http://[::1"])
def test_documents_without_a_host_stay_as_they_are(tmp_path: Path, run: Run, url: str | None) -> None:
    pages = [
        row | {"url": url and f"{url}{i}"}
        for i, row in enumerate(on_host("x", [f"{own(i)}\n{FOOTER}" for i in range(12)]))
    ]
    assert texts(left(tmp_path, pages, run)) == {row["id"]: row["text"] for row in pages}


def test_no_documents_and_one_make_none_and_one(tmp_path: Path, run: Run) -> None:
    assert left(tmp_path / "none", [], run, n_parts=1).records == 0
    assert left(tmp_path / "one", on_host("a.example", [FOOTER]), run, n_parts=1).records == 1


def test_lines_of_a_megabyte_and_a_page_of_a_hundred_thousand_lines_are_handled(tmp_path: Path, run: Run) -> None:
    long = "word " * 200_000 + "end"
    pages = [f"{own(i)}\n{long}" for i in range(12)] + ["\n".join(f"line {i}" for i in range(100_000))]
    found = texts(left(tmp_path, on_host("a.example", pages), run))
    assert list(found.values()).count(pages[-1]) == 1
    assert sorted(map(len, found.values()))[:12] == sorted(len(own(i)) for i in range(12))


def site(n_pages: int) -> list[dict[str, Any]]:
    """A host of many pages and a small one, with menus, copies and documents without URL between them."""
    chance = random.Random(5)
    large = [
        f"{MENU[i % 3]}\nLink {i % 4}\n{own(i)}\n{chance.choice([NOTICE, FOOTER, own(-i)])}" for i in range(n_pages)
    ]
    documents = [
        *on_host("large.example", large),
        *on_host("small.example", [f"{own(i)}\n{FOOTER}" for i in range(11)]),
    ]
    documents += [row | {"id": f"again {row['id']}"} for row in documents[::7]]
    documents += [row | {"id": f"bare {row['id']}", "url": None} for row in documents[::11]]
    chance.shuffle(documents)
    return documents


def test_the_result_is_the_same_in_any_layout_of_parts_also_if_a_host_has_more_pages_than_are_compared(
    tmp_path: Path, run: Run
) -> None:
    documents = site(MAX_PAGES + 200)
    found = [texts(left(tmp_path / str(n), documents[::step], run, n)) for n, step in ((1, 1), (7, 1), (3, -1))]
    assert found[0] == found[1] == found[2]
    assert found[0] != {row["id"]: row["text"] for row in documents}


def test_files_are_equal_with_one_worker_and_with_two_and_after_parts_of_every_set_were_lost(
    tmp_path: Path, run: Run, alone: Run
) -> None:
    documents = site(60)
    left(tmp_path / "two", documents, run)
    left(tmp_path / "one", documents, alone)
    made = contents(tmp_path / "one")
    assert contents(tmp_path / "two") == made
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("part-*")}
    left(tmp_path / "again", documents, run)
    for folder in ("pages", "sample", "lines", "templates"):
        for path in [
            *(tmp_path / "again/out/_templates" / folder).glob("part-00000.*"),
            tmp_path / "again/out/part-00001.parquet",
        ]:
            path.unlink(missing_ok=True)
    left(tmp_path / "again", documents, run)
    assert contents(tmp_path / "again") == made
    left(tmp_path / "one", documents, run)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("part-*")} == stamps | {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "one/given").glob("part-*")  # the test writes it again
    }


SETTINGS = CleanSettings(extract=ExtractSettings(template_ratio=0.2))
LICENCE = (
    "The harbour company had written in a letter that nobody may print this text again before the winter has come."
)


def pages_of_a_site(folder: Path) -> PartSet:
    """Two parts of six pages of one host with a licence, one of which is empty, and a page of another host."""

    def row(url: str, text: str) -> dict[str, Any]:
        body = (
            f"<html><body><article><p>{text}</p><p>{LICENCE}</p></article></body></html>" if text else "<html></html>"
        )
        return {"url": url, "body": body.encode()}

    parts = [[row(f"http://a.example/{i}", article(i) if i else "") for i in range(n, 13, 2)] for n in (0, 1)]
    return write_pages(folder, [*parts, [row("http://b.example/", article(99))]])


def test_pages_become_documents_without_the_site_s_template_and_all_later_sets_have_the_new_text(
    tmp_path: Path, run: Run
) -> None:
    pages, out = pages_of_a_site(tmp_path / "pages"), str(tmp_path / "build")
    result = clean_pages([pages.folder.url], out, SETTINGS, run)
    plain = extract_documents([pages.folder.url], str(tmp_path / "plain"), ExtractSettings(), run)
    documents = result.documents
    assert {row["text"] for row in rows(documents)} == {article(i) for i in range(1, 13)} | {
        f"{article(99)}\n{LICENCE}"
    }
    assert rows(plain) == rows(PartSet.open(f"{out}/documents/{WHOLE}"))
    assert (documents.recipe["settings"]["template_ratio"], documents.recipe["stage"]) == (0.2, "clean.extract")
    assert documents.manifest["parents"] == plain.manifest["parents"]
    assert documents.counts.to_json() == plain.counts.to_json()
    assert documents.counts.dropped == {"empty_text": 1}
    texts_by_digest = {row["text_digest"]: row["text"] for row in rows(documents)}
    assert {row["text_digest"]: row["text"] for row in rows(result.corpus)} == texts_by_digest
    assert result.signals is not None
    lengths = [row["n_characters"] for row in rows(result.signals)]
    assert lengths == [len(row["text"]) for row in rows(documents)]
    yields = count_rule_yields([documents.folder.url], None, SETTINGS.rules, SETTINGS.language, run)
    assert yields.to_json()["documents"] == 13


def test_another_share_makes_only_the_documents_again(tmp_path: Path, run: Run) -> None:
    pages, out = pages_of_a_site(tmp_path / "pages"), tmp_path / "documents"

    def stamps() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in (out / WHOLE).rglob("*")}

    first = extract_documents([pages.folder.url], str(out), ExtractSettings(template_ratio=0.2), run)
    before, some = stamps(), texts(first)
    second = extract_documents([pages.folder.url], str(out), ExtractSettings(template_ratio=0.95), run)
    assert stamps() == before
    assert texts(second) == some  # all but the other host's page have it, more than 95 %
    assert second.hash != first.hash


def test_failures_of_extraction_and_sources_are_those_of_the_documents(tmp_path: Path, run: Run) -> None:
    deep = {"url": "http://deep.example/", "body": b"<html><body>" + b"<div>" * 400 + b"text"}
    pages = write_pages(tmp_path / "pages", [[deep]])
    documents = extract_documents([pages.folder.url], str(tmp_path / "out"), SETTINGS.extract, run)
    assert [failure.reason for failure in documents.failures()] == ["too_deep"]
    assert documents.counts.to_json() == {"records_in": 1, "kept": 0, "dropped": {}, "failed": {"too_deep": 1}}
    assert documents.parts[0].sources == (pages.source(0),)


def test_inspect_shows_what_was_left_out_of_a_document(tmp_path: Path, run: Run) -> None:
    """The notice is inside the text, where a blank line replaces it, and the licence ends it."""
    extracted = [f"{article(i)}\n\n{NOTICE}\n{own(i)}\n{LICENCE}" for i in range(12)]
    archive = [(f"http://a.example/{i}", text.encode()) for i, text in enumerate(extracted)]
    write_warc(tmp_path / "a.warc.gz", [*archive, ("http://b.example/", NOTICE.encode())], content_type="text/plain")
    clean_pages([str(tmp_path / "a.warc.gz")], str(tmp_path / "build"), SETTINGS, run)
    tracer = Tracer(str(tmp_path / "build"))
    traces = [tracer.find(url) for url in ("http://a.example/3", "http://b.example/")]
    assert [trace and trace.template for trace in traces] == [[NOTICE, LICENCE], []]
    assert traces[0] is not None
    shown = f"left out  {len(NOTICE + LICENCE)} characters of its host's template: '{NOTICE} / {LICENCE}"
    assert shown[:150] in trace_text(traces[0])
    assert json.loads(json.dumps(traces[0].to_json()))["template"] == [NOTICE, LICENCE]


def test_a_text_that_kills_its_worker_or_raises_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_leave_out", warc_files.leave_out_with_killers)
    pages = on_host("a.example", [f"{own(i)}\n{FOOTER}" for i in range(12)])
    pages += on_host("b.example", ["SEGFAULT", "RAISE"])
    whole = write_set(tmp_path / "given", pages, 3)
    with LocalEngine(workers=1, quiet=True) as engine:
        documents = leave_out_templates(whole, str(tmp_path / "out"), 0.2, [whole], Run(engine, Console("quiet")))
    assert texts(documents) == {f"a.example-{i}": own(i) for i in range(12)}
    failed = {"killed_worker": 1, "raised": 1}
    assert documents.counts.to_json() == {"records_in": 14, "kept": 12, "dropped": {}, "failed": failed}
    assert {failure.id for failure in documents.failures()} == {"b.example-0", "b.example-1"}
    assert not documents.manifest["reproducible"]


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, float("nan")])
def test_a_ratio_that_is_no_share_is_rejected(ratio: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        ExtractSettings(template_ratio=ratio)


def test_given_documents_are_not_shortened_silently(tmp_path: Path, run: Run) -> None:
    given_set = write_set(tmp_path / "given", on_host("a.example", [own(1)]))
    with pytest.raises(ConfigError, match="template"):
        clean_pages([given_set.folder.url], str(tmp_path / "out"), SETTINGS, run)
