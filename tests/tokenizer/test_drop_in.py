"""Names of single tokens, equality, and the same tokenizer in other libraries."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import tokenizers

from webtext.base.errors import InputError, MachineError
from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.patterns.named import REGEXES

TEXTS = ["the dog and the other dog 1234", "a cat and the dogs' 5", "naïve 東京 words\n\n  x", "<|endoftext|> 🙂"]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, vocab_size=330, special_tokens=["<|endoftext|>", "<|pad|>"])


def test_tokens_have_the_names_that_hugging_face_gives_them(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert trained.vocab_size == peer.get_vocab_size(with_added_tokens=True)
    for id_ in range(-1, trained.vocab_size + 2):
        name = trained.id_to_token(id_)
        assert name == (peer.id_to_token(id_) if id_ >= 0 else None)
        assert name is None or trained.token_to_id(name) == peer.token_to_id(name) == id_
    assert trained.token_to_id("no such token") is None


def test_a_token_is_found_by_its_bytes(trained: Tokenizer) -> None:
    (the,) = trained.encode(" the")
    assert (trained.token_to_id(b" the"), trained.token_to_id("Ġthe"), trained.token_to_id(" the")) == (the, the, None)
    assert trained.token_to_id(b"<|endoftext|>") == trained.eot_id
    assert trained.token_to_id(b"\xff") is not None


def test_batches_are_decoded_as_their_rows(trained: Tokenizer) -> None:
    assert trained.decode_batch(trained.encode_batch(TEXTS)) == TEXTS
    assert trained.decode_batch([]) == []
    with pytest.raises(InputError, match="unknown token id 9999"):
        trained.decode_batch([[0], [9999]])


def test_tokenizers_are_equal_if_their_ids_are(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert trained == loaded == pickle.loads(pickle.dumps(trained))
    assert len({trained, loaded}) == 1
    assert trained != Tokenizer.train(TEXTS * 3, vocab_size=300)
    assert trained != 5


@pytest.mark.parametrize("pattern", REGEXES)
def test_tiktoken_gets_the_same_ids(pattern: str) -> None:
    ours = Tokenizer.train(TEXTS * 3, vocab_size=330, pattern=pattern)
    theirs = ours.to_tiktoken()
    for text in TEXTS:
        assert theirs.encode(text, allowed_special="all") == ours.encode(text, allowed_special="all")
        assert theirs.encode(text, disallowed_special=()) == ours.encode(text)
    assert (theirs.n_vocab, theirs.eot_token) == (ours.vocab_size, ours.eot_id)


def test_transformers_gets_the_same_ids(trained: Tokenizer) -> None:
    pytest.importorskip("transformers")
    theirs = trained.to_huggingface()
    for text in TEXTS:
        assert theirs(text)["input_ids"] == trained.encode(text, allowed_special="all")
        assert theirs.decode(trained.encode(text)) == text
    assert (theirs.eos_token_id, theirs.bos_token_id) == (trained.eot_id, trained.eot_id)
    assert Tokenizer.train(TEXTS, vocab_size=300, special_tokens=[]).to_huggingface().eos_token is None


def test_what_tiktoken_cannot_do_is_an_error() -> None:
    letters = [bytes([byte]) for byte in range(256)]
    by_merges = Tokenizer(Vocabulary(tokens=[*letters, b"bc", b"ab"], merges=[(97, 98), (98, 99)]))  # ab before bc
    with pytest.raises(InputError, match="tiktoken can't represent these merges"):
        by_merges.to_tiktoken()
    own = Tokenizer.train(TEXTS, vocab_size=256, special_tokens=[], pattern=r"\w+")  # tiktoken loses what is between
    with pytest.raises(InputError, match="differ from those of this tokenizer's own pattern"):
        own.to_tiktoken()
    overlapping = Tokenizer.train(TEXTS, vocab_size=258, special_tokens=["<a><b>", "<a>"])
    with pytest.raises(InputError, match="tiktoken may find '<a>' where a text has '<a><b>'"):
        overlapping.to_tiktoken()


def test_a_missing_library_is_named(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tiktoken", None)
    with pytest.raises(MachineError, match="'tiktoken' is not installed\ninstall it with: pip install tiktoken"):
        trained.to_tiktoken()
