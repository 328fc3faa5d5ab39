"""How fast the tokenizer is beside tiktoken (encoding) and HF tokenizers (training), in the same run on the same text.

    python tests/bench/bench_tokenizer.py [DATA] [--megabytes N]

DATA (else WEBTEXT_TEST_DATA) holds gpt2/ (vocab.bpe, encoder.json, r50k_base.tiktoken) and corpora/{en,multi,code}.txt.xz.
Results are compared before a figure is printed. Times are CPU time of one thread, so that other work on the machine
disturbs little; of encoding and decoding the best of three, of training the only one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiktoken
import tokenizers
from real_data import real_data
from tiktoken.load import load_tiktoken_bpe
from tokenizers import models, pre_tokenizers, trainers

from webtext.tokenizer import Tokenizer
from webtext.tokenizer.training import train_vocabulary

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
DOCUMENT_CHARACTERS = 4096
REPEATS = 3
VOCAB_SIZE = 50_257
LONG_PIECE = 1_000_000


def main() -> None:
    """Print one line per corpus and task, with the ratio to the peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=int, default=8, help="how much of each corpus to take")
    arguments = parser.parse_args()
    data = real_data(arguments.data)
    gpt2 = Tokenizer.load(data / "gpt2")
    ranks = load_tiktoken_bpe(str(data / "gpt2" / "r50k_base.tiktoken"))
    peer = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    for name in ("en", "multi", "code"):
        documents = read(data / "corpora" / f"{name}.txt.xz", arguments.megabytes * 1_000_000)
        bench_encoding(name, documents, gpt2, peer)
        bench_training(name, documents)
    bench_training("en whole", read(data / "corpora" / "en.txt.xz", -1))
    bench_long_pieces(gpt2, peer)


def read(path: Path, n_bytes: int) -> list[str]:
    """The start of a corpus as documents of whole lines, about four thousand characters each."""
    with lzma.open(path) as file:
        lines = file.read(n_bytes).decode("utf-8", "ignore").splitlines(keepends=True)
    documents, document = [], ""
    for line in lines:
        document += line
        if len(document) >= DOCUMENT_CHARACTERS:
            documents.append(document)
            document = ""
    return [*documents, document]


def bench_encoding(name: str, documents: list[str], ours: Tokenizer, peer: tiktoken.Encoding) -> None:
    """Encode document by document: to lists as tiktoken does, and all at once into one array."""
    expected = [peer.encode_ordinary(document) for document in documents]
    if ours.encode_batch(documents, threads=1) != expected:
        raise SystemExit(f"{name}: ids differ from tiktoken's")
    n_bytes = sum(len(document.encode()) for document in documents)
    peer_seconds = best(lambda: [peer.encode_ordinary(document) for document in documents])
    list_seconds = best(lambda: [ours.encode(document) for document in documents])
    flat_seconds = best(lambda: ours.encode_flat(documents, threads=1))
    tokens, _ = ours.encode_flat(documents, threads=1)
    decode_seconds = best(lambda: ours.decode_bytes(tokens))
    peer_decode = best(lambda: [peer.decode_bytes(ids) for ids in expected])
    for task, seconds, other in (
        ("encode to lists", list_seconds, peer_seconds),
        ("encode_flat", flat_seconds, peer_seconds),
        ("decode", decode_seconds, peer_decode),
    ):
        report(name, task, n_bytes, seconds, "tiktoken", other)


def bench_training(name: str, documents: list[str]) -> None:
    """Learn a vocabulary of GPT-2's size."""
    n_bytes = sum(len(document.encode()) for document in documents)
    start = time.process_time()
    merges = train_vocabulary(documents, vocab_size=VOCAB_SIZE, special_tokens=[], threads=1).merges
    ours = time.process_time() - start
    start = time.process_time()
    model = hf_train(documents)
    peer = time.process_time() - start
    found = json.loads(model.to_str())["model"]
    if merges != [(found["vocab"][left], found["vocab"][right]) for left, right in found["merges"]]:
        raise SystemExit(f"{name}: merges differ from HF tokenizers'")
    report(name, f"train {n_bytes / 1e6:.1f} MB", n_bytes, ours, "HF tokenizers", peer)


def bench_long_pieces(ours: Tokenizer, peer: tiktoken.Encoding) -> None:
    """What a page may hold to hurt: one piece of a million characters, or blanks without end."""
    digits = "".join(random.Random(0).choices("0123456789", k=LONG_PIECE))
    for name, text in (("digits", digits), ("letters", "a" * LONG_PIECE), ("blanks", " " * LONG_PIECE)):
        if ours.encode(text) != peer.encode_ordinary(text):
            raise SystemExit(f"{name}: ids differ from tiktoken's")
        seconds, other = best(lambda text=text: ours.encode(text)), best(lambda text=text: peer.encode_ordinary(text))
        report(name, f"{seconds:.3f} s a million", LONG_PIECE, seconds, "tiktoken", other)


def hf_train(documents: list[str]) -> tokenizers.Tokenizer:
    """HF tokenizers' byte-level BPE of the same size."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(
        documents, trainers.BpeTrainer(vocab_size=VOCAB_SIZE, initial_alphabet=alphabet, show_progress=False)
    )
    return model


def best(work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of some runs."""
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def report(name: str, task: str, n_bytes: int, seconds: float, peer_name: str, peer_seconds: float) -> None:
    """One line: our speed, the peer's, and how many times as fast we are."""
    ours, peer = n_bytes / seconds / 1e6, n_bytes / peer_seconds / 1e6
    print(f"{name:8}  {task:17}  {ours:7.1f} MB/s  {peer_name} {peer:6.1f} MB/s  {peer_seconds / seconds:5.1f} times")


if __name__ == "__main__":
    main()
