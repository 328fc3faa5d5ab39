"""Speed of the tokenizer compared with its peers, in the same run on the same texts.

    python tests/bench/bench_tokenizer.py [DATA] [--only NAME] [--repeats N] [--quick] [--json FILE]

DATA (default: WEBTEXT_TEST_DATA) contains gpt2/ and corpora/{en,multi,code}.txt.xz. Peers are gigatoken, ffbpe,
rustbpe, fastokens, tiktoken and HF tokenizers (extra [bench]); the header names those that are not installed. Every
measurement runs in its own process, pinned to one core (two for two threads); ours and the peers' run in turn. A figure
is the median over N processes (one for tiktoken and HF tokenizers, which are slow and steady). Seconds are CPU time,
except wall time for two threads. "Cold" is a process' first pass over a text, "warm" the median of passes 2 to 4. Ids
and merges must equal those of tiktoken and HF tokenizers. The table is printed to stdout; `tokenizer_rows.py` defines
its lines. For counting over tens of gigabytes see bench_counting.py.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from real_data import real_data
from tokenizer_rows import SLOW, Job, Row, reference, rows
from tokenizer_table import as_json, as_table, line_of
from tokenizer_texts import unpack

CHILD = Path(__file__).with_name("tokenizer_child.py")
PEERS = ("gigatoken", "ffbpe", "rustbpe", "fastokens", "tiktoken", "tokenizers")
QUICK_BYTES = 2_000_000
QUICK_SIZES: dict[str, Any] = {"vocab_sizes": (2_000, 4_000), "n_characters": 20_000, "n_texts": 1_000}
SECONDS_AT_MOST = 600
"""Time limit of one measurement, in seconds."""

Runs = dict[Job, list[dict[str, Any]]]


def main() -> None:
    """Measure the chosen rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", help="prefix of row names; repeatable")
    parser.add_argument("--repeats", type=int, default=5, help="processes per figure")
    parser.add_argument("--quick", action="store_true", help="2 MB of each corpus, one process per figure")
    parser.add_argument("--json", type=Path, help="file to write all measurements to")
    arguments = parser.parse_args()
    data = real_data(arguments.data)
    wanted = rows(**QUICK_SIZES if arguments.quick else {})
    wanted = [row for row in wanted if not arguments.only or row.name.startswith(tuple(arguments.only))]
    if not wanted:
        raise SystemExit(f"no row is called {arguments.only}")
    missing = [peer for peer in PEERS if version_of(peer) is None]
    with tempfile.TemporaryDirectory() as folder:
        for corpus in sorted({row.ours.corpus for row in wanted}):
            source = data / "corpora" / f"{corpus}.txt.xz"
            unpack(source, Path(folder, f"{corpus}.txt"), QUICK_BYTES if arguments.quick else None)
        bench = Bench(data / "gpt2", Path(folder), 1 if arguments.quick else arguments.repeats, missing)
        for row in wanted:
            bench.measure(row)
    lines = [line_of(row, measure, bench.runs) for row in wanted for measure in row.measures]
    header = machine() | {"repeats": bench.repeats, "missing": missing, "quick": arguments.quick}
    print(in_words(header), as_table(lines), sep="\n\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(header, lines, bench.runs), indent=1, ensure_ascii=False) + "\n")


class Bench:
    """The jobs and their measurements so far."""

    def __init__(self, data: Path, folder: Path, repeats: int, missing: Iterable[str]) -> None:
        self.data, self.folder, self.repeats = data, folder, repeats
        self.missing = set(missing)
        self.runs: Runs = {}

    def measure(self, row: Row) -> None:
        """Measure the row's jobs that haven't run yet: the reference first, then ours and the peers' in turn."""
        jobs = [job for job in (row.ours, *row.peers) if job.engine not in self.missing]
        if row.ours.task != "load":  # there the reference is one of the peers, to be measured in turn
            self.repeat([reference(job) for job in jobs[:1] if reference(job).engine not in self.missing])
        self.repeat(jobs)
        for job, runs in self.runs.items():
            for run in runs:
                run["right"] = self.is_right(job, run)

    def repeat(self, jobs: list[Job]) -> None:
        """Run each job as often as needed, all in turn."""
        new = [job for job in dict.fromkeys(jobs) if job not in self.runs]
        for turn in range(self.repeats):
            for job in new:
                if turn == 0 or job.task == "load" or (job.engine not in SLOW and job.task != "ugly"):
                    self.runs.setdefault(job, []).append(self.run(job))

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job in a process; return its measurements, or its error."""
        different = {name: value for name, value in asdict(job).items() if value != getattr(JOB, name)}
        print(" ".join(map(str, different.values())), file=sys.stderr, flush=True)
        environment = {**os.environ, "RAYON_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "false"}
        environment["OMP_NUM_THREADS"] = "1"
        if job.simd:
            environment["WEBTEXT_SIMD"] = job.simd
        command = [sys.executable, str(CHILD), json.dumps(asdict(job)), str(self.data), str(self.folder)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_AT_MOST)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {SECONDS_AT_MOST} s"}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
        return dict(json.loads(done.stdout))

    def is_right(self, job: Job, run: dict[str, Any]) -> bool | None:
        """Whether ids, merges or bytes equal the reference's; None if there is no reference."""
        if "error" in run:
            return None
        if job.task == "ugly":
            return bool(run["n_different"] == 0)
        if job.task == "decode":
            return bool(run["sha256"] == hashlib.sha256((self.folder / f"{job.corpus}.txt").read_bytes()).hexdigest())
        right = next((known for known in self.runs.get(reference(job), ()) if "error" not in known), None)
        if right is None:
            return None
        for name in ("sha256", "digests", "tokens_sha256"):
            if run.get(name) is not None and right.get(name) is not None:
                return bool(run[name] == right[name])
        return None


JOB = Job(engine="", task="")


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Return processor, cores, system and versions; nothing that identifies this machine."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {name: version_of(name) for name in ("webtext", *PEERS, "numpy")}
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: version for name, version in versions.items() if version},
    }


def in_words(header: dict[str, Any]) -> str:
    """Return the line above the table."""
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    words = f"{header['processor']}, {header['cores']} cores, Python {header['python']}; {versions}; "
    words += f"median of {header['repeats']}" + (", 2 MB of each corpus" if header["quick"] else "")
    if header["missing"]:
        words += f"; not installed: {', '.join(header['missing'])}"
    return words


if __name__ == "__main__":
    main()
