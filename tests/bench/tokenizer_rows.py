"""The jobs of the tokenizer's bench, and the rows of its table.

A job is one measurement of one engine. A row compares our job with those of peers. The ratio is to the first peer, with
the fastest of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SLOW = ("tiktoken", "tokenizers")
"""Engines that cache nothing between texts, so one pass is enough; more would take most of the time."""

REFERENCE_ENCODER, REFERENCE_TRAINER = "tiktoken", "tokenizers"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One measurement of one engine, in its own process; equal jobs are measured once."""

    engine: str
    task: str
    corpus: str = "en"
    vocabulary: str = "gpt2"
    threads: int = 1
    simd: str | None = None
    vocab_size: int = 0
    n_characters: int = 0
    n_texts: int = 0
    passes: int = 4


@dataclass(frozen=True)
class Row:
    """Lines of the table, one per measure: a kind of figure that `tokenizer_table.figure` knows."""

    name: str
    label: str
    ours: Job
    peers: tuple[Job, ...]
    measures: tuple[str, ...]


def rows(
    vocab_sizes: tuple[int, int] = (32_000, 50_257), n_characters: int = 1_000_000, n_texts: int = 50_000
) -> list[Row]:
    """Return the rows in order, for these vocabulary sizes, length of hostile texts and number of ugly texts."""
    some = ("gigatoken", "fastokens", "tiktoken")
    documents_en = encoding("documents-en", "4-KB documents → numpy, en", "documents", "en", (*some, "tokenizers"))
    documents_multi = encoding("documents-multi", "4-KB documents → numpy, multi", "documents", "multi", some)
    text_en = encoding("text-en", "one text → caller's u16, en", "text", "en", some)
    compared = [documents_en, text_en, documents_multi]
    return [
        *map(training, vocab_sizes),
        documents_en,
        text_en,
        documents_multi,
        encoding("text-multi", "one text → caller's u16, multi", "text", "multi", some[:1]),
        encoding("documents-code", "4-KB documents → numpy, code", "documents", "code", some),
        encoding("text-code", "one text → caller's u16, code", "text", "code", some[:1]),
        encoding("batch-en", "all 4-KB documents in one call, en", "batch", "en", some[:2]),
        encoding("lists-en", "4-KB documents → list[int], en", "lists", "en", some),
        encoding("list-batch-en", "all documents → lists in one call, en", "list batch", "en"),
        encoding("decode-en", "numpy → bytes, en", "decode", "en", ("gigatoken", "tiktoken")),
        two_threads("threads-text", "two threads, one text → u16, wall", "text"),
        two_threads("threads-batch", "two threads, 4-KB documents, wall", "batch"),
        hostile(n_characters),
        ugly("gpt2", n_texts, ("gigatoken", "fastokens", "tokenizers")),
        *(ugly(name, n_texts, ("gigatoken",)) for name in ("cl100k", "o200k", "llama3", "qwen2")),
        *(
            encoding(f"pattern-{name}", f"4-KB documents, {name}", "documents", "en", ("gigatoken",), name)
            for name in ("cl100k", "o200k", "llama3", "qwen2")
        ),
        *(loading(name) for name in ("gpt2", "cl100k", "o200k")),
        *(without_simd(row, level) for level in ("avx2", "scalar") for row in compared),
    ]


def encoding(
    name: str,
    label: str,
    task: str,
    corpus: str,
    peers: Sequence[str] = ("gigatoken",),
    vocabulary: str = "gpt2",
) -> Row:
    """Return a row for texts to ids, or back: warm and cold speed, and memory."""
    jobs = [
        Job(engine=peer, task=way, corpus=corpus, vocabulary=vocabulary) for peer in peers for way in ways(peer, task)
    ]
    if vocabulary != "gpt2":
        jobs.append(Job(engine=REFERENCE_ENCODER, task=task, corpus=corpus, vocabulary=vocabulary))
    measures = ("warm", "cold", "memory") if name in ("documents-en", "text-en") else ("warm", "cold")
    ours = Job(engine="webtext", task=task, corpus=corpus, vocabulary=vocabulary)
    return Row(name, label, ours, tuple(map(briefly, jobs)), measures)


