"""What the tokenizer's bench measures: jobs, and rows of the table with the figure each must and should reach.

A job is one measurement of one engine. A row sets our job beside those of peers; the first peer is the one that counts,
by the fastest of its calls. What must be reached stands in one place, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SLOW = ("tiktoken", "tokenizers")
"""Engines that keep nothing between texts, so one pass says all, and would take most of the time."""

REFERENCE_ENCODER, REFERENCE_TRAINER = "tiktoken", "tokenizers"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One measurement of one engine, in a process of its own; equal jobs are measured once."""

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
class Measure:
    """One figure of a row, of a kind that `tokenizer_table.figure` knows; what it must and what it should reach.

    These bound our figure times the peer's (`against` = "peer") or our figure alone ("limit").
    """

    kind: str
    must: float | None = None
    aim: float | None = None
    against: str = "peer"


@dataclass(frozen=True)
class Row:
    """Lines of the table: one for each measure."""

    name: str
    label: str
    ours: Job
    peers: tuple[Job, ...]
    measures: tuple[Measure, ...]


def rows(
    vocab_sizes: tuple[int, int] = (32_000, 50_257), n_characters: int = 1_000_000, n_texts: int = 50_000
) -> list[Row]:
    """The table, in the order of its lines; with the sizes of what is learnt, of hostile texts, and how many ugly ones."""
    some = ("gigatoken", "fastokens", "tiktoken")
    documents_en = encoding(
        "documents-en", "4-KB documents → numpy, en", "documents", "en", (1.2, 1.5), (2, 3), (*some, "tokenizers")
    )
    documents_multi = encoding(
        "documents-multi", "4-KB documents → numpy, multi", "documents", "multi", (1.5, 2.5), (2, 4), some
    )
    text_en = encoding("text-en", "one text → caller's u16, en", "text", "en", (1.5, 2), (2.5, 5), some)
    compared = [documents_en, text_en, documents_multi]
    return [
        training(vocab_sizes[0], 3, 5),
        training(vocab_sizes[1], 4, 6),
        documents_en,
        text_en,
        documents_multi,
        encoding("text-multi", "one text → caller's u16, multi", "text", "multi", (1.5, 2.5), (2, 4), some[:1]),
        encoding("documents-code", "4-KB documents → numpy, code", "documents", "code", peers=some),
        encoding("text-code", "one text → caller's u16, code", "text", "code", peers=some[:1]),
        encoding("batch-en", "all 4-KB documents in one call, en", "batch", "en", peers=some[:2]),
        encoding("lists-en", "4-KB documents → list[int], en", "lists", "en", (1.1, 1.4), peers=some),
        encoding("list-batch-en", "all documents → lists in one call, en", "list batch", "en", (1.1, 1.4)),
        encoding("decode-en", "numpy → bytes, en", "decode", "en", (2, 3), peers=("gigatoken", "tiktoken")),
        two_threads("threads-text", "two threads, one text → u16, wall", "text", 1.7, 1.9),
        two_threads("threads-batch", "two threads, 4-KB documents, wall", "batch", None, None),
        hostile(n_characters),
        ugly("gpt2", n_texts, ("gigatoken", "fastokens", "tokenizers")),
        *(ugly(name, n_texts, ("gigatoken",)) for name in ("cl100k", "o200k", "llama3", "qwen2")),
        *(
            encoding(f"pattern-{name}", f"4-KB documents, {name}", "documents", "en", None, None, ("gigatoken",), name)
            for name in ("cl100k", "o200k", "llama3", "qwen2")
        ),
        *(with_table(row) for row in compared),
        *(without_simd(row, level) for level in ("avx2", "scalar") for row in compared),
    ]


def encoding(
    name: str,
    label: str,
    task: str,
    corpus: str,
    warm: tuple[float, float] | None = None,
    cold: tuple[float, float] | None = None,
    peers: Sequence[str] = ("gigatoken",),
    vocabulary: str = "gpt2",
) -> Row:
    """Texts to ids, or back: speeds warm and cold, and the memory it takes."""
    jobs = [
        Job(engine=peer, task=way, corpus=corpus, vocabulary=vocabulary) for peer in peers for way in ways(peer, task)
    ]
    if vocabulary != "gpt2":
        jobs.append(Job(engine=REFERENCE_ENCODER, task=task, corpus=corpus, vocabulary=vocabulary))
    measures = [Measure("warm", *(warm or ())), Measure("cold", *(cold or ()))]
    if name in ("documents-en", "text-en"):
        measures.append(Measure("memory"))
    ours = Job(engine="webtext", task=task, corpus=corpus, vocabulary=vocabulary)
    return Row(name, label, ours, tuple(map(briefly, jobs)), tuple(measures))


