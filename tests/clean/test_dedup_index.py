"""The kept index: later builds against earlier ones, and its contract."""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dedup_sets import Rows, by_id, chain, corpus, document, edited, index_of, prose, write_set
from reference.minhash import jaccard, shingle_set

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import with_check, without_check
from webtext.base.storage import Folder
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.index import keep_index
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import minhash_of, sign_documents, signed_rows
from webtext.clean.pipeline import dedup_documents


@pytest.fixture
def months(tmp_path, run):
    """Deduplicate sets of documents month by month, each against the earlier indexes; return what each loses."""

    def find(*sets, n_parts=1, **settings):
        found, indexes = [], ()
        for number, documents in enumerate(sets):
            month = tmp_path / str(number)
            given = write_set(month / "given", documents, n_parts)
            chosen = DedupSettings(index=indexes, **settings)
            duplicates = find_duplicates(given, chosen, Folder(month / "work"), run)
            found.append(by_id(given, duplicates))
            corpus = write_set(month / "corpus", [row for row in documents if row["id"] not in found[-1]], n_parts)
            indexes += (index_of(corpus, month / "index", chosen, run).folder.url,)
        return found

    return find


def test_an_indexed_document_is_kept_whatever_the_karma_of_a_new_one(months):
    old = [document("old", edited(prose(1)))]
    new = [document("copy", edited(prose(1)), karma=99), document("near", edited(prose(1), 50), karma=99)]
    new.append(document("other", edited(prose(2))))
    first, second = months(old, new)
    assert first == {}
    assert second == {"copy": ("exact_duplicate", "old", 1.0), "near": ("near_duplicate", "old", 391 / 401)}


def test_months_add_up_and_names_come_from_any_of_them(months):
    texts = [edited(prose(seed)) for seed in range(3)]
    third = [document(f"c{seed}", edited(prose(seed), 9)) for seed in range(3)]
    *_, last = months([document("a", texts[0])], [document("b", texts[1])], third)
    assert {id_: kept for id_, (_, kept, _) in last.items()} == {"c0": "a", "c1": "b"}


def test_a_new_document_near_two_indexed_ones_is_dropped_and_both_stay(months):
    """A and C of the chain A ~ B ~ C are kept; a full rebuild would keep B of highest karma and drop both."""
    first, middle, last = chain(3)
    *_, found = months([document("a", first), document("c", last)], [document("b", middle, karma=9)])
    assert list(found) == ["b"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("train", "train", "near_duplicate"),
        ("train", "validation", "near_duplicate_of_train"),
        ("validation", "train", "near_duplicate"),
        ("validation", "validation", "near_duplicate"),
    ],
)
@pytest.mark.parametrize("places", [(), (50,)])
def test_no_text_is_held_out_in_one_month_and_trained_on_in_another(months, old, new, reason, places):
    """The indexed document is kept, so the new one is dropped, whatever their splits; the same for equal texts."""
    if not places and "train" not in reason:
        reason = "exact_duplicate"
    before, after = document("o", edited(prose(4)), split=old), document("n", edited(prose(4), *places), split=new)
    *_, found = months([before], [after])
    assert found["n"][:2] == (reason, "o")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_new_document_is_dropped_if_and_only_if_it_is_near_a_kept_one(months, seed):
    """All pairs by brute force: every drop has a reason; only indexed documents that are kept may be near each other."""
    documents = corpus(50 + seed)
    first, second = months(documents[::2], documents[1::2], n_parts=2)
    rows = {row["id"]: row for row in documents}
    sets = {id_: shingle_set(row["text"], 5) for id_, row in rows.items()}
    old = {row["id"] for row in documents[::2]} - first.keys()
    new = {row["id"] for row in documents[1::2]} - second.keys()
    assert len(second) > 20
    for id_, (reason, kept, similarity) in second.items():
        assert kept in old | new
        assert similarity == jaccard(sets[id_], sets[kept])
        assert similarity >= 0.8 or reason == "near_duplicate_of_train"
        assert (reason == "near_duplicate_of_train") == (
            rows[id_]["split"] == "validation" and rows[kept]["split"] == "train"
        )
    for left in new:
        assert all(jaccard(sets[left], sets[right]) < 0.8 for right in (old | new) - {left})


def test_failing_rows_and_documents_without_words_are_not_compared_with_an_index(tmp_path, run, months):
    months([document("a", "one text"), document("e", "—")], [document("b", "another text"), document("f", "…")])
    given = PartSet.open(str(tmp_path / "1" / "given"))
    chosen = DedupSettings(index=(str(tmp_path / "0" / "index"),))
    found = find_duplicates(given, chosen, Folder(tmp_path / "w"), run, chosen=[Rows((False, False))])
    assert by_id(given, found) == {}


