"""`clean lookup`: copies, near copies and other texts, in every kind of index, and indexes that can't be compared."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasketch import MinHash
from dedup_sets import document, edited, index_of, prose, write_set

from webtext.app.main import run as webtext
from webtext.base.errors import InputError
from webtext.clean.dedup import lookup
from webtext.clean.dedup.lookup import look_up
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import minhash_of

TEXTS = {f"doc{i:02}": edited(prose(i)) for i in range(30)} | {"silent": "— 🎉", "short": "only three words"}


def url_of(name: str) -> str:
    return f"https://example.org/{name}"


@pytest.fixture(scope="module")
def kept(tmp_path_factory, run):
    """A folder with a corpus of three parts, its index, the signatures of dedup, and the same in a .npz file."""
    folder = tmp_path_factory.mktemp("kept")
    corpus = write_set(
        folder / "corpus", [document(name, text) | {"url": url_of(name)} for name, text in TEXTS.items()], 3
    )
    index_of(corpus, folder / "index", DedupSettings(), run)
    saved(folder / "mine.npz")
    return folder


def saved(path: Path, **changed: Any) -> Path:
    """Write an index as somebody would who made it with datasketch."""
    theirs = {name: MinHash(hashvalues=minhash_of(text), scheme="affine32") for name, text in TEXTS.items()}
    arrays: dict[str, Any] = {"keys": list(theirs), "hashvalues": [each.hashvalues for each in theirs.values()]}
    np.savez(path, **arrays | {"seed": 1, "scheme": "affine32"} | changed)
    return path


def ask(folder: Path, *texts: Any, index: Path, threshold: float = 0.8) -> list[dict[str, Any]]:
    path = folder / "asked.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return look_up([str(path)], [str(index)], threshold)


def names(answers: list[dict[str, Any]]) -> list[list[str]]:
    return [[match["id"] for match in answer["matches"]] for answer in answers]


@pytest.mark.parametrize("index", ["index", "index-signatures", "corpus", "mine.npz"])
def test_copies_and_near_copies_are_found_in_every_kind_of_index_and_other_texts_are_not(index, kept, tmp_path):
    """Two edits of 400 words: J = 386 / 406. A text of three words is one shingle."""
    texts = [TEXTS["doc07"], edited(prose(9), 50, 200), edited(prose(1000)), "Only: three words", "only three", "… !"]
    answers = ask(tmp_path, *texts, index=kept / index)
    assert names(answers) == [["doc07"], ["doc09"], [], ["short"], [], []]
    assert answers[0]["matches"][0]["similarity"] == 1
    assert answers[1]["matches"][0]["similarity"] == pytest.approx(386 / 406, abs=0.1)
    urls = [answer["matches"][0]["url"] for answer in answers[:2]]
    assert urls == ([None, None] if index == "mine.npz" else [url_of("doc07"), url_of("doc09")])


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 1.0])
def test_matches_are_those_whose_estimate_reaches_the_threshold_the_nearest_first(threshold, kept, tmp_path):
    """By brute force, for texts of all degrees of similarity; the bands miss at most one pair in a hundred."""
    texts = [edited(prose(i), *range(0, 400, 400 // (2 * i + 1))) for i in range(30)]
    asked = [minhash_of(text) for text in texts]
    documents = {name: minhash_of(text) for name, text in TEXTS.items() if name != "silent"}
    wanted = [[name for name, each in documents.items() if (each == mine).mean() >= threshold] for mine in asked]
    found = names(ask(tmp_path, *texts, index=kept / "index", threshold=threshold))
    assert sum(map(len, wanted)) >= {0.3: 20, 0.5: 14, 0.8: 3, 1.0: 0}[threshold]
    assert [set(each) <= set(all_) for each, all_ in zip(found, wanted, strict=True)] == [True] * 30
    assert sum(map(len, found)) >= sum(map(len, wanted)) - 1


def test_the_nearest_documents_are_named_and_no_more_than_most(tmp_path, run, monkeypatch):
    monkeypatch.setattr(lookup, "MOST", 3)
    corpus = write_set(
        tmp_path / "corpus", [document(f"d{n}", edited(prose(1), *range(n))) for n in (5, 1, 0, 9, 0)][:4]
    )
    assert names(ask(tmp_path, edited(prose(1)), index=Path(corpus.folder.url))) == [["d0", "d1", "d5"]]


def test_texts_that_no_corpus_contains_have_a_reason(kept, tmp_path):
    answers = ask(tmp_path, "", " \n ", "… !", "word " * 2_000_001, 5, None, TEXTS["doc01"], index=kept / "index")
    reasons = ["empty_text", "empty_text", "no_words", "too_many_bytes", "no_text", "no_text", None]
    assert [answer["reason"] for answer in answers] == reasons
    (tmp_path / "broken.jsonl").write_bytes(
        b'{"text": "a\n[1]\n\xff\xfe\n' + json.dumps({"text": TEXTS["doc02"]}).encode()
    )
    answers = look_up([str(tmp_path / "broken.jsonl")], [str(kept / "index")], 0.8)
    assert [answer["reason"] for answer in answers] == ["not_json", "not_json", "not_utf8", None]
    assert names(answers)[-1] == ["doc02"]


def test_files_folders_sets_and_standard_input_are_read(kept, tmp_path, monkeypatch):
    (tmp_path / "one.txt").write_text(TEXTS["doc03"])
    pq.write_table(pa.table({"text": [TEXTS["doc05"], None]}), tmp_path / "three.parquet")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps({"text": TEXTS["doc04"]}).encode())))
    answers = look_up([str(tmp_path), "-", str(kept / "corpus")], [str(kept / "index")], 0.8)
    found = names(answers)
    assert found[:4] == [["doc03"], ["doc05"], [], ["doc04"]]
    assert sorted(found[4:]) == sorted([[name] if name != "silent" else [] for name in TEXTS])
    assert [answer["text"] for answer in answers[:4]] == [
        f"{tmp_path}/one.txt:1", f"{tmp_path}/three.parquet:1", f"{tmp_path}/three.parquet:2", "-:1"
    ]  # fmt: skip


def test_without_its_corpus_an_index_has_no_urls(kept, tmp_path):
    shutil.copytree(kept / "index", tmp_path / "index")
    (answer,) = ask(tmp_path, TEXTS["doc07"], index=tmp_path / "index")
    assert [(match["id"], match["url"]) for match in answer["matches"]] == [("doc07", None)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 2}, "'seed': 2"),
        ({"scheme": "legacy"}, "'scheme': 'legacy'"),
        ({"hashvalues": np.zeros((32, 64), np.uint32)}, r"\(32, 64\)"),
        ({"hashvalues": np.zeros((32, 128))}, "float64"),
        ({"keys": np.array([{}] * 32)}, "allow_pickle=False"),
    ],
)
def test_arrays_that_are_not_our_signatures_are_an_error(changed, said, tmp_path):
    with pytest.raises(InputError, match=said):
        ask(tmp_path, "some text", index=saved(tmp_path / "mine.npz", **changed))


def test_a_pickled_index_is_not_loaded_and_a_damaged_one_is_an_error(tmp_path):
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path / "sprung").touch, ()

    (tmp_path / "mine.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match=r"no signatures to compare: .*pickled"):
        ask(tmp_path, "some text", index=tmp_path / "mine.npz")
    np.savez_compressed(tmp_path / "other.npz", keys=["a"])
    data = (tmp_path / "other.npz").read_bytes()
    for given, said in ((data, "hashvalues is not a file"), (data[:58] + b"\xff" + data[59:], "decompressing")):
        (tmp_path / "other.npz").write_bytes(given)
        with pytest.raises(InputError, match=said):
            ask(tmp_path, "some text", index=tmp_path / "other.npz")
    assert not (tmp_path / "sprung").exists()


def test_the_verb_prints_a_table_or_json_and_rejects_other_sets(kept, tmp_path, capsys):
    (tmp_path / "b.txt").write_text(edited(prose(9), 50, 200))
    (tmp_path / "c.txt").write_text("")
    command = ["clean", "lookup", str(tmp_path), "--index", str(kept / "index")]
    assert webtext([*command, "--json"]) == 0
    near, empty = json.loads(capsys.readouterr().out)["texts"]
    assert (near["matches"][0]["id"], empty["reason"]) == ("doc09", "empty_text")
    assert webtext(command) == 0
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]] == [
        [f"{near['matches'][0]['similarity']:.2f}", "doc09", url_of("doc09")], ["empty_text"]
    ]  # fmt: skip
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a b"}\n' * 9)[:-9])
    assert webtext([*command, "--json"]) == 1
    assert "d.jsonl.gz:10' could not be read: truncated_stream\n  download the dam" in capsys.readouterr().err
    write_set(tmp_path / "set", [document("a", "text")])
    for index, said in {"nowhere": "doesn't exist", "mine.npz": f"error: no file '{tmp_path}/mine.npz'\n"}.items():
        assert webtext([*command[:-1], str(tmp_path / index)]) == 3
        assert said in capsys.readouterr().err
