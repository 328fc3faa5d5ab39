"""Training on part sets and files: train split only, skipped if nothing changed, files written atomically."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from encrypted_parquet import encrypted_parquet
from part_sets import document, made_set

from webtext.base.console import Console, Progress
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.files import corpus
from webtext.tokenizer.files.corpus import TokenizerSettings, train_tokenizer
from webtext.tokenizer.train.progress import TrainingProgress

CANARY = "zyzzyva"
SETTINGS = TokenizerSettings(vocab_size=400)


def write_set(folder: Path, parts: Sequence[Sequence[Mapping[str, Any]]], kind: str = "corpus") -> str:
    return made_set(folder, kind, parts).folder.url


@pytest.fixture
def documents(tmp_path: Path) -> str:
    parts = [
        [document("a", "the dog and the other dog " * 9), document("b", f"{CANARY} " * 999, "validation")],
        [document("c", "a cat and the dogs " * 9), document("d", "")],
    ]
    return write_set(tmp_path / "corpus", parts)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "tokenizer" / "tokenizer.json")


def test_validation_text_never_reaches_the_merges(documents: str, out: str) -> None:
    """The canary in the validation document is the most frequent word of the set; none of its pairs may be merged."""
    tokenizer = train([documents], out)
    assert len(tokenizer.encode(" dog")) == 1
    assert len(tokenizer.encode(CANARY)) == len(CANARY)
    texts = ["the dog and the other dog " * 9, "a cat and the dogs " * 9]
    assert tokenizer.hash == Tokenizer.train(texts, vocab_size=400).hash == Tokenizer.load(out).hash


def test_manifest_names_recipe_parents_and_counts(documents: str, out: str) -> None:
    tokenizer = train([documents], out)
    manifest = manifest_of(out)
    assert manifest["parents"] == [{"set": "corpus", "hash": PartSet.open(documents).hash}]
    assert manifest["counts"] == {"records_in": 4, "kept": 2, "dropped": {"held_out": 1, "empty": 1}, "failed": {}}
    assert manifest["recipe"]["settings"]["vocab_size"] == 400
    assert manifest["recipe"]["versions"] == {"unicode": "16.0.0"}
    assert (manifest["tokenizer_hash"], manifest["vocab_size"]) == (tokenizer.hash, tokenizer.vocab_size)


def train(inputs: Sequence[str], out: str, settings: TokenizerSettings = SETTINGS) -> Tokenizer:
    return train_tokenizer(inputs, out, settings, Run.quiet())


def manifest_of(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out).with_name("tokenizer.manifest.json").read_text())
    return found


def trained(inputs: Sequence[str], out: str, settings: TokenizerSettings, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a run trained, instead of being skipped."""
    calls = []
    with monkeypatch.context() as patch:
        learn = corpus.train_vocabulary
        patch.setattr(corpus, "train_vocabulary", lambda *a, **k: calls.append(1) or learn(*a, **k))
        train_tokenizer(inputs, out, settings, Run.quiet())
    return bool(calls)