def test_large_buckets_of_an_index_are_compared_only_with_new_documents(months):
    """300 indexed texts share half their words: too unlike to be duplicates, but in common buckets; a new copy each."""
    common = " ".join(prose(9, 100))
    texts = [f"{common} {' '.join(prose(1000 + i, 98))}" for i in range(300)]
    old = [document(f"o{i}", text) for i, text in enumerate(texts)]
    *_, found = months(old, [document(f"n{i}", f"{text} more") for i, text in enumerate(texts)])
    assert {id_: kept for id_, (_, kept, _) in found.items()} == {f"n{i}": f"o{i}" for i in range(300)}


@pytest.mark.parametrize("of", ["own", pytest.param("real", marks=pytest.mark.slow)])
def test_documents_in_two_halves_keep_about_as_many_as_all_at_once(months, of, request):
    """Either way no two documents that are kept are near; the ways differ in which member of a cluster is kept."""
    rows = corpus(60)
    if of == "real":
        near_dups = request.getfixturevalue("shared_data") / "neardup" / "near_dups.jsonl.xz"
        with lzma.open(near_dups, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if "of" in row][:500] + [row for row in rows if "of" not in row][:1500]
        random.Random(1).shuffle(rows)
    documents = [document(row["id"], row["text"]) for row in rows]
    (at_once,) = months(documents)
    first, second = months(documents[::2], documents[1::2])
    assert abs(len(first) + len(second) - len(at_once)) <= len(at_once) / 20
    assert all(similarity >= 0.8 for _, _, similarity in second.values())


def test_an_index_takes_under_600_bytes_per_document(tmp_path, run):
    documents = [document(f"{random.Random(i).getrandbits(128):032x}", f"text {i}") for i in range(3000)]
    index = index_of(write_set(tmp_path / "corpus", documents), tmp_path / "index", DedupSettings(), run)
    n_bytes = sum(path.stat().st_size for path in Path(index.folder.url).rglob("*") if path.is_file())
    assert n_bytes < 600 * 3000


def test_an_index_is_equal_for_any_number_of_workers_and_made_once(tmp_path, run, alone):
    corpus = write_set(tmp_path / "corpus", [document(f"{i}", " ".join(prose(i, 50))) for i in range(40)], 4)
    one = index_of(corpus, tmp_path / "one", DedupSettings(), run)
    assert index_of(corpus, tmp_path / "two", DedupSettings(), alone).hash == one.hash
    stamp = (tmp_path / "one" / "part-00003.signatures").stat().st_mtime_ns
    assert index_of(corpus, tmp_path / "one", DedupSettings(), run).hash == one.hash
    assert (tmp_path / "one" / "part-00003.signatures").stat().st_mtime_ns == stamp


def test_verbs_keep_an_index_and_read_it(tmp_path, clean: Callable[..., str]):
    def dedup(name: str, texts: list[str], *options: str) -> dict:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"id": f"{name}{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
        return json.loads(
            clean("dedup", str(path), "--out", str(tmp_path / name), "--json", "--workers", "1", *options)
        )

    index = str(tmp_path / "october-index")
    assert dedup("october", [edited(prose(1))], "--keep-index", index)["documents"] == 1
    found = dedup("november", [edited(prose(1), 7), edited(prose(2))], "--index", index)
    assert found["counts"]["dropped"] == {"near_duplicate": 1}
    (row,) = PartSet.open(str(tmp_path / "november" / "dropped")).table(0).to_pylist()
    assert (row["id"], row["duplicate_of"]) == ("november0", "october0")
    parents = PartSet.open(str(tmp_path / "november" / "corpus")).manifest["parents"]
    assert {"kind": "signatures", "hash": PartSet.open(index).hash} in parents


@pytest.fixture
def kept(tmp_path, run):
    """A folder with a corpus of two documents and its index."""
    documents = [document("a", edited(prose(1))), document("b", edited(prose(2)))]
    index_of(write_set(tmp_path / "corpus", documents), tmp_path / "index", DedupSettings(), run)
    return tmp_path


def against(index, run, folder, **settings):
    given = write_set(folder / "given", [document("n", edited(prose(1), 5))])
    chosen = DedupSettings(index=(str(index),), **settings)
    return by_id(given, find_duplicates(given, chosen, Folder(folder / "work"), run))


