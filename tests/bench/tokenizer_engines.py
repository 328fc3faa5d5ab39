"""One measurement of the tokenizer's bench, in its own process: a job as JSON in, the measurements as JSON out.

    python tests/bench/tokenizer_engines.py JOB DATA FOLDER

DATA contains the vocabularies, FOLDER the unpacked corpora and the right ids. An engine is a function that loads a named
vocabulary and returns its calls by task; each takes what the task encodes and returns ids. No engine recognises special
tokens in texts.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from arguments import words

Calls = dict[str, Callable[[Any], Any]]
DOCUMENT_BYTES = 4096
SEPARATOR = b"\n\xff\xfe\n"  # can't occur in UTF-8 text
PASSES = 4
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
    r"""\s+(?!\S)|\s"""
)
O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"""
    r"""\s+(?!\S)|\s+"""
)
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
VOCABULARIES = {  # rank file, pattern, gigatoken's name of the pattern
    "gpt2": ("r50k_base.tiktoken", GPT2, "gpt2"),
    "cl100k": ("cl100k_base.tiktoken", CL100K, "gpt4"),
    "o200k": ("o200k_base.tiktoken", O200K, "o200k"),
    "llama3": ("cl100k_base.tiktoken", LLAMA3, "gpt4"),
    "qwen2": ("cl100k_base.tiktoken", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), "qwen2"),
}
"""Llama 3's and Qwen 2's tokens aren't published as rank files, so their patterns are timed with those of cl100k."""


def webtext(data: Path, name: str, threads: int) -> Calls:
    """webtext, by its public calls."""
    from webtext.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(data / VOCABULARIES[name][0])
    if name in ("llama3", "qwen2"):  # use the tokens of a file that has another pattern
        tokenizer = Tokenizer(dataclasses.replace(tokenizer._vocabulary, pattern=name))
    return {
        "documents": lambda texts: map(tokenizer.encode_numpy, texts),
        "text": lambda texts: [tokenizer.encode_numpy(texts[0])],
        "lists": lambda texts: map(tokenizer.encode, texts),
        "batch": lambda texts: tokenizer.encode_batch(texts, threads=threads),
        "flat": lambda texts: [tokenizer.encode_flat(texts, threads=threads)[0]],
        "decode": lambda ids: tokenizer.decode_bytes(ids.astype(np.uint16)),
    }


def gigatoken(data: Path, name: str, threads: int) -> Calls:
    """gigatoken's Rust object, without its Python wrapper."""
    import awkward
    from gigatoken.gigatoken_rs import BPETokenizer

    file, _, scheme = VOCABULARIES[name]
    tokenizer = BPETokenizer.from_tiktoken(data / file, scheme, {})
    parallel = threads > 1
    return {
        "documents": lambda texts: map(tokenizer.encode, texts),
        "text": lambda texts: [tokenizer.encode(texts[0])],
        "lists": lambda texts: (tokenizer.encode_batch_list([text], parallel=False)[0] for text in texts),
        "batch": lambda texts: tokenizer.encode_batch_list(texts, parallel=parallel),
        "flat": lambda texts: [awkward.flatten(tokenizer.encode_batch(texts, parallel=parallel)).to_numpy()],
        "decode": tokenizer.decode,
    }


def tiktoken(data: Path, name: str, threads: int) -> Calls:
    """tiktoken, the reference: all ids must equal its ids."""
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe

    file, pattern, _ = VOCABULARIES[name]
    ranks = load_tiktoken_bpe(str(data / file))
    encoding = Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    each = {task: lambda texts: map(encoding.encode_to_numpy, texts) for task in ("documents", "text", "flat")}
    each |= {task: lambda texts: map(encoding.encode_ordinary, texts) for task in ("lists", "batch")}
    return each | {"decode": lambda ids: encoding.decode_bytes(ids.tolist())}


ENGINES: dict[str, Callable[[Path, str, int], Calls]] = {each.__name__: each for each in (webtext, gigatoken, tiktoken)}


