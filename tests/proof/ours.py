"""Our way: `webtext pretrain` on the posts, killed at random and left alone; and our trainer on either corpus."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
from hosts import running
from meter import run_measured
from pyarrow import parquet
from shape import BATCH_SIZE, CONTEXT, CORPORA, MIXED, N_CHECKPOINTS, N_EMBD, N_HEAD, N_LAYER, STEPS, VOCAB_SIZE
from verdict import documents, known_hosts, rank, text_facts
from votes import DUMP

from webtext.tokenizer import Tokenizer
from webtext.train import load_model

WEBTEXT = str(Path(sys.executable).with_name("webtext"))
DELAY = 0.1  # seconds between two requests to one host, on both sides
MOST_RUNS = 500  # of a command that is killed
CONFIG = """\
[build]
links = ["{dump}"]
out = "{out}"

[crawl.fetch]
contact = "http://127.0.0.1/"
allow_address = ["127.9.0.0/16:{port}"]
delay = {delay}

[tokenizer]
vocab_size = {vocab_size}

# Like train/recipes/toy-cpu-fast.toml before its momentum, beta2 and learning rate were tuned.
[train]
context = {context}
batch_size = {batch_size}
microbatch_size = {batch_size}
steps = {steps}
warmup_steps = {warmup_steps}
learning_rate = 4e-3

[train.shape]
n_layer = {n_layer}
n_head = {n_head}
n_embd = {n_embd}

[train.optimizer]
optimizer = "muon"
muon_learning_rate = 8e-3

[train.schedule]
schedule = "wsd"
decay_ratio = 0.4

[train.checkpoint]
checkpoint_interval = {checkpoint_interval}
keep_checkpoints = "none"

[train.eval]
windows = 1000  # an evaluation does not resume: it has to end between two kills
"""


def crawl(out: Path, port: int) -> list[dict[str, Any]]:
    """The crawl alone, with nothing killed: its figures, and what the disturbed one is compared with."""
    config = write_config(out, "crawl", port, "large")
    commands = {
        "links": ["crawl", "links", str(out / DUMP), "--out", str(out / "ours/crawl/links")],
        "pages": ["crawl", "fetch", str(out / "ours/crawl/links"), "--out", str(out / "ours/crawl/pages")],
    }
    with running(out):
        return [
            _measured(out, name, [*command, "--config", str(config)], out / f"ours/crawl-{name}.log")[0]
            for name, command in commands.items()
        ]


def disturbed(out: Path, port: int, size: str, interval: float) -> dict[str, Any]:
    """`webtext pretrain`, repeated until it is done: a random process of it is killed every `interval` seconds or more."""
    command = [WEBTEXT, "pretrain", str(write_config(out, "disturbed", port, size))]
    noted = out / "ours/killed.json"
    chance, killed = random.Random(0), Counter[str](json.loads(noted.read_text()) if noted.exists() else {})
    with running(out), open(out / "ours/disturbed.log", "a", encoding="utf-8") as log:
        for _ in range(MOST_RUNS):
            process = psutil.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment(out)
            )
            # Ever longer, so that a machine that is too slow to finish a part between two kills ends, too.
            while (code := _wait(process, interval * (1 + killed.total() / 20))) is None:
                try:
                    victim = chance.choice([process, *process.children(recursive=True)])
                    victim.kill()
                except psutil.Error:
                    continue
                killed["command" if victim.pid == process.pid else "worker"] += 1
                noted.write_text(json.dumps(killed))
            if code == 0:
                return {"interval": interval, "killed": dict(killed)}
            if code > 1:
                break
    raise RuntimeError(f"the disturbed run ended with exit code {code}, see '{out / 'ours/disturbed.log'}'")


def build(out: Path, port: int, size: str) -> list[dict[str, Any]]:
    """The same command with nothing killed, from the disturbed run's pages, whose dates are part of what follows."""
    if not (out / "ours/build/pages").exists():
        shutil.copytree(out / "ours/disturbed/pages", out / "ours/build.partial/pages")
        (out / "ours/build.partial").rename(out / "ours/build")
    command = ["pretrain", str(write_config(out, "build", port, size))]
    log = out / "ours/build.log"
    stage_of = lambda line: (re.findall(r"^\d/6 (\w+)", line) or [None])[0]  # noqa: E731
    rows = _measured(out, "start", command, log, stage_of=stage_of)
    subprocess.run([WEBTEXT, "report", str(out / "ours/build")], check=True, stdout=subprocess.DEVNULL)
    return rows


