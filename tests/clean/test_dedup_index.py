"""The kept index: later builds against earlier ones, its contract, and its use with datasketch."""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from datasketch import MinHash
from dedup_sets import by_id, chain, corpus, document, edited, prose, write_set

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.index import keep_index
from webtext.clean.dedup.lsh import load_lsh, minhash_of
from webtext.clean.dedup.reference import jaccard, shingle_set, word_shingles
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import dedup_documents

MODES = ("webtext", "datasketch")


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
            indexes += (keep_index(corpus, str(month / "index"), chosen, run).folder.url,)
        return found

    return find


@pytest.mark.parametrize("mode", MODES)
def test_an_indexed_document_is_kept_whatever_the_karma_of_a_new_one(months, mode):
    old = [document("old", edited(prose(1)))]
    new = [document("copy", edited(prose(1)), karma=99), document("near", edited(prose(1), 50), karma=99)]
    new.append(document("other", edited(prose(2))))
    first, second = months(old, new, signatures=mode)
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
    found = find_duplicates(given, chosen, Folder(tmp_path / "w"), run, passes=lambda part: np.zeros(2, np.bool_))
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


def test_signatures_take_under_200_bytes_per_document(tmp_path, run):
    documents = [document(f"{random.Random(i).getrandbits(128):032x}", f"text {i}") for i in range(3000)]
    index = keep_index(write_set(tmp_path / "corpus", documents), str(tmp_path / "index"), DedupSettings(), run)
    n_bytes = sum(path.stat().st_size for path in Path(index.folder.url).rglob("*") if path.is_file())
    assert n_bytes < 200 * 3000


def test_an_index_is_equal_for_any_number_of_workers_and_made_once(tmp_path, run, alone):
    corpus = write_set(tmp_path / "corpus", [document(f"{i}", " ".join(prose(i, 50))) for i in range(40)], 4)
    one = keep_index(corpus, str(tmp_path / "one"), DedupSettings(), run)
    assert keep_index(corpus, str(tmp_path / "two"), DedupSettings(), alone).hash == one.hash
    stamp = (tmp_path / "one" / "part-00003.signatures").stat().st_mtime_ns
    assert keep_index(corpus, str(tmp_path / "one"), DedupSettings(), run).hash == one.hash
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
    keep_index(write_set(tmp_path / "corpus", documents), str(tmp_path / "index"), DedupSettings(), run)
    return tmp_path


def against(index, run, folder, **settings):
    given = write_set(folder / "given", [document("n", edited(prose(1), 5))])
    chosen = DedupSettings(index=(str(index),), **settings)
    return by_id(given, find_duplicates(given, chosen, Folder(folder / "work"), run))


def test_a_folder_with_corpus_and_index_can_be_moved(kept, run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("moved") / "october"
    shutil.move(kept, elsewhere)
    assert against(elsewhere / "index", run, elsewhere)["n"][1] == "a"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"shingle_words": 4}, "shingle_words 5, not 4"),
        ({"permutations": 256}, "permutations 128, not 256"),
        ({"signatures": "datasketch"}, "signatures 'webtext', not 'datasketch'"),
    ],
)
def test_an_index_of_other_signatures_is_rejected(kept, run, settings, said):
    with pytest.raises(InputError, match=said):
        against(kept / "index", run, kept, **settings)


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
    data = (folder / "part-00000.signatures").read_bytes()[:128]
    (folder / "part-00000.signatures").write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"][0]["attachments"][0] |= {"bytes": 128, "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="a signature for each document"):
        against(folder, run, kept)


def test_a_set_that_is_not_an_index_is_rejected(kept, run):
    with pytest.raises(InputError, match="contains documents, not signatures"):
        against(kept / "corpus", run, kept)


def test_another_index_invalidates_the_result(kept, run):
    given = write_set(kept / "given", [document("n", edited(prose(1), 5))])
    work = Folder(kept / "work")
    assert by_id(given, find_duplicates(given, DedupSettings(), work, run)) == {}
    assert "n" in by_id(given, find_duplicates(given, DedupSettings(index=(str(kept / "index"),)), work, run))


