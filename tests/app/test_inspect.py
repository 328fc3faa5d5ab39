"""`webtext inspect`: a way is read back from the parts, an unknown name is a short error."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from webtext.app.inspect.trace import Tracer
from webtext.app.main import run
from webtext.app.view.server import Viewer
from webtext.base.parts.counts import Counts

from .conftest import IDS, TARGET_URLS, TEXTS, write_set

sys.path.insert(0, str(Path(__file__).parent.parent / "clean"))

from warc_files import article, page, write_pages, write_warc  # noqa: E402


@pytest.fixture
def kept_id(written_build: Path) -> str:
    document = Tracer(str(written_build)).trace("http://kept.example/").document
    assert document is not None
    return str(document["id"])


def test_a_url_and_its_documents_id_tell_the_same_way(
    written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "doc", str(written_build), "HTTP://kept.example"]) == 0
    by_url = capsys.readouterr().out
    assert run(["inspect", "doc", str(written_build), kept_id]) == 0
    assert capsys.readouterr().out == by_url
    assert by_url.startswith("http://kept.example/ ended in corpus\n")
    for line in (
        "  link      http://moved.example/  karma 12, train",
        "  post      reddit p-kept in r/test: 12 points, 2017-01-01",
        "  page      HTTP 200, 2020-09-13, pages/part-00000.warc.gz at 10",
        f"  document  {kept_id}, ",
        ", en 0.98, train, the extractors agree to 0.42\n",
        "  tokens    train-00000.tok, 0 to ",
    ):
        assert line in by_url


def test_json_holds_every_row_of_the_way(written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "doc", str(written_build), "http://copy.example/", "--json"]) == 0
    trace = json.loads(capsys.readouterr().out)
    assert (trace["stage"], trace["reason"], trace["decision"]["duplicate_of"]) == (
        "dropped",
        "exact_duplicate",
        kept_id,
    )


def test_a_page_that_was_not_fetched_shows_where_its_opt_out_stood(
    written_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "doc", str(written_build), "http://forbidden.example/"]) == 0
    shown = "  opt-out   robots_disallowed: http://forbidden.example/robots.txt, 2020-09-13\n"
    assert shown in capsys.readouterr().out


def test_a_token_leads_back_to_its_posts(written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "token", str(written_build), "train-00000.tok:7"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"train-00000.tok:7 is token 7 of document {kept_id}\n")
    assert "reddit p-kept in r/test" in out
    assert run(["inspect", "token", str(written_build), "validation-00000.tok:0", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["origin"]["source_part"] == "part-00001.parquet"
    assert answer["trace"]["url"] == "http://held.example/"


def test_a_cluster_shows_the_one_that_stays_beside_its_duplicates(
    written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "cluster", str(written_build), kept_id]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"1 document was dropped as a duplicate of {kept_id}\n  stays     http://kept.example/")
    assert "\n  dropped   http://copy.example/" in out
    assert f"{IDS['copy']}  exact_duplicate: similarity 1 (threshold 0.8)" in out
    for name in (IDS["copy"], "HTTP://copy.example", "http://moved.example/"):  # a member, its URL, a link to the other
        assert run(["inspect", "cluster", str(written_build), name]) == 0
        assert capsys.readouterr().out == out


def test_a_duplicate_is_shown_beside_the_one_that_stays_and_with_its_whole_text(
    written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "doc", str(written_build), "http://copy.example/", "--text"]) == 0
    out = capsys.readouterr().out
    assert (
        f"  dropped   exact_duplicate: 1 against 0.8\n            duplicate of {kept_id}  {TARGET_URLS['kept']}" in out
    )
    assert "  rules     n_words 320, at least 100: passes\n" in out
    assert out.endswith(f"\n\n{TEXTS['copy']}\n")
    assert run(["inspect", "doc", str(written_build), IDS["short"], "--text", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rules"] == [
        {"rule": "too_few_words", "column": "n_words", "value": 5, "bound": "min", "threshold": 100, "drops": True}
    ]
    assert (answer["text"], answer["decision"]["value"], answer["decision"]["threshold"]) == (TEXTS["short"], 5, 100)


def test_a_value_that_is_unknown_drops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words of unspaced scripts have no length."""
    text = {"id": "han", "url": "http://han.example/", "text": "我们的学校在图书馆的前面。" * 20}
    (tmp_path / "texts.jsonl").write_text(json.dumps(text))
    filtered = ["clean", "filter", str(tmp_path / "texts.jsonl"), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert run([*filtered, "--language", "all", "--rule", "words_too_short=3", "--rule", "too_few_words=none"]) == 0
    capsys.readouterr()
    assert run(["inspect", "doc", str(tmp_path / "out"), "han"]) == 0
    assert "  rules     mean_word_length unknown, at least 3: passes\n" in capsys.readouterr().out


def test_a_documents_own_url_is_as_good_as_its_links(written_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `inspect drop` prints: where the last redirect led, byte for byte."""
    assert run(["inspect", "doc", str(written_build), TARGET_URLS["copy"]]) == 0
    assert capsys.readouterr().out.startswith("http://copy.example/ ended in dropped: exact_duplicate\n")


@pytest.fixture
def odd_build(tmp_path: Path) -> Path:
    """A document without address and title, whose id looks like an address, and its copy; both have an odd date."""
    row = {"id": "http://id.example/1", "text": "secret words", "date": -99_999_999_999, "split": "train"}
    rows = [row, row | {"id": "copy"}]
    write_set(tmp_path / "documents", "documents", [rows])
    write_set(tmp_path / "corpus", "corpus", [rows[:1]])
    copy = {"id": "copy", "reason": "near_duplicate", "value": 1.0, "threshold": 0.8}
    write_set(tmp_path / "dropped", "dropped", [[copy | {"duplicate_of": rows[0]["id"]}]])
    return tmp_path


@pytest.mark.parametrize("verb", ["doc", "cluster"])
def test_an_id_may_look_like_an_address_and_a_document_have_none(
    odd_build: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", verb, str(odd_build), "http://id.example/1"]) == 0
    said = {"doc": "http://id.example/1 ended in corpus\n", "cluster": "karma None, -99999999999, "}
    assert said[verb] in capsys.readouterr().out
    _, page = Viewer(str(odd_build)).answer("/document", {"id": "http://id.example/1"})
    assert "<bdi>http://id.example/1</bdi></h1>" in "".join(page)


def test_the_words_of_a_document_that_was_removed_on_request_are_shown_nowhere(
    odd_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"id": "http://id.example/1", "reason": "removed_on_request", "request": "id:http://id.example/1"}
    copy = {"id": "copy", "reason": "near_duplicate", "value": 0.9, "threshold": 0.8, "duplicate_of": gone["id"]}
    words = {"text": "secret words", "title": "secret title", "author": "secret author", "split": "train"}
    documents = [words | {"id": gone["id"]}, {"id": "copy", "text": "other words", "split": "train"}]
    write_set(odd_build / "documents", "documents", [documents])
    write_set(odd_build / "dropped", "dropped", [[gone, copy]])
    write_set(odd_build / "corpus", "corpus", [[]], counts=Counts(2, 0, {"removed_on_request": 1, "near_duplicate": 1}))
    for name, arguments in itertools.product((gone["id"], "copy"), (["doc", "--text"], ["cluster"])):
        for more in ([], ["--json"]):
            assert run(["inspect", *arguments, str(odd_build), name, *more]) == 0
    assert run(["inspect", "drop", str(odd_build)]) == 0
    assert run(["report", str(odd_build)]) == 0
    said = capsys.readouterr().out + (odd_build / "report.json").read_text() + (odd_build / "report.html").read_text()
    asked = [
        ("/document", {"id": gone["id"]}),
        ("/document", {"id": "copy"}),
        ("/search", {}),
        ("/search", {"text": "t w"}),
    ]
    said += "".join(piece for each in asked for piece in Viewer(str(odd_build)).answer(*each)[1])
    assert all(each in said for each in ("the text is not shown", "other", "not in this corpus"))
    assert "secret" not in said


@pytest.mark.slow
def test_a_cluster_that_was_removed_on_request_shows_for_which_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page that is named would stay; its duplicates don't return."""
    words = article(1, 40).split()
    texts = {
        "first": words,
        "asked": [*words, "with", "an", "end"],
        "second": [*words, "with", "an", "end", "and", "one", "more"],
    }
    lines = [
        {
            "id": name,
            "url": f"http://{name}.example/",
            "text": " ".join(text),
            "karma": {"asked": 9}.get(name, 1),
            "split": "train",
        }
        for name, text in texts.items()
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "requests.txt").write_text("asked.example")
    out = str(tmp_path / "out")
    arguments = ["clean", "dedup", str(tmp_path / "texts.jsonl"), "--out", out, "--workers", "1"]
    assert run([*arguments, "--remove", str(tmp_path / "requests.txt")]) == 3, "nothing is left"
    capsys.readouterr()
    for name in ("first", "asked", "second", "http://second.example/"):
        assert run(["inspect", "cluster", out, name]) == 0
        shown = capsys.readouterr().out
        assert "  removed   http://asked.example/" in shown
        assert "removed_on_request, asked for as 'asked.example'" in shown
        assert "  dropped   http://first.example/  first  near_duplicate: similarity 0.9" in shown
        assert "  dropped   http://second.example/  second  near_duplicate: similarity 0.9" in shown
    assert run(["inspect", "doc", out, "asked"]) == 0
    assert "  dropped   removed_on_request, asked for as 'asked.example'" in capsys.readouterr().out
    assert run(["inspect", "drop", out, "--reason", "removed_on_request"]) == 0
    assert "is not shown" in capsys.readouterr().out
    # The documents lie elsewhere: what the corpus was made from is found by its run.json.
    assert run(["clean", "dedup", f"{out}/documents", "--out", str(tmp_path / "again"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert run(["inspect", "doc", str(tmp_path / "again"), "http://first.example/"]) == 0
    assert "duplicate of asked  http://asked.example/" in capsys.readouterr().out


def test_drops_are_shown_with_value_and_threshold(written_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "drop", str(written_build), "--reason", "too_few_words"]) == 0
    assert capsys.readouterr().out == (
        f"too_few_words: 5 against 100  http://short.example/\n            id {IDS['short']}\n"
        "            'Too short <b>to be</b> kept.'\n"
    )
    assert run(["inspect", "drop", str(written_build), "-n", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["dropped"]) == 1


@pytest.mark.slow
def test_without_links_a_url_is_a_documents_a_pages_or_a_failed_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = {name: f"http://{name}.example/" for name in ("kept", "deep", "gone", "unknown")}
    deep = b"<html><body>" + b"<div>" * 300 + b"text"
    write_warc(tmp_path / "some.warc.gz", [(urls["kept"], page(article(1, 40))), (urls["deep"], deep)])
    pages = write_pages(
        tmp_path / "pages",
        [[{"url": urls["kept"], "body": page(article(1, 40))}, {"url": urls["deep"], "body": deep},
          {"url": urls["gone"], "outcome": "failed"}]],
    )  # fmt: skip
    for given, out in ((str(tmp_path / "some.warc.gz"), "warc"), (pages.folder.url, "of-pages")):
        assert run(["clean", "run", given, "--out", str(tmp_path / out), "--workers", "1"]) == 0
        for name, end in (("kept", "corpus\n"), ("deep", "documents: too_deep\n")):
            capsys.readouterr()
            assert run(["inspect", "doc", str(tmp_path / out), urls[name]]) == 0
            assert capsys.readouterr().out.startswith(f"{urls[name]} ended in {end}")
        assert run(["inspect", "doc", str(tmp_path / out), urls["unknown"]]) == 3
        assert "no document 'http://unknown.example/'" in capsys.readouterr().err
    assert run(["inspect", "doc", str(tmp_path / "of-pages"), urls["gone"]]) == 0
    assert capsys.readouterr().out.startswith(f"{urls['gone']} ended in pages: redirects_to_link\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["doc", "BUILD", "0" * 32], 3, f"no document '{'0' * 32}' in 'BUILD'"),
        (["doc", "BUILD", "no:url"], 3, "no document 'no:url'"),
        (["doc", "BUILD/nowhere", "http://a/"], 3, "there is no build in 'BUILD/nowhere'"),
        (["token", "BUILD", "train-00000.tok"], 2, "'train-00000.tok' is not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:-1"], 2, "not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:²"], 2, "not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:99999999"], 3, "'train-00000.tok' has no token 99999999"),
        (["token", "BUILD", "train-00009.tok:0"], 3, "has no shard 'train-00009.tok'"),
        (["cluster", "BUILD", "0" * 32], 3, f"no document '{'0' * 32}' in 'BUILD' has duplicates"),
        (["drop", "BUILD", "--reason", "too_few_word"], 3, "did you mean 'too_few_words'?"),
        (["drop", "BUILD/links"], 3, "there is no build in 'BUILD/links'"),
    ],
)
def test_an_unknown_name_is_a_short_error(
    written_build: Path, arguments: list[str], exit_code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    build = str(written_build)
    assert run(["inspect", *(argument.replace("BUILD", build) for argument in arguments)]) == exit_code
    captured = capsys.readouterr()
    assert message.replace("BUILD", build) in captured.err
    assert len(captured.err.splitlines()) <= 3
    assert captured.out == ""
