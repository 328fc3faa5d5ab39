"""`clean lookup`: planted copies, near copies and other texts are distinguished, whatever the files look like."""

from __future__ import annotations

import json
import lzma
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dedup_sets import document, edited, index_of, prose, write_set

from webtext.app.main import run as webtext
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.workers.journal import Journal
from webtext.clean.dedup import lookup
from webtext.clean.dedup.lookup import Answer, look_up
from webtext.clean.dedup.reference import jaccard, shingle_set
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import sign_batch

N = 60
TEXTS = {f"doc{i:02}": edited(prose(i)) for i in range(N)} | {"silent": "— 🎉", "short": "only three words"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory, run):
    """A folder with a corpus of four parts and its index."""
    folder = tmp_path_factory.mktemp("kept")
    corpus = write_set(folder / "corpus", [document(name, text) for name, text in TEXTS.items()], 4)
    index_of(corpus, folder / "index", DedupSettings(), run)
    return folder


@pytest.fixture
def ask(kept, tmp_path, run):
    """Write texts as JSON lines and return an answer for each."""

    def asked(*texts: Any, index: Path = kept / "index", threshold: float = 0.8, run=run) -> list[Answer]:
        path = tmp_path / "asked.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        answers = list(look_up([str(path)], [str(index)], threshold, run))
        assert [answer.text for answer in answers] == [f"{path}:{number}" for number in range(1, len(texts) + 1)]
        return answers

    return asked


def test_copies_near_copies_and_other_texts_are_told_apart(ask, kept):
    """Two edits of 400 words: J = 386 / 406."""
    exact, near, other = ask(TEXTS["doc07"], edited(prose(9), 50, 200), edited(prose(1000)))
    index = str(kept / "index")
    assert exact == Answer(exact.text, "exact", "doc07", index, 1.0)
    assert near == Answer(near.text, "near", "doc09", index, 386 / 406)
    assert other == Answer(other.text, "nothing")


def test_case_and_layout_make_a_text_near_and_layout_that_import_removes_leaves_it_exact(ask):
    shouted, spaced = ask(TEXTS["doc07"].upper(), TEXTS["doc07"] + "  \r\n\n")
    assert (shouted.answer, shouted.document, shouted.similarity) == ("near", "doc07", 1.0)
    assert (spaced.answer, spaced.document) == ("exact", "doc07")


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.95, 1.0])
def test_an_answer_is_near_if_and_only_if_the_exact_similarity_reaches_the_threshold(ask, threshold):
    """By brute force over texts of all degrees of similarity; bands are chosen for the threshold."""
    source = random.Random(4)
    texts = [edited(prose(i), *source.sample(range(400), source.randrange(1, 40))) for i in range(N)]
    sets = {name: shingle_set(text, 5) for name, text in TEXTS.items()}
    asked = [shingle_set(text, 5) for text in texts]
    seen = set()
    for mine, found in zip(asked, ask(*texts, threshold=threshold), strict=True):
        similarity, name = max((jaccard(mine, each), name) for name, each in sets.items())
        near = similarity >= threshold
        assert (found.answer, found.document, found.similarity) == (
            ("near", name, similarity) if near else ("nothing", None, None)
        )
        seen.add(near)
    assert seen == ({True, False} if threshold in (0.7, 0.8) else seen)


def test_of_several_near_documents_the_most_similar_one_is_named(tmp_path, run, ask):
    corpus = write_set(tmp_path / "corpus", [document(f"d{n}", edited(prose(1), *range(n))) for n in range(1, 9)], 3)
    index = index_of(corpus, tmp_path / "index", DedupSettings(), run)
    (found,) = ask(edited(prose(1)), index=index.folder.url)
    assert found.document == "d1"


def test_of_equally_similar_documents_the_one_with_the_smallest_id_is_named(tmp_path, run, ask):
    """In any order of parts, exactly or nearly."""
    for text in (edited(prose(1)), edited(prose(1), 7)):
        rows = [document(name, text) for name in "cbad"]
        for n_parts in (1, 2, 4):
            index = index_of(write_set(tmp_path / "corpus", rows, n_parts), tmp_path / "index", DedupSettings(), run)
            assert [each.document for each in ask(edited(prose(1)), index=index.folder.url)] == ["a"]