TEXTS = {f"doc{i}": edited(prose(i, 100)) for i in range(20)} | {"empty": "— 🎉"}


@pytest.fixture(params=MODES)
def index(request, tmp_path, run):
    documents = [document(id_, text) for id_, text in TEXTS.items()]
    settings = DedupSettings(signatures=request.param)
    return keep_index(write_set(tmp_path / "corpus", documents, 2), str(tmp_path / "index"), settings, run).folder.url


def test_an_index_is_loaded_as_a_minhash_lsh_and_queried(index):
    lsh = load_lsh(index)
    assert sorted(lsh.keys) == sorted(TEXTS.keys() - {"empty"})
    assert all(lsh.query(minhash_of(TEXTS[f"doc{i}"] + " and more", index)) == [f"doc{i}"] for i in range(20))
    assert lsh.query(minhash_of(edited(prose(99, 100)), index)) == []


def test_any_minhash_can_query_an_index_with_datasketchs_signatures(tmp_path, run):
    documents = [document(id_, text) for id_, text in TEXTS.items()]
    settings = DedupSettings(signatures="datasketch")
    keep_index(write_set(tmp_path / "corpus", documents), str(tmp_path / "index"), settings, run)
    theirs = MinHash(num_perm=128)
    theirs.update_batch([shingle.encode() for shingle in word_shingles(TEXTS["doc3"], 5)])
    assert load_lsh(str(tmp_path / "index")).query(theirs) == ["doc3"]
    assert minhash_of(TEXTS["doc3"], str(tmp_path / "index")) == theirs


def test_webtexts_signatures_cannot_be_mistaken_for_datasketchs(kept):
    with pytest.raises(ValueError, match="different seeds"):
        minhash_of("some text", str(kept / "index")).jaccard(MinHash(num_perm=128))


def test_indexes_of_different_settings_cannot_be_combined(kept, run):
    corpus = PartSet.open(str(kept / "corpus"))
    other = keep_index(corpus, str(kept / "other"), DedupSettings(shingle_words=4), run).folder.url
    with pytest.raises(InputError, match="2 indexes with different settings"):
        load_lsh(str(kept / "index"), other)


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory):
    """A Redis of our own on loopback, which keeps nothing on disk."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("needs redis-server")
    import socket

    import redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"--port {port} --bind 127.0.0.1 --save --appendonly no --maxmemory 64mb".split()
    options.insert(options.index("--save") + 1, "")
    process = subprocess.Popen([server, *options], cwd=tmp_path_factory.mktemp("redis"), stdout=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "redis-server ended"
            try:
                redis.Redis("127.0.0.1", port).ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(300)


def test_an_index_is_loaded_into_redis_and_queried_there(index, redis_port):
    """Another process attaches to the store without webtext; a store isn't filled twice."""
    from datasketch import MinHashLSH

    name = f"october {index}".encode()
    storage = {"type": "redis", "basename": name, "redis": {"host": "127.0.0.1", "port": redis_port}}
    loaded = load_lsh(index, storage=storage, buffer=7)
    attached = MinHashLSH(num_perm=128, params=(25, 5), storage_config=storage, prepickle=False)
    for lsh in (loaded, attached):
        assert lsh.query(minhash_of(TEXTS["doc7"], index)) == [b"doc7"]
        assert lsh.query(minhash_of(edited(prose(99, 100)), index)) == []
    with pytest.raises(InputError, match="already contains documents"):
        load_lsh(index, storage=storage)


def test_documents_are_deduplicated_and_indexed_in_one_call(tmp_path, run):
    given = write_set(tmp_path / "given", [document("a", edited(prose(1))), document("b", edited(prose(1), 3))])
    settings = DedupSettings(keep_index=str(tmp_path / "index"))
    result = dedup_documents([given.folder.url], str(tmp_path / "out"), settings, run)
    assert PartSet.open(str(tmp_path / "index"), "signatures").table(0)["id"].to_pylist() == ["a"]
    again = dedup_documents([given.folder.url], str(tmp_path / "out"), settings, run)
    assert again.corpus.hash == result.corpus.hash
