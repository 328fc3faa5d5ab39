"""tokenizer.json files that prepare a text or cut it in steps: NFC, a prefix space, added tokens that aren't special."""

from __future__ import annotations

import json
import pickle
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.formats import tokenizer_json
from webtext.tokenizer.formats.pre_tokenizers import pattern_of
from webtext.tokenizer.patterns.named import cut

from .test_format_shapes import NFC, TEXTS, Json, added, byte_level, file_of, split


def sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


DIGITS, NUMBERS = ({"type": "Digits", "individual_digits": single} for single in (True, False))
PRE_TOKENIZERS = {
    "DeepSeek-V3": sequence(
        split(r"\p{N}{1,3}"),
        split("[一-龥\u3040-ゟ゠-ヿ]+"),
        split(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
        ),
        byte_level(),
    ),
    "DeepSeek-Coder": sequence(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), DIGITS, byte_level()
    ),
    "StarCoder": sequence(DIGITS, byte_level(use_regex=True)),
    "runs of digits, nested": sequence(sequence(split(r"\s"), sequence(NUMBERS)), byte_level(use_regex=True)),
    "a string": sequence(split("") | {"pattern": {"String": ".\n"}}, byte_level(use_regex=True)),
    "a prefix space": byte_level(add_prefix_space=True, use_regex=True),
}
LETTERS = "aB 1９²Ⅷ\n\r\t.,!'s<>-_/"
LETTERS += "\u0301\u0316\u0345\u093c\u0958क東ひカ한\u1112\u1161\u11abéÅ\u212b😀\u200d\x00\x1c\u00a0\u3000\u0661"


def hard_texts(n: int) -> list[str]:
    chance = random.Random(7)
    texts = ["".join(chance.choices(LETTERS, k=chance.randint(0, 25))) for _ in range(n)]
    return [text + chance.choice(["", "", "<think>", "<|e|>a", " </think>\u0338"]) + text[::-1] for text in texts]


@pytest.fixture(scope="module")
def anything_merges() -> Json:
    """A vocabulary learned from hard texts in one piece, so that a wrong cut shows."""
    texts = [re.sub("<.*?>", "", text) for text in hard_texts(300)]
    tokenizer = Tokenizer.train(texts, vocab_size=1200, pattern=r"(?s:.)+", special_tokens=[])
    file: Json = json.loads(tokenizer_json.dump(tokenizer._vocabulary))
    del file["model"]["webtext"]
    file["added_tokens"] = [
        added(1200, "<think>", special=False),
        added(1201, "<|e|>"),
        added(1202, "</think>", special=False),
    ]
    return file


