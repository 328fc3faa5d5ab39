"""Speed of token shards: shuffled windows compared with nanoGPT's get_batch, packing with datatrove's tokenizing step.

    python tests/bench/bench_shards.py [DATA] [--tokens N] [--nanogpt FOLDER] [--only loader|pack]

CPU seconds of this process, one thread apart from the loader's read-ahead; the rounds of a group are interleaved, and
medians are printed. nanoGPT's function is taken from train.py in a checkout that you name; DATA contains
corpora/en.txt.xz. If one is missing, "not measured" is printed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.shards import Sampler, TokenShards
from webtext.shards.format import shard_name
from webtext.shards.shardfile import ShardWriter

HASH = "00" * 32
VOCABULARY = 50_257
DOCUMENT = 1000
CONTEXT = 1024
BATCH = 16
ROUNDS = 5
DOCUMENT_BYTES = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--only", choices=["loader", "pack"], action="append")
    options = parser.parse_args()
    groups = options.only or ["loader", "pack"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "loader" in groups:
            write_set(folder / "tokens", options.tokens)
            loader(folder, options.nanogpt)
        if "pack" in groups:
            pack(folder, options.data)


def write_set(folder: Path, n_tokens: int) -> None:
    """Two shards of random tokens."""
    settings = {"vocab_size": VOCABULARY, "eot_id": VOCABULARY - 1, "tokenizer_hash": HASH}
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="bench", code_version=1, settings=settings))
    documents = np.random.default_rng(0).integers(
        0, VOCABULARY - 1, (n_tokens // 2 // DOCUMENT, DOCUMENT - 1), np.uint16
    )
    seconds, parts = 0.0, []
    for number in range(2):
        with tokens.part(number, key=str(number)) as part:
            started = time.process_time()
            path = part.attach(shard_name("train", number))
            with ShardWriter(path, vocab_size=VOCABULARY, eot_id=VOCABULARY - 1, tokenizer_hash=HASH) as shard:
                for document in documents:
                    shard.append(document)
            part.describe(shard_name("train", number), shard.in_manifest())
            seconds += time.process_time() - started
            parts.append(part.publish())
    tokens.seal(parts)
    print(row("write, documents of 1,000 tokens", n_tokens / seconds))


def loader(folder: Path, nanogpt: Path | None) -> None:
    """Measure windows read from the page cache."""
    shards = TokenShards(folder / "tokens")
    sampler = Sampler(shards, context=CONTEXT, batch_size=BATCH)
    shuffled_whole = Sampler(shards, context=CONTEXT, batch_size=BATCH, group_blocks=None)
    inside = Sampler(shards, context=CONTEXT, batch_size=BATCH, crosses_documents=False)
    out = np.empty((BATCH, CONTEXT + 1), np.uint16)
    n_batches = shards.n_tokens // (CONTEXT * BATCH)
    flat = shards.tokens(0)

    def fill(of: Sampler) -> Callable[[], None]:
        return lambda: [of.fill(out) for _ in range(n_batches)] and None

    jobs: dict[str, Callable[[], None]] = {
        "Sampler.fill, u16, groups of 64 blocks": fill(sampler),
        "Sampler.fill, u16, full shuffle": fill(shuffled_whole),
        "Sampler.fill, u16, inside documents (of 1,000)": fill(inside),
        "next(Sampler), int64": lambda: [next(sampler) for _ in range(n_batches)] and None,
    }
    get_batch = nanogpt_get_batch(nanogpt, folder, flat) if nanogpt else None
    if get_batch:
        jobs["nanoGPT's get_batch"] = lambda: [get_batch("train") for _ in range(n_batches // 8)] and None
    sizes = dict.fromkeys(jobs, n_batches * BATCH * CONTEXT)
    sizes["nanoGPT's get_batch"] = n_batches // 8 * BATCH * CONTEXT
    speeds = medians(jobs, sizes)
    for name, speed in speeds.items():
        against = speeds.get("nanoGPT's get_batch")
        print(row(name, speed, f"{speed / against:.1f} times nanoGPT" if against else ""))
    if not get_batch:
        print("nanoGPT's get_batch: not measured (--nanogpt FOLDER)")


def nanogpt_get_batch(folder: Path, scratch: Path, tokens: np.ndarray[Any, Any]) -> Callable[[str], Any] | None:
    """Return get_batch from a checkout's train.py, with the globals that it uses."""
    import torch

    tree = ast.parse((folder / "train.py").read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_batch"]
    if not found:
        return None
    torch.set_num_threads(1)
    tokens.tofile(scratch / "train.bin")
    names = {"np": np, "os": os, "torch": torch, "data_dir": str(scratch), "block_size": CONTEXT, "batch_size": BATCH,
             "device_type": "cpu", "device": "cpu"}  # fmt: skip
    exec(compile(ast.Module(found, []), "train.py", "exec"), names)
    return names["get_batch"]  # type: ignore[return-value]


def pack(folder: Path, data: str | None) -> None:
    """Pack 52 MB of text in documents of 4 KB from a part set; datatrove's step gets the same texts in memory."""
    if not data:
        print("pack: not measured (no real data: name its folder)")
        return
    import lzma

    from webtext.base.parts.identifiers import text_digest
    from webtext.tokenizer import Tokenizer

    with lzma.open(Path(data) / "corpora" / "en.txt.xz") as file:
        text = file.read()
    texts = re.findall(rf"(?s).{{{DOCUMENT_BYTES},}}?\n", text.decode())
    tokenizer = folder / "tokenizer.json"
    Tokenizer.load(Path(data) / "gpt2").save(tokenizer)
    corpus = SetWriter(str(folder / "corpus"), "corpus", Recipe(stage="bench", code_version=1, settings={}))
    with corpus.part(0, key="0") as part:
        rows = [
            {
                "id": f"{i:032x}",
                "link_ids": [],
                "posts": [],
                "text": each,
                "text_digest": text_digest(each),
                "split": "train",
            }
            for i, each in enumerate(texts)
        ]
        part.write(rows)
        corpus.seal([part.publish()])
    jobs = {"webtext shards pack": lambda: pack_once(folder, tokenizer)}
    if importlib.util.find_spec("datatrove"):
        jobs["datatrove's DocumentTokenizer"] = lambda: datatrove_once(folder, tokenizer, texts)
    speeds = medians(jobs, dict.fromkeys(jobs, len(text)), rounds=3)
    ours = speeds["webtext shards pack"]
    for name, speed in speeds.items():
        print(f"{name:48}{speed / 1e6:8.1f} MB/s  {ours / speed:.1f} times slower than ours" if speed != ours else
              f"{name:48}{speed / 1e6:8.1f} MB/s  including reading, encoding, writing, hashing")  # fmt: skip
    if len(jobs) == 1:
        print("datatrove: not measured (not installed)")


def pack_once(folder: Path, tokenizer: Path) -> None:
    import shutil

    from webtext.base.console import Console
    from webtext.base.run import Run
    from webtext.base.workers.attempt import Attempt
    from webtext.shards.writing import pack as packing

    class HereAlone:
        """An engine that runs tasks in this process."""

        workers = 1

        def map(self, function: Any, tasks: Any, *, on_done: Any, **_: Any) -> list[Any]:
            for i, task in enumerate(tasks):
                on_done(i, function(Attempt(), task))
            return []

    shutil.rmtree(folder / "packed", ignore_errors=True)
    run = Run(HereAlone(), Console("quiet"))  # type: ignore[arg-type]
    packing.pack_shards(str(folder / "corpus"), str(tokenizer), str(folder / "packed"), packing.PackSettings(), run)


def datatrove_once(folder: Path, tokenizer: Path, texts: list[str]) -> None:
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]

    step = DocumentTokenizer(str(folder / "ds"), str(tokenizer), eos_token="<|endoftext|>", shuffle_documents=False)
    step.run(Document(text=text, id=str(i)) for i, text in enumerate(texts))


def medians(jobs: dict[str, Callable[[], None]], sizes: dict[str, int], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the units per CPU second of each job, the median of interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            started = time.process_time()
            job()
            taken[name].append(time.process_time() - started)
            print(f"{name}: {taken[name][-1]:.3g} s", flush=True)
    return {name: sizes[name] / statistics.median(times) for name, times in taken.items()}


def row(name: str, tokens_per_second: float, note: str = "") -> str:
    return f"{name:50}{tokens_per_second / 1e6:8.0f} M tokens/s  {note}".rstrip()


if __name__ == "__main__":
    main()
