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

import psutil
from hosts import running
from meter import run_measured
from shape import BATCH_SIZE, CONTEXT, N_CHECKPOINTS, N_EMBD, N_HEAD, N_LAYER, STEPS, VOCAB_SIZE
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
min_learning_rate_ratio = 0.0

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
            run_measured(name, [WEBTEXT, *command, "--config", str(config)], out / f"ours/crawl-{name}.log")[0]
            for name, command in commands.items()
        ]


def disturbed(out: Path, port: int, size: str, interval: float) -> dict[str, Any]:
    """`webtext pretrain`, a random process of it killed every `interval` seconds and the command given again until it is done."""
    command = [WEBTEXT, "pretrain", str(write_config(out, "disturbed", port, size))]
    noted = out / "ours/killed.json"
    chance, killed = random.Random(0), Counter[str](json.loads(noted.read_text()) if noted.exists() else {})
    with running(out), open(out / "ours/disturbed.log", "a", encoding="utf-8") as log:
        for _ in range(MOST_RUNS):
            process = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            while (code := _wait(process, interval)) is None:
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
    command = [WEBTEXT, "pretrain", str(write_config(out, "build", port, size))]
    log = out / "ours/build.log"
    rows = run_measured("start", command, log, stage_of=lambda line: (re.findall(r"^\d/6 (\w+)", line) or [None])[0])
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


def tokens(out: Path, port: int, corpus: str) -> list[dict[str, Any]]:
    """Our tokenizer and token set of the others' documents as they are; those of our corpus are the build's."""
    if corpus == "ours":
        return []
    config, (token_set, tokenizer) = str(write_config(out, "build", port, "large")), _tokens_of(out, corpus)
    parts, folder = map(str, sorted((out / "theirs/corpus").glob("*.parquet"))), token_set.parent
    commands = (
        ["clean", "filter", *parts, "--out", str(folder)],  # its documents/ are all of them
        ["tokenizer", "train", str(folder / "documents"), "--out", str(tokenizer)],
        ["shards", "pack", str(folder / "documents"), "--tokenizer", str(tokenizer), "--out", str(token_set)],
    )
    logs = (folder / f"{command[0]}.log" for command in commands)
    return [
        row
        for command, log in zip(commands, logs, strict=True)
        for row in run_measured(command[0], [WEBTEXT, *command, "--config", config], log)
    ]


def train(out: Path, port: int, corpus: str, seed: int, size: str) -> list[dict[str, Any]]:
    """One run of our trainer on one core; leaves its checkpoints in models/ as Hugging Face folders."""
    name, (token_set, tokenizer) = f"webtext-{corpus}-{seed}", _tokens_of(out, corpus)
    run, config = out / "ours" / name, str(write_config(out, "build", port, size))
    command = [WEBTEXT, "train", "run", str(token_set), "--out", str(run), "--config", config]
    command += ["--threads", "1", "--set", f"train.seed={seed}"]
    command += ["--set", f"train.checkpoint.checkpoint_interval={STEPS[size] // N_CHECKPOINTS}"]
    figures = out / f"ours/{name}.json"
    if not figures.exists():
        rows = run_measured(name, command, figures.with_suffix(".log"), env=os.environ | {"OMP_NUM_THREADS": "1"})
        figures.write_text(json.dumps(rows))
    for checkpoint in sorted((run / "checkpoints").glob("step-*")):
        seen = int(checkpoint.name.removeprefix("step-")) * BATCH_SIZE * CONTEXT
        folder = out / f"models/{corpus}-ours-{seed}/{seen:09d}"
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.partial")
            load_model(checkpoint).to_huggingface(partial, tokenizer=Tokenizer.load(tokenizer))
            partial.rename(folder)
    return list(json.loads(figures.read_text()))


def _tokens_of(out: Path, corpus: str) -> tuple[Path, Path]:
    """The token set and the tokenizer's file."""
    folder = out / "ours" / ("build" if corpus == "ours" else "their-documents")
    return folder / "tokens", folder / "tokenizer/tokenizer.json"


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
    from pyarrow import parquet

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