@pytest.mark.parametrize(
    "normalizer", [None, NFC, {"type": "Sequence", "normalizers": [NFC]}], ids=["", "NFC", "[NFC]"]
)
@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_step_that_is_read_gives_hugging_faces_ids(
    tmp_path: Path, anything_merges: Json, name: str, normalizer: Json | None
) -> None:
    """With special tokens allowed as there by default, and without, as there if `encode_special_tokens` is set."""
    file = anything_merges | {"pre_tokenizer": PRE_TOKENIZERS[name], "normalizer": normalizer}
    (tmp_path / "theirs.json").write_text(json.dumps(file))
    theirs, ours = (kind(str(tmp_path / "theirs.json")) for kind in (tokenizers.Tokenizer.from_file, Tokenizer.load))
    ours.save(tmp_path / "ours.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "ours.json"))
    texts = [*hard_texts(150), *TEXTS]
    all_special, plain = ours.encode_batch(texts, allowed_special="all"), ours.encode_batch(texts)
    assert all_special == [encoding.ids for encoding in theirs.encode_batch(texts)]
    assert all_special == [encoding.ids for encoding in again.encode_batch(texts)]
    assert [ours.decode(ids) for ids in all_special] == theirs.decode_batch(all_special, skip_special_tokens=False)
    theirs.encode_special_tokens = True
    assert plain == [encoding.ids for encoding in theirs.encode_batch(texts)]
    for text, ids in zip(texts[-40:], plain[-40:], strict=True):
        assert ours.encode(text.encode()) == ours.encode_numpy(text).tolist() == ids
        assert ours.count(text) == len(ids)
        stream = ours._encode_stream()
        assert np.concatenate([stream.push(text.encode()), stream.finish()]).tolist() == ids
    data, offsets = "".join(texts).encode(), np.cumsum([0, *(len(text.encode()) for text in texts)])
    assert ours.encode_buffer(data, offsets)[0].tolist() == sum(plain, [])
    assert ours.encode_buffer(data, offsets, np.empty(len(data) * 2, np.uint16))[0].tolist() == sum(plain, [])
    with pytest.raises(ConfigError, match="out has room for 3 ids"):
        ours.encode_buffer(data, offsets, np.empty(3, np.uint16))
    assert Tokenizer.load(tmp_path / "ours.json") == ours == pickle.loads(pickle.dumps(ours))
    assert (Tokenizer.load(tmp_path / "ours.json").hash == _without(file, tmp_path).hash) == (normalizer is None)


def _without(file: Json, folder: Path) -> Tokenizer:
    (folder / "without.json").write_text(json.dumps(file | {"normalizer": None}))
    return Tokenizer.load(folder / "without.json")


def test_digits_are_hugging_faces_for_every_character(tmp_path: Path, anything_merges: Json) -> None:
    theirs = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    pattern, _ = pattern_of(sequence(DIGITS, byte_level()), "x")
    text = "a".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    assert list(cut(pattern, text)) == [piece for piece, _ in theirs.pre_tokenize_str(text)]


def test_nfc_is_hugging_faces_but_for_combining_marks_newer_than_theirs() -> None:
    """Unicode 9 in tokenizers 0.23 and 17 in 1.0; here that of Python. There are none above U+20000."""
    theirs = tokenizers.normalizers.NFC()
    n_new = 0
    for code in [*range(0xD800), *range(0xE000, 0x20000)]:
        character = chr(code)
        text = f"a{character}\u0316a\u0345{character}a\u0334{character}\u0301"
        if theirs.normalize_str(text) != unicodedata.normalize("NFC", text):
            assert unicodedata.combining(character)
            n_new += 1
    assert n_new < 400


def normalizing(tmp_path: Path, **changes: Any) -> Tokenizer:
    (tmp_path / "t.json").write_text(json.dumps(file_of("gpt2") | {"normalizer": NFC} | changes))
    return Tokenizer.load(tmp_path / "t.json")


def test_invalid_bytes_and_surrogates_stay_what_they_are_beside_nfc(tmp_path: Path) -> None:
    tokenizer = normalizing(tmp_path)
    assert tokenizer.decode_bytes(tokenizer.encode(b"e\xcc\x81\xff\xcc")) == "é".encode() + b"\xff\xcc"
    assert tokenizer.decode(tokenizer.encode("e\u0301\ud83d\ude00\ud800")) == "é😀\ufffd"


def test_tokens_have_their_places_in_a_normalized_text_and_none_in_one_that_is_changed(tmp_path: Path) -> None:
    tokenizer = normalizing(tmp_path)
    with pytest.raises(InputError, match="because the normalizer NFC changes it\npass unicodedata.normalize"):
        tokenizer.encode_with_offsets("e\u0301")
    late = normalizing(tmp_path, added_tokens=[added(340, "e\u0301!", normalized=True)])
    assert late.encode_with_offsets("aé!b", "all")[1] == [(0, 1), (1, 3), (3, 4)]
    with pytest.raises(InputError, match="contains the special token 'e\u0301!' at position 1"):
        late.encode("aé!b", disallowed_special="all")
    prefixing = normalizing(tmp_path, normalizer=None, pre_tokenizer=byte_level(add_prefix_space=True, use_regex=True))
    with pytest.raises(InputError, match="because add_prefix_space changes it\ncount and encode work"):
        prefixing.encode_with_offsets("a")


def test_only_a_tokenizer_json_stores_what_prepares_a_text(tmp_path: Path) -> None:
    always = [added(340, "<think>", special=False)]
    prefix = byte_level(add_prefix_space=True, use_regex=True)
    for changes, named in (
        ({}, "the normalizer NFC"),
        ({"normalizer": None, "pre_tokenizer": prefix}, "add_prefix_space"),
        ({"normalizer": None, "added_tokens": always}, "the added token '<think>', which isn't special"),
    ):
        tokenizer = normalizing(tmp_path, **changes)
        for save in (lambda t: t.save(tmp_path / "x.tiktoken"), lambda t: t.to_tiktoken()):
            with pytest.raises(InputError, match=f"can't represent {named}\nsave as tokenizer.json"):
                save(tokenizer)
        with pytest.raises(ConfigError, match=f"base has {named}\ntraining doesn't apply it"):
            Tokenizer.train(["a"], base=tokenizer)


@pytest.mark.usefixtures("linear_time")
def test_a_long_run_of_marks_is_normalized_in_linear_time(tmp_path: Path) -> None:
    """`unicodedata.normalize` alone takes 16 s for 80,000 marks, and four times as long for twice as many."""
    tokenizer = normalizing(tmp_path)
    short = "à" + "\u0301\u0316\u0345" * 50
    assert tokenizer.decode(tokenizer.encode(short)) == unicodedata.normalize("NFC", short)
    assert tokenizer.count("a" + "\u0301\u0316" * 500_000) > 1_000_000
