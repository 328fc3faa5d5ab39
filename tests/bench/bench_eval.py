"""Perplexities on the paper's sets by webtext and by transformers, for a model trained here and for a random one.

    python tests/bench/bench_eval.py [DATA]

DATA is the folder of real data (default: WEBTEXT_TEST_DATA). One model is a small GPT-2, trained on English text with
its own tokenizer and exported; the other is transformers' randomly initialised GPT-2 with GPT-2's tokenizer.
transformers loads the exported folder with its own tokenizer class and gets the same text, windows and batches. The
values must agree to a relative 1e-5. LAMBADA is limited to the first thousand passages. Times are CPU seconds of one
thread, including tokenizing and de-tokenizing.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))

from real_data import real_data  # noqa: E402

from webtext.app.main import run as command  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.tokenizer import Tokenizer  # noqa: E402
from webtext.train.evaluate.detokenize import PTB, WIKITEXT  # noqa: E402
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.table3 import UNFILTERED  # noqa: E402
from webtext.train.evaluate.zero_shot import evaluate_task  # noqa: E402
from webtext.train.settings import EvalSettings  # noqa: E402

TRAIN_BYTES, VOCAB_SIZE = 4_000_000, 4096
SHAPE = {"n-layer": 2, "n-head": 4, "n-embd": 128, "context": 256}
TRAINING = {"batch-size": 8, "steps": 200, "warmup-steps": 20, "learning-rate": 3e-3}
RANDOM = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 256}
BATCH_SIZE, TOLERANCE = 8, 1e-5
N_PASSAGES = 1000
Values = dict[tuple[str, str], float]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("data", nargs="?")
    data = real_data(arguments.parse_args().data)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    wikitext, ptb = data / "eval/wikitext-2/test.txt", data / "eval/ptb/ptb.test.txt"
    print(
        f"{'model':<8} {'set':<11}{'stride':>6}  {'measure':<42}{'webtext':>14}{'transformers':>14}{'apart':>9}  CPU s"
    )
    with tempfile.TemporaryDirectory() as scratch:
        lambada, passages = Path(scratch, "lambada.jsonl"), data / "eval/lambada/lambada_test.jsonl"
        lambada.write_text("".join(passages.read_text().splitlines(keepends=True)[:N_PASSAGES]))
        trained, random = trained_model(Path(scratch), data), random_model(Path(scratch), data)
        compare("trained", trained, "wikitext-2", wikitext, None)
        for name, folder in (("trained", trained), ("random", random)):
            compare(name, folder, "ptb", ptb, None)
            compare(name, folder, "lambada", lambada, None)
        compare("trained", trained, "ptb", ptb, 64)


def compare(name: str, folder: Path, task: str, path: Path, stride: int | None) -> None:
    settings = EvalSettings(stride=stride, batch_size=BATCH_SIZE)
    started = time.process_time()
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    answer = evaluate_task(load_measured(str(folder), tokenizer), task, str(path), settings, Run.quiet())
    ours: Values = {(row["measure"], row["unit"]): row["value"] for row in answer["results"]}
    our_seconds = time.process_time() - started
    started = time.process_time()
    theirs = their_values(folder, task, path, stride)
    their_seconds = time.process_time() - started
    shown = f"{our_seconds:.1f} : {their_seconds:.1f} = 1 : {their_seconds / our_seconds:.2f}"
    for key, value in theirs.items():
        apart = abs(ours[key] - value) / value if value else abs(ours[key])
        if apart > TOLERANCE:
            raise SystemExit(f"{name}, {task}, {key}: {ours[key]} here and {value} by transformers")
        measure = f"{key[0]}, {key[1]}"
        print(
            f"{name:<8} {task:<11}{answer.get('stride', ''):>6}  {measure:<42}{ours[key]:>14.8g}{value:>14.8g}{apart:>9.0e}"
            f"  {shown}",
            flush=True,
        )
        shown = ""


def their_values(folder: Path, task: str, path: Path, stride: int | None) -> Values:
    """Compute the value with the same protocol, using nothing of webtext but the de-tokenizers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    if task == "lambada":
        return their_last_words(model, tokenizer, path)
    text = path.read_text()
    read = {"wikitext-2": WIKITEXT, "ptb": PTB}[task].detokenize(text)
    tokens = tokenizer(read, return_attention_mask=False, verbose=False)["input_ids"]
    stream, context, total = [tokenizer.eos_token_id, *tokens], model.config.n_positions, 0.0
    windows = []
    for start in range(0, len(tokens), stride or context):
        end = min(start + (stride or context), len(tokens))
        windows.append((stream[max(0, end - context) : end + 1], end - start))
    for batch in batches(windows, of_equal_length=True):
        losses = their_losses(model, torch.tensor([row for row, _ in batch]))[0]
        total += sum(float(row[-n:].double().sum()) for row, (_, n) in zip(losses, batch, strict=True))
    n_words = len(text.split())
    return {
        ("perplexity", "token"): math.exp(total / len(tokens)),
        ("perplexity", "word"): math.exp(total / n_words),
        ("perplexity", "word or line end"): math.exp(total / (n_words + text.count("\n"))),
        ("bits", "byte"): total / math.log(2) / len(text.encode()),
    }


