"""`webtext inspect grep`: occurrences and documents, by karma, whatever the pattern or the text is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.app.inspect.grep import Query, _search_part, grep, grep_text, open_texts
from webtext.app.main import run as webtext
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import SetName
from webtext.base.run import Run
from webtext.base.workers.journal import Journal

from .conftest import SCRIPT, write_set

FRENCH = '"I\'m not the cleverest man in the world, but like they say in French: Je ne suis pas un imbecile."'
PARTS = [
    [("a", 3, f"{FRENCH} <UNK> naïve\n"), ("b", 9, "<UNK><UNK>"), ("c", 10, "nothing")],
    [("d", 29, "a <unk> and Été"), ("e", None, "<UNK>"), ("f", 12_000, "in french"), ("g", 2, "")],
]


def texts_of(folder: Path, parts: Sequence[Sequence[tuple[str, int | None, str]]] = PARTS, kind: str = "corpus") -> str:
    rows = [[{"id": name, "url": f"http://{name}/", "karma": karma, "text": text} for name, karma, text in part]
            for part in parts]  # fmt: skip
    write_set(folder / kind, kind, rows)
    return str(folder)


def found_in(place: str, pattern: Query, n: int = 5, run: Run | None = None) -> dict[str, Any]:
    return grep(open_texts(place), pattern, n, run or Run.quiet())


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> str:
    return texts_of(tmp_path_factory.mktemp("texts"))


def test_unk_is_counted_by_karma_as_the_paper_counts_it(build: str) -> None:
    found = found_in(build, Query("<UNK>"))
    every = [text for part in PARTS for _, _, text in part]
    assert (found["occurrences"], found["matching_documents"]) == (4, 3)
    assert (found["documents"], found["bytes"]) == (7, sum(len(text.encode()) for text in every))
    names = ("karma", "documents", "bytes", "matching_documents", "occurrences")
    assert [tuple(row[name] for name in names) for row in found["by_karma"]] == [
        ("unknown", 1, 5, 1, 1),
        ("below 3", 1, 0, 0, 0),
        ("3-9", 2, len(every[0].encode()) + 10, 2, 3),
        ("10-29", 2, len("nothing") + len("a <unk> and Été".encode()), 0, 0),
        ("10,000 and more", 1, 9, 0, 0),
    ]
    assert [(row["id"], row["karma"], row["occurrences"]) for row in found["shown"]] == [
        ("a", 3, 1),
        ("b", 9, 2),
        ("e", None, 1),
    ]
    assert found["shown"][0] == {
        "id": "a",
        "url": "http://a/",
        "karma": 3,
        "occurrences": 1,
        "context": f"{FRENCH} <UNK> naïve\n".encode()[-113:].decode(),
    }


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        (Query("french"), "f"),
        (Query("french", ignore_case=True), "af"),
        (Query("<UNK>", ignore_case=True), "abde"),
        (Query("été", ignore_case=True), "d"),
        (Query("ï"), "a"),
        (Query(r"[Ff]rench\b", regex=True), "af"),
        (Query(r"^<UNK>", regex=True), "be"),
        (Query(r"^(nothing|<UNK>)$", regex=True), "ce"),
        (Query("(", regex=False), ""),
        (Query(".", regex=False), "a"),
        (Query(r"(?s).", regex=True), "abcdef"),
        (Query(r"\p{Lu}t", regex=True), "d"),
    ],
    ids=str,
)
def test_the_documents_found_are_those_that_have_it(build: str, pattern: Query, ids: str) -> None:
    assert "".join(row["id"] for row in found_in(build, pattern, 10)["shown"]) == ids


def test_an_anchor_matches_once_also_after_an_earlier_match(tmp_path: Path) -> None:
    place = texts_of(tmp_path, [[("a", 3, "aaa catcat")]])
    assert found_in(place, Query("^a", regex=True))["occurrences"] == 1
    assert found_in(place, Query(r"\bcat", regex=True))["occurrences"] == 1
    assert found_in(place, Query("aa"))["occurrences"] == 1
    assert found_in(place, Query(r"\b", regex=True))["occurrences"] == 0  # an occurrence has a character


@given(st.text("ab.é\n", min_size=1, max_size=3), st.lists(st.text("ab.é\n", max_size=12), max_size=4))
def test_a_string_is_counted_as_bytes_count_counts(pattern: str, texts: list[str]) -> None:
    compiled = Query(pattern).compiled()
    for text in texts:
        assert len(list(compiled.finditer(text.encode()))) == text.encode().count(pattern.encode())


def test_any_number_of_workers_finds_the_same(tmp_path: Path) -> None:
    parts = [[(f"{part}-{row}", part * row, "ab " * row) for row in range(5)] for part in range(6)]
    place, pattern = texts_of(tmp_path, parts), Query("ab")
    alone = found_in(place, pattern, 7)
    assert found_in(place, pattern, 7, Run.quiet(3)) == alone
    assert [row["id"] for row in alone["shown"]] == ["0-1", "0-2", "0-3", "0-4", "1-1", "1-2", "1-3"]


def test_a_pattern_that_makes_backtracking_hang_is_found_in_linear_time(tmp_path: Path) -> None:
    place = texts_of(tmp_path, [[("a", 3, "x" * 1_000_000), ("b", 3, "xxy")]])
    found = found_in(place, Query("(x+x+)+y", regex=True))
    assert [row["id"] for row in found["shown"]] == ["b"]
    assert found["failed"] == {}


def test_a_document_that_killed_a_worker_is_counted_as_not_searched(build: str) -> None:
    """A part's documents are those that were searched and those that failed."""
    opened = open_texts(build)
    counts, failed, shown = _search_part(Journal(set_aside={1: "hung"}), (SetName.of(opened), 0, Query("<UNK>"), 5))
    assert (counts.sum(axis=0).tolist()[0], failed) == (2, {"killed_worker": 1})
    assert [row["id"] for row in shown] == ["a"]
    found = found_in(build, Query("<UNK>")) | {"failed": {"killed_worker": 1}}
    assert "\nnot searched: 1 document, killed_worker\n" in grep_text(found)