def ways(engine: str, task: str) -> list[str]:
    """The calls of an engine that do a task."""
    other = {("gigatoken", "text"): "batch", ("gigatoken", "lists"): "tolist"}.get((engine, task))
    return [task, f"{task}/{other}"] if other else [task]


def briefly(job: Job) -> Job:
    """One pass for engines that are the same in every pass."""
    return replace(job, passes=1) if job.engine in SLOW else job


def training(vocab_size: int, must: float, aim: float) -> Row:
    """Learning a vocabulary: CPU seconds, and memory above the documents."""
    ours = Job(engine="webtext", task="train", vocab_size=vocab_size, passes=1)
    peers = tuple(replace(ours, engine=engine) for engine in ("gigatoken", "ffbpe", "rustbpe", "tokenizers"))
    measures = (Measure("seconds", must, aim), Measure("memory", 100, 60, "limit"))
    return Row(f"train-{vocab_size}", f"train {vocab_size:,}, en", ours, peers, measures)


def without_simd(row: Row, level: str) -> Row:
    """The same row with a narrower instruction set switched on by WEBTEXT_SIMD: still as fast as the peer."""
    peers = tuple(job for job in row.peers if job.engine == "gigatoken")
    measures = (Measure("warm", 1), Measure("cold", 1))
    return Row(f"{row.name}-{level}", f"{row.label}, {level}", replace(row.ours, simd=level), peers, measures)


def with_table(row: Row) -> Row:
    """The same row cold, with a table of pieces beside the vocabulary."""
    peers = tuple(job for job in row.peers if job.engine == "gigatoken")
    ours = replace(row.ours, engine="webtext_with_table")
    return Row(f"{row.name}-table", f"{row.label}, with a table of pieces", ours, peers, (Measure("cold"),))


def two_threads(name: str, label: str, task: str, must: float | None, aim: float | None) -> Row:
    """Two threads on two cores over one: wall time, when warm."""
    ours = Job(engine="webtext", task=task, threads=2)
    peers = (
        replace(ours, threads=1),
        *(replace(ours, engine="gigatoken", task=way) for way in ways("gigatoken", task)),
    )
    return Row(name, label, ours, peers, (Measure("wall", must, aim),))


def hostile(n_characters: int) -> Row:
    """The slowest of the hostile texts, each in a process that has seen none like it."""
    ours = Job(engine="webtext", task="hostile", n_characters=n_characters)
    peers = tuple(briefly(replace(ours, engine=engine)) for engine in ("gigatoken", "fastokens", "tiktoken"))
    label = f"worst of texts of {n_characters:,} characters"
    return Row("hostile", label, ours, peers, (Measure("worst", 0.10, 0.05, "limit"),))


def ugly(vocabulary: str, n_texts: int, engines: Sequence[str]) -> Row:
    """How many of many short, odd texts get other ids than tiktoken's."""
    ours = Job(engine="webtext", task="ugly", vocabulary=vocabulary, n_texts=n_texts, passes=1)
    peers = tuple(replace(ours, engine=engine) for engine in engines)
    label = f"of {n_texts:,} ugly texts, {vocabulary}, other ids than tiktoken"
    return Row(f"ugly-{vocabulary}", label, ours, peers, (Measure("different", 0, None, "limit"),))


def reference(job: Job) -> Job:
    """The job whose ids or merges are the right ones for a job; what it measured is a figure of its engine like others."""
    if job.task == "train":
        return Job(engine=REFERENCE_TRAINER, task="train", corpus=job.corpus, vocab_size=job.vocab_size, passes=1)
    if job.task == "ugly":
        return replace(job, engine=REFERENCE_ENCODER)
    if job.task == "hostile":
        return Job(engine=REFERENCE_ENCODER, task="hostile", n_characters=job.n_characters, passes=1)
    task = "text" if job.task.startswith("text") else "documents"
    return Job(engine=REFERENCE_ENCODER, task=task, corpus=job.corpus, vocabulary=job.vocabulary, passes=1)
