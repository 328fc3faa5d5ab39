"""The engines of the tokenizer's bench: how each loads a vocabulary, and which of its calls does which task.

An engine is a function that loads a named vocabulary and returns its calls by task: "documents" (one call per document,
to numpy if there is such a call), "text" (one call for all), "batch" (one call for all documents), "lists" (to Python
lists, one call per document), "list batch", "decode", "hostile". A name after a slash is one of several alternatives;
the fastest counts. A call takes `Texts`, gets from them what it needs, and returns the work to be timed, which returns
ids. No engine recognises special tokens in texts. Each uses one thread unless a job has two.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizer_texts import SEPARATOR, VOCABULARIES, Texts

Work = Callable[[], Any]
Calls = dict[str, Callable[[Any], Work]]
Merges = Sequence[tuple[bytes, bytes]]
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""GPT-2's pattern, in the form that trainers run fastest; without possessive quantifiers tiktoken's stack overflows."""


def webtext(data: Path, name: str, threads: int) -> Calls:
    """webtext, by its public calls."""
    from webtext.tokenizer import Tokenizer

    vocabulary = VOCABULARIES[name]
    tokenizer = Tokenizer.load(data / vocabulary.file)
    if name in ("llama3", "qwen2"):  # use the tokens of a file that has another pattern
        tokenizer = Tokenizer(dataclasses.replace(tokenizer._vocabulary, pattern=name))
    dtype = np.uint16 if tokenizer.vocab_size <= 65_536 else np.uint32

    def text(texts: Texts) -> Work:
        room = texts.room(dtype)
        return lambda: tokenizer.encode_buffer(texts.data, texts.bounds, out=room, threads=threads)[0]

    return {
        "documents": lambda texts: partial(map, tokenizer.encode_numpy, texts.documents),
        "text": text,
        "batch": lambda texts: partial(_first, tokenizer.encode_flat, texts.documents, threads=threads),
        "lists": lambda texts: partial(map, tokenizer.encode, texts.documents),
        "list batch": lambda texts: partial(tokenizer.encode_batch, texts.documents, threads=threads),
        "decode": lambda texts: partial(tokenizer.decode_bytes, texts.ids(dtype)),
        "hostile": lambda text: partial(tokenizer.encode_numpy, text),
    }


def gigatoken(data: Path, name: str, threads: int) -> Calls:
    """gigatoken's Rust object, without its Python wrapper."""
    import awkward  # noqa: F401  (what it returns; else the first call pays for the import)
    from gigatoken import BytesSource
    from gigatoken.gigatoken_rs import BPETokenizer

    vocabulary = VOCABULARIES[name]
    tokenizer = BPETokenizer.from_tiktoken(data / vocabulary.file, vocabulary.scheme, {})
    batch = partial(tokenizer.encode_batch, parallel=threads > 1)
    lists = partial(tokenizer.encode_batch_list, parallel=threads > 1)
    return {
        "documents": lambda texts: partial(map, tokenizer.encode, texts.documents),
        "text": lambda texts: partial(tokenizer.encode, texts.data),
        "text/batch": lambda texts: partial(batch, BytesSource(texts.data)),
        "batch": lambda texts: partial(batch, texts.documents),
        "lists": lambda texts: partial(map, lambda text: lists([text])[0], texts.documents),
        "lists/tolist": lambda texts: partial(map, lambda text: tokenizer.encode(text).tolist(), texts.documents),
        "list batch": lambda texts: partial(lists, texts.documents),
        "decode": lambda texts: partial(tokenizer.decode, texts.ids()),
        "hostile": lambda text: partial(tokenizer.encode, text),
    }


def fastokens(data: Path, name: str, threads: int) -> Calls:
    """fastokens, loaded from the same tokenizer.json as HF tokenizers."""
    from fastokens._native import Tokenizer

    tokenizer = Tokenizer.from_json_str(_hf(data, name).to_str())

    def batch(documents: list[str]) -> Any:
        return np.frombuffer(tokenizer.encode_batch_flat(documents)[0], np.uint32)

    return {
        "documents": lambda texts: partial(map, tokenizer.encode_ordinary, texts.documents),
        "text": lambda texts: partial(batch, [texts.text]),
        "batch": lambda texts: partial(batch, texts.documents),
        "lists": lambda texts: partial(map, lambda text: tokenizer.encode_ordinary(text).ids, texts.documents),
        "hostile": lambda text: partial(batch, [text]),
    }


