"""`train compare`: which of several corpora makes the better model of one size, at one budget, over several seeds.

Every corpus gets the same model, schedule, seeds and number of tokens, and every model is measured in bits per byte on
documents that none of them was trained on. So only the corpus differs; the seeds and the documents show the effect of
chance. A token set that is named twice is trained with other seeds the second time: then only chance differs.

A keyed hash of the link decides whether a document is held out (`base/parts/identifiers.py`). So corpora made from the
same pages with different rules hold out the same ids, as far as their rules keep them. The validation set has the
documents that all of them hold out, ordered by id, with the first corpus's texts, since rules may change texts. They are
measured in float32, one after the other, in windows of one context that don't overlap.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from webtext.base.config import changed, recipe_settings
from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint.checkpoint import checkpoint_of, model_of
from webtext.train.data.sources import Source, open_sources, source_uses
from webtext.train.data.windows import Windows
from webtext.train.distributed import join_world
from webtext.train.evaluate.texts import read_file
from webtext.train.experiments.significance import ALPHA, POWER, Floats, differences, holm
from webtext.train.experiments.trials import Result, Row, Trial, run_experiment, seeded, with_tokens
from webtext.train.settings import ExperimentSettings, TrainSettings

VALIDATION, MEASURES = "validation.jsonl", "measures.json"
MAX_BYTES = 10_000_000
BATCH_SIZE, SEEDS = 8, 3
BETTER, WORSE, NOISE, NONE = "better", "worse", "within noise", "no verdict"
COLUMNS = "corpus", "documents", "passes", "mean", "spread", "difference", "margin", "smallest", "p", "verdict"
NOTES = (
    "Spread: standard deviation over seeds. Difference: of means, its 95 % interval by other seeds and documents is ± the "
    "margin.",
    f"Smallest: {POWER:.0%} of such experiments would find a true difference of this size. Within noise doesn't prove "
    "equality: a smaller one may be there.",
    f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction over the corpora.",
)
NO_CHANCE = "One seed or document shows nothing about chance. Give --seeds 3 or more."


Corpora = Mapping[str, Source]  # token sets by the names of the corpora


def compare_corpora(
    arguments: Sequence[str],
    out: str,
    settings: TrainSettings,
    compare: ExperimentSettings,
    run: Run,
    *,
    validation: str | None = None,
    tokenizer: str | None = None,
) -> Result:
    """Train and measure all runs in `out`, and judge them; finished runs and measures are reused.

    `arguments` are as in `open_corpora`; `validation` is the file of a frozen set. Whatever can be rejected is rejected
    before the first step. Writes runs/, the validation set, the result and its page into `out`.
    """
    corpora, tok = open_corpora(arguments, tokenizer)
    asked, per_step, n_seeds = settings.total_tokens, settings.batch_size * settings.context, compare.seeds or SEEDS
    most_passes = max(source_uses([source], settings)[0].passes for source in corpora.values())
    fits = int(asked / most_passes // per_step) * per_step
    shared = with_tokens(settings, min(asked, fits))  # so that the smallest corpus is not repeated
    frozen = frozen_validation(corpora, tok, validation)
    rows: list[Row] = []
    hashes = [source.train.hash for source in corpora.values()]
    for i, (name, source) in enumerate(corpora.items()):
        train, passes = source.train, source_uses([source], shared)[0].passes
        n_before = hashes[:i].count(train.hash)
        seed, place = settings.seed + n_before * n_seeds, Path(out) / "runs" / slug(name)
        kept = changed(shared, keep_checkpoints=1, seed=seed)
        row = {"corpus": name, "documents": train.n_documents, "passes": passes}
        row |= {"seeds": list(range(seed, seed + n_seeds))}
        rows.append((row, seeded(name, [source.name], kept, n_seeds, place)))
        again = "; a token set that was named before: other seeds, so only chance differs" if n_before else ""
        run.console.say(f"compare: '{name}': {passes:.2f} passes over {train.n_tokens:,} tokens{again}")
    about = described(frozen)
    run.console.say(f"compare: {counted(shared.steps, 'step')} each; validation set: {about}")
    facts = {"tokens": shared.total_tokens, "settings": recipe_settings(shared), "validation": about}
    texts = list(frozen.values())
    n_bytes = np.array([len(text.encode()) for text in texts], np.float64)
    result = run_experiment(
        "compare", out, rows, {"validation": about}, run, partial(compared, n_bytes=n_bytes, facts=facts),
        measure=partial(bits_of, texts=texts, tokenizer=tok, run=run),
    )  # fmt: skip
    Folder(out).write_bytes(VALIDATION, validation_bytes(frozen))
    return result


def open_corpora(arguments: Sequence[str], named: str | None) -> tuple[Corpora, Tokenizer]:
    """Open the corpora `NAME=PATH` or `PATH`: builds (with tokens/ and tokenizer/) or token sets; and their tokenizer.

    The tokenizer `named` packed all of them; without it, the first corpus's own did, for a token set that of the folder
    around it. ConfigError for fewer than two corpora or for equal names. InputError if a corpus doesn't exist, if it has no
    training tokens, or if another tokenizer packed it.
    """
    if len(arguments) < 2:
        raise ConfigError("fewer than two corpora are named", "webtext train compare build-a build-b …")
    tokenizer = None if named is None else Tokenizer.load(named)
    corpora: dict[str, Source] = {}
    for argument in arguments:
        name, equals, path = argument.rstrip("/").partition("=")
        if not equals or Folder(argument).exists("."):
            name = path = argument.rstrip("/")
        if slug(name) in map(slug, corpora):
            raise ConfigError(f"two corpora have the name '{name}'", "name them: one=PATH other=PATH")
        folder = Folder(path)
        is_set = folder.exists("manifest.json")
        if not is_set and not folder.exists("tokens/manifest.json"):
            raise InputError(f"'{path}' is neither a build nor a token set", "expected manifest.json or tokens/ in it")
        build = Folder(path.rpartition("/")[0] or "." if is_set else path)
        if tokenizer is None:
            if not build.exists("tokenizer/tokenizer.json"):
                raise ConfigError(f"'{path}' has no tokenizer/tokenizer.json next to it", "add --tokenizer FILE")
            tokenizer = Tokenizer.load(build.location("tokenizer/tokenizer.json"))
        (source,) = open_sources(path if is_set else folder.location("tokens"))
        source.train.check_tokenizer(tokenizer)
        if not source.train.n_tokens:
            raise InputError(f"'{source.name}' has no training tokens", "build the corpus, and pack it")
        corpora[name] = source
    assert tokenizer
    return corpora, tokenizer


def slug(name: str) -> str:
    """Return a corpus's name as a folder's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "corpus"


