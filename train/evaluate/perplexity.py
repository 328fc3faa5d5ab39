"""Held-out perplexity per token and bits per byte of a model."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.errors import InputError
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder, strict_json
from webtext.shards import TokenShards
from webtext.train.checkpoint.checkpoint import checkpoint_of
from webtext.train.data.windows import LARGEST_LOSS, WindowRules, Windows, total_loss
from webtext.train.evaluate.measured import Measured, dtype_name, load_measured
from webtext.train.model.sample import sample_texts
from webtext.train.settings import EvalSettings, SampleSettings

CODE_VERSION = 4


def evaluate_model(measured: Measured, data: str, settings: EvalSettings, run: Run) -> dict[str, Any]:
    """Measure a model on a token set's validation split; per byte too if its tokenizer is known.

    Losses are summed in float64; "dtype" is that of the matrix products. Perplexities are per token.
    InputError if the split is empty, or if the model has another vocabulary or tokenizer.
    """
    model, facts = measured.model, measured.facts
    held_out, tokenizer = TokenShards(data, split="validation"), measured.tokenizer
    measured.check_fits(held_out.vocab_size, held_out.tokenizer_hash, data)
    if tokenizer is not None:
        held_out.check_tokenizer(tokenizer)
    windows = Windows(held_out.streams(), context=model.config.context, stride=settings.stride, limit=settings.windows)
    if not len(windows):
        raise InputError(f"'{data}' has no held-out tokens", "pack more documents")
    rules = WindowRules(masks=facts.get("documents") == "masked", eot_id=held_out.eot_id)
    with measured.judge(settings, run) as judge, run.console.progress(len(windows), "eval", "windows") as progress:
        loss, n_tokens = total_loss(judge.model, windows, settings.batch_size, judge.world, progress, rules)
    perplexity = math.exp(min(loss / n_tokens, LARGEST_LOSS))
    answer = {"model": measured.path, "step": facts.get("step"), "data": data, "context": model.config.context}
    answer |= {"stride": windows.stride, "dtype": dtype_name(judge.model), "tokens": n_tokens, "perplexity": perplexity}
    if rules.masks:
        answer["documents"] = "masked"  # measured as it was trained; an exported folder does not record it
    if tokenizer is not None:
        sizes = tokenizer.token_sizes.copy()
        sizes[list(tokenizer.special_tokens.values())] = 0  # which have no bytes of text
        if n_bytes := sum(int(sizes[tokens[-n:]].sum()) for tokens, n in map(windows.window, range(len(windows)))):
            answer |= {"bytes": n_bytes, "bits_per_byte": loss / math.log(2) / n_bytes}
    return answer


def evaluate_run(
    model_dir: str, tokens: str, tokenizer: str, export: str, run: Run, settings: EvalSettings, sampling: SampleSettings
) -> dict[str, Any]:
    """Finish a pretraining run: write evaluation.json with perplexities and a sample, and export the model.

    Skipped if evaluation.json was made from this checkpoint, these tokens and these settings.
    """
    folder, found = Folder(model_dir), checkpoint_of(model_dir, lambda _: None)  # `load_measured` warns
    assert found
    parts = [CODE_VERSION, found.state["files"], TokenShards(tokens, split="validation").hash]
    key = sha256_json([*parts, recipe_settings(settings), recipe_settings(sampling)])
    with contextlib.suppress(InputError):  # if there is none, or a damaged one, it is made
        done = folder.read_object("evaluation.json")
        if done.get("key") == key and Folder(export).exists("config.json"):
            return done
    measured = load_measured(model_dir, tokenizer, run.console.warn)
    answer = evaluate_model(measured, tokens, settings, run)
    model = measured.model.cpu()
    answer |= {"sample": sample_texts(model, measured.tokenizer, [""], sampling)[0], "key": key}
    model.to_huggingface(export, tokenizer=measured.tokenizer, card=measured.card)
    write_evaluation(folder, answer)
    return answer


def write_evaluation(folder: Folder, answer: dict[str, Any]) -> None:
    """Write evaluation.json, or evaluation-TASK.json for a task, atomically; its samples before it, a line each."""
    name = f"evaluation-{answer['task']}.json" if "task" in answer else "evaluation.json"
    if "samples" in answer:
        lines = [strict_json(row, ensure_ascii=False) + "\n" for row in answer["samples"]]
        folder.write_bytes(f"samples-{answer['task']}.jsonl", "".join(lines).encode())
    rest = {name: value for name, value in answer.items() if name != "samples"}
    folder.write_bytes(name, strict_json(rest, indent=1, ensure_ascii=False).encode() + b"\n")


def perplexity_text(answer: dict[str, Any]) -> str:
    """Format an evaluation as aligned lines."""
    protocol = f"stride {answer['stride']:,}, context {answer['context']:,}, {answer['dtype']}"
    lines = [f"{answer['tokens']:,} held-out tokens: {protocol}"]
    lines.append(f"  {'perplexity per token':<22}{answer['perplexity']:>12,.2f}")
    if "bits_per_byte" in answer:
        lines.append(f"  {'bits per byte':<22}{answer['bits_per_byte']:>12.3f}")
    return "\n".join(lines)
