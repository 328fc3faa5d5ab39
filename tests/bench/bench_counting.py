"""Speed of counting pieces for tokenizer training, and peak memory of training, on a stream of any length.

    python tests/bench/bench_counting.py [DATA] [--gigabytes 10] [--corpus en] [--threads 1] [--memory-mb 1024] [--check]

DATA (default: WEBTEXT_TEST_DATA) contains corpora/{en,multi,code}.txt.xz. The stream is generated from them: blocks
from random places, in which two letters of about one word in a hundred are changed. The changes drift along the stream,
so that new words keep coming, about 70,000 distinct ones in 100 MB of English, as in real text (whose distinct pieces
grow with the power 0.6 of its length). Only counting is timed, not generating the stream, in CPU time, so that other
work on the machine matters little. Peak memory is that of the process, minus its memory before the first block.
`--check` counts and merges the same stream again with a 32nd of the memory, and compares all counts and merges.
"""

from __future__ import annotations

import argparse
import lzma
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from real_data import real_data

from webtext.tokenizer.train.counts import PieceCounts
from webtext.tokenizer.train.training import train_vocabulary

BLOCK_BYTES = 16_000_000
EPOCH_BYTES = 100_000_000
CHANGED_PLACES = 1 / 400  # share of bytes; a word has four or five
N_SHIFTS = 25


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--gigabytes", type=float, default=0.2)
    parser.add_argument("--corpus", choices=["en", "multi", "code", "all"], default="en")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, default=1024)
    parser.add_argument("--vocab-size", type=int, default=50_257)
    parser.add_argument("--check", action="store_true", help="count again with spilling tables, and compare")
    arguments = parser.parse_args()
    text = corpora(real_data(arguments.data), arguments.corpus)
    n_bytes = int(arguments.gigabytes * 1e9)
    counts = PieceCounts(threads=arguments.threads, max_memory=arguments.memory_mb << 20)
    before, _ = resident_megabytes()
    n_counted = 0
    seconds = waited = 0.0
    for block in stream(text, n_bytes):
        start, wall = time.process_time(), time.perf_counter()
        counts.add([block])
        seconds, waited = seconds + time.process_time() - start, waited + time.perf_counter() - wall
        n_counted += len(block)
    report("count", n_counted, seconds, waited)
    start, wall = time.process_time(), time.perf_counter()
    n_pieces = len(counts)
    seconds, waited = seconds + time.process_time() - start, waited + time.perf_counter() - wall
    report(f"count and merge tables: {n_pieces:,} distinct pieces", n_counted, seconds, waited)
    print(f"  peak {resident_megabytes()[1] - before:,.0f} MB above the input")
    start, wall = time.process_time(), time.perf_counter()
    vocabulary = train_vocabulary(counts, vocab_size=arguments.vocab_size)
    merging, merging_wall = time.process_time() - start, time.perf_counter() - wall
    print(f"merge {len(vocabulary.tokens):,} tokens: {merging:.2f} s CPU, {merging_wall:.2f} s by the clock")
    print(f"all: {seconds + merging:.2f} s CPU, {waited + merging_wall:.2f} s by the clock")
    now, peak = resident_megabytes()
    print(f"  peak {peak - before:,.0f} MB above the input, {peak:,.0f} MB in all")
    if arguments.check:
        check(
            text,
            n_bytes,
            counts,
            list(vocabulary.merges or ()),
            arguments.vocab_size,
            (arguments.memory_mb << 20) // 32,
        )


def check(
    text: bytes, n_bytes: int, counts: PieceCounts, merges: list[tuple[int, int]], vocab_size: int, max_memory: int
) -> None:
    """Exit with an error unless using little memory gives the same counts and merges."""
    again = PieceCounts(threads=2, max_memory=max_memory)
    again.add(stream(text, n_bytes))
    if sorted(again.items()) != sorted(counts.items()):
        raise SystemExit("counts differ")
    if list(train_vocabulary(again, vocab_size=vocab_size).merges or ()) != merges:
        raise SystemExit("merges differ")
    print(f"the same with {max_memory >> 20} MB: counts and merges are equal")


def corpora(data: Path, name: str) -> bytes:
    """Return one corpus, or all three."""
    names = ["en", "multi", "code"] if name == "all" else [name]
    return b"".join(lzma.decompress((data / "corpora" / f"{each}.txt.xz").read_bytes()) for each in names)


def stream(text: bytes, n_bytes: int) -> Iterator[bytes]:
    """Yield blocks of the corpus with some words changed; the same in every run."""
    random = np.random.default_rng(0)
    source = np.frombuffer(text, np.uint8)
    n_block = min(BLOCK_BYTES, len(source))
    for done in range(0, n_bytes, n_block):
        start = int(random.integers(0, len(source) - n_block + 1))
        block = source[start : start + min(n_block, n_bytes - done)].copy()
        epoch = done // EPOCH_BYTES
        places = random.integers(0, len(block) - 1, int(len(block) * CHANGED_PLACES))
        for offset, shift in ((0, 1 + epoch % N_SHIFTS), (1, 1 + epoch // N_SHIFTS % N_SHIFTS)):
            letters = block[places + offset]
            is_letter = (letters >= ord("a")) & (letters <= ord("z"))
            shifted = (letters[is_letter] - ord("a") + shift) % 26 + ord("a")
            block[places[is_letter] + offset] = shifted
        yield block.tobytes()


def resident_megabytes() -> tuple[float, float]:
    """Return the current and the peak memory of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1000, int(lines["VmHWM"].split()[0]) / 1000


def report(what: str, n_bytes: int, seconds: float, waited: float) -> None:
    """Print a line with MB per second of CPU time, and of wall time."""
    print(f"{what}: {n_bytes / 1e6 / seconds:.0f} MB/s CPU, {n_bytes / 1e6 / waited:.0f} MB/s by the clock")


if __name__ == "__main__":
    main()
