"""`webtext inspect diff`: every document of two builds is counted once, with what the other build did with it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.app.inspect import diff as diff_module
from webtext.app.inspect.diff import NO_DECISION, make_diff
from webtext.app.inspect.diff_text import diff_text, visible
from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts

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
    reasons: Mapping[str, int] | None = None,
) -> str:
    """A build of a corpus in two parts, and of what was dropped."""
    n_dropped = sum((reasons or {}).values())
    counts = Counts(len(corpus) + n_dropped, len(corpus), dict(reasons or {}))
    write_set(folder / "corpus", "corpus", [corpus[:1], corpus[1:]], settings=settings, counts=counts)
    write_set(folder / "dropped", "dropped", [dropped])
    return str(folder)


def reasons(left: Mapping[str, Any]) -> dict[str, int]:
    return {row["reason"]: row["documents"] for row in left["reasons"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A keeps what B lost in every way that there is, and one document of B's own crawl is that of A, fetched again."""
    folder = tmp_path_factory.mktemp("diff")
    kept = [document(name) for name in ("same", "again", "short", "copy", "gone")]
    kept += [document("imported", url=None, link_ids=[], domain=None)]
    kept += [document("hostile", url=f"http://hostile.example/{SCRIPT}{TURNED}")]
    a = write(folder / "a", kept, [decision("was-short")], {"rules": {"rule": []}, "old": 1}, {"too_few_words": 1})
    b = write(
        folder / "b",
        [document("same"), document("again", id="again, fetched later"), document("was-short"), document("new")],
        [
            decision("short"),
            decision("copy", "dedup", "near_duplicate", duplicate_of="same"),
            decision("hostile", "dedup", "exact_duplicate", url=kept[-1]["url"]),
        ],
        {"rules": {"rule": ["too_few_words=9"]}, "new": [2]},
        {"too_few_words": 1, "near_duplicate": 1, "exact_duplicate": 1},
    )
    return a, b


@pytest.fixture(scope="module")
def diff(pair: tuple[str, str]) -> dict[str, Any]:
    return make_diff(*pair)


def test_every_document_is_counted_once(diff: dict[str, Any]) -> None:
    documents = diff["documents"]
    assert (documents["kept_a"], documents["kept_b"], documents["common"]) == (7, 4, 2)
    assert documents["kept_a"] == documents["common"] + documents["lost"]["documents"]
    assert documents["kept_b"] == documents["common"] + documents["gained"]["documents"]


def test_what_is_lost_has_the_stage_and_the_reason_of_the_other_build(diff: dict[str, Any]) -> None:
    lost, gained = diff["documents"]["lost"], diff["documents"]["gained"]
    assert reasons(lost) == {
        "filter: too_few_words": 1,
        "dedup: near_duplicate": 1,
        "dedup: exact_duplicate": 1,
        NO_DECISION: 2,
    }
    assert reasons(gained) == {"filter: too_few_words": 1, NO_DECISION: 1}
    assert {(row["id"], row["reason"]) for row in gained["samples"]} == {
        ("was-short", "filter: too_few_words"),
        ("new", NO_DECISION),
    }


def test_counts_by_reason_stand_side_by_side(diff: dict[str, Any]) -> None:
    rows = [(row["reason"], row["a"], row["b"]) for row in diff["counts"] if row["set"] == "corpus"]
    assert rows == [("kept", 7, 4), ("exact_duplicate", 0, 1), ("near_duplicate", 0, 1), ("too_few_words", 1, 1)]
    shown = diff_text(diff)
    assert re.search(r"  corpus: near_duplicate +0 +1\n", shown)
    assert "corpus: too_few_words" not in shown, "it doesn't differ"


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


OUTCOMES = ("corpus", "corpus, other id", "dropped", "dropped, other id", "nowhere")


def _side(names: Mapping[str, str], mark: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    corpus, dropped = [], []
    for name, outcome in names.items():
        row = document(name) | ({"id": f"{name} {mark}"} if "other id" in outcome else {})
        if outcome.startswith("corpus"):
            corpus.append(row)
        elif outcome.startswith("dropped"):
            dropped.append(decision(name, id=row["id"]))
    return corpus, dropped


@settings(max_examples=12)
@given(
    outcomes=st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), max_size=24),
    rows_per_pass=st.integers(1, 5),
)
def test_counts_are_those_of_a_dictionary_however_many_passes_there_are(
    outcomes: list[tuple[str, str]], rows_per_pass: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Documents of one URL are one document, so here a URL says what became of it."""
    names = {f"n{i}": outcome for i, outcome in enumerate(outcomes)}
    folder = tmp_path_factory.mktemp("pair")
    sides = [_side({name: outcome[side] for name, outcome in names.items()}, "ab"[side]) for side in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_module, "ROWS_PER_PASS", rows_per_pass)
        found = make_diff(*(write(folder / mark, *side) for mark, side in zip("ab", sides, strict=True)))["documents"]
    expected: Counter[str] = Counter()
    for mine, yours in outcomes:
        if mine.startswith("corpus") and yours.startswith("corpus"):
            expected["common"] += 1
        elif mine.startswith("corpus"):
            expected["lost, dropped" if yours.startswith("dropped") else "lost, nowhere"] += 1
        elif yours.startswith("corpus"):
            expected["gained"] += 1
    lost = reasons(found["lost"])
    assert (found["common"], found["gained"]["documents"]) == (expected["common"], expected["gained"])
    assert lost.get("filter: too_few_words", 0) == expected["lost, dropped"]
    assert lost.get(NO_DECISION, 0) == expected["lost, nowhere"]


def test_two_documents_of_one_url_make_two_pairs(tmp_path: Path) -> None:
    a = [document("x", id="1"), document("x", id="2")]
    b = [document("x", id="3"), document("x", id="4"), document("x", id="5")]
    found = make_diff(write(tmp_path / "a", a), write(tmp_path / "b", b))["documents"]
    assert (found["common"], found["lost"]["documents"], found["gained"]["documents"]) == (2, 0, 1)


def test_no_more_than_twenty_samples_and_always_the_same_ones(tmp_path: Path) -> None:
    rows = [document(f"n{i}") for i in range(60)]
    empty = write(tmp_path / "empty", [document("other")])
    first = make_diff(write(tmp_path / "a", rows), empty)["documents"]["lost"]["samples"]
    again = make_diff(write(tmp_path / "b", rows[::-1]), empty)["documents"]["lost"]["samples"]
    assert len(first) == diff_module.SAMPLES == 20
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


def test_a_build_half_done_is_compared_as_far_as_it_went(
    written_build: Path, only_links: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "diff", str(written_build), str(only_links)]) == 0
    out = capsys.readouterr().out
    assert "their documents cannot be compared before both have a corpus" in out
    assert re.search(r"links: kept +8 +8\n", out)
    assert re.search(r"corpus: kept +2 +-\n", out)


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