def equality(out: Path) -> dict[str, Any]:
    """Whether the two crawls answered alike, and whether all files made of the same pages are equal to the byte."""
    crawls = [dict(_answers(out / "ours" / name / "pages")) for name in ("crawl", "disturbed")]
    trees = [dict(_hashes(out / "ours" / name)) for name in ("build", "disturbed")]
    differ = sorted(name for name in trees[0].keys() | trees[1].keys() if trees[0].get(name) != trees[1].get(name))
    return {
        "links": len(crawls[0]),
        "links_answered_differently": sum(crawls[1].get(link) != row for link, row in crawls[0].items()),
        "files": len(trees[0]),
        "files_that_differ": differ,
        "undisturbed": hashlib.sha256(json.dumps(trees[0], sort_keys=True).encode()).hexdigest(),
        "disturbed": hashlib.sha256(json.dumps(trees[1], sort_keys=True).encode()).hexdigest(),
    }


def ledger(out: Path) -> list[dict[str, Any]]:
    """Each stage's counts; RuntimeError where kept, dropped and failed are not what came in, or a stage lost what came before."""
    report = json.loads((out / "ours/build/report.json").read_text(encoding="utf-8"))
    rows = [{"stage": stage["name"], "records": stage["records"], **stage["counts"]} for stage in report["stages"]]
    for row in rows:
        if row["records_in"] != row["kept"] + sum(row["dropped"].values()) + sum(row["failed"].values()):
            raise RuntimeError(f"the counts of {row['stage']} do not add up: {row}")
    for before, row in pairwise(rows):
        came = before["records"] if before["stage"] == "links" else before["kept"]
        if row["records_in"] != came:
            raise RuntimeError(
                f"{came:,} records left {before['stage']}, {row['records_in']:,} came into {row['stage']}"
            )
    return rows


def union_tokenizer(out: Path, port: int) -> list[dict[str, Any]]:
    """One tokenizer for all runs, from all corpora; each counts as much as the largest, whatever its size."""
    folders = [out / folder for folder in CORPORA.values()]
    sizes = [sum(len(text.encode()) for text in _texts(folder)) for folder in folders]
    weights = [f"--weight={folder}={max(sizes) / size:.4f}" for folder, size in zip(folders, sizes, strict=True)]
    command = ["tokenizer", "train", *map(str, folders), *weights, "--out", str(_tokenizer(out))]
    return _measured(out, "union", [*command, "--vocab-size", str(VOCAB_SIZE)], out / "tokens/union.log")


def mixed(out: Path) -> dict[str, int]:
    """Write a corpus of all our documents of articles, forums and shops, and of some manuals, by their hash.

    The manuals have the share of its characters that they have in theirs. Returns its sizes; nothing if theirs is all manuals.
    """
    hosts = known_hosts(out)
    share = text_facts(out / CORPORA["theirs"], hosts)["known_ratio"]
    if not share:
        return {}
    ours = [(urlsplit(url).netloc in hosts, url, text) for url, text in documents(out / CORPORA["ours"])]
    chosen = [(url, text) for is_known, url, text in ours if is_known]
    left = sum(len(text) for _, text in chosen) * (1 - share) / share
    for _, url, text in sorted((each for each in ours if not each[0]), key=lambda each: rank(each[1])):
        if left >= len(text):
            left -= len(text)
            chosen.append((url, text))
    folder = out / MIXED["mixed"]
    folder.mkdir(parents=True, exist_ok=True)
    urls, texts = zip(*sorted(chosen, key=lambda each: rank(each[0])), strict=True)
    parquet.write_table(pa.table({"url": urls, "text": texts}), folder / "part.parquet")
    return {"documents": len(texts), "characters": sum(map(len, texts))}


def tokens(out: Path, port: int, corpus: str) -> dict[str, Any]:
    """A corpus as our token set, by the union's tokenizer: the costs, and its bytes per token.

    A tokenizer of their corpus alone is trained for its cost; that of ours is the build's.
    """
    folder, token_set = out / (CORPORA | MIXED)[corpus], out / f"tokens/{corpus}"
    texts = str(folder)
    pack = ["shards", "pack", texts, "--tokenizer", str(_tokenizer(out)), "--out", str(token_set)]
    train = ["tokenizer", "train", texts, "--out", f"{token_set}.json", "--vocab-size", str(VOCAB_SIZE)]
    commands = [train, pack] if corpus == "theirs" else [pack]
    rows = [row for each in commands for row in _measured(out, each[0], each, out / f"tokens/{corpus}-{each[0]}.log")]
    lengths = [parquet.read_table(path, columns=["length"])["length"] for path in token_set.glob("*.parquet")]
    n_tokens = sum(length.as_py() for column in lengths for length in column)
    n_bytes = sum(len(text.encode()) for text in _texts(folder))
    return {"rows": rows, "tokens": n_tokens, "bytes_per_token": n_bytes / n_tokens}


