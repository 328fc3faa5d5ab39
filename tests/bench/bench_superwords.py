"""Superwords against plain BPE of the same size: bytes per token, and the CPU time of training and encoding.

    python tests/bench/bench_superwords.py DATA [--vocab-size 32000] [--superwords 8000]

DATA is the folder with corpora/en.txt.xz: its first 8 MB in 4-KB documents for training, the next 2 MB held out. One
thread; encoding is the best of five passes over the training texts, with HF tokenizers on the first megabyte of them.
Ids are compared with HF's before any time counts.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
from real_data import real_data

from webtext.tokenizer import Tokenizer

TRAINED, HELD_OUT, DOCUMENT = 8_000_000, 2_000_000, 4096


def seconds(work: Callable[[], object], times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def documents(text: str) -> list[str]:
    return [text[start : start + DOCUMENT] for start in range(0, len(text), DOCUMENT)]


def hf_megabytes_per_second(tokenizer: Tokenizer, texts: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        peer = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    assert [peer.encode(text).ids for text in texts] == tokenizer.encode_batch(texts), "ids differ from HF tokenizers'"
    return sum(map(len, texts)) / 1e6 / seconds(lambda: [peer.encode(text) for text in texts])


def row(texts: list[str], held_out: list[str], vocab_size: int, superwords: int) -> str:
    def train() -> Tokenizer:
        return Tokenizer.train(texts, vocab_size, threads=1, superwords=superwords)

    tokenizer = train()
    hf = hf_megabytes_per_second(tokenizer, texts[:256])
    encode = sum(map(len, texts)) / 1e6 / seconds(lambda: tokenizer.encode_flat(texts, threads=1), 5)
    shares = [
        sum(len(text.encode()) for text in part) / tokenizer.count_batch(part).sum() for part in (texts, held_out)
    ]
    name = f"{superwords:,} superwords of {vocab_size:,}" if superwords else f"plain, {vocab_size:,}"
    return f"| {name} | {shares[0]:.2f} | {shares[1]:.2f} | {seconds(train, 3):.2f} | {encode:.0f} | {hf:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--superwords", type=int, default=8_000)
    options = parser.parse_args()
    with lzma.open(real_data(options.data) / "corpora/en.txt.xz", "rt", encoding="utf-8", newline="") as file:
        texts, held_out = documents(file.read(TRAINED)), documents(file.read(HELD_OUT))
    print("| | bytes/token | held out | train, s | encode, MB/s | HF tokenizers, MB/s |")
    print("|---|---|---|---|---|---|")
    for superwords in (0, options.superwords):
        print(row(texts, held_out, options.vocab_size, superwords), flush=True)


if __name__ == "__main__":
    main()
