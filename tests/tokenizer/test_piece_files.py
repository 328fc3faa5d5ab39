"""A table of pieces next to a tokenizer makes the first text fast and changes no ids, whatever the file contains."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.tokenizer import Tokenizer
from webtext.tokenizer.formats.piece_files import path_beside
from webtext.tokenizer.train.counts import PieceCounts

TEXTS = ["low lower lowest, the newest and the widest of 1234 boats; été, naïve, 日本語!\n\n  indented"] * 3
LONG_WORD = " " + "antidisestablishmentarianism" * 3
HEADER = 64


@pytest.fixture
def trained() -> Tokenizer:
    return Tokenizer.train([*TEXTS, LONG_WORD], vocab_size=320)


def test_the_table_is_next_to_the_tokenizer_and_found_on_loading(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json", pieces=[b" lower", LONG_WORD.encode()])
    assert (tmp_path / "tokenizer.pieces").exists()
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded._piece_file == str(tmp_path / "tokenizer.pieces")
    for text in [*TEXTS, LONG_WORD, " lower lower"]:
        assert loaded.encode(text) == trained.encode(text)


def test_without_pieces_the_table_of_the_overwritten_tokenizer_is_removed(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json", pieces=True)
    trained.save(tmp_path / "tokenizer.json")
    assert not (tmp_path / "tokenizer.pieces").exists()
    assert Tokenizer.load(tmp_path / "tokenizer.json")._piece_file == ""


@pytest.mark.parametrize("name", ["tokenizer.json", "ranks.tiktoken", "folder"])
def test_every_format_has_its_table(trained: Tokenizer, tmp_path: Path, name: str) -> None:
    trained.save(tmp_path / name, pieces=True)
    loaded = Tokenizer.load(tmp_path / name, **({"pattern": "gpt2"} if name.endswith("tiktoken") else {}))
    assert loaded._piece_file == path_beside(tmp_path / name)
    assert loaded.encode(TEXTS[0]) == trained.encode(TEXTS[0])


def test_the_table_is_used(trained: Tokenizer) -> None:
    """A table with other tokens of the same bytes changes the ids."""
    native = trained._vocabulary.native()
    letters = [native.encode(bytes([byte]))[0] for byte in b"low"]
    assert native.encode(b"low") != letters
    table = bytearray(native.piece_file("", [b"low"]))
    at = table.index(b"low", HEADER)
    table[at + 16 : at + 32] = np.array([*letters, 0, 0, 0, 0, 3], np.uint16).tobytes()
    fresh = trained._vocabulary.native()  # an encoder that doesn't know the piece yet
    fresh.use_piece_file(_summed(table), "")
    assert fresh.encode(b"low") == letters


@given(st.text(max_size=80), st.lists(st.binary(min_size=1, max_size=40), max_size=20))
def test_ids_are_the_same_whatever_pieces_it_contains(text: str, pieces: list[bytes]) -> None:
    plain = Tokenizer.train(TEXTS, vocab_size=300)
    native = plain._vocabulary.native()
    native.use_piece_file(np.frombuffer(native.piece_file("", pieces), np.uint8), "")
    assert native.encode(text.encode()) == plain.encode(text.encode())


def test_a_table_of_another_tokenizer_is_not_used_and_a_warning_says_so(
    trained: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Tokenizer.train(["something else entirely"] * 4, vocab_size=270)
    trained.save(tmp_path / "tokenizer.json", pieces=True)
    table = (tmp_path / "tokenizer.pieces").read_bytes()
    other.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.pieces").write_bytes(table)
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert "another tokenizer" in caplog.text
    assert loaded.encode("something lower") == other.encode("something lower")


@pytest.mark.parametrize(
    ("place", "message"),
    [(0, "not a table of"), (24, "damaged"), (40, "damaged"), (HEADER, "damaged"), (-1, "damaged"), (None, "cut")],
)
def test_a_damaged_table_is_not_used(
    trained: Tokenizer, tmp_path: Path, place: int | None, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokenizer.json"
    trained.save(path, pieces=[b" lower", LONG_WORD.encode()])
    table = bytearray((tmp_path / "tokenizer.pieces").read_bytes())
    if place is None:
        del table[50:]
    else:
        table[place] ^= 1
    (tmp_path / "tokenizer.pieces").write_bytes(table)
    assert Tokenizer.load(path).encode(TEXTS[0]) == trained.encode(TEXTS[0])
    assert message in caplog.text


def test_a_forged_table_never_changes_the_text_nor_reads_outside_itself(trained: Tokenizer) -> None:
    """With a valid checksum: entries with other tokens, or with positions far outside, are rejected."""
    for seed in range(200):
        native = trained._vocabulary.native()
        rng = np.random.default_rng(seed)
        table = bytearray(native.piece_file("", [b" lower", b"low", b" lowest", LONG_WORD.encode()]))
        filled = [at for at in range(HEADER, len(table), 8) if any(table[at : at + 8])]
        at = int(rng.choice(filled))
        table[at : at + 8] = rng.bytes(8)
        with contextlib.suppress(ValueError):
            native.use_piece_file(_summed(table), "")
        for text in (b" lower", b"low lowest lower", LONG_WORD.encode()):
            assert native.decode(native.encode(text)) == text


def _summed(table: bytearray) -> object:
    """Return the table with a valid checksum."""
    from webtext.tokenizer import _bpe

    table[24:32] = _bpe.piece_file_checksum(bytes(table)).to_bytes(8, "little")
    return np.frombuffer(bytes(table), np.uint8)


def test_a_long_text_adopts_all_pieces_of_the_table(tmp_path: Path) -> None:
    words = [
        f" {first}{second}{third}x"
        for first in "abcdefghijklmnopqrstuv"
        for second in "abcdefghij"
        for third in "aeiouy"
    ]
    long_words = [word * 9 for word in words[::7]]
    tokenizer = Tokenizer.train([" ".join(words[:40])], vocab_size=300)
    tokenizer.save(tmp_path / "tokenizer.json", pieces=[word.encode() for word in [*words, *long_words]])
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "".join(f" {number:x}g" for number in range(30_000)) + "".join(words) + "".join(long_words)
    assert loaded.encode(text) == tokenizer.encode(text)


def test_an_empty_file_is_ignored(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.pieces").write_bytes(b"")
    assert Tokenizer.load(tmp_path / "tokenizer.json")._piece_file == ""


def test_a_folder_in_place_of_the_table_is_not_an_error(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.pieces").mkdir()
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(TEXTS[0]) == trained.encode(TEXTS[0])


def test_tables_are_written_and_found_at_urls(trained: Tokenizer, tmp_path: Path) -> None:
    for url in ("memory://bucket/tokenizer.json", f"file://{tmp_path}/tokenizer.json"):
        trained.save(url, pieces=[b" lower", LONG_WORD.encode()])
        loaded = Tokenizer.load(url)
        assert loaded._piece_file == path_beside(url)
        assert loaded.encode(TEXTS[0]) == trained.encode(TEXTS[0])
        assert pickle.loads(pickle.dumps(loaded)).encode(TEXTS[0]) == trained.encode(TEXTS[0])
        trained.save(url)
        assert Tokenizer.load(url)._piece_file == ""


def test_copies_and_other_processes_map_the_same_table(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json", pieces=True)
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert pickle.loads(pickle.dumps(loaded))._piece_file == loaded._piece_file
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(loaded.encode, (TEXTS[0],)) == trained.encode(TEXTS[0])


def test_the_most_common_pieces_come_in_order_of_their_counts() -> None:
    counts = PieceCounts()
    counts.add(["x b b b a a c", " z"])
    assert counts.most_common(3) == [b" b", b" a", b" c"]
    assert counts.most_common(0) == []
    assert len(counts.most_common(100)) == len(list(counts.items()))