def train(out: Path, port: int, corpus: str, seed: int, steps: int, budget: str = "") -> list[dict[str, Any]]:
    """One run of our trainer on one core; leaves its checkpoints in models/ as Hugging Face folders."""
    name, config = f"webtext{budget}-{corpus}-{seed}", str(write_config(out, "build", port, "large"))
    run, token_set = out / "ours" / name, out / f"tokens/{corpus}"
    command = ["train", "run", str(token_set), "--out", str(run), "--config", config]
    settings = {"seed": seed, "steps": steps, "warmup_steps": max(1, steps // 20)}
    settings["checkpoint.checkpoint_interval"] = steps // N_CHECKPOINTS
    command += [f"--set=train.{key}={value}" for key, value in settings.items()]
    figures = out / f"ours/{name}.json"
    if not figures.exists():
        rows = _measured(out, name, command, figures.with_suffix(".log"), OMP_NUM_THREADS="1")
        figures.write_text(json.dumps(rows))
    for checkpoint in sorted((run / "checkpoints").glob("step-*")):
        seen = int(checkpoint.name.removeprefix("step-")) * BATCH_SIZE * CONTEXT
        folder = out / f"models/{corpus}-ours{budget}-{seed}/{seen:09d}"
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.partial")
            load_model(checkpoint).to_huggingface(partial, tokenizer=Tokenizer.load(_tokenizer(out)))
            partial.rename(folder)
    return list(json.loads(figures.read_text()))


def _tokenizer(out: Path) -> Path:
    return out / "tokens/tokenizer.json"


def _texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.parquet")):
        for batch in parquet.ParquetFile(path).iter_batches(256, columns=["text"]):
            yield from batch.column("text").to_pylist()


def _environment(out: Path, **variables: str) -> dict[str, str]:
    """The environment of our commands: the extractor's model is the one that never saw the served pages, if there is one."""
    return os.environ | {"PYTHONPATH": str(out / "extractor")} | variables


def _measured(
    out: Path, name: str, arguments: list[str], log: Path, stage_of: Any = lambda line: None, **variables: str
) -> list[dict[str, Any]]:
    return run_measured(name, [WEBTEXT, *arguments], log, stage_of=stage_of, env=_environment(out, **variables))


def write_config(out: Path, name: str, port: int, size: str) -> Path:
    """The TOML file of one build under `out`/ours."""
    path = out / f"ours/{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = CONFIG.format(
        dump=out / DUMP,
        out=out / "ours" / name,
        port=port,
        delay=DELAY,
        vocab_size=VOCAB_SIZE,
        n_layer=N_LAYER,
        n_head=N_HEAD,
        n_embd=N_EMBD,
        context=CONTEXT,
        batch_size=BATCH_SIZE,
        steps=STEPS[size],
        warmup_steps=STEPS[size] // 20,
        checkpoint_interval=max(STEPS[size] // 40, 1),  # more often than a kill
    )
    path.write_text(text, encoding="utf-8")
    return path


def _wait(process: psutil.Popen, seconds: float) -> int | None:
    try:
        return int(process.wait(seconds))
    except psutil.TimeoutExpired:
        return None


def _answers(pages: Path) -> Iterator[tuple[str, str]]:
    """Link id -> what came of it; a captured page by the digest of its body."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    digests = {}
    for archive in sorted(pages.glob("*.warc.gz")):
        with open(archive, "rb") as file:
            for record in ArchiveIterator(file, record_types=WarcRecordType.response | WarcRecordType.revisit):
                digests[archive.name, record.stream_pos] = record.headers["WARC-Payload-Digest"]
    columns = ["link_id", "final_url", "outcome", "reason", "status", "warc_file", "warc_offset"]
    for part in sorted(pages.glob("part-*.parquet")):
        for row in parquet.read_table(part, columns=columns).to_pylist():
            place = row.pop("warc_file"), row.pop("warc_offset")
            yield row["link_id"], json.dumps([*row.values(), digests.get(place)])


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    """Relative path -> SHA-256 of what a build is judged by: parts, manifests, tokenizer, tokens, checkpoints, export."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (
            path.suffix in (".parquet", ".tok", ".safetensors", ".gz")
            or path.name in ("manifest.json", "tokenizer.json")
        ):
            with open(path, "rb") as file:
                yield path.relative_to(folder).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()