def their_last_words(model: Any, tokenizer: Any, path: Path) -> Values:
    rows = []
    for line in path.read_text().splitlines():
        before, _, word = json.loads(line)["text"].rpartition(" ")
        target = tokenizer(f" {word}")["input_ids"]
        tokens = [tokenizer.eos_token_id, *tokenizer(before)["input_ids"], *target]
        rows.append((tokens[-model.config.n_positions - 1 :], len(target)))
    total, n_words, n_last = 0.0, 0, 0
    for batch in batches(sorted(rows, key=lambda row: len(row[0]))):
        longest = max(len(tokens) for tokens, _ in batch)
        padded = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens, _ in batch])
        losses, right = their_losses(model, padded)
        for (tokens, n), loss, is_right in zip(batch, losses, right, strict=True):
            scored = slice(len(tokens) - n - 1, len(tokens) - 1)
            total += float(loss[scored].double().sum())
            n_words += bool(is_right[scored].all())
            n_last += bool(is_right[scored][-1])
    return {
        ("perplexity", "word"): math.exp(total / len(rows)),
        (UNFILTERED, "word"): n_words / len(rows),
        (UNFILTERED, "last token"): n_last / len(rows),
    }


@torch.no_grad()
def their_losses(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits, targets = model(tokens[:, :-1]).logits, tokens[:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets), logits.argmax(-1) == targets


def batches(rows: list[Any], *, of_equal_length: bool = False) -> Iterator[list[Any]]:
    """Yield batches of at most `BATCH_SIZE` rows, grouped as webtext does."""
    batch: list[Any] = []
    for row in rows:
        differs = batch and of_equal_length and len(row[0]) != len(batch[0][0])
        if len(batch) == BATCH_SIZE or differs:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def trained_model(scratch: Path, data: Path) -> Path:
    """Train a model of `SHAPE` on the start of the English corpus; return its exported folder."""
    with lzma.open(data / "corpora/en.txt.xz") as file:
        text = file.read(TRAIN_BYTES).decode(errors="ignore")
    tokenizer, tokens, model, export = (scratch / name for name in ("tokenizer.json", "tokens", "model", "export"))
    Tokenizer.train([text], vocab_size=VOCAB_SIZE, special_tokens=["<|endoftext|>"]).save(tokenizer)
    Tokenizer.load(tokenizer).encode_numpy(text).tofile(scratch / "train.bin")
    flags = " ".join(f"--{name} {value}" for name, value in {**SHAPE, **TRAINING}.items())
    for line in (
        f"shards convert {scratch}/train.bin --from nanogpt --tokenizer {tokenizer} --out {tokens}",
        f"train run {tokens} --out {model} {flags} --threads 1",
        f"train export {model} --tokenizer {tokenizer} --out {export}",
    ):
        if command([*line.split(), "--quiet"]):
            raise SystemExit("the model could not be trained")
    return export


def random_model(scratch: Path, data: Path) -> Path:
    """Save a freshly initialised GPT2LMHeadModel of transformers, with GPT-2's tokenizer; return its folder."""
    torch.manual_seed(0)
    folder = scratch / "random"
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**RANDOM)).save_pretrained(folder)
    vocab, merges = (str(data / "gpt2" / name) for name in ("encoder.json", "vocab.bpe"))
    transformers.GPT2TokenizerFast(vocab=vocab, merges=merges).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
