"""How honest the progress of tokenizer training is: the fraction that it reports, compared with the share of its time.

    python tests/bench/bench_progress.py [DATA] [--corpus en] [--megabytes 50] [--threads 1] [--generator]

DATA (default: WEBTEXT_TEST_DATA) contains corpora/{en,multi,code}.txt.xz; more text than there is comes from the stream
of `bench_counting.py`. The time is CPU time, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench_counting import corpora, stream
from real_data import real_data

from webtext.tokenizer import Tokenizer

DOCUMENT_BYTES = 4096


def main() -> None:
    """Print the fraction at every tenth of the time, and the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--corpus", choices=["en", "multi", "code", "all"], default="en")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--generator", action="store_true", help="texts of unknown number")
    arguments = parser.parse_args()
    text, n_bytes = corpora(real_data(arguments.data), arguments.corpus), arguments.megabytes * 1_000_000
    text = text[:n_bytes] if n_bytes <= len(text) else b"".join(stream(text, n_bytes))
    texts = [text[start : start + DOCUMENT_BYTES] for start in range(0, len(text), DOCUMENT_BYTES)]
    reports: list[tuple[float, float | None]] = []
    start = time.process_time()
    Tokenizer.train(
        iter(texts) if arguments.generator else texts,
        threads=arguments.threads,
        progress=lambda fraction, *_: reports.append((time.process_time() - start, fraction)),
    )
    whole = time.process_time() - start
    known = [(seconds / whole, fraction) for seconds, fraction in reports if fraction is not None]
    for tenth in range(1, 10):
        share, fraction = min(known, key=lambda each: abs(each[0] - tenth / 10))
        print(f"after {share:.0%} of the time: {fraction:.0%}")
    share, fraction = max(known, key=lambda each: abs(each[0] - each[1]))
    print(f"{len(text) / 1e6:.0f} MB in {whole:.2f} s; the worst: {fraction:.0%} after {share:.0%} of the time")


if __name__ == "__main__":
    main()