def test_a_folder_with_corpus_and_index_can_be_moved(kept, run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("moved") / "october"
    shutil.move(kept, elsewhere)
    assert against(elsewhere / "index", run, elsewhere)["n"][1] == "a"


def test_an_index_whose_corpus_is_missing_or_has_changed_is_rejected(kept, run):
    write_set(kept / "corpus", [document("a", "quite another text")])
    with pytest.raises(InputError, match="was moved or has changed"):
        against(kept / "index", run, kept)
    shutil.rmtree(kept / "corpus")
    with pytest.raises(InputError, match="was moved or has changed"):
        against(kept / "index", run, kept)


def test_a_damaged_index_is_rejected_before_anything_is_compared(kept, run):
    path = kept / "index" / "part-00000.signatures"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"part-00000.signatures' was altered"):
        against(kept / "index", run, kept)
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=r"part-00000.signatures' was altered"):
        against(kept / "index", run, kept)


def test_an_index_without_a_signature_for_each_document_is_rejected(kept, run):
    """A manifest edited by hand: it names a shorter file and its hash."""
    folder = kept / "index"
    data = (folder / "part-00000.signatures").read_bytes()[:512]
    (folder / "part-00000.signatures").write_bytes(data)
    manifest = without_check(json.loads((folder / "manifest.json").read_text()))
    manifest["parts"][0]["attachments"][0] |= {"bytes": 512, "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(with_check(manifest)))
    with pytest.raises(InputError, match="does not have a signature for each document"):
        against(folder, run, kept)


def test_a_set_that_is_not_an_index_is_rejected(kept, run):
    with pytest.raises(InputError, match="contains documents, not signatures"):
        against(kept / "corpus", run, kept)


def test_another_index_invalidates_the_result(kept, run):
    given = write_set(kept / "given", [document("n", edited(prose(1), 5))])
    work = Folder(kept / "work")
    assert by_id(given, find_duplicates(given, DedupSettings(), work, run)) == {}
    assert "n" in by_id(given, find_duplicates(given, DedupSettings(index=(str(kept / "index"),)), work, run))


@pytest.mark.parametrize(
    ("name", "value"), [("code_version", 3), ("settings", {"shingle_words": 4, "permutations": 128})]
)
def test_an_index_of_another_version_of_the_signatures_is_rejected(kept, run, name, value):
    path = kept / "index" / "manifest.json"
    manifest = without_check(json.loads(path.read_text()))
    manifest["recipe"][name] = value
    path.write_text(json.dumps(with_check(manifest)))
    with pytest.raises(InputError, match=rf"has signatures of {name} .*, not .*\nmake it again with --keep-index"):
        against(kept / "index", run, kept)


def test_an_index_has_the_corpus_rows_of_the_signatures(tmp_path, run):
    """Rows, values and facts of the documents that dedup and removal left, in their order, part by part."""
    documents = [row for row in corpus(7) if row["split"] == "train"][:60]
    given = write_set(tmp_path / "given", documents, 3)
    left = PartSet.open(
        dedup_documents([given.folder.url], str(tmp_path / "out"), DedupSettings(), run).corpus.folder.url
    )
    signatures = PartSet.open(str(tmp_path / "out" / "_dedup" / "signatures"), "signatures")
    index = keep_index(left, signatures, str(tmp_path / "index"), run)
    assert 0 < left.records < given.records
    for part in range(3):
        (rows, values), (kept, found) = next(signed_rows(signatures, part)), next(signed_rows(index, part))
        ids = left.table(part)["id"].to_pylist()
        chosen = np.array([row["id"] in ids for row in rows.to_pylist()])
        assert kept.to_pylist() == rows.filter(pa.array(chosen)).to_pylist()
        assert kept["id"].to_pylist() == ids
        assert (found == values[chosen]).all()
        assert (found == [minhash_of(text) for text in left.table(part)["text"].to_pylist()]).all()


def test_signatures_of_other_documents_cannot_make_an_index(tmp_path, run):
    corpus = write_set(tmp_path / "corpus", [document("a", "one text"), document("b", "another text")])
    other = sign_documents(write_set(tmp_path / "other", [document("a", "one text")]), f"{tmp_path}/s", run)
    with pytest.raises(InputError, match="does not have a signature for each document of part 0"):
        keep_index(corpus, other, str(tmp_path / "index"), run)


def test_documents_are_deduplicated_and_indexed_in_one_call(tmp_path, run):
    given = write_set(tmp_path / "given", [document("a", edited(prose(1))), document("b", edited(prose(1), 3))])
    settings = DedupSettings(keep_index=str(tmp_path / "index"))
    result = dedup_documents([given.folder.url], str(tmp_path / "out"), settings, run)
    assert PartSet.open(str(tmp_path / "index"), "signatures").table(0)["id"].to_pylist() == ["a"]
    again = dedup_documents([given.folder.url], str(tmp_path / "out"), settings, run)
    assert again.corpus.hash == result.corpus.hash