def frozen_validation(corpora: Corpora, tokenizer: Tokenizer, named: str | None) -> dict[str, str]:
    """Return the texts by id of the file `named`, or of the shared held-out documents, at most MAX_BYTES of them.

    InputError if there are none, or if a corpus trains on one of the documents.
    """
    found = _shared(corpora, tokenizer) if named is None else read_validation(named)
    for name, source in corpora.items():
        if n := len(found.keys() & ids_of(source.train)):
            raise InputError(
                f"'{name}' trains on {n:,} of the {len(found):,} documents of the validation set",
                "name a --validation set that no corpus has in its training part",
            )
    return found


def validation_bytes(documents: Mapping[str, str]) -> bytes:
    """Return the file's bytes: one line of JSON per document."""
    lines = (json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n" for i, text in documents.items())
    return "".join(lines).encode()


def described(documents: Mapping[str, str]) -> str:
    """Return the size and the digest of a validation set."""
    n_bytes = sum(len(text.encode()) for text in documents.values())
    digest = hashlib.sha256(validation_bytes(documents)).hexdigest()
    return f"{len(documents):,} documents, {n_bytes:,} bytes, SHA-256 {digest[:12]}…"


def read_validation(path: str) -> dict[str, str]:
    """Read the texts by id, in the order of the ids. InputError names the first bad line."""
    documents = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        try:
            row = json.loads(line)
            documents.append((str(row["id"]), str(row["text"])))
            validation_bytes(dict(documents[-1:]))  # which a half of a surrogate pair doesn't have
        except (ValueError, KeyError, TypeError, RecursionError):
            remedy = 'expected {"id": "…", "text": "…"} in each line'
            raise InputError(f"'{path}', line {number:,}: not a document", remedy) from None
    if not any(text for _, text in documents):
        raise InputError(f"'{path}' has no text", f"name the {VALIDATION} of an earlier comparison")
    return dict(sorted(documents))


def bits_of(trial: Trial, *, texts: Sequence[str], tokenizer: Tokenizer, run: Run) -> list[float]:
    """Return the trial's loss in bits on each text: that in its measures.json, if it is of its last checkpoint."""
    found = checkpoint_of(trial.folder)
    assert found
    files = found.state["files"]
    with contextlib.suppress(InputError):  # a damaged one is made again
        made = Folder(trial.folder).read_object(MEASURES)
        if made.get("files") == files:
            return list(made["bits"])
    stream, documents = document_stream(texts, tokenizer)
    model = model_of(found, trial.folder)
    windows = Windows([stream], context=model.config.context, stride=None)
    nats: list[Any] = []
    with join_world(trial.settings.device) as world, run.console.progress(len(windows), "eval", "windows") as progress:
        model.to(world.device)
        for tokens_bt, n_scored in windows.batches(BATCH_SIZE):
            tokens = torch.from_numpy(tokens_bt).to(world.device)
            likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double().cpu().numpy()
            nats += [-row_t[-n:] for row_t, n in zip(likelihood_bt, n_scored, strict=True)]
            progress.advance(len(n_scored))
    bits: list[float] = np.bincount(documents, np.concatenate(nats) / math.log(2), len(texts)).tolist()
    Folder(trial.folder).write_object(MEASURES, {"files": files, "bits": bits})
    return bits


def document_stream(texts: Sequence[str], tokenizer: Any) -> tuple[Any, Any]:
    """Return the tokens of all texts, each after an end-of-text, and the text's number for each token but the first.

    An end-of-text belongs to the document that it ends.
    """
    rows = [np.insert(tokenizer.encode_numpy(text), 0, tokenizer.eot_id) for text in texts]
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])[:-1]