def tiktoken(data: Path, name: str, threads: int) -> Calls:
    """tiktoken, the reference: all ids must equal its ids."""
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe

    vocabulary = VOCABULARIES[name]
    ranks = load_tiktoken_bpe(str(data / vocabulary.file))
    encoding = Encoding(name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
    return {
        "documents": lambda texts: partial(map, encoding.encode_to_numpy, texts.documents),
        "text": lambda texts: partial(encoding.encode_to_numpy, texts.text),
        "lists": lambda texts: partial(map, encoding.encode_ordinary, texts.documents),
        "decode": lambda texts: partial(encoding.decode_bytes, texts.ids().tolist()),
        "hostile": lambda text: partial(encoding.encode_to_numpy, text),
    }


def tokenizers(data: Path, name: str, threads: int) -> Calls:
    """HF tokenizers, which returns ids in an object with more fields."""
    tokenizer = _hf(data, name)
    return {"documents": lambda texts: partial(map, tokenizer.encode, texts.documents)}


def _hf(data: Path, name: str) -> Any:
    import tokenizers

    assert name == "gpt2", "the other vocabularies are available only as rank files"
    model = tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _first(call: Callable[..., tuple[Any, Any]], *arguments: Any, **options: Any) -> Any:
    return call(*arguments, **options)[0]


# Trainers: a function that gets its input from the texts and returns the work, whose result returns the merges.


def train_webtext(texts: Texts, vocab_size: int) -> Work:
    """webtext, up to a tokenizer that is ready to encode."""
    from webtext.tokenizer import Tokenizer

    def merges(tokenizer: Tokenizer) -> Merges:
        tokens = tokenizer._vocabulary.tokens
        return [(tokens[left], tokens[right]) for left, right in tokenizer._vocabulary.merges or ()]

    documents = texts.documents
    return lambda: partial(merges, Tokenizer.train(documents, vocab_size=vocab_size, special_tokens=(), threads=1))


def train_gigatoken(texts: Texts, vocab_size: int) -> Work:
    """gigatoken, from one buffer, the input that costs it least."""
    from gigatoken import train_bpe

    documents = texts.joined_documents

    def work() -> Callable[[], Merges]:
        _, merges = train_bpe(documents, vocab_size, [], "huggingface", SEPARATOR)
        return lambda: merges

    return work


def train_ffbpe(texts: Texts, vocab_size: int) -> Work:
    """ffbpe, with the alphabet and tie order that should produce HF's merges. It returns tokens, not pairs."""
    from ffbpe import BpeTrainer, PreTokenizer

    documents = texts.documents

    def work() -> Callable[[], Merges]:
        counter = PreTokenizer([], pat_str=PATTERN).word_counter()
        counter.add_source(documents)
        trainer = BpeTrainer([], initial_alphabet="byte_level", tie_break="smallest_pair_id")
        trainer.add_word_counter(counter)
        trainer.train(vocab_size)
        return lambda: [(token, b"") for token in sorted(trainer.vocab, key=trainer.vocab.__getitem__)[256:]]

    return work


def train_rustbpe(texts: Texts, vocab_size: int) -> Work:
    """rustbpe, which has its own tie order. It returns tokens, not pairs."""
    from rustbpe import Tokenizer

    documents = texts.documents

    def work() -> Callable[[], Merges]:
        tokenizer = Tokenizer()
        tokenizer.train_from_iterator(iter(documents), vocab_size, pattern=PATTERN)
        return lambda: [(bytes(token), b"") for token, rank in tokenizer.get_mergeable_ranks() if rank >= 256]

    return work


def train_tokenizers(texts: Texts, vocab_size: int) -> Work:
    """HF tokenizers, the reference: all merges must equal its merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    documents = texts.documents
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    shown = [byte for byte in range(256) if chr(byte) in alphabet]
    hidden = [byte for byte in range(256) if chr(byte) not in alphabet]
    byte_of = dict(zip(sorted(alphabet), shown + hidden, strict=True))

    def merges(tokenizer: Any) -> Merges:
        pairs = json.loads(tokenizer.to_str())["model"]["merges"]
        return [(bytes(byte_of[c] for c in left), bytes(byte_of[c] for c in right)) for left, right in pairs]

    def work() -> Callable[[], Merges]:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(documents, trainer)
        return partial(merges, tokenizer)

    return work


ENCODERS: dict[str, Callable[[Path, str, int], Calls]] = {
    encoder.__name__: encoder for encoder in (webtext, gigatoken, fastokens, tiktoken, tokenizers)
}
TRAINERS: dict[str, Callable[[Texts, int], Work]] = {
    trainer.__name__.removeprefix("train_"): trainer
    for trainer in (train_webtext, train_gigatoken, train_ffbpe, train_rustbpe, train_tokenizers)
}
