"""One measurement of the tokenizer's bench, in a process of its own: a job as JSON in, what was measured as JSON out.

    python tests/bench/tokenizer_child.py JOB DATA FOLDER

DATA holds the vocabularies, FOLDER the unpacked corpora and the right ids. The process pins itself to as many cores as
the job has threads, loads, measures, and only then looks at what came out, as SHA-256 that the parent compares. Seconds
are given as CPU time and as wall time; memory in bytes, of the process, above what lay there before.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizer_peers import ENCODERS, TRAINERS
from tokenizer_rows import Job, reference
from tokenizer_texts import Texts, hostile_texts, ugly_texts

LAZY = ("documents", "lists")
"""Tasks whose work is done as what it returns is read."""


def main() -> None:
    """Measure; engines that talk to stdout are not heard."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    job = Job(**json.loads(sys.argv[1]))
    data, folder = Path(sys.argv[2]), Path(sys.argv[3])
    cores = sorted(os.sched_getaffinity(0))[-job.threads :]
    os.sched_setaffinity(0, cores)
    measure = {"train": train, "hostile": hostile, "ugly": ugly}.get(job.task, encode)
    json.dump(measure(job, data, folder) | {"cores": len(cores)}, answer)
    answer.close()


def encode(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Several passes over a corpus, and a last one, not timed, whose ids (or bytes) are looked at."""
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
    """The file of a corpus' right ids."""
    return f"{job.corpus}-{job.vocabulary}.npy"


def train(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """One training; the memory above what the process held with its input in place."""
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
    named = all(right for _, right in merges)  # some trainers name the tokens alone
    return {
        "n_bytes": n_bytes,
        "passes": [seconds],
        "peak_bytes": peak,
        "n_merges": len(merges),
        "sha256": digest_of(b"\xff%b\xfe%b" % pair for pair in merges) if named else None,
        "tokens_sha256": digest_of(b"\xff%b%b" % pair for pair in merges),
    }


def hostile(job: Job, data: Path, folder: Path) -> dict[str, Any]:
    """Each hostile text once, as it comes to a process that has seen none like it."""
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
    """How many ugly texts get other ids than the reference's, and the shortest of them."""
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
    """CPU and wall seconds of some work."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def flat_ids(result: Any) -> NDArray[np.uint32]:
    """All ids of a result, whatever holds them: an array, awkward rows, lists, objects with `ids`."""
    if type(result).__module__.startswith("awkward"):
        import awkward

        return awkward.flatten(result).to_numpy().astype(np.uint32)
    if isinstance(result, np.ndarray):
        return result.astype(np.uint32)
    rows = [np.asarray(getattr(row, "ids", row), np.uint32) for row in result]
    return np.concatenate(rows)


def digest_of(parts: Iterable[bytes]) -> str:
    """SHA-256 of some parts."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def memory(field: str) -> int:
    """A field of this process' status in bytes; 0 where the system has none."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def forget_peak() -> None:
    """Count VmHWM anew from what the process holds now."""
    gc.collect()
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")


if __name__ == "__main__":
    main()