def train_webtext(documents: list[str], vocab_size: int) -> list[tuple[bytes, bytes]]:
    """webtext, up to a tokenizer that is ready to encode."""
    from webtext.tokenizer import Tokenizer

    vocabulary = Tokenizer.train(documents, vocab_size=vocab_size, special_tokens=(), threads=1)._vocabulary
    return [(vocabulary.tokens[left], vocabulary.tokens[right]) for left, right in vocabulary.merges or ()]


def train_gigatoken(documents: list[str], vocab_size: int) -> list[tuple[bytes, bytes]]:
    """gigatoken, from one buffer, the input that costs it least."""
    from gigatoken import train_bpe

    joined = SEPARATOR.join(text.encode() for text in documents)
    return list(train_bpe(joined, vocab_size, [], "huggingface", SEPARATOR)[1])


def train_tokenizers(documents: list[str], vocab_size: int) -> list[tuple[bytes, bytes]]:
    """HF tokenizers, the reference for merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(bytes(byte_of[char] for char in part) for part in pair) for pair in merges]  # type: ignore[misc]


TRAINERS = {"webtext": train_webtext, "gigatoken": train_gigatoken, "tokenizers": train_tokenizers}


def main() -> None:
    """Measure; the engines' own output to stdout is suppressed."""
    given = words(__doc__, "job", "data", "folder")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    job, data, folder = json.loads(given[0]), Path(given[1]), Path(given[2])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-job["threads"] :])
    measure = {"train": train, "hostile": hostile, "ugly": ugly, "load": load}.get(job["task"], encode)
    json.dump(measure(job, data, folder), answer)
    answer.close()


