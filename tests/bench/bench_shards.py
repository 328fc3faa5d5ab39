"""Speed of token shards: writing, verifying, and shuffled windows against a plain copy of the same bytes.

    python tests/bench/bench_shards.py [--tokens 40_000_000] [--context 1024] [--batch-size 16]

CPU seconds of one thread, page cache; rounds are interleaved and medians printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.shards import Sampler, TokenShards
from webtext.shards.format import shard_name
from webtext.shards.shardfile import ShardWriter
from webtext.shards.verify import verify_shard

HASH = "00" * 32
VOCABULARY = 50_257
DOCUMENT = 1000
ROUNDS = 5
PLAIN = "the same tokens widened to int64"


def write_set(folder: Path, n_tokens: int) -> float:
    """Two shards of random tokens; returns seconds of writing."""
    settings = {"vocab_size": VOCABULARY, "eot_id": VOCABULARY - 1, "tokenizer_hash": HASH}
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="bench", code_version=1, settings=settings))
    documents = np.random.default_rng(0).integers(
        0, VOCABULARY - 1, (n_tokens // 2 // DOCUMENT, DOCUMENT - 1), np.uint16
    )
    seconds, parts = 0.0, []
    for number in range(2):
        with tokens.part(number, key=str(number)) as part:
            started = time.process_time()
            path = part.attach(shard_name("train", number))
            with ShardWriter(path, vocab_size=VOCABULARY, eot_id=VOCABULARY - 1, tokenizer_hash=HASH) as shard:
                for document in documents:
                    shard.append(document)
            seconds += time.process_time() - started
            parts.append(part.publish())
    tokens.seal(parts)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=40_000_000)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = write_set(Path(folder), options.tokens)
        shards = TokenShards(folder)
        sampler = Sampler(shards, context=options.context, batch_size=options.batch_size)
        n_batches = shards.n_tokens // (options.context * options.batch_size)

        def windows() -> None:
            for _ in range(n_batches):
                next(sampler)

        def plain_copy() -> None:
            for i in range(len(shards)):
                shards.tokens(i).astype(np.int64)

        def verify() -> None:
            for i in range(len(shards)):
                verify_shard(shards.file(i))

        rows: dict[str, Callable[[], None]] = {
            PLAIN: plain_copy,
            f"Sampler, {options.batch_size} windows of {options.context}": windows,
            "verify": verify,
        }
        taken: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(ROUNDS):
            for name, function in rows.items():
                started = time.process_time()
                function()
                taken[name].append(time.process_time() - started)
        medians = {"write, with checksums": seconds} | {name: statistics.median(times) for name, times in taken.items()}
        for name, median in medians.items():
            share = medians[PLAIN] / median
            print(f"{name:40}{shards.n_tokens / median / 1e6:8.0f} M tokens/s  {share:.2f} of the plain copy")


if __name__ == "__main__":
    main()