def _shared(corpora: Corpora, tokenizer: Tokenizer) -> dict[str, str]:
    held = {name: ids_of(source.validation) for name, source in corpora.items()}
    shared = set.intersection(*held.values())
    if not shared:
        counts = ", ".join(f"'{name}' {len(ids):,}" for name, ids in held.items())
        raise InputError(
            f"no document is held out by all corpora: {counts}",
            f"build them from the same pages, or name documents that none of them has: --validation {VALIDATION}",
        )
    documents = next(iter(corpora.values())).validation.documents()
    tokens = {document.id: document.tokens[1:] for document in documents if document.id in shared}
    texts: dict[str, str] = {}
    n_bytes = 0
    for identifier in sorted(tokens):
        text = tokenizer.decode_bytes(tokens[identifier]).decode(errors="replace")
        n_bytes += len(text.encode())
        if texts and n_bytes > MAX_BYTES:
            break
        texts[identifier] = text
    return texts


def ids_of(shards: TokenShards) -> set[str]:
    """Return the ids of all documents."""
    return {each for i in range(len(shards)) for each in shards.document_ids(i).to_pylist()}


def compared(corpora: Sequence[dict[str, Any]], n_bytes: Floats, facts: Mapping[str, Any]) -> Result:
    """Judge the corpora by their "losses", bits by seed and document, and the documents' bytes."""
    rows, bits = [], np.array([row.pop("losses") for row in corpora])
    found = [None, *differences(bits, n_bytes)]
    corrected = holm([each.p if each else None for each in found])
    for row, of_seeds, difference, p in zip(corpora, bits.sum(-1) / n_bytes.sum(), found, corrected, strict=True):
        values = of_seeds.tolist()
        spread = statistics.stdev(values) if len(values) > 1 else None
        measured = {**row, "bits_per_byte": values, "mean": statistics.fmean(values), "spread": spread}
        if difference:
            word = NONE if p is None else NOISE if p >= ALPHA else BETTER if difference.difference < 0 else WORSE
            measured |= asdict(difference) | {"p": p, "verdict": word}
        rows.append(measured)
    notes = [f"Each run: {facts['tokens']:,} tokens. Validation set: {facts['validation']}."]
    notes += NOTES if any(p is not None for p in corrected) else [NO_CHANCE]
    return Result(title="Bits per byte, lower is better", notes=notes, columns=COLUMNS, rows=rows, facts=facts)