def encode(job: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Time several passes over a corpus, and digest the ids (or bytes) of one more."""
    text = (folder / f"{job['corpus']}.txt").read_bytes()
    ids_file = folder / f"{job['corpus']}-{job['vocabulary']}.npy"
    given: Any = [text.decode()] if job["task"] == "text" else cut_documents(text)
    call = ENGINES[job["engine"]](data, job["vocabulary"], job["threads"])[job["task"]]
    if job["task"] == "decode":
        if not ids_file.exists():
            np.save(ids_file, flat(tiktoken(data, job["vocabulary"], 1)["documents"](given)))
        given = np.load(ids_file)
    before = forget_peak()
    times = [timed(lambda: consume(call(given))) for _ in range(1 if job["engine"] == "tiktoken" else PASSES)]
    peak = memory("VmHWM") - before
    found = call(given)
    digest = hashlib.sha256(found if isinstance(found, bytes) else flat(found).tobytes()).hexdigest()
    cpu, wall = zip(*times, strict=True)
    return {"n_bytes": len(text), "cpu": cpu, "wall": wall, "peak_bytes": peak, "digest": digest}


def train(job: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Time one training; memory is measured above the process's memory with the input loaded."""
    documents = cut_documents((folder / f"{job['corpus']}.txt").read_bytes())
    found: list[tuple[bytes, bytes]] = []
    before = forget_peak()
    seconds = timed(lambda: found.extend(TRAINERS[job["engine"]](documents, job["size"])))
    peak = memory("VmHWM") - before
    digest = hashlib.sha256(b"".join(b"\xff%b\xfe%b" % pair for pair in found)).hexdigest()
    return {"cpu": [seconds[0]], "peak_bytes": peak, "digest": digest}


def load(job: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Time loading a vocabulary, up to the ids of a short text, in a process that has loaded it once before."""

    def ids() -> Any:
        return flat(ENGINES[job["engine"]](data, job["vocabulary"], 1)["documents"](["Hello world, it's 2026!"]))

    digest = hashlib.sha256(ids().tobytes()).hexdigest()
    return {"cpu": [timed(ids)[0]], "digest": digest}


def hostile(job: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Time each hostile text once, in a process that has seen none like it."""
    call = ENGINES[job["engine"]](data, job["vocabulary"], 1)["documents"]
    seconds, digest = [], hashlib.sha256()
    for text in hostile_texts(job["size"]):
        found: list[Any] = []
        seconds.append(timed(lambda text=text, found=found: found.append(flat(call([text]))))[0])  # type: ignore[misc]
        digest.update(found[0].tobytes())
    return {"cpu": seconds, "digest": digest.hexdigest()}


def ugly(job: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Count the odd texts whose ids differ from the reference's, which runs first."""
    encoded = ENGINES[job["engine"]](data, job["vocabulary"], 1)["documents"](ugly_texts(job["size"]))
    digests = np.array([hashlib.sha256(flat([ids]).tobytes()).digest() for ids in encoded])
    file = folder / "ugly.npy"
    if job["engine"] == "tiktoken":
        np.save(file, digests)
    return {"n_different": int((digests != np.load(file)).sum())}


def cut_documents(data: bytes) -> list[str]:
    """Split a buffer into documents, each cut at the first line end at or after its 4,096th byte."""
    documents, start = [], 0
    while start < len(data):
        end = data.find(b"\n", start + DOCUMENT_BYTES - 1) + 1 or len(data)
        documents.append(data[start:end].decode())
        start = end
    return documents


def hostile_texts(n: int) -> Iterable[str]:
    """Yield hostile texts of n characters; random ones are the same in every run."""
    for unit in ("a", " ", "^", "\n ", "a\u0301", "'s", "ab", " a", "\n", "0"):
        yield (unit * n)[:n]
    ranges = ((0x61, 0x7A), (0x30, 0x39), (0x20, 0x7E), (0, 0xFF), (0xD8, 0xF6), (0x410, 0x44F), (0x4E00, 0x9FFF))
    for first, last in (*ranges, (0x1F300, 0x1F64F)):
        yield "".join(map(chr, random.Random(0).choices(range(first, last + 1), k=n)))
    yield "".join(map(_scalar, random.Random(0).choices(range(sys.maxunicode - 0x7FF), k=n)))
    letters = [*"abcdefghijklmnopqrstuvwxyz", " "]
    for mean in (8, 40):
        yield "".join(random.Random(0).choices(letters, [1] * 26 + [26 / (mean - 1)], k=n))


def _scalar(value: int) -> str:
    return chr(value + 0x800 * (value >= 0xD800))  # no surrogates


ODD = (
    *("abcXYZ019!?.,;:-_()[]{}#$%&*+/<=>@|~\\^", " \t\n\r\v\f\x85\xa0\u2000\u2028\u3000\u180e\u1680\x1c\x1f", "'\u2019`\""),
    *("\x00\x01\x7f\u200b\ufeff\xad", "àéîõüßñçÅÆØſıİK", "абвгдЁЖЗ", "漢字日本語中文한국어かなカナ"),
    *("\u0301\u0300\u093f\u200d\ufe0f",),
    *("😀👩💻🇩🇪👍🏽", "ⅷⅫ①½²³٣५", "ǅǈᾈʰˇªº", "𝐀𝟘𐍈𠀀"),
)  # fmt: skip
CONTRACTIONS = (
    "'s",
    "'S",
    "'ll",
    "'LL",
    "'ve",
    "'re",
    "'d",
    "'ſ",
    "don't",
    "I'M",
    "<|endoftext|>",
    " the",
    "\r\n",
    " \n",
    "  ",
)


def ugly_texts(n: int) -> list[str]:
    """Return short texts of corner cases: scripts, cases, blanks, marks, contractions, any character."""
    chance = random.Random(0)

    def part() -> str:
        kind = chance.random()
        if kind < 0.35:
            return chance.choice(CONTRACTIONS)
        if kind < 0.95:
            return chance.choice(chance.choice(ODD)) * (1 if kind < 0.9 else chance.randint(2, 40))
        return _scalar(chance.randrange(sys.maxunicode - 0x7FF))

    return ["".join(part() for _ in range(chance.choice((1, 2, 3, 5, 8, 13, 30, 80)))) for _ in range(n)]


def consume(found: Any) -> None:
    """Do the work of a lazy result."""
    if isinstance(found, map) or hasattr(found, "send"):
        for _ in found:
            pass


def flat(found: Iterable[Any]) -> Any:
    """Return all ids of a result as one array."""
    return np.concatenate([np.asarray(ids, np.uint32) for ids in found])


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the CPU and wall seconds of some work."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def memory(field: str) -> int:
    """Return a field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> int:
    """Reset VmHWM to the process's current memory, and return that."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


if __name__ == "__main__":
    main()
