"""The other way: Scrapy, datatrove, Hugging Face tokenizers and nanoGPT, by their documented settings, on the same posts.

Each step leaves its figures and log in theirs/figures. With figures it is not run again; without, it begins again.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from hosts import running
from meter import run_measured
from safetensors.torch import save_file
from shape import BATCH_SIZE, CONTEXT, CORPORA, MIXED, N_CHECKPOINTS, N_EMBD, N_HEAD, N_LAYER, VOCAB_SIZE
from votes import DUMP

HERE = Path(__file__).resolve().parent
PINS = (HERE / "their-requirements.txt").read_text()
NEWER = "trafilatura==2.3.1"  # in a folder of its own, because datatrove pins an older one
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
Rows = list[dict[str, Any]]


def environment(proof_folder: Path) -> Path:
    """The Python that has their tools; made where it is missing or has other versions."""
    folder = proof_folder / "their-env"
    python, installed = folder / "bin/python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != PINS + NEWER:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        # torch alone first, so that its CPU build is taken
        for wanted in (PINS.split()[:1], PINS.split(), [NEWER, "--target", str(folder / "newer")]):
            if subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted]).returncode:
                raise OSError(
                    f"pip cannot install {wanted[0]} and its like in '{folder}'\ncheck the access to PyPI, then run again"
                )
        installed.write_text(PINS + NEWER)
    return python


def versions(nanogpt_path: Path | None) -> dict[str, str]:
    """Tool -> version; of nanoGPT the commit, where its folder is a checkout."""
    found = dict(pin.split("==") for pin in PINS.split())
    if nanogpt_path is not None:
        head = ["git", "-C", str(nanogpt_path), "rev-parse", "HEAD"]
        found["nanoGPT"] = subprocess.run(head, capture_output=True, text=True).stdout.strip() or "not a checkout"
    return found


def corpus(out: Path, delay: float, workers: int) -> Rows:
    """Their crawl and their cleaning: theirs/pages and theirs/corpus."""
    pages, work, program = out / "theirs/pages", out / "theirs/datatrove", HERE.parent / "bench/datatrove_pages.py"
    with running(out):
        rows = _step(out, "scrapy", pages, HERE / "their_spider.py", out / DUMP, pages, delay)
    rows += _step(out, "datatrove", work, program, pages, work, workers)
    shutil.copytree(work / "corpus", out / "theirs/corpus", dirs_exist_ok=True)
    return rows


def newer_corpus(out: Path, workers: int) -> Rows:
    """The same cleaning of the same pages with today's trafilatura: newer/corpus."""
    work, program = out / "newer/datatrove", HERE.parent / "bench/datatrove_pages.py"
    newer = os.environ | {"PYTHONPATH": str(out.parent / "their-env/newer")}
    rows = _step(out, "datatrove-newer", work, program, out / "theirs/pages", work, workers, env=newer)
    shutil.copytree(work / "corpus", out / "newer/corpus", dirs_exist_ok=True)
    return rows


def funnel(out: Path) -> list[int]:
    """Links, pages, and the documents that were extracted, that passed the filters, and that are kept."""
    crawl = json.loads((out / "theirs/pages/stats.json").read_text())
    cleaned, kept = (
        {
            row["name"].split()[-1]: row["stats"]
            for row in json.loads((out / f"theirs/datatrove/logs/{name}/stats.json").read_text())
        }
        for name in ("filter", "dedup")
    )
    rules = [cleaned["Trafilatura"]["forwarded"], cleaned["Jsonl"]["total"], kept["Parquet"]["total"]]
    return [crawl["links"], crawl["item_scraped_count"], *rules]


def tokens(out: Path, corpus: str) -> Rows:
    """A corpus as nanoGPT reads it, by the union's tokenizer; their tokenizer of it is trained for its cost."""
    folder, program, texts = out / f"theirs/tokens-{corpus}", HERE / "their_tokens.py", out / (CORPORA | MIXED)[corpus]
    rows = _step(out, f"tokenizer-{corpus}", folder, program, "train", texts, folder / "tokenizer.json")
    union = out / "tokens/tokenizer.json"
    return rows + _step(out, f"pack-{corpus}", folder / "bins", program, "pack", texts, union, folder / "bins")


def nanogpt(out: Path, nanogpt_path: Path, corpus: str, seed: int, steps: int, threads: int) -> Rows:
    """One run of nanoGPT's own train.py; leaves its checkpoints in models/ as Hugging Face folders."""
    name, data = f"nanogpt-{corpus}-{seed}", out / f"theirs/tokens-{corpus}"
    run = out / "theirs" / name
    options = {"seed": seed, "out_dir": run, "dataset": data / "bins", "max_iters": steps, "lr_decay_iters": steps}
    options["eval_interval"] = steps // N_CHECKPOINTS
    settings = [f"--{name}={value}" for name, value in options.items()]
    command = [nanogpt_path.resolve() / "train.py", HERE / "their_config.py", *settings]
    variables = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    rows = _step(out, name, run, *command, cwd=nanogpt_path, env=os.environ | variables)
    for checkpoint in run.glob("*.pt"):
        folder = out / f"models/{corpus}-theirs-{seed}/{int(checkpoint.stem) * BATCH_SIZE * CONTEXT:09d}"
        if not folder.exists():
            _convert(checkpoint, out / "tokens/tokenizer.json", folder)
    return rows


def _step(out: Path, name: str, folder: Path, *command: object, **options: Any) -> Rows:
    """The figures of a command of their Python that fills `folder`, which begins empty unless the command resumes."""
    figures = out / f"theirs/figures/{name}.json"
    if not figures.exists():
        if not name.startswith("datatrove"):  # it skips its finished tasks
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        whole = [str(environment(out.parent)), *map(str, command)]
        figures.write_text(json.dumps(run_measured(name, whole, figures.with_suffix(".log"), **options)))
    return list(json.loads(figures.read_text()))


def _convert(checkpoint: Path, tokenizer: Path, folder: Path) -> None:
    """Write nanoGPT's weights as a Hugging Face GPT-2 folder, where linear layers are transposed."""
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    loaded = torch.load(checkpoint, weights_only=True).items()
    weights = {name.removeprefix("_orig_mod."): tensor for name, tensor in loaded}  # the prefix of a compiled model
    del weights["lm_head.weight"]  # the embedding again
    turned = {name: tensor.t() if name.endswith(TRANSPOSED) else tensor for name, tensor in weights.items()}
    save_file({name: tensor.contiguous() for name, tensor in turned.items()}, partial / "model.safetensors")
    sizes = {"n_layer": N_LAYER, "n_head": N_HEAD, "n_embd": N_EMBD, "n_positions": CONTEXT, "vocab_size": VOCAB_SIZE}
    (partial / "config.json").write_text(json.dumps({"model_type": "gpt2", "activation_function": "gelu_new", **sizes}))
    shutil.copy(tokenizer, partial)
    partial.rename(folder)
