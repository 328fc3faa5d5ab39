"""Speed of cutting text into pieces, for each named pattern and each instruction set of this machine.

    python tests/bench/bench_scanning.py [DATA]

DATA (default: WEBTEXT_TEST_DATA) contains corpora/{en,multi,code}.txt.xz. Each is cut in slices of 256 KB, by all
instruction sets in turn; a figure is the median CPU time of five passes, in GB/s, and includes an int64 per piece. The
ends must be equal for all instruction sets, and equal to those of the regular expression in the first slice.
"""

from __future__ import annotations

import lzma
import statistics
import time

import numpy as np
from arguments import data_folder

from webtext.tokenizer import _bpe
from webtext.tokenizer.patterns.named import REGEXES, cut
from webtext.tokenizer.text import bytes_of_piece, readable

SLICE_BYTES = 1 << 18
PASSES = 5


def seconds(slices: list[bytes], pattern: str, simd: str) -> float:
    """Return the CPU time of cutting all slices."""
    start = time.process_time()
    for data in slices:
        _bpe.piece_ends(data, pattern, simd=simd)
    return time.process_time() - start


def check(slices: list[bytes], pattern: str) -> None:
    """Raise if instruction sets differ, or if the ends in the first slice aren't the expression's."""
    for data in slices:
        ends = [_bpe.piece_ends(data, pattern, simd=simd) for simd in _bpe.SIMD_LEVELS]
        if any(found.tobytes() != ends[0].tobytes() for found in ends):
            raise SystemExit(f"instruction sets cut differently by {pattern}: {data[:80]!r} ...")
        if data is slices[0]:
            lengths = [len(bytes_of_piece(piece)) for piece in cut(pattern, readable(data))]
            if np.cumsum(lengths).tolist() != ends[0].tolist():
                raise SystemExit(f"{pattern} differs from its expression: {data[:80]!r} ...")


def main() -> None:
    """Print a table in GB/s."""
    data = data_folder(__doc__)
    print(f"| GB/s | {' | '.join(_bpe.SIMD_LEVELS)} |", "|---|" + "---|" * len(_bpe.SIMD_LEVELS), sep="\n")
    for corpus in ("en", "multi", "code"):
        text = lzma.decompress((data / "corpora" / f"{corpus}.txt.xz").read_bytes())
        slices = [text[start : start + SLICE_BYTES] for start in range(0, len(text), SLICE_BYTES)]
        for pattern in REGEXES:
            check(slices, pattern)
            runs = [[seconds(slices, pattern, simd) for simd in _bpe.SIMD_LEVELS] for _ in range(PASSES)]
            speeds = [len(text) / statistics.median(times) / 1e9 for times in zip(*runs, strict=True)]
            print(f"| {pattern}, {corpus} | {' | '.join(f'{speed:.2f}' for speed in speeds)} |", flush=True)


if __name__ == "__main__":
    main()