def test_a_text_without_words_and_a_short_one_are_found_only_exactly_or_as_a_whole(ask):
    answers = ask("— 🎉", "… !", "Only: three words", "only three")
    assert [(each.answer, each.document) for each in answers] == [
        ("exact", "silent"), ("nothing", None), ("near", "short"), ("nothing", None)
    ]  # fmt: skip


def test_texts_that_no_corpus_contains_have_a_reason(ask, tmp_path, kept, run):
    huge = "word " * 2_000_001
    answers = ask("", " \n ", huge, 5, None, TEXTS["doc01"])
    assert [each.answer for each in answers] == [
        "empty_text",
        "empty_text",
        "too_many_bytes",
        "no_text",
        "no_text",
        "exact",
    ]
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b'{"text": "a\n[1]\n\xff\xfe\n' + json.dumps({"text": TEXTS["doc02"]}).encode() + b"\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    names = [str(tmp_path / name) for name in ("broken.jsonl", "empty.txt", "latin.txt")]
    found = list(look_up(names, [str(kept / "index")], 0.8, run))
    assert [each.answer for each in found] == ["not_json", "not_json", "not_utf8", "exact", "empty_text", "not_utf8"]
    assert found[-1].text == names[-1]


def test_files_of_every_kind_and_documents_sets_are_read(tmp_path, kept, run):
    (tmp_path / "one.txt").write_text(TEXTS["doc03"])
    with lzma.open(tmp_path / "two.jsonl.xz", "wt") as file:
        file.write(json.dumps({"text": TEXTS["doc04"], "id": "x"}))
    pq.write_table(pa.table({"text": [TEXTS["doc05"], None], "other": [1, 2]}), tmp_path / "three.parquet")
    write_set(tmp_path / "four", [document("mine", edited(prose(6), 7))])
    names = [str(tmp_path / name) for name in ("one.txt", "two.jsonl.xz", "three.parquet", "four")]
    found = list(look_up(names, [str(kept / "index")], 0.8, run))
    assert [(each.text.removeprefix(f"{tmp_path}/"), each.answer, each.document) for each in found] == [
        ("one.txt", "exact", "doc03"),
        ("two.jsonl.xz:1", "exact", "doc04"),
        ("three.parquet:1", "exact", "doc05"),
        ("three.parquet:2", "no_text", None),
        ("mine", "near", "doc06"),
    ]


@pytest.mark.parametrize("lost", ["removed", "replaced"])
def test_without_the_corpus_the_similarity_is_estimated_and_marked(lost, kept, tmp_path, ask):
    """J = .95: the estimate from 128 values is within five deviations of .02; an equal text is still exact."""
    shutil.copytree(kept, tmp_path / "kept")
    shutil.rmtree(tmp_path / "kept" / "corpus")
    if lost == "replaced":
        write_set(tmp_path / "kept" / "corpus", [document("doc09", "another text")])
    exact, near, other = ask(
        TEXTS["doc07"], edited(prose(9), 50, 200), edited(prose(1000)), index=tmp_path / "kept" / "index"
    )
    assert (exact.answer, exact.estimated) == ("exact", False)
    assert (near.answer, near.document, near.estimated) == ("near", "doc09", True)
    assert near.similarity == pytest.approx(386 / 406, abs=0.1)
    assert other.answer == "nothing"


def test_several_indexes_answer_together_and_an_exact_copy_comes_first(tmp_path, kept, run):
    """The second has other shingles and shorter signatures."""
    settings = DedupSettings(shingle_words=4, permutations=64, bands=16, rows=4)
    corpus = write_set(tmp_path / "corpus", [document("c", edited(prose(5), 3)), document("d", edited(prose(200)))])
    other = index_of(corpus, tmp_path / "index", settings, run).folder.url
    first = str(kept / "index")
    (tmp_path / "asked").mkdir()
    for number, text in enumerate((edited(prose(9), 1), edited(prose(5), 3), edited(prose(200), 7))):
        (tmp_path / "asked" / f"{number}.txt").write_text(text)
    found = list(look_up([str(tmp_path / "asked")], [first, other], 0.8, run))
    assert [(each.answer, each.document, each.index) for each in found] == [
        ("near", "doc09", first), ("exact", "c", other), ("near", "d", other)
    ]  # fmt: skip


