"""`webtext inspect diff`: every document of two builds is counted once, with what the other build did with it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.app.inspect import diff_buckets, diff_documents
from webtext.app.inspect.diff import make_diff
from webtext.app.inspect.diff_text import diff_text, visible
from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import Failure

from .conftest import SCRIPT, write_set

TURNED = "\x1b[2J‮evil"


def document(name: str, text: str = "", **more: Any) -> dict[str, Any]:
    """A document of http://NAME.example/; its id is NAME unless another is given."""
    url = f"http://{name}.example/"
    return {"id": name, "url": url, "link_ids": [f"link {name}"], "posts": [], "text": text or f"Text of {name}.",
            "text_digest": text or name, "domain": f"{name}.example", "split": "train"} | more  # fmt: skip


def decision(name: str, stage: str = "filter", reason: str = "too_few_words", **more: Any) -> dict[str, Any]:
    url = f"http://{name}.example/"
    return {"id": name, "url": url, "stage": stage, "reason": reason, "value": 5.0, "threshold": 9.0} | more


def write(
    folder: Path,
    corpus: Sequence[Mapping[str, Any]],
    dropped: Sequence[Mapping[str, Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> str:
    """A build of a corpus in two parts, and of what was dropped."""
    write_set(folder / "corpus", "corpus", [corpus[:1], corpus[1:]], settings=settings)
    write_set(folder / "dropped", "dropped", [dropped])
    return str(folder)


def reasons(left: Mapping[str, Any]) -> dict[str, int]:
    return {f"{row['stage']}: {row['reason']}": row["documents"] for row in left["reasons"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A keeps what B lost in every way that there is, and one document of B's own crawl is that of A, fetched again."""
    folder = tmp_path_factory.mktemp("diff")
    kept = [
        document(name) for name in ("same", "edited", "again", "short", "copy", "gone", "unlinked", "deep", "later")
    ]
    kept += [document("imported", url=None, link_ids=[], domain=None)]
    kept += [document("hostile", f"{SCRIPT}{TURNED}", url=f"http://hostile.example/{SCRIPT}{TURNED}")]
    kept += [document("removed", "words that their author took back")]
    a = write(folder / "a", kept, [decision("was-short")], {"rules": {"rule": []}, "old": 1})
    edited = document("edited", "other words")
    again = document("again", "other words", id="again, fetched later")
    b = write(
        folder / "b",
        [document("same"), edited, again, document("was-short"), document("new")],
        [
            decision("short"),
            decision("copy", "dedup", "near_duplicate", duplicate_of="same"),
            decision("hostile", "dedup", "exact_duplicate"),
            decision("removed", "remove", "requested", request="removed.example"),
        ],
        {"rules": {"rule": ["too_few_words=9"]}, "new": [2]},
    )
    failure = Failure("part-00000.warc.gz:40 http://deep.example/", "too_deep", "deep")
    write_set(folder / "b/documents", "documents", [[]], counts=Counts(1, 0, {}, {"too_deep": 1}), failures=[failure])
    rows = [
        {"link_id": "link gone", "outcome": "failed", "reason": "http_404"},
        {"link_id": "link deep", "outcome": "fetched"},
    ]
    write_set(folder / "b/pages", "pages", [rows])
    write_set(folder / "b/links", "links", [[{"link_id": f"link {name}"} for name in ("gone", "deep", "later")]])
    return a, b


@pytest.fixture(scope="module")
def diff(pair: tuple[str, str]) -> dict[str, Any]:
    return make_diff(*pair)


def test_every_document_is_counted_once(diff: dict[str, Any]) -> None:
    documents = diff["documents"]
    assert (documents["kept_a"], documents["kept_b"]) == (12, 5)
    assert documents["common"] == 3
    assert documents["kept_a"] == documents["common"] + documents["lost"]["documents"]
    assert documents["kept_b"] == documents["common"] + documents["gained"]["documents"]
    assert (documents["text_changed"], documents["fetched_again"]) == (2, 1)


def test_what_is_lost_has_the_stage_and_the_reason_of_the_other_build(diff: dict[str, Any]) -> None:
    assert reasons(diff["documents"]["lost"]) == {
        "filter: too_few_words": 1,
        "dedup: near_duplicate": 1,
        "dedup: exact_duplicate": 1,
        "remove: requested": 1,
        "pages: http_404": 1,
        "pages: not_fetched_yet": 1,
        "links: not_a_link": 2,  # the one that nobody voted for, and the imported one, which has no link
        "documents: too_deep": 1,
    }
    assert reasons(diff["documents"]["gained"]) == {"filter: too_few_words": 1, "documents: not_among_its_inputs": 1}


def test_the_way_back_is_the_same_with_the_sides_changed(pair: tuple[str, str], diff: dict[str, Any]) -> None:
    back = make_diff(*reversed(pair))["documents"]
    assert (back["lost"], back["gained"]) == (diff["documents"]["gained"], diff["documents"]["lost"])
    assert back["common"] == diff["documents"]["common"]


def test_settings_are_named_by_stage_old_and_new(diff: dict[str, Any]) -> None:
    changed = {(row["stage"], row["name"]): (row["a"], row["b"]) for row in diff["settings"]}
    assert changed == {
        ("corpus", "rules.rule"): ([], ["too_few_words=9"]),
        ("corpus", "old"): (1, "not set"),
        ("corpus", "new"): ("not set", [2]),
    }


def test_samples_tell_what_was_measured_and_how_the_text_begins(diff: dict[str, Any]) -> None:
    samples = {row["id"]: row for row in diff["documents"]["lost"]["samples"]}
    assert len(samples) == diff["documents"]["lost"]["documents"]
    assert samples["copy"]["duplicate_of"] == "same"
    assert (samples["short"]["value"], samples["short"]["threshold"]) == (5.0, 9.0)
    assert samples["short"]["text_start"] == "Text of short."


def test_the_text_of_what_was_taken_out_on_request_is_shown_nowhere(pair: tuple[str, str]) -> None:
    diff = make_diff(*pair)
    for shown in (json.dumps(diff), diff_text(diff)):
        assert "took back" not in shown


OUTCOMES = ("corpus", "corpus, other text", "corpus, other id", "dropped", "dropped, other id", "nowhere")


def _side(names: Mapping[str, str], mark: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    corpus, dropped = [], []
    for name, outcome in names.items():
        row = document(name, f"{mark} text" if "text" in outcome else "")
        row |= {"id": f"{name} {mark}"} if "other id" in outcome else {}
        if outcome.startswith("corpus"):
            corpus.append(row)
        elif outcome.startswith("dropped"):
            dropped.append(decision(name, id=row["id"]))
    return corpus, dropped


@settings(max_examples=12)
@given(
    outcomes=st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), max_size=24),
    rows_per_bucket=st.integers(1, 5),
)
def test_counts_are_those_of_a_dictionary_however_many_buckets_there_are(
    outcomes: list[tuple[str, str]], rows_per_bucket: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Documents of one URL are one document, so here a URL says what became of it."""
    names = {f"n{i}": outcome for i, outcome in enumerate(outcomes)}
    folder = tmp_path_factory.mktemp("pair")
    sides = [_side({name: outcome[side] for name, outcome in names.items()}, "ab"[side]) for side in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_buckets, "ROWS_PER_BUCKET", rows_per_bucket)
        patch.setattr(diff_buckets, "BUFFER_BYTES", 1)
        found = make_diff(*(write(folder / mark, *side) for mark, side in zip("ab", sides, strict=True)))["documents"]
    expected: Counter[str] = Counter()
    for mine, yours in outcomes:
        if mine.startswith("corpus") and yours.startswith("corpus"):
            expected["common"] += 1
            expected["changed"] += "text" in mine or "text" in yours
            expected["again"] += "other id" in mine or "other id" in yours
        elif mine.startswith("corpus"):
            expected["lost, dropped" if yours.startswith("dropped") else "lost, nowhere"] += 1
        elif yours.startswith("corpus"):
            expected["gained"] += 1
    lost = reasons(found["lost"])
    assert (found["common"], found["text_changed"], found["fetched_again"], found["gained"]["documents"]) == (
        expected["common"],
        expected["changed"],
        expected["again"],
        expected["gained"],
    )
    assert lost.get("filter: too_few_words", 0) == expected["lost, dropped"]
    assert lost.get("documents: not_among_its_inputs", 0) == expected["lost, nowhere"]


def test_two_documents_of_one_url_make_two_pairs(tmp_path: Path) -> None:
    a = [document("x", id="1"), document("x", id="2")]
    b = [document("x", id="3"), document("x", id="4"), document("x", id="5")]
    found = make_diff(write(tmp_path / "a", a), write(tmp_path / "b", b))["documents"]
    assert (found["common"], found["fetched_again"], found["gained"]["documents"]) == (2, 2, 1)


def test_no_more_than_twenty_samples_and_always_the_same_ones(tmp_path: Path) -> None:
    rows = [document(f"n{i}") for i in range(60)]
    empty = write(tmp_path / "empty", [document("other")])
    first = make_diff(write(tmp_path / "a", rows), empty)["documents"]["lost"]["samples"]
    again = make_diff(write(tmp_path / "b", rows[::-1]), empty)["documents"]["lost"]["samples"]
    assert len(first) == diff_documents.SAMPLES == 20
    assert first == again
    assert [row["id"] for row in first] != sorted((row["id"] for row in first), key=lambda name: int(name[1:]))


def test_a_build_and_its_copy_are_equal(
    written_build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(written_build, tmp_path / "copy")
    assert run(["inspect", "diff", str(written_build), str(copy)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The builds are equal: the same recipes, the same records\n")
    assert "lost" not in out.replace("0 lost", "")


def test_builds_of_other_links_say_so(tmp_path: Path) -> None:
    diff = make_diff(write(tmp_path / "a", [document("x")]), write(tmp_path / "b", [document("y")]))
    assert "made from other links, or from other pages" in diff_text(diff)


def test_a_build_half_done_is_compared_as_far_as_it_went(
    written_build: Path, only_links: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "diff", str(written_build), str(only_links)]) == 0
    out = capsys.readouterr().out
    assert "their documents cannot be compared before both have a corpus" in out
    assert "B is half done: it has no pages, documents, signals, corpus, tokenizer, tokens;" in out
    assert "  links                                8             8  the same" in out


@pytest.mark.parametrize("content", [None, "something"])
def test_a_folder_without_a_build_is_refused(written_build: Path, tmp_path: Path, content: str | None) -> None:
    other = tmp_path / "other"
    if content is not None:
        other.mkdir()
        (other / "file").write_text(content)
    with pytest.raises(InputError, match="there is no build in"):
        make_diff(str(written_build), str(other))


def test_a_corpus_that_was_altered_is_refused(written_build: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(written_build, tmp_path / "copy")
    part = copy / "corpus" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(InputError, match="was altered"):
        make_diff(str(written_build), str(copy))


def test_no_control_character_reaches_the_terminal(diff: dict[str, Any]) -> None:
    shown = diff_text(diff)
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert r"\x1b[2J\u202eevil" in shown
    assert visible("a\tb\x00") == r"a b\x00"


def test_json_is_the_same_value(
    pair: tuple[str, str], diff: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "diff", *pair, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == diff
