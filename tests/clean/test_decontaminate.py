"""Overlap of documents with evaluation sets: n-grams, native and readable; the report; what is dropped and why."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from elsewhere import only_tasks_read
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ngrams as reference
from reference.words import ngrams_of
from set_contents import contents, rows, write_jsonl

from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.clean import _ngrams
from webtext.clean.decontaminate.comparison import SHARES_NGRAM, overlap_rows
from webtext.clean.decontaminate.evaluation import Examples, evaluation_sets
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, decontaminate_documents
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.text.arrays import texts_of

Planted = tuple[list[str], list[str]]  # files of documents, evaluation sets


def find(table: _ngrams.Table, *texts: str | bytes) -> list[list[int]]:
    numbers, ends = table.find(*texts_of(pa.array(texts, pa.binary())))
    return [numbers[start:end].tolist() for start, end in zip(ends[:-1], ends[1:], strict=True)]


def words(count: int, seed: int) -> str:
    """Words that are unique to the seed."""
    source = random.Random(seed)
    return " ".join(f"s{seed}w{source.randrange(10**9)}" for _ in range(count))


def test_an_8gram_is_found_whatever_its_case_punctuation_and_layout() -> None:
    """Twelve words make five 8-grams; the text repeats words 3 to 11, so it has the third and fourth 8-gram."""
    table = _ngrams.Table(8)
    example = b"Four score and seven years ago our fathers brought forth, upon this"
    assert table.add(example).tolist() == [0, 1, 2, 3, 4]
    assert find(table, "<b>AND seven\nyears -- ago; our 'fathers' brought\tforth... upon!</b>") == [[2, 3]]
    assert find(table, "and seven years ago our mothers brought forth upon") == [[]]


def test_repeated_ngrams_have_one_number_and_count_each_time() -> None:
    table = _ngrams.Table(2)
    assert table.add(b"a b a b c").tolist() == [0, 1, 0, 2]
    assert len(table) == 3
    assert find(table, "a b c", "c b a", "A B, A B") == [[0, 2], [1], [0, 1, 0]]


texts = st.lists(
    st.sampled_from(["a", "b", "Été", "CAFÉ", "猫", "ß", "x" * 9, "12345678", " ", "-", "\u00ad"]), max_size=30
)


@settings(max_examples=60)
@given(
    st.lists(texts.map(" ".join) | st.text(max_size=60), max_size=4),
    st.lists(texts.map(" ".join) | texts.map("".join) | st.text(max_size=60), max_size=4),
    st.integers(1, 5),
)
def test_native_and_readable_tables_agree_on_any_text(examples: list[str], others: list[str], n: int) -> None:
    native, readable = _ngrams.Table(n), reference.Table(n)
    for example in examples:
        assert native.add(example.encode()).tolist() == readable.add(example)
    assert len(native) == len(readable)
    for text, found in zip((*examples, *others), find(native, *examples, *others), strict=True):
        assert found == readable.find(text)


def test_a_table_that_has_grown_numbers_ngrams_like_a_small_one() -> None:
    chance = random.Random(3)
    text = " ".join(str(chance.randrange(300)) for _ in range(30_000))
    native, readable = _ngrams.Table(2), reference.Table(2)
    assert native.add(text.encode()).tolist() == readable.add(text)
    assert find(native, text) == [readable.find(text)]


@pytest.mark.parametrize(
    "text",
    [b"", b"   ", "🙂🙃".encode() * 1000, b"\xff\xfe\x80" * 100, b"\0" * 1000, b"one two"],
    ids=["empty", "blank", "emoji", "no UTF-8", "NUL", "two words"],
)
def test_texts_without_enough_words_share_nothing(text: bytes) -> None:
    table = _ngrams.Table(8)
    assert table.add(text).tolist() == []
    table.add(words(50, 1).encode())
    assert find(table, text) == [[]]


def test_megabytes_of_one_word_are_one_word_and_of_one_letter_words_many() -> None:
    table = _ngrams.Table(2)
    long = b"x" * 2_000_000
    assert table.add(b"before " + long).tolist() == [0]
    assert find(table, b"Before  " + long, b"before " + long + b"y", b"before " + long[1:]) == [[0], [], []]
    many = _ngrams.Table(13)
    assert set(many.add(b"a " * 1_000_000).tolist()) == {0}
    assert len(find(many, b"A-" * 1_000_000)[0]) == 1_000_000 - 12


def test_threads_may_share_a_table() -> None:
    table, examples = _ngrams.Table(2), [words(20_000, seed).encode() for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        added = list(threads.map(table.add, examples))
    assert find(table, *examples) == [numbers.tolist() for numbers in added]


def test_wrong_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least one word"):
        _ngrams.Table(0)
    for offsets in ([], [1, 0], [-1, 0], [0, 4]):
        with pytest.raises(ValueError, match="offsets"):
            _ngrams.Table(2).find(np.zeros(3, np.uint8), np.array(offsets, np.int64))


# evaluation sets


def examples_in(*against: str) -> list[list[bytes]]:
    return [list(each.examples()) for each in evaluation_sets(against)]


def test_examples_are_lines_rows_or_a_whole_text_compressed_or_not(tmp_path: Path) -> None:
    lines = b'{"text": "one"}\n\n{"text": "tw\\u00f6"}\n'
    for name, data in {
        "a.jsonl": lines,
        "b.jsonl.xz": lzma.compress(lines),
        "c.jsonl.zst": zstandard.compress(lines),
        "e.txt": b"one\ntwo\n",
        "f.tokens.xz": lzma.compress(b"one\ntwo\n"),
    }.items():
        (tmp_path / name).write_bytes(data)
    pq.write_table(pa.table({"text": ["one", "twö"]}), tmp_path / "d.parquet")
    two, whole = [b"one", "twö".encode()], [b"one\ntwo\n"]
    assert examples_in(str(tmp_path)) == [two, two, two, two, whole, whole]


def test_another_field_is_named_after_a_hash(tmp_path: Path) -> None:
    given = write_jsonl(tmp_path / "qa.jsonl", {"question": "who", "answer": "me"})
    assert examples_in(f"{given}#question", f"{given}#answer") == [[b"me"], [b"who"]]
    assert [each.name for each in evaluation_sets([f"{given}#question"])] == ["qa.jsonl#question"]


def test_sets_with_equal_file_names_are_named_with_their_folders(tmp_path: Path) -> None:
    given = [write_jsonl(tmp_path / folder / "test.jsonl", {"text": folder}) for folder in ("b", "a")]
    assert [each.name for each in evaluation_sets(given)] == ["a/test.jsonl", "b/test.jsonl"]
    assert len(evaluation_sets([given[0], os.path.relpath(given[0]), str(tmp_path)])) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"text": "a"}\n{"body": "b"}\n', "example 2: no field 'text'"),
        (b'{"text": "a"}\n{"text": 3}\n', "example 2: text is int"),
        (b'{"text": "a"}\nnonsense\n', "example 2: Expecting value"),
        (b"", "is empty"),
    ],
)
def test_a_defective_set_is_an_input_error(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "broken.jsonl").write_bytes(data)
    with pytest.raises(InputError, match=message):
        examples_in(str(tmp_path / "broken.jsonl"))


def test_a_set_that_breaks_off_has_to_be_copied_again(tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 9)[:-9])
    with pytest.raises(InputError, match=r"^'[^']+' cannot be read: .*\ndownload the damaged files again"):
        examples_in(str(tmp_path / "broken.jsonl.gz"))


def test_a_set_is_hashed_again_only_if_its_file_has_another_version(tmp_path: Path) -> None:
    path = Path(write_jsonl(tmp_path / "x.jsonl", {"text": "a b"}))
    (found,) = evaluation_sets([str(path)])
    with only_tasks_read():  # nothing may be hashed in this process
        assert list(found.examples()) == [b"a b"]
    os.utime(path, (1, 1))
    assert list(found.examples()) == [b"a b"]
    path.write_text(json.dumps({"text": "a c"}))
    with pytest.raises(InputError, match="changed while it was read"):
        list(found.examples())


def test_no_set_and_a_missing_column_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no evaluation set"):
        evaluation_sets([])
    pq.write_table(pa.table({"body": ["one"]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match="no column 'text'"):
        examples_in(str(tmp_path / "d.parquet"))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="is a part set, not an evaluation set"):
        evaluation_sets([str(tmp_path)])


def test_overlap_is_reported_over_all_ngrams_and_as_the_mean_over_examples(tmp_path: Path) -> None:
    """Examples of 3, 1 and 0 2-grams, of which 1 and 1 are found: 2 of 4 overall, (1/3 + 1) / 2 by example."""
    given = write_jsonl(tmp_path / "x.jsonl", {"text": "a b c d"}, {"text": "e f"}, {"text": "g"})
    examples = Examples(evaluation_sets([given]), 2)
    (found,) = find(examples.table, "a b e f")
    mask = np.zeros(len(examples.table), bool)
    mask[found] = True
    (row,) = overlap_rows(examples, mask, np.zeros(len(mask), bool))
    assert (row["examples"], row["too_short"], row["ngrams"]) == (3, 1, 4)
    assert row["overlap_ratio"] == 2 / 4
    assert row["mean_example_ratio"] == pytest.approx((1 / 3 + 1) / 2)
    assert row["corpus_overlap_ratio"] == row["corpus_mean_example_ratio"] == 0


# the stage


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """Documents in two files: unrelated, with 13 words of example 2, with 12 of them, with 20 of the text; two sets."""
    example, running = words(40, 1), words(60, 2)
    part = example.split()
    first = write_jsonl(
        tmp_path / "one.jsonl",
        {"id": "clean", "text": words(50, 3)},
        {"id": "copies", "text": f"{words(20, 4)} {' '.join(part[5:18]).upper()} {words(20, 5)}"},
    )
    second = write_jsonl(
        tmp_path / "two.jsonl",
        {"id": "almost", "text": f"{words(20, 6)} {', '.join(part[20:32])}. {words(20, 7)}"},
        {"id": "quotes", "text": f"{words(20, 8)} {' '.join(running.split()[10:30])}"},
    )
    cloze = write_jsonl(tmp_path / "eval" / "cloze.jsonl", {"text": words(30, 9)}, {"text": example}, {"text": "short"})
    (tmp_path / "eval" / "running.txt").write_text(running)
    return [first, second], [cloze, str(tmp_path / "eval" / "running.txt")]


DROP_ALONE = DecontaminationSettings(drop=True)


def decontaminated(planted: Planted, out: Path, run: Run, **chosen: Any) -> Any:
    documents, against = planted
    return decontaminate_documents(documents, str(out), DecontaminationSettings(against=tuple(against), **chosen), run)


def ids(records: Any) -> list[str]:
    return [row["id"] for row in rows(records)]


def test_documents_that_repeat_13_words_are_dropped_on_request_and_the_decision_says_why(
    tmp_path: Path, run: Run, planted: Planted
) -> None:
    """20 consecutive words contain eight 13-grams, 13 words one, 12 words none."""
    found = decontaminated(planted, tmp_path / "out", run, drop=True)
    assert ids(found.corpus) == ["clean", "almost"]
    decisions = rows(found.dropped)
    assert [(row["id"], row["value"], row["threshold"]) for row in decisions] == [("copies", 1, 1), ("quotes", 8, 1)]
    assert {(row["stage"], row["reason"], row["duplicate_of"]) for row in decisions} == {
        ("decontaminate", SHARES_NGRAM, None)
    }
    assert found.counts.to_json() == {"records_in": 4, "kept": 2, "dropped": {SHARES_NGRAM: 2}, "failed": {}}
    listed = [
        json.loads(line)
        for path in sorted((tmp_path / "out" / "dropped").glob("*.shared.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    assert listed == [
        {"id": "copies", "url": None, "shared": {"cloze.jsonl": 1}, "example": "cloze.jsonl:2"},
        {"id": "quotes", "url": None, "shared": {"running.txt": 8}, "example": "running.txt:1"},
    ]


def test_the_report_counts_8grams_in_the_documents_and_in_what_is_kept(
    tmp_path: Path, run: Run, planted: Planted
) -> None:
    """cloze has 23 + 33 8-grams; 13 words contain 6 of them and 12 contain 5. running has 53; 20 words contain 13."""
    found = decontaminated(planted, tmp_path / "out", run, drop=True)
    cloze, running = found.overlap["sets"]
    assert (cloze["name"], cloze["examples"], cloze["too_short"], cloze["ngrams"]) == ("cloze.jsonl", 3, 1, 56)
    assert cloze["overlap_ratio"] == pytest.approx(11 / 56)
    assert cloze["mean_example_ratio"] == pytest.approx((0 + 11 / 33) / 2)
    assert cloze["corpus_overlap_ratio"] == pytest.approx(5 / 56)
    assert (cloze["shared_examples"], cloze["documents"]) == (1, 1)
    assert running["overlap_ratio"] == running["mean_example_ratio"] == pytest.approx(13 / 53)
    assert running["corpus_overlap_ratio"] == 0
    assert json.loads((tmp_path / "out" / "overlap.json").read_text("utf-8")) == found.overlap


def test_without_drop_all_stay_and_sharing_documents_are_listed(tmp_path: Path, run: Run, planted: Planted) -> None:
    found = decontaminated(planted, tmp_path / "out", run)
    assert ids(found.corpus) == ["clean", "copies", "almost", "quotes"]
    assert ids(found.dropped) == []
    assert [row["documents"] for row in found.overlap["sets"]] == [1, 1]
    assert all(row["overlap_ratio"] == row["corpus_overlap_ratio"] for row in found.overlap["sets"])


def test_only_an_altered_set_changes_the_bytes_not_workers_or_the_order_of_sets(
    tmp_path: Path, run: Run, alone: Run, planted: Planted
) -> None:
    documents, against = planted
    decontaminated(planted, tmp_path / "a", run, drop=True)
    decontaminated((documents, against[::-1]), tmp_path / "b", alone, drop=True)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
    decontaminated(planted, tmp_path / "a", run, drop=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")} == stamps
    Path(against[1]).write_text(words(60, 10))
    assert ids(decontaminated(planted, tmp_path / "a", run, drop=True).dropped) == ["copies"]


def test_empty_texts_and_dropping_all_documents_work(tmp_path: Path, run: Run) -> None:
    text = words(40, 1)
    documents = write_jsonl(tmp_path / "d.jsonl", {"text": text}, {"text": "🙂🙃"}, {"text": ""})
    against = write_jsonl(tmp_path / "e.jsonl", {"text": text}, {"text": ""}, {"text": "🙂"})
    found = decontaminated(([documents], [against]), tmp_path / "out", run, drop=True)
    assert (found.corpus.records, found.dropped.records) == (1, 1)
    assert (found.overlap["sets"][0]["too_short"], found.overlap["sets"][0]["overlap_ratio"]) == (2, 1.0)


def test_clean_run_applies_rules_and_compares_with_evaluation_sets_in_one_call(
    tmp_path: Path, run: Run, alone: Run, planted: Planted
) -> None:
    """Documents that the rules drop are not compared with the sets; one worker and two produce the same bytes."""
    documents, against = planted
    decontaminate = DecontaminationSettings(against=tuple(against), drop=True)
    lenient = {
        "rules": RuleSettings(profile="minimal", rule=("too_few_words=none",)),
        "language": LanguageSettings(language=("all",)),
    }
    for name, each in (("1", alone), ("2", run)):
        chosen = CleanSettings(**lenient, decontaminate=decontaminate)  # type: ignore[arg-type]
        found = clean_pages(documents, str(tmp_path / name), chosen, each)
        assert ids(found.corpus) == ["clean", "almost"]
        assert found.counts.dropped == {SHARES_NGRAM: 2}
    assert found.overlap == decontaminated(planted, tmp_path / "verb", run, drop=True).overlap
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    strict = CleanSettings(rules=RuleSettings(rule=("too_few_words=10000",)), decontaminate=decontaminate)
    found = clean_pages(documents, str(tmp_path / "strict"), strict, run)
    assert SHARES_NGRAM not in found.counts.dropped
    assert {row["overlap_ratio"] for row in found.overlap["sets"]} == {0}  # type: ignore[index]
    clean_pages(documents, str(tmp_path / "strict"), CleanSettings(), run)
    assert not (tmp_path / "strict" / "overlap.json").exists()
    with pytest.raises(ConfigError, match="--drop is given without an evaluation set"):
        clean_pages(documents, str(tmp_path / "strict"), CleanSettings(decontaminate=DROP_ALONE), run)


def test_the_verb_prints_the_table_and_json(tmp_path: Path, planted: Planted, clean: Callable[..., str]) -> None:
    documents, against = planted
    command = ["decontaminate", *documents, "--out", str(tmp_path / "out"), "--workers", "1", "--drop"]
    command += [part for each in against for part in ("--against", each)]
    (row,) = (line.split() for line in clean(*command).splitlines() if line.startswith("cloze.jsonl"))
    assert row == ["cloze.jsonl", "3", "56", "19.64%", "16.67%", "8.93%", "7.58%", "1", "1"]
    answer = json.loads(clean(*command, "--json"))
    assert answer["counts"]["dropped"] == {SHARES_NGRAM: 2}
    assert answer["overlap"] == json.loads((tmp_path / "out" / "overlap.json").read_text("utf-8"))


def test_planted_lambada_passages_are_found_among_real_documents(tmp_path: Path, run: Run, shared_data: Path) -> None:
    """20 passages in upper case inside 60 technical documents: these 20 examples and no other share 13 words."""
    lambada = shared_data / "eval" / "lambada" / "lambada_test.jsonl"
    passages = [json.loads(line)["text"] for line in lambada.read_text("utf-8").splitlines()]
    with lzma.open(shared_data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line, _ in zip(file, range(60), strict=False)]
    planted = [
        {"id": str(i), "text": text + "\n" + passages[i * 20].upper() if i < 20 else text}
        for i, text in enumerate(texts)
    ]
    documents = write_jsonl(tmp_path / "d.jsonl", *planted)
    found = decontaminated(([documents], [str(lambada)]), tmp_path / "out", run, drop=True)
    assert ids(found.dropped) == [str(i) for i in range(20)]
    (row,) = found.overlap["sets"]
    assert row["examples"] == 5153
    assert 20 <= row["shared_examples"] <= 22
    assert row["corpus_overlap_ratio"] < 0.001 < row["overlap_ratio"]


def test_the_shares_are_those_of_a_bloom_filter_of_the_corpus(tmp_path: Path, run: Run, planted: Planted) -> None:
    """GPT-2's way: a filter of the documents' 8-grams, with 27 probes and 39 bits each (false positives 10^-8)."""
    documents, against = planted
    texts = [json.loads(line)["text"] for path in documents for line in Path(path).read_text("utf-8").splitlines()]
    corpus = {ngram for text in texts for ngram in ngrams_of(text, 8)}
    n_bits = 39 * len(corpus)

    def bits(ngram: str) -> list[int]:
        return [
            int.from_bytes(hashlib.blake2b(ngram.encode(), salt=bytes([i]), digest_size=8).digest()) % n_bits
            for i in range(27)
        ]

    bloom = {bit for ngram in corpus for bit in bits(ngram)}
    report = decontaminated(planted, tmp_path / "out", run).overlap
    for each, row in zip(evaluation_sets(against), report["sets"], strict=True):
        ngrams = [ngram for text in each.examples() for ngram in ngrams_of(text.decode(), 8)]
        assert row["overlap_ratio"] == sum(bloom.issuperset(bits(ngram)) for ngram in ngrams) / len(ngrams)