def test_answers_do_not_depend_on_parts_workers_or_blocks(tmp_path, run, alone, ask, monkeypatch):
    source = random.Random(5)
    texts = [edited(prose(i), *source.sample(range(400), source.randrange(20))) for i in range(N)]
    expected = [replaced(each) for each in ask(*texts)]
    corpus = write_set(tmp_path / "corpus", [document(name, text) for name, text in TEXTS.items()][::-1], 1)
    index = index_of(corpus, tmp_path / "index", DedupSettings(), alone).folder.url
    monkeypatch.setattr(lookup, "TEXTS_AT_A_TIME", 7)
    monkeypatch.setattr(lookup, "MAX_TASKS", 2)
    assert [replaced(each) for each in ask(*texts, index=index, run=alone)] == expected
    assert {each[0] for each in expected} >= {"exact", "near"}


def replaced(answer: Answer) -> tuple[Any, ...]:
    return answer.answer, answer.document, answer.similarity


def test_pages_of_a_template_cost_a_bounded_number_of_candidates(tmp_path, run, monkeypatch):
    """300 pages near each of 20 texts: 6,000 pairs; each text is dropped from the bands after MAX_PAIRS of a part."""
    words = prose(1, 200)
    corpus = write_set(tmp_path / "corpus", [document(f"{i:03}", edited(words, i % 200)) for i in range(2500)])
    index = index_of(corpus, tmp_path / "index", DedupSettings(), run)
    texts = pa.array([edited(words, i, i + 1) for i in range(20)], pa.large_string())
    values, has_words = sign_batch(texts, 5, 128)
    seen: list[int] = []
    near = lookup.Bands.near
    monkeypatch.setattr(lookup.Bands, "near", lambda *given: seen.append(len((found := near(*given))[0])) or found)
    monkeypatch.setattr(lookup, "MAX_PAIRS", 100)
    block = lookup._Texts([""] * 20, values, has_words, 0.8)
    found = lookup._scan(Journal(), (SetName.of(index), range(1), block))
    assert all(len(candidates) == lookup.CANDIDATES for candidates in found.values())
    assert len(found) == 20
    assert seen[0] > 10_000
    assert seen[1:] == [0, 0]


def test_the_verb_prints_a_table_or_json_and_counts(kept, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(TEXTS["doc07"])
    (tmp_path / "b.txt").write_text(edited(prose(9), 50, 200))
    (tmp_path / "c.txt").write_text("")
    command = ["clean", "lookup", str(tmp_path), "--index", str(kept / "index"), "--workers", "1"]
    assert webtext([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"empty_text": 1, "exact": 1, "near": 1}
    assert found["texts"][1] == {
        "text": f"{tmp_path}/b.txt", "answer": "near", "document": "doc09", "index": str(kept / "index"),
        "similarity": 386 / 406, "estimated": False,
    }  # fmt: skip
    assert webtext(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [f"{tmp_path}/b.txt", "near", "0.951", "doc09", str(kept / "index")]


def test_wrong_arguments_and_indexes_are_short_errors(kept, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a text")
    assert webtext(["clean", "lookup", str(tmp_path / "a.txt")]) == 2
    assert "no --index given" in capsys.readouterr().err
    for name, said in {"corpus": "contains documents, not signatures", "nowhere": "doesn't exist"}.items():
        assert webtext(["clean", "lookup", str(tmp_path / "a.txt"), "--index", str(kept / name)]) == 3
        assert said in capsys.readouterr().err
    assert webtext(["clean", "lookup", str(tmp_path / "b.txt"), "--index", str(kept / "index")]) == 3
    assert (
        webtext(["clean", "lookup", str(tmp_path / "a.txt"), "--index", str(kept / "index"), "--threshold", "0"]) == 2
    )


def test_a_damaged_index_is_an_error(kept, tmp_path, ask):
    shutil.copytree(kept, tmp_path / "kept")
    path = tmp_path / "kept" / "index" / "part-00002.signatures"
    data = np.fromfile(path, np.uint8)
    data[100] ^= 1
    path.write_bytes(data.tobytes())
    with pytest.raises(InputError, match=r"part-00002.signatures' was altered"):
        ask("some text", index=tmp_path / "kept" / "index")


def test_an_index_of_no_documents_has_nothing(tmp_path, run, ask):
    index = index_of(write_set(tmp_path / "corpus", []), tmp_path / "index", DedupSettings(), run)
    assert [each.answer for each in ask("a text", index=index.folder.url)] == ["nothing"]
    assert PartSet.open(index.folder.url).records == 0
