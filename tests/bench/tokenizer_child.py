"""One measurement of the tokenizer's bench, in its own process: a job as JSON in, the measurements as JSON out.

    python tests/bench/tokenizer_child.py JOB DATA FOLDER

DATA contains the vocabularies, FOLDER the unpacked corpora and the right ids. The process pins itself to as many cores
as the job has threads, loads, measures, and then hashes the output (SHA-256), which the parent compares. Times are CPU
seconds and wall seconds; memory is in bytes above the process's memory before.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from arguments import words
from numpy.typing import NDArray
from tokenizer_peers import ENCODERS, TRAINERS
from tokenizer_rows import Job, reference
from tokenizer_texts import Texts, hostile_texts, ugly_texts

LAZY = ("documents", "lists")
"""Tasks that do their work only while the returned iterator is read."""


def main() -> None:
    """Measure; the engines' own output to stdout is suppressed."""
    given = words(__doc__, "job", "data", "folder")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    job, data, folder = Job(**json.loads(given[0])), Path(given[1]), Path(given[2])
    cores = sorted(os.sched_getaffinity(0))[-job.threads :]
    os.sched_setaffinity(0, cores)
    measure = {"train": train, "hostile": hostile, "ugly": ugly, "load": load}.get(job.task, encode)
    json.dump(measure(job, data, folder) | {"cores": len(cores)}, answer)
    answer.close()


def encode(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Time several passes over a corpus; a last, untimed pass is checked for its ids (or bytes)."""
    texts = Texts((folder / f"{job.corpus}.txt").read_bytes(), folder / ids_name(job))
    before = memory("VmRSS")
    start = time.process_time()
    calls = ENCODERS[job.engine](data, job.vocabulary, job.threads)
    load_seconds = time.process_time() - start
    loaded = memory("VmRSS") - before
    work = calls[job.task](texts)
    lazy = job.task.partition("/")[0] in LAZY
    forget_peak()
    before = memory("VmRSS")
    passes = [timed(lambda: deque(work(), maxlen=0) if lazy else work()) for _ in range(job.passes)]
    peak = memory("VmHWM") - before
    result = work()
    if job.task == "decode":
        digest = hashlib.sha256(result).hexdigest()
    else:
        ids = flat_ids(result)
        digest = hashlib.sha256(ids.tobytes()).hexdigest()
        if job == reference(job) and job.task == "documents":
            np.save(folder / ids_name(job), ids)
    return {
        "n_bytes": len(texts.data),
        "passes": passes,
        "sha256": digest,
        "load_seconds": load_seconds,
        "loaded_bytes": loaded,
        "peak_bytes": peak,
    }


def ids_name(job: Job) -> str:
    """Return the name of the file with a corpus' right ids."""
    return f"{job.corpus}-{job.vocabulary}.npy"


def train(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Time one training; memory is measured above the process's memory with the input loaded."""
    texts = Texts((folder / f"{job.corpus}.txt").read_bytes(), folder / ids_name(job))
    work = TRAINERS[job.engine](texts, job.vocab_size)
    n_bytes = len(texts.data)
    del texts.data
    forget_peak()
    before = memory("VmRSS")
    results: list[Callable[[], Iterable[tuple[bytes, bytes]]]] = []
    seconds = timed(lambda: results.append(work()))
    peak = memory("VmHWM") - before
    merges = list(results[0]())
    named = all(right for _, right in merges)  # some trainers name only the tokens
    return {
        "n_bytes": n_bytes,
        "passes": [seconds],
        "peak_bytes": peak,
        "n_merges": len(merges),
        "sha256": digest_of(b"\xff%b\xfe%b" % pair for pair in merges) if named else None,
        "tokens_sha256": digest_of(b"\xff%b%b" % pair for pair in merges),
    }


def load(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Time loading a vocabulary, up to the ids of a short text, in a process that has loaded it once before."""

    def ids() -> Any:
        return ENCODERS[job.engine](data, job.vocabulary, job.threads)["hostile"]("Hello world, it's 2026!")()

    digest = hashlib.sha256(flat_ids(ids()).tobytes()).hexdigest()
    return {"n_bytes": 0, "passes": [timed(ids) for _ in range(job.passes)], "sha256": digest}


def hostile(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Time each hostile text once, in a process that has seen none like it."""
    call = ENCODERS[job.engine](data, job.vocabulary, job.threads)["hostile"]
    texts = {name: make() for name, make in hostile_texts(job.n_characters).items()}
    seconds, digests = {}, {}
    for name, text in texts.items():
        results: list[Any] = []
        work = call(text)
        seconds[name] = timed(lambda work=work, results=results: results.append(work()))
        digests[name] = hashlib.sha256(flat_ids(results[0]).tobytes()).hexdigest()
    return {"n_bytes": sum(len(text.encode()) for text in texts.values()), "texts": seconds, "digests": digests}


def ugly(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Count the ugly texts whose ids differ from the reference's, and return the shortest of them."""
    texts = Texts(b"", folder / ids_name(job))
    texts.documents = ugly_texts(job.n_texts)
    encoded = ENCODERS[job.engine](data, job.vocabulary, job.threads)["documents"](texts)()
    digests = np.array([hashlib.sha256(flat_ids([row]).tobytes()).digest() for row in encoded])
    file = folder / f"ugly-{job.vocabulary}.npy"
    if job == reference(job):
        np.save(file, digests)
    different = np.flatnonzero(digests != np.load(file)) if file.exists() else []
    shortest = sorted((texts.documents[index] for index in different), key=len)[:3]
    return {"n_different": len(different), "shortest": [ascii(text)[:60] for text in shortest]}


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Return the CPU and wall seconds of some work."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def flat_ids(result: Any) -> NDArray[np.uint32]:
    """Return all ids of a result, whatever its form: an array, awkward rows, lists, objects with `ids`."""
    if type(result).__module__.startswith("awkward"):
        import awkward

        return awkward.flatten(result).to_numpy().astype(np.uint32)
    if isinstance(result, np.ndarray):
        return result.astype(np.uint32)
    rows = [np.asarray(getattr(row, "ids", row), np.uint32) for row in result]
    return np.concatenate(rows)


def digest_of(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of the concatenated parts."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def memory(field: str) -> int:
    """Return a field of this process's status in bytes; 0 if the system has none."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def forget_peak() -> None:
    """Reset VmHWM to the process's current memory."""
    gc.collect()
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")


if __name__ == "__main__":
    main()
