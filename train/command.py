"""`webtext train`: run, eval, sample, export. torch is loaded when a verb runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from webtext.base.command import need_out, verb
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.settings import EvalSettings, SampleSettings, TrainSettings


@click.group(name="train")
def group() -> None:
    """Train, evaluate, sample and export a GPT-2."""


@verb(group, "run", settings=TrainSettings, section="train")
@click.argument("tokens")
@click.option("--out", metavar="DIR", help="Folder for checkpoints and metrics.jsonl.")
def run_(run: Run, settings: TrainSettings, tokens: str, out: str | None) -> None:
    """Train a GPT-2 on the token set TOKENS; the same command again goes on where it stopped.

    \b
      webtext train run build/tokens --out build/model
      torchrun --nproc-per-node 8 -m webtext.app.main train run build/tokens --out build/model

    \b
    Reads:  a part set of tokens
    Writes: DIR: checkpoints/step-*, metrics.jsonl
    """
    from webtext.train import train_model

    result = train_model(tokens, need_out(out), settings, run)
    if _is_main_process():
        loss = "" if result.validation_loss is None else f", held-out loss {result.validation_loss:.4f}"
        text = f"step {result.step:,}: loss {result.loss:.4f}{loss} in {result.seconds:,.0f} s: '{result.checkpoint}'"
        run.console.result(asdict(result), text)


@verb(group, "eval", settings=EvalSettings, section="train.eval")
@click.argument("model")
@click.argument("data")
@click.option("--tokenizer", metavar="FILE", help="Needed for a text file; gives bits per byte for a token set too.")
@click.option("--out", metavar="DIR", help="Write evaluation.json there.")
def eval_(run: Run, settings: EvalSettings, model: str, data: str, tokenizer: str | None, out: str | None) -> None:
    """Held-out perplexity of MODEL on DATA: a token set's validation split, or a text file.

    \b
      webtext train eval build/model build/tokens --tokenizer build/tokenizer/tokenizer.json
      webtext train eval build/model/export wikitext.txt --tokenizer tokenizer.json --stride 256

    \b
    Reads:  a trained or exported model, and a part set of tokens or a text file
    Writes: DIR/evaluation.json, where --out is given
    """
    _plan(run, f"would measure '{model}' on '{data}'")
    from webtext.train.evaluate.perplexity import evaluate_model, perplexity_text, write_evaluation

    answer = evaluate_model(model, data, settings, run, tokenizer=_tokenizer(tokenizer))
    if out is not None:
        write_evaluation(Folder(out), answer)
    run.console.result(answer, perplexity_text(answer))


@verb(group, "sample", settings=SampleSettings, section="train.sample")
@click.argument("model")
@click.option("--tokenizer", metavar="FILE", help="The tokenizer of the model  [default: the one in its folder]")
@click.option("--prompt", default="", help="How the text begins.")
def sample(run: Run, settings: SampleSettings, model: str, tokenizer: str | None, prompt: str) -> None:
    """Draw a text from MODEL.

    \b
      webtext train sample build/model/export --prompt "The meaning of life is"

    \b
    Reads:  a trained or exported model, and its tokenizer
    Writes: nothing
    """
    _plan(run, f"would draw {settings.max_tokens:,} tokens from '{model}'")
    from webtext.train import load_model
    from webtext.train.sample import sample_text

    network = load_model(model)
    tok = _tokenizer(tokenizer) or _tokenizer_of(model)
    if tok.vocab_size != network.config.vocab_size:
        raise InputError(
            f"the tokenizer has {tok.vocab_size:,} tokens, '{model}' {network.config.vocab_size:,}",
            "name the tokenizer that the model was trained with",
        )
    text = sample_text(network, tok, prompt, settings)
    run.console.result({"prompt": prompt, "text": text}, text)


@verb(group, "export")
@click.argument("model")
@click.option("--tokenizer", metavar="FILE", help="Written beside the model, so that the folder is complete.")
@click.option("--out", metavar="DIR", help="Folder to write.")
def export(run: Run, model: str, tokenizer: str | None, out: str | None) -> None:
    """Write MODEL as a Hugging Face GPT-2 folder, which transformers loads with equal logits.

    \b
      webtext train export build/model --tokenizer build/tokenizer/tokenizer.json --out build/model/export

    \b
    Reads:  a trained model, and its tokenizer
    Writes: DIR: config.json, model.safetensors, and the tokenizer's files
    """
    target = need_out(out)
    _plan(run, f"would write '{model}' to '{target}'")
    from webtext.train import load_model

    load_model(model).to_huggingface(target, tokenizer=_tokenizer(tokenizer))
    run.console.result({"out": target}, f"wrote '{target}'")


def _plan(run: Run, text: str) -> None:
    if run.dry_run:
        run.console.say(text)
        raise DryRun


def _tokenizer(path: str | None) -> Any:
    if path is None:
        return None
    from webtext.tokenizer import Tokenizer

    return Tokenizer.load(path)


def _tokenizer_of(model: str) -> Any:
    if not Folder(model).exists("tokenizer.json"):
        raise ConfigError(f"'{model}' holds no tokenizer.json", "add --tokenizer FILE")
    return _tokenizer(Folder(model).location("tokenizer.json"))


def _is_main_process() -> bool:
    import os

    return os.environ.get("RANK", "0") == "0"