def test_a_match_of_a_whole_text_has_a_bounded_context(tmp_path: Path) -> None:
    place = texts_of(tmp_path, [[("a", 3, "é" * 100_000)]])
    found = found_in(place, Query(r"(?s).+", regex=True))
    assert found["occurrences"] == 1
    assert len(found["shown"][0]["context"]) <= 250


def test_any_set_with_texts_is_searched_and_no_other(
    tmp_path: Path, written_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = texts_of(tmp_path, kind="documents")
    assert found_in(f"{place}/documents", Query("<UNK>"))["occurrences"] == 4
    for wrong, cause in (
        (written_build / "links", "contains links, not corpus or documents"),
        (place, "corpus' doesn't exist"),
        (tmp_path / "none", "doesn't exist"),
    ):
        with pytest.raises(InputError, match=cause):
            open_texts(str(wrong))
    assert webtext(["inspect", "grep", str(written_build), SCRIPT, "--workers", "1", "-n", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("40 occurrences in 1 of 2 documents with ")
    assert f"karma 12: 40 occurrences\n  {f'{SCRIPT} and the words'!r}"[:-1] in out


@pytest.mark.parametrize(
    ("pattern", "cause"),
    [
        (Query(""), "the pattern '' matches the empty text"),
        (Query("x*", regex=True), "matches the empty text"),
        (Query("(", regex=True), "is invalid: missing \\)"),
        (Query("(?=x)", regex=True), "is invalid: invalid perl operator"),
        (Query(r"(a)\1", regex=True), "is invalid: invalid escape sequence"),
        (Query("((a{100}){100}){100}", regex=True), "is invalid: "),
        (Query("\udcff"), "is not valid UTF-8"),
    ],
    ids=str,
)
def test_a_pattern_that_can_t_be_searched_is_a_short_error(build: str, pattern: Query, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        found_in(build, pattern)


def test_json_has_the_counts(build: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert webtext(["inspect", "grep", build, "[Ff]rench", "--regex", "--json", "--workers", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == found_in(build, Query("[Ff]rench", regex=True))
    assert "2 occurrences in 2 of 7 documents" in grep_text(found)
