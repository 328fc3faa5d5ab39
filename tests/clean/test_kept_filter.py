"""A kept filter of a corpus' n-grams: no false negatives, few false positives, and damage is detected."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import ngrams as reference
from reference.words import ngrams_of
from set_contents import write_jsonl

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.stage import run_parts
from webtext.base.run import Run
from webtext.clean import _ngrams
from webtext.clean.decontaminate import kept_filter
from webtext.clean.decontaminate.kept_filter import HEADER_BYTES, open_filter, query_filter, sizes, write_filter
from webtext.clean.pipeline import decontaminate_documents, read_documents
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.text.arrays import texts_of


def words(count: int, seed: int) -> str:
    return " ".join(f"w{number}" for number in random.Random(seed).choices(range(5000), k=count))


def write_texts(path: Path, texts: list[str]) -> str:
    return write_jsonl(path, *({"text": text, "split": "train"} for text in texts))


def hashes(*texts: str, n: int = 8) -> np.ndarray:
    return _ngrams.hashes(*texts_of(pa.array(texts, pa.large_string())), n)


@given(st.lists(st.text("ab ü1", max_size=30), min_size=1, max_size=4), st.integers(1, 4))
def test_hashes_are_those_of_a_table_of_the_same_ngrams(texts: list[str], n: int) -> None:
    table = _ngrams.Table(n)
    numbers = np.concatenate([table.add(text.encode()) for text in texts])
    assert np.array_equal(table.hashes()[numbers], hashes(*texts, n=n))
    assert [len(hashes(text, n=n)) for text in texts] == [len(ngrams_of(text, n)) for text in texts]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30), st.lists(st.integers(0, 2**64 - 1), max_size=30))
def test_native_and_readable_filters_agree_on_every_hash(added: list[int], asked: list[int]) -> None:
    bits, twin = np.zeros(3, np.uint64), reference.Bloom(192, 4)
    _ngrams.bloom_add(bits, np.array(added, np.uint64), 4)
    for each in added:
        twin.add(each)
    asked += added
    assert _ngrams.bloom_has(bits, np.array(asked, np.uint64), 4).tolist() == [twin.has(each) for each in asked]


@pytest.mark.parametrize("bound", [1e-2, 1e-3, 1e-4])
def test_false_positives_stay_at_the_bound(bound: float) -> None:
    """A million hashes that were not added: within four standard deviations of the bound, and not far below it."""
    chance = np.random.default_rng(0)
    added, others = (chance.integers(0, 2**63, n, np.uint64) for n in (200_000, 1_000_000))
    n_bits, probes = sizes(len(added), bound)
    bits = np.zeros(n_bits // 64, np.uint64)
    _ngrams.bloom_add(bits, added, probes)
    assert _ngrams.bloom_has(bits, added, probes).all()
    n_false = int(_ngrams.bloom_has(bits, others, probes).sum())
    assert abs(n_false - bound * len(others)) < 4 * math.sqrt(bound * len(others)) + 0.1 * bound * len(others)


def test_at_gpt2s_bound_the_arithmetic_holds_and_a_million_other_hashes_hit_nothing() -> None:
    """(1 - e^(-k n / m))^k for k probes of m bits (Bloom 1970, with Kirsch and Mitzenmacher's approximation)."""
    n = 300_000
    n_bits, probes = sizes(n, 1e-8)
    assert (1 - math.exp(-probes * n / n_bits)) ** probes <= 1e-8
    chance = np.random.default_rng(1)
    bits = np.zeros(n_bits // 64, np.uint64)
    _ngrams.bloom_add(bits, chance.integers(0, 2**63, n, np.uint64), probes)
    assert not _ngrams.bloom_has(bits, chance.integers(0, 2**63, 1_000_000, np.uint64), probes).any()


def planted(folder: Path) -> tuple[list[str], list[str]]:
    """Two files of documents, and two sets that share some stretches with them."""
    example = words(40, 1)
    texts = [[words(60, 10 + i) for i in range(20)], [words(9, 50) + " " + example[:120], words(30, 51), "short"]]
    documents = [write_texts(folder / f"{name}.jsonl", some) for name, some in zip("ab", texts, strict=True)]
    first = write_texts(folder / "eval" / "first.jsonl", [example, words(30, 12), "too short", texts[0][3]])
    return documents, [first, write_texts(folder / "eval" / "second.jsonl", [words(50, 99)])]


def test_a_kept_filter_reports_the_same_shares_as_the_documents(tmp_path: Path, run: Run) -> None:
    documents, against = planted(tmp_path)
    given = read_documents(documents, str(tmp_path / "imported"), run)
    write_filter(given, 8, tmp_path / "corpus.bloom", run)
    exact = decontaminate_documents(
        documents, str(tmp_path / "out"), DecontaminationSettings(against=tuple(against)), run
    )
    assert exact.overlap is not None
    answer = query_filter(tmp_path / "corpus.bloom", against)
    for one, other in zip(answer["sets"], exact.overlap["sets"], strict=True):
        assert one == {name: other[name] for name in one}
    assert answer["sets"][0]["overlap_ratio"] > 0.3
    assert answer["sets"][1]["overlap_ratio"] == 0


def test_one_worker_and_two_make_the_same_filter_and_a_second_call_makes_none(
    tmp_path: Path, run: Run, alone: Run
) -> None:
    documents, _ = planted(tmp_path)
    given = read_documents(documents, str(tmp_path / "imported"), run)
    for name, each in (("one", alone), ("two", run)):
        write_filter(given, 8, tmp_path / name, each)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    made = (tmp_path / "one").stat().st_mtime_ns
    texts = [text for part in (0, 1) for text in given.table(part)["text"].to_pylist()]
    assert write_filter(given, 8, tmp_path / "one", run).ngrams == len(hashes(*texts))
    assert (tmp_path / "one").stat().st_mtime_ns == made
    assert write_filter(given, 5, tmp_path / "one", run).words == 5


@pytest.mark.parametrize(("piece_bytes", "max_groups"), [(1 << 20, 1), (1 << 20, 3), (1000, 1), (1000, 2)])
def test_a_filter_joined_from_pieces_made_elsewhere_is_the_one_that_is_filled_at_once(
    tmp_path: Path, run: Run, elsewhere: Run, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, max_groups: int
) -> None:
    """The bits of one array in memory, for pieces of several parts, of one range of bits, and of both."""
    monkeypatch.setattr(kept_filter, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(kept_filter, "MAX_GROUPS", max_groups)
    documents, _ = planted(tmp_path)
    documents.append(write_texts(tmp_path / "c.jsonl", [words(80, 70)]))
    given = read_documents(documents, str(tmp_path / "imported"), run)
    header = write_filter(given, 8, tmp_path / "corpus.bloom", elsewhere)
    bits = np.zeros(header.bits // 64, np.uint64)
    assert len(bits) * 8 > 2 * 1000
    texts = [text for part in range(3) for text in given.table(part)["text"].to_pylist()]
    _ngrams.bloom_add(bits, hashes(*texts), header.probes)
    found, joined = open_filter(tmp_path / "corpus.bloom")
    assert found == header
    assert np.array_equal(joined, bits)
    assert sorted(each.name for each in tmp_path.glob("*corpus.bloom*")) == ["corpus.bloom"]


def test_each_piece_has_a_key_of_its_own_for_the_records_that_kill_its_workers(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are quarantined by key and position, and positions are those of one piece."""
    monkeypatch.setattr(kept_filter, "PIECE_BYTES", 1000)
    found: list[str] = []
    monkeypatch.setattr(
        kept_filter,
        "run_parts",
        lambda function, tasks, **rest: (
            found.extend(each.depends for each in tasks),
            run_parts(function, tasks, **rest),
        )[1],
    )
    documents, _ = planted(tmp_path)
    write_filter(read_documents(documents, str(tmp_path / "imported"), run), 8, tmp_path / "corpus.bloom", run)
    assert len(set(found)) == len(found) > 1


def test_a_truncated_altered_or_foreign_file_is_rejected_as_a_filter(tmp_path: Path, run: Run) -> None:
    documents, against = planted(tmp_path)
    path = tmp_path / "corpus.bloom"
    with pytest.raises(InputError, match="there is no filter"):
        open_filter(path)
    write_filter(read_documents(documents, str(tmp_path / "imported"), run), 8, path, run)
    data = path.read_bytes()
    for bad, message in (
        (data[:-8], "is truncated"),
        (data[:100], "is truncated"),
        (b"", "is not an n-gram filter"),
        (b"x" * len(data), "is not an n-gram filter"),
        (data.replace(b'"probes": 27', b'"probes": -7'), "is not an n-gram filter"),
        (data[: HEADER_BYTES + 10] + bytes([data[HEADER_BYTES + 10] ^ 1]) + data[HEADER_BYTES + 11 :], "was altered"),
    ):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=message):
            query_filter(path, against)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="no evaluation set given"):
        query_filter(path, [])


def test_a_corpus_without_ngrams_has_an_empty_filter(tmp_path: Path, run: Run) -> None:
    documents = write_texts(tmp_path / "d.jsonl", ["too short"])
    against = write_texts(tmp_path / "e.jsonl", [words(20, 1)])
    write_filter(read_documents([documents], str(tmp_path / "imported"), run), 8, tmp_path / "f", run)
    assert query_filter(tmp_path / "f", [against])["sets"][0]["overlap_ratio"] == 0


def test_held_out_documents_are_not_in_the_filter(tmp_path: Path, run: Run) -> None:
    """Otherwise every held-out text would be found in it, whatever the model learned from."""
    rows = [{"text": words(40, seed), "split": split} for seed, split in enumerate(("train", "validation"))]
    given = read_documents([write_jsonl(tmp_path / "d.jsonl", *rows)], str(tmp_path / "imported"), run)
    assert write_filter(given, 8, tmp_path / "f", run).ngrams == 33
    against = [write_texts(tmp_path / f"{row['split']}.jsonl", [row["text"]]) for row in rows]
    assert [row["overlap_ratio"] for row in query_filter(tmp_path / "f", against)["sets"]] == [1, 0]


def test_the_verb_keeps_a_filter_and_queries_it(tmp_path: Path, clean: Callable[..., str]) -> None:
    documents, against = planted(tmp_path)
    kept = str(tmp_path / "corpus.bloom")
    imported = str(tmp_path / "imported")
    command = ["decontaminate", *documents, "--out", imported, "--keep-filter", kept, "--workers", "1"]
    assert json.loads(clean(*command, "--json"))["bytes"] == Path(kept).stat().st_size - HEADER_BYTES
    ask = ["decontaminate", "--filter", kept, "--against", against[0], "--workers", "1"]
    assert clean(*ask).splitlines()[0].split("  ")[0] == "evaluation set"
    assert json.loads(clean(*ask, "--json"))["filter"]["words"] == 8
    for wrong in ([*ask, documents[0]], ["decontaminate"], [*command, "--against", against[0]]):
        with pytest.raises(ConfigError):
            clean(*wrong)