def ways(engine: str, task: str) -> list[str]:
    """Return the calls of an engine that do a task."""
    other = {("gigatoken", "text"): "batch", ("gigatoken", "lists"): "tolist"}.get((engine, task))
    return [task, f"{task}/{other}"] if other else [task]


def briefly(job: Job) -> Job:
    """Limit the job to one pass if its engine is equally fast in every pass."""
    return replace(job, passes=1) if job.engine in SLOW else job


def training(vocab_size: int) -> Row:
    """Return a row for training a vocabulary: CPU seconds, and memory above the documents."""
    ours = Job(engine="webtext", task="train", vocab_size=vocab_size, passes=1)
    peers = tuple(replace(ours, engine=engine) for engine in ("gigatoken", "ffbpe", "rustbpe", "tokenizers"))
    return Row(f"train-{vocab_size}", f"train {vocab_size:,}, en", ours, peers, ("seconds", "memory"))


def loading(vocabulary: str) -> Row:
    """Return a row for reading a rank file, up to the ids of a short text."""
    ours = Job(engine="webtext", task="load", vocabulary=vocabulary, passes=1)
    peers = tuple(replace(ours, engine=engine) for engine in (REFERENCE_ENCODER, "gigatoken"))
    return Row(f"load-{vocabulary}", f"load the rank file of {vocabulary}", ours, peers, ("seconds",))


def without_simd(row: Row, level: str) -> Row:
    """Return the row with a narrower instruction set (WEBTEXT_SIMD)."""
    peers = tuple(job for job in row.peers if job.engine == "gigatoken")
    ours = replace(row.ours, simd=level)
    return Row(f"{row.name}-{level}", f"{row.label}, {level}", ours, peers, ("warm", "cold"))


def two_threads(name: str, label: str, task: str) -> Row:
    """Return a row for two threads on two cores compared with one: warm, wall time."""
    ours = Job(engine="webtext", task=task, threads=2)
    peers = (
        replace(ours, threads=1),
        *(replace(ours, engine="gigatoken", task=way) for way in ways("gigatoken", task)),
    )
    return Row(name, label, ours, peers, ("wall",))


def hostile(n_characters: int) -> Row:
    """Return a row for the slowest of the hostile texts, each in a process that has seen none like it."""
    ours = Job(engine="webtext", task="hostile", n_characters=n_characters)
    peers = tuple(briefly(replace(ours, engine=engine)) for engine in ("gigatoken", "fastokens", "tiktoken"))
    label = f"worst of texts of {n_characters:,} characters"
    return Row("hostile", label, ours, peers, ("worst",))


def ugly(vocabulary: str, n_texts: int, engines: Sequence[str]) -> Row:
    """Return a row for how many of many short, odd texts get other ids than tiktoken's."""
    ours = Job(engine="webtext", task="ugly", vocabulary=vocabulary, n_texts=n_texts, passes=1)
    peers = tuple(replace(ours, engine=engine) for engine in engines)
    label = f"of {n_texts:,} ugly texts, {vocabulary}, other ids than tiktoken"
    return Row(f"ugly-{vocabulary}", label, ours, peers, ("different",))


def reference(job: Job) -> Job:
    """Return the job that provides the right ids or merges for a job; its own figures are used like others."""
    if job.task == "train":
        return Job(engine=REFERENCE_TRAINER, task="train", corpus=job.corpus, vocab_size=job.vocab_size, passes=1)
    if job.task in ("ugly", "load"):
        return replace(job, engine=REFERENCE_ENCODER)
    if job.task == "hostile":
        return Job(engine=REFERENCE_ENCODER, task="hostile", n_characters=job.n_characters, passes=1)
    task = "text" if job.task.startswith("text") else "documents"
    return Job(engine=REFERENCE_ENCODER, task=task, corpus=job.corpus, vocabulary=job.vocabulary, passes=1)