def test_unchanged_work_is_skipped_and_changed_work_is_not(
    documents: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained([documents], out, SETTINGS, monkeypatch)
    before = Path(out).read_bytes()
    assert not trained([documents], out, SETTINGS, monkeypatch)
    assert trained([documents], out, TokenizerSettings(vocab_size=300), monkeypatch)
    assert trained([documents], out, SETTINGS, monkeypatch)
    assert Path(out).read_bytes() == before
    other = write_set(tmp_path / "other", [[document("a", "another text")]])
    assert trained([other], out, SETTINGS, monkeypatch)
    assert not trained([other], out, SETTINGS, monkeypatch)


def test_a_file_that_changes_while_it_is_read_is_an_error(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("some text")
    os.utime(path, (1, 1))
    monkeypatch.setattr(corpus, "find_killers", lambda *_: path.write_text("another text"))
    with pytest.raises(InputError, match="a.txt' changed while it was read"):
        train([str(path)], out)


@pytest.mark.parametrize("damage", ["cut", "removed", "no manifest", "damaged manifest"])
def test_a_damaged_result_is_made_again(documents: str, out: str, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    train([documents], out)
    good = Path(out).read_bytes()
    manifest = Path(out).with_name("tokenizer.manifest.json")
    {
        "cut": lambda: Path(out).write_bytes(good[:1000]),
        "removed": Path(out).unlink,
        "no manifest": manifest.unlink,
        "damaged manifest": lambda: manifest.write_text("[1, 2"),
    }[damage]()
    assert trained([documents], out, SETTINGS, monkeypatch)
    assert Path(out).read_bytes() == good


def test_a_run_killed_before_the_manifest_does_not_count(
    documents: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            train([documents], out)
    assert not Path(out).exists()
    assert trained([documents], out, SETTINGS, monkeypatch)


def test_temporary_files_of_a_killed_run_are_removed_and_no_others(documents: str, out: str) -> None:
    folder = Path(out).parent
    folder.mkdir()
    for name in (".tokenizer.json.77.tmp", ".tokenizer.manifest.json.77.tmp", ".theirs.tmp"):
        (folder / name).write_bytes(b"half")
    train([documents], out)
    assert [path.name for path in folder.glob(".*.tmp")] == [".theirs.tmp"]


def test_a_dry_run_writes_nothing(documents: str, out: str) -> None:
    run = Run.quiet()
    run.dry_run = True
    with pytest.raises(DryRun):
        train_tokenizer([documents], out, SETTINGS, run)
    assert not Path(out).parent.exists()


def test_text_files_are_learned_completely(tmp_path: Path, out: str) -> None:
    """Files are read in blocks of a megabyte; the blocks' pieces equal the pieces of the complete file."""
    text = "".join(f"line {number}、行{number}。\n\n  \n next\xa0\nword " for number in range(60_000))
    assert len(text.encode()) > 2 << 20
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    tokenizer = train([str(file)], out)
    assert tokenizer.hash == Tokenizer.train([text], vocab_size=400).hash
    manifest = manifest_of(out)
    assert manifest["bytes"] == len(text.encode())


def test_part_sets_and_files_can_be_mixed(documents: str, tmp_path: Path, out: str) -> None:
    file = tmp_path / "more.txt"
    file.write_text("some more words")
    texts = ["the dog and the other dog " * 9, "a cat and the dogs " * 9, "some more words"]
    tokenizer = train([documents, str(file)], out)
    assert tokenizer.hash == Tokenizer.train(texts, vocab_size=400).hash


def test_a_folder_of_files_is_all_of_its_files_with_its_weight(tmp_path: Path, out: str) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.jsonl").write_bytes(json_lines({"text": TEXTS[1]}, {"text": TEXTS[2]}))
    (folder / "a.txt").write_text(TEXTS[0])
    (folder / "c.tsv").write_text("not read " * 99)
    assert train([str(folder)], out).hash == HASH
    assert manifest_of(out)["counts"]["kept"] == 3
    train([str(folder)], out, TokenizerSettings(vocab_size=400, weight=(f"{folder}=2",)))
    assert [parent["weight"] for parent in manifest_of(out)["parents"]] == ["2", "2"]


def json_lines(*records: object) -> bytes:
    return b"".join(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n" for record in records)


def compressed(data: bytes, suffix: str) -> bytes:
    """Compress to two concatenated members or frames, which are one file."""
    pack = {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }[suffix]
    middle = len(data) // 2
    return pack(data[:middle]) + pack(data[middle:])


TEXTS = ["the dog and the other dog", "a cat and the dogs", "naïve 東京 words"]
HASH = Tokenizer.train(TEXTS, vocab_size=400).hash


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_text_and_json_lines_are_read(tmp_path: Path, out: str, suffix: str) -> None:
    lines = tmp_path / f"texts.jsonl{suffix}"
    lines.write_bytes(compressed(json_lines(*({"text": text, "id": 7} for text in TEXTS)), suffix))
    assert train([str(lines)], out).hash == HASH
    text = tmp_path / f"text.txt{suffix}"
    text.write_bytes(compressed(" ".join(TEXTS).encode(), suffix))
    expected = Tokenizer.train([" ".join(TEXTS)], vocab_size=400).hash
    assert train([str(text)], out).hash == expected


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compression_is_a_failed_record_and_the_file_is_named(
    tmp_path: Path, out: str, suffix: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = compressed(random.Random(0).randbytes(200_000), suffix)
    middle = len(good) // 2
    bad = good[: middle // 2] if damage == "cut" else good[: middle + 1] + bytes(9) + good[middle + 10 :]
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(bad)
    with pytest.raises(InputError, match="no text to train on"):
        train([str(path)], out)
    assert re.search(f"text.txt{suffix}: 1 (truncated|damaged)_stream", capsys.readouterr().err)
    assert not Path(out).exists()


@pytest.mark.parametrize("padded", [False, True])
def test_a_file_whose_opening_kills_workers_is_named_and_the_others_are_trained_on(
    tmp_path: Path, out: str, capsys: pytest.CaptureFixture[str], padded: bool
) -> None:
    good, bad = tmp_path / "texts.jsonl", tmp_path / "bad.parquet"
    good.write_bytes(json_lines(*({"text": text} for text in TEXTS)))
    bad.write_bytes(encrypted_parquet("text", padded=padded))
    reason = "killed_worker" if padded else "damaged_stream"
    for _ in range(2):
        with pytest.raises(RunFailed, match=f"'{out}': 1 {reason}"):
            train([str(bad), str(good)], out)
    assert f"bad.parquet: 1 {reason}" in capsys.readouterr().err
    assert Tokenizer.load(out).hash == HASH


def test_lines_without_text_are_counted_by_reason(
    tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webtext.base.inputs.records.MAX_LINE_BYTES", 1000)
    bad = [b"{no json\n", b"\xff\n", b"[" * 900 + b"\n", {"body": "x"}, {"text": 7}, ["text"], {"text": "y" * 5000}]
    path = tmp_path / "texts.jsonl"
    good = ({"text": text} for text in ("", TEXTS[1], TEXTS[2]))
    path.write_bytes(json_lines({"text": TEXTS[0]}, *bad, b"\n \n", *good))
    assert train([str(path)], out).hash == HASH
    manifest = manifest_of(out)
    failed = {"not_json": 3, "no_text": 2, "not_utf8": 1, "line_too_long": 1}
    assert manifest["counts"] == {"records_in": 11, "kept": 3, "dropped": {"empty": 1}, "failed": failed}
    said = capsys.readouterr().err
    assert "7 records without text: 1 line_too_long, 2 no_text, 3 not_json, 1 not_utf8" in said
    assert f"{path}: 1 line_too_long, 2 no_text, 3 not_json, 1 not_utf8\n" in said
    train([str(path), str(path)], out)
    assert "14 records without text: 2 line_too_long, 4 no_text, 6 not_json, 2 not_utf8" in capsys.readouterr().err


def test_lone_surrogates_in_json_lines_are_replaced(tmp_path: Path, out: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b'{"text": "a\\ud800b"}\n')
    assert train([str(path)], out).hash == Tokenizer.train(["a\ufffdb"], 400).hash


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_is_read_and_nulls_are_counted(tmp_path: Path, out: str, type_: pa.DataType) -> None:
    texts = pa.array([*TEXTS, None, ""])
    pq.write_table(pa.table({"body": texts.cast(type_), "n": range(5)}), tmp_path / "texts.parquet")
    settings = TokenizerSettings(vocab_size=400, text_field="body")
    assert train([str(tmp_path / "texts.parquet")], out, settings).hash == HASH
    counts = manifest_of(out)["counts"]
    assert counts == {"records_in": 5, "kept": 3, "dropped": {"empty": 1}, "failed": {"no_text": 1}}
    with pytest.raises(InputError, match="has no column 'text'\nits columns: body, n"):
        train([str(tmp_path / "texts.parquet")], out)


def test_a_column_of_another_type_is_an_error(tmp_path: Path, out: str) -> None:
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match="column 'text' of '.*' is of int64"):
        train([str(tmp_path / "numbers.parquet")], out)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Two text files that lead to different merges."""
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    paths[0].write_text("ab cd ab cd ab ef\n" * 3)
    paths[1].write_text("xy zw xy zw xy ab\n" * 4)
    return [str(path) for path in paths]


@pytest.mark.parametrize(("weights", "times"), [(("2.5", "1"), (5, 2)), (("1/3", "2"), (1, 6)), (("3", "1"), (3, 1))])
def test_weights_are_whole_repetitions(two: list[str], out: str, weights: Sequence[str], times: Sequence[int]) -> None:
    """Weights 2.5 and 1 mean five and two repetitions; `min_frequency` is multiplied by the same factor."""
    weight = tuple(f"{url}={number}" for url, number in zip(two, weights, strict=True))
    repeated = [Path(url).read_text() for url, n in zip(two, times, strict=True) for _ in range(n)]
    scale = times[0] / float(Fraction(weights[0]))
    for min_frequency in (1, 9, 10):
        settings = TokenizerSettings(vocab_size=400, weight=weight, min_frequency=min_frequency)
        expected = Tokenizer.train(repeated, vocab_size=400, min_frequency=round(min_frequency * scale))
        assert train(two, out, settings).hash == expected.hash
    parents = manifest_of(out)["parents"]
    assert parents[0]["weight"] == str(Fraction(weights[0]))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("one.txt", "doesn't match any input"),
        *((f"{{}}={bad}", "is not a number above 0") for bad in ("0", "-1", "1/0", "1e9", "x")),
        ("{}=999999999", "exceed 63 bits"),
    ],
)
def test_invalid_weights_are_errors(two: list[str], out: str, weight: str, message: str) -> None:
    weights = (weight.format(two[0]), f"{two[1]}=1/999999937")
    with pytest.raises(ConfigError, match=message):
        train(two, out, TokenizerSettings(weight=weights))


def test_no_text_at_all_is_an_error(tmp_path: Path, out: str) -> None:
    held_out = write_set(tmp_path / "held_out", [[document("a", "words", "validation")]])
    (tmp_path / "empty.txt").touch()
    for source in (held_out, str(tmp_path / "empty.txt")):
        with pytest.raises(InputError, match="no text to train on"):
            train([source], out)
    assert not Path(out).exists()


def test_inputs_that_cannot_be_read_are_errors(documents: str, tmp_path: Path, out: str) -> None:
    (tmp_path / "folder").mkdir()
    dropped = write_set(tmp_path / "tokens", [], kind="tokens")
    for source, message in {
        str(tmp_path / "nothing.txt"): "does not exist",
        str(tmp_path / "folder"): "is not a part set",
        dropped: "contains tokens, not corpus or documents",
    }.items():
        with pytest.raises(InputError, match=message):
            train([source], out)
    part = next(Path(documents).glob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(InputError, match=part.name):
        train([documents], out)


def test_a_tokenizer_is_extended_and_the_recipe_names_it(
    documents: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe depends on the base's contents, not on its path."""
    base = Tokenizer.train(["another text altogether"] * 3, vocab_size=270, pattern="o200k")
    for name in ("base.json", "copy.json"):
        base.save(tmp_path / name)
    settings = TokenizerSettings(vocab_size=300, base=str(tmp_path / "base.json"))
    tokenizer = train([documents], out, settings)
    texts = ["the dog and the other dog " * 9, "a cat and the dogs " * 9]
    assert tokenizer.hash == Tokenizer.train(texts, vocab_size=300, base=base).hash
    assert tokenizer.special_tokens == base.special_tokens
    manifest = manifest_of(out)
    assert manifest["recipe"]["settings"]["base"] == base.hash
    same = TokenizerSettings(vocab_size=300, base=str(tmp_path / "copy.json"))
    assert not trained([documents], out, same, monkeypatch)
    Tokenizer.train(["a third text"] * 3, vocab_size=270).save(tmp_path / "base.json")
    assert trained([documents], out, settings, monkeypatch)


@pytest.mark.parametrize("kind", ["set", "text", "text.gz", "jsonl"])
def test_the_percentage_rises_to_100_and_only_at_the_end(
    documents: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The share of a part set's rows and of a text's bytes is known; that of other files is known when they are read."""
    run = Run.quiet()
    seen: list[int] = []

    class Recorded(Progress):
        def advance(self, n: int = 1, note: str = "") -> None:
            assert n >= 0
            super().advance(n, note)
            seen.append(self.done)

    @contextlib.contextmanager
    def progress(total: int | None, label: str, unit: str) -> Iterator[Progress]:
        assert (total, label, unit) == (100, "tokenizer train", "%")
        yield Recorded(total)

    monkeypatch.setattr(run.console, "progress", progress)
    monkeypatch.setattr("webtext.tokenizer.files.inputs.REPORTED_BYTES", 10)
    shares: list[float | None] = []
    counted = TrainingProgress.counted

    def recorded(self: TrainingProgress, n_bytes: int, share: float | None) -> None:
        shares.append(share)
        counted(self, n_bytes, share)

    monkeypatch.setattr(TrainingProgress, "counted", recorded)
    text = b"the quick brown fox and the lazy dog\n" * 400_000
    inputs = {
        "set": lambda: documents,
        "text": lambda: _written(tmp_path / "a.txt", text),
        "text.gz": lambda: _written(tmp_path / "a.txt.gz", gzip.compress(text, 1)),
        "jsonl": lambda: _written(tmp_path / "a.jsonl", b'{"text": "the quick brown fox"}\n' * 99),
    }
    train_tokenizer([inputs[kind]()], out, SETTINGS, run)
    assert seen[-1] == 100
    assert 100 not in seen[:-1]
    assert (None in shares) == (kind in ("text.gz", "jsonl"))
    assert shares[-1] == 1


def _written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("url", ["memory://trained/tokenizer.json", "memory://trained/folder"])
def test_a_tokenizer_may_be_written_to_a_url(
    url: str, documents: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train([documents], out)
    assert trained([documents], url, SETTINGS, monkeypatch)
    assert not trained([documents], url, SETTINGS, monkeypatch)
    loaded = Tokenizer.load(url)
    assert (loaded.hash, loaded.encode("the dogs")) == (expected.hash, expected.encode("the dogs"))


def test_tokenizers_whose_names_begin_alike_are_not_taken_for_each_other(documents: str, tmp_path: Path) -> None:
    run = Run.quiet()
    run.replaces = False
    for size in (300, 310, 300):
        train_tokenizer([documents], f"{tmp_path}/en.{size}.json", TokenizerSettings(vocab_size=size), run)


@pytest.mark.parametrize("bad", [{"vocab_size": 100}, {"min_frequency": 0}])
def test_invalid_settings_are_errors(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer.{next(iter(bad))} is"):
        TokenizerSettings(**bad)


def test_a_tokenizer_that_is_kept_is_not_trained_again_on_other_texts(
    documents: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest still names the texts that it was trained on. Other settings or a damaged file retrain it."""
    talkative = Run(Run.quiet().engine, Console("human"))
    first = train_tokenizer([documents], out, SETTINGS, talkative, keeps=True)
    manifest = Path(out).with_name("tokenizer.manifest.json").read_bytes()
    other = write_set(tmp_path / "other", [[document("a", "another text")]])
    capsys.readouterr()
    assert train_tokenizer([other], out, SETTINGS, talkative, keeps=True).hash == first.hash
    old, new = (PartSet.open(each).hash[:12] for each in (documents, other))
    assert f"'{out}' is kept: trained on corpus {old}, now there is corpus {new}" in capsys.readouterr().err
    assert Path(out).with_name("tokenizer.manifest.json").read_bytes() == manifest
    assert train_tokenizer([other], out, TokenizerSettings(vocab_size=300), talkative, keeps=True).vocab_size < 400
    Path(out).write_bytes(b"{}")
    assert train_tokenizer([other], out, SETTINGS, talkative, keeps=True).hash != first.hash
    assert train_tokenizer([documents], out, SETTINGS, talkative).hash == first.hash


def test_a_file_that_is_not_text_is_a_failed_record_and_an_encoding_is_followed(
    tmp_path: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, the bytes of images and of UTF-16 were learned."""
    for name, data in {
        "image.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "wide.txt": TEXTS[0].encode("utf-16"),
        "late.txt": b"plain " * 300_000 + b"\xe9",
        "good.txt": TEXTS[0].replace("\n", "\r\n").encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
    given = [str(tmp_path / name) for name in ("image.png", "wide.txt", "late.txt", "good.txt")]
    one = train(given, out)
    assert manifest_of(out)["counts"]["failed"] == {"not_utf8": 3}
    assert "image.png: 1 not_utf8\n" in capsys.readouterr().err
    for encoding in ("utf-16", "auto"):
        settings = TokenizerSettings(vocab_size=400, encoding=encoding)
        assert train([str(tmp_path / "wide.txt")], out, settings).hash == one.hash
