"""Speed and memory of the tokenizer compared with gigatoken, in the same run on the same texts.

    python tests/bench/bench_tokenizer.py [DATA] [--only NAME] [--repeats N] [--quick]

DATA (default: WEBTEXT_TEST_DATA) contains gpt2/ and corpora/{en,multi,code}.txt.xz. Every measurement runs in a process of
its own, pinned to one core (two for two threads); ours and the peer's run in turn, and a row is printed when it is done.
A figure is the median over N processes. Seconds are CPU time, except wall time for two threads. "Cold" is a process' first
pass over a text, "warm" the median of passes 2 to 4. Ids must equal tiktoken's, merges those of HF tokenizers, and decoded
bytes the text: otherwise the ratio says "wrong".
"""

from __future__ import annotations

import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arguments import parser
from real_data import real_data

CHILD = Path(__file__).with_name("tokenizer_engines.py")
PEER = "gigatoken"
QUICK_BYTES = 2_000_000
SECONDS_AT_MOST = 600  # of one measurement
Run = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What one engine does in one process."""

    engine: str
    task: str
    corpus: str = "en"
    vocabulary: str = "gpt2"
    threads: int = 1
    simd: str = ""
    size: int = 0


@dataclass(frozen=True)
class Row:
    """A line of the table for each measure."""

    name: str
    label: str
    job: Job
    measures: tuple[str, ...] = ("cold", "warm")


def rows(quick: bool) -> list[Row]:
    """Return the rows in order."""
    vocab_size, n_characters, n_texts = (4_000, 20_000, 1_000) if quick else (50_257, 1_000_000, 50_000)
    documents = [
        Row(f"documents-{corpus}", f"4-KB documents → numpy, {corpus}", Job("webtext", "documents", corpus))
        for corpus in ("en", "multi", "code")
    ]
    patterns = [
        Row(f"pattern-{name}", f"4-KB documents, {name}", Job("webtext", "documents", "en", name))
        for name in ("cl100k", "o200k", "llama3", "qwen2")
    ]
    without = [
        Row(f"documents-en-{level}", f"4-KB documents, {level}", Job("webtext", "documents", simd=level))
        for level in ("avx2", "scalar")
    ]
    return [
        Row("train", f"train {vocab_size:,}, en", Job("webtext", "train", size=vocab_size), ("seconds", "memory")),
        *documents,
        Row("text-en", "one text → numpy, en", Job("webtext", "text"), ("cold", "warm", "memory")),
        Row("lists-en", "4-KB documents → list[int], en", Job("webtext", "lists")),
        Row("batch-en", "all documents → lists in one call, en", Job("webtext", "batch")),
        Row("decode-en", "numpy → bytes, en", Job("webtext", "decode")),
        Row("threads", "all documents, two threads, wall", Job("webtext", "flat", threads=2), ("wall",)),
        Row("hostile", f"worst text of {n_characters:,} characters", Job("webtext", "hostile", size=n_characters), ("worst",)),
        Row("ugly", f"of {n_texts:,} odd texts, other ids than tiktoken", Job("webtext", "ugly", size=n_texts), ("different",)),
        *patterns,
        Row("load", "load GPT-2's rank file", Job("webtext", "load"), ("seconds",)),
        *without,
    ]  # fmt: skip


MEASURES: dict[str, tuple[str, Callable[[Run], float]]] = {  # name: unit, figure of a run
    "cold": ("MB/s", lambda run: run["n_bytes"] / run["cpu"][0] / 1e6),
    "warm": ("MB/s", lambda run: run["n_bytes"] / statistics.median(run["cpu"][1:]) / 1e6),
    "wall": ("MB/s", lambda run: run["n_bytes"] / statistics.median(run["wall"][1:]) / 1e6),
    "seconds": ("s of CPU time", lambda run: run["cpu"][0]),
    "memory": ("MB above the input", lambda run: run["peak_bytes"] / 1e6),
    "worst": ("s of CPU time", lambda run: max(run["cpu"])),
    "different": ("texts", lambda run: run["n_different"]),
}


def main() -> None:
    """Measure the chosen rows and print each when it is done."""
    given = parser(__doc__)
    given.add_argument("data", nargs="?", type=Path)
    given.add_argument("--only", action="append", metavar="NAME", help="prefix of row names; repeatable")
    given.add_argument("--repeats", type=int, default=5, help="processes per figure")
    given.add_argument("--quick", action="store_true", help="2 MB of each corpus, one process per figure")
    arguments = given.parse_args()
    data = real_data(arguments.data)
    chosen = [row for row in rows(arguments.quick) if row.name.startswith(tuple(arguments.only or ("",)))]
    if not chosen:
        raise SystemExit(f"no row is called {arguments.only}")
    print(f"| what | webtext | {PEER} | ratio |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for corpus in {row.job.corpus for row in chosen}:
            with lzma.open(data / "corpora" / f"{corpus}.txt.xz") as file:
                text = file.read(QUICK_BYTES if arguments.quick else -1)
            Path(folder, f"{corpus}.txt").write_bytes(text[: text.rfind(b"\n") + 1])
        for row in chosen:
            measure(row, data / "gpt2", Path(folder), 1 if arguments.quick else arguments.repeats)


def measure(row: Row, data: Path, folder: Path, repeats: int) -> None:
    """Run a row's jobs and print its lines: the reference first, then ours and the peer's in turn."""
    reference = "tokenizers" if row.job.task == "train" else "tiktoken"
    right = run(Job(**asdict(row.job) | {"engine": reference, "simd": "", "threads": 1}), data, folder)
    ours, peers = [], []
    for _ in range(repeats):
        ours.append(run(row.job, data, folder))
        peers.append(run(Job(**asdict(row.job) | {"engine": PEER, "simd": ""}), data, folder))
    for run_ in ours:
        if "error" in run_:
            raise SystemExit(f"{row.name}: {run_['error']}")
    wrong = any(run_["digest"] != right["digest"] for run_ in ours) if "digest" in right else False
    for name in row.measures:
        unit, figure = MEASURES[name]
        mine = statistics.median(map(figure, ours))
        done = [figure(run_) for run_ in peers if "error" not in run_]
        theirs = statistics.median(done) if done else None
        ratio = "–" if not mine or not theirs else f"{mine / theirs if unit == 'MB/s' else theirs / mine:.2f}"
        shown = "–" if theirs is None else f"{theirs:.4g}"
        kind = "" if name in ("seconds", "worst", "different", "wall") else f", {name}"
        print(f"| {row.label}{kind}, {unit} | {mine:.4g} | {shown} | {'wrong' if wrong else ratio} |", flush=True)
    if errors := {run_["error"] for run_ in peers if "error" in run_}:
        print(f"  {PEER}: {min(errors)}", flush=True)


def run(job: Job, data: Path, folder: Path) -> Run:
    """Run a job in a process; return its measurements, or its error."""
    environment = os.environ | {"RAYON_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "false"}
    environment |= {"OMP_NUM_THREADS": "1"} | ({"WEBTEXT_SIMD": job.simd} if job.simd else {})
    command = [sys.executable, str(CHILD), json.dumps(asdict(job)), str(data), str(folder)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_AT_MOST)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {SECONDS_AT_MOST} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
