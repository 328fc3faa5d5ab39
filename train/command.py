"""`webtext train`: plan, run, compare, sweep, scale, eval, sample, export. A verb loads torch if it needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from webtext.base.command import need_out, verb
from webtext.base.console import counted
from webtext.base.errors import ConfigError, DryRun
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.evaluate.published import FILES, TASKS
from webtext.train.metrics import METRICS
from webtext.train.settings import WORDS, EvalSettings, ExperimentSettings, SampleSettings, ScaleSettings, TrainSettings

DTYPES = ("float32", "bfloat16", "float16")  # of exported weights


@click.group(name="train")
def group() -> None:
    """Plan, train, compare, tune, scale, evaluate, sample and export a GPT-2."""


@verb(group, "plan", settings=TrainSettings, section="train")
@click.argument("tokens", nargs=-1)
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes, if no mesh is given."
)
@click.option(
    "--memory-gib",
    type=click.FloatRange(0, min_open=True),
    help="Memory of one device, GiB: prints whether the run fits, or a smaller one.",
)
def plan(run: Run, settings: TrainSettings, tokens: tuple[str, ...], processes: int, memory_gib: float | None) -> None:
    """Estimate the memory and the passes over the data of a run.

    The memory is that of `train run` with the same settings, on each device. TOKENS are token sets, which determine the
    vocabulary (without them GPT-2's) and the number of passes over each.

    \b
      webtext train plan --model 1542M --processes 8 --memory-gib 80
      webtext train plan --model 1542M --mesh fsdp=8 --microbatch-size 4 --memory-gib 80
      webtext train plan build/tokens --config build.toml

    \b
    Reads:  token sets, if given
    Writes: nothing
    """
    from webtext.train.footprint import plan_training

    run.console.result(*plan_training(settings, tokens, processes, memory_gib))


def _shape_of_weights(given: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shape of the weights named by --from, unless a setting names a model size."""
    if arguments["start"] is None:
        return {}
    from webtext.train.run.given_weights import shape_of

    shape = shape_of(arguments["start"], arguments["out"])
    return {"context": shape["context"]} if "model" in given else shape


@verb(group, "run", settings=TrainSettings, section="train", resumes=True, defaults=_shape_of_weights)
@click.argument("tokens", nargs=-1, required=True)
@click.option(
    "--from", "start", metavar="FOLDER", help="Weights to start with: a Hugging Face GPT-2, or a model of ours."
)
@click.option("--tokenizer", metavar="FILE", help="Tokenizer that packed TOKENS; any other is rejected.")
@click.option("--out", metavar="DIR", help="Folder for checkpoints and metrics.jsonl.")
def run_(run: Run, settings: TrainSettings, tokens: tuple[str, ...], out: str | None, **given: str | None) -> None:
    """Train a GPT-2 on the token set TOKENS.

    Rerun the same command to resume. Several sets of one tokenizer are mixed by --weights, or by size without it.
    --from continues or fine-tunes given weights, with a new optimizer and schedule; they also give the shape.

    \b
      webtext train run build/tokens --out build/model
      webtext train run build/tokens books/tokens --weights 0.7,0.3 --out build/model
      webtext train run books/tokens --from build/model --learning-rate 1e-4 --steps 500 --out tuned
      torchrun --nproc-per-node 8 -m webtext.app.main train run build/tokens --out build/model --mesh dp=2,fsdp=4

    \b
    Reads:  part sets of tokens, and weights
    Writes: DIR: checkpoints/step-*, metrics.jsonl
    """
    from webtext.train import train_model

    result = train_model(tokens, need_out(out, (METRICS, "checkpoints/")), settings, run, **given)
    if _is_main_process():
        measured = {"loss": result.loss, "held-out loss": result.validation_loss}
        losses = "".join(f", {name} {loss:.4f}" for name, loss in measured.items() if loss is not None)
        skipped = f", {result.skipped_steps:,} skipped" if result.skipped_steps else ""
        text = f"step {result.step:,}{skipped}{losses} in {result.seconds:,.0f} s: '{result.checkpoint}'"
        run.console.result(asdict(result), text)


@verb(group, "compare", settings={"train": TrainSettings, "train.compare": ExperimentSettings}, resumes=True)
@click.argument("corpora", nargs=-1, metavar="CORPUS...")
@click.option(
    "--validation", metavar="FILE", help="Validation set.  [default: the documents that all corpora hold out]"
)
@click.option("--tokenizer", metavar="FILE", help="Tokenizer of all corpora.  [default: the first build's]")
@click.option("--out", metavar="DIR", help="Folder for the runs and the results.")
def compare(
    run: Run, settings: Mapping[str, Any], corpora: tuple[str, ...], out: str | None, **named: str | None
) -> None:
    """Test whether each CORPUS makes a better model than the first.

    The answer, over several seeds, is better, worse or within noise. A CORPUS is a build or a token set, or NAME=PATH.
    All train the same model with the same schedule and number of
    tokens: those of --steps, but no more than repeat no text of the smallest corpus. Models are measured in bits per
    byte. Rerun the same command to resume.

    \b
      webtext train compare build/a build/b --config train/recipes/toy-cpu.toml --out comparison
      webtext train compare plain=build/a strict=build/b --seeds 5 --out ablation

    \b
    Reads:  builds or part sets of tokens, their tokenizer
    Writes: DIR: compare.json, compare.html, validation.jsonl, runs/*/seed-*/ (model folders)
    """
    from webtext.train.experiments.compare import compare_corpora

    target = need_out(out, ("compare.*", "validation.jsonl", "runs/"), on_disk=True)
    found = compare_corpora(corpora, target, settings["train"], settings["train.compare"], run, **named)
    _print_experiment(run, found, target, "compare")


@verb(group, "sweep", settings={"train": TrainSettings, "train.sweep": ExperimentSettings}, resumes=True)
@click.argument("tokens", nargs=-1, required=True)
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Setting of [train] and the values to try; repeat it to try all combinations.",
)
@click.option("--out", metavar="DIR", help="Folder for the trials, sweep.json and sweep.html.")
def sweep(
    run: Run, settings: Mapping[str, Any], tokens: tuple[str, ...], over: tuple[str, ...], out: str | None
) -> None:
    """Find the best of a grid of settings by held-out loss.

    All are trained to the end. Rerun the same command to resume, or with a larger grid to add to it. --dry-run prints
    the runs and tokens.

    \b
      webtext train sweep build/tokens --over learning_rate=1e-3,2e-3,4e-3 --out sweep
      webtext train sweep build/tokens --over learning_rate=1e-3,4e-3 --over optimizer=adamw,muon --seeds 3 --out sweep

    \b
    Reads:  part sets of tokens with a validation split
    Writes: DIR: sweep.json, sweep.html, trials/*/seed-*/ (model folders)
    """
    from webtext.train.experiments.sweep import run_sweep

    target = need_out(out, ("sweep.*", "trials/"), on_disk=True)
    found = run_sweep(tokens, over, target, settings["train"], settings["train.sweep"], run)
    _print_experiment(run, found, target, "sweep")


@verb(group, "scale", settings={"train": TrainSettings, "train.scale": ScaleSettings}, resumes=True)
@click.argument("token_set", metavar="TOKENS")
@click.option("--out", metavar="DIR", help="Folder for the runs, scale.json and scale.html.")
def scale(run: Run, settings: Mapping[str, Any], token_set: str, out: str | None) -> None:
    """Train several sizes and budgets, and fit a scaling law.

    The law is L = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022), fitted to all sizes, budgets and seeds together.
    Rerun the same command to resume. --dry-run prints the runs and tokens.

    \b
      webtext train scale build/tokens --tokens 5e5,1e6,2e6 --context 128 --batch-size 16 --out scale
      webtext train scale build/tokens --tokens 1e6,2e6,4e6 --learning-rate 4e-3 --seeds 3 --out scale

    \b
    Reads:  a part set of tokens with a validation split
    Writes: DIR: scale.json, scale.html, runs/*/seed-*/ (model folders)
    """
    from webtext.train.experiments.scale import run_scale

    target = need_out(out, ("scale.*", "runs/"), on_disk=True)
    found = run_scale(token_set, target, settings["train"], settings["train.scale"], run)
    _print_experiment(run, found, target, "scale")


def _print_experiment(run: Run, found: Any, out: str, verb: str) -> None:
    from webtext.base.html_pages.rendering import sections_text

    page = Folder(out).location(f"{verb}.html")
    run.console.result(found.to_json(), f"{sections_text(found.sections())}\npage: '{page}'")


@verb(group, "eval", settings=EvalSettings, section="train.eval")
@click.argument("model")
@click.argument("data")
@click.option("--task", type=click.Choice((*FILES, *TASKS)), help="Evaluation set in DATA.  [default: text]")
@click.option(
    "--tokenizer",
    metavar="FILE",
    help="The model's tokenizer; with a token set it adds bits per byte.  [default: the one in the model's folder]",
)
@click.option(
    "--stop-words", metavar="FILE", help="Words that end no passage of LAMBADA, as in the paper's accuracies."
)
@click.option("--out", metavar="DIR", help="Folder for evaluation.json, or evaluation-TASK.json and samples.")
def eval_(
    run: Run, settings: EvalSettings, model: str, data: str, task: str | None, out: str | None, **named: str | None
) -> None:
    """Measure MODEL on a token set, a text or evaluation sets.

    DATA is a token set, whose validation split is used, an evaluation set's file, any text, or a folder of tasks. MODEL
    is a training folder, a checkpoint, or a Hugging Face folder of a GPT-2. lm-eval measures coqa, cnn_dm, wmt14, nq
    and winograd, whose files are in the folder DATA.

    \b
      webtext train eval build/model build/tokens --tokenizer build/tokenizer/tokenizer.json
      webtext train eval build/model/export wiki.test.tokens --task wikitext-103 --stride 256
      webtext train eval build/model/export sets --task coqa --out build/model

    \b
    Reads:  a model, its tokenizer, and a part set of tokens, a file, or a folder of the task's files
    Writes: if --out is given: DIR/evaluation.json, or DIR/evaluation-TASK.json, and DIR/samples-TASK.jsonl by lm-eval
    """
    target = None if out is None else Folder(need_out(out))
    is_set = Folder(data).exists("manifest.json")
    if is_set and task is not None:
        raise ConfigError(f"--task is given for the token set '{data}'", "leave --task out")
    if named["stop_words"] is not None and task != "lambada":
        raise ConfigError(f"--stop-words is given, but --task is {task or 'none'}", "only --task lambada takes it")
    _plan(run, f"would measure '{model}' on '{data}'")
    from webtext.train.evaluate.measured import load_measured
    from webtext.train.evaluate.perplexity import evaluate_model, perplexity_text, write_evaluation
    from webtext.train.evaluate.published import task_text
    from webtext.train.evaluate.zero_shot import evaluate_task
    from webtext.train.run.memory import batch_memory_is_an_error

    files = TASKS.get(task or "")
    if files:
        from webtext.train.evaluate.harness import evaluate_tasks  # before the model: it may not be installed
    measured = load_measured(model, named["tokenizer"], run.console.warn)
    with batch_memory_is_an_error(f"batches of {settings.batch_size}", settings.batch_size, "--batch-size"):
        if files:
            answers = evaluate_tasks(measured, files, data, settings, run)
        elif is_set:
            answers = [evaluate_model(measured, data, settings, run)]
        else:
            answers = [evaluate_task(measured, task or "text", data, settings, run, named["stop_words"])]
    if not _is_main_process():
        return
    for answer in answers:
        if target is not None:
            write_evaluation(target, answer)
        answer.pop("samples", None)
    text = "\n\n".join(perplexity_text(answer) if is_set else task_text(answer) for answer in answers)
    run.console.result({"tasks": answers} if files else answers[0], text)


@verb(group, "sample", settings=SampleSettings, section="train.sample")
@click.argument("model")
@click.option("--tokenizer", metavar="FILE", help="The model's tokenizer.  [default: the one in its folder]")
@click.option("--prompt", "prompts", multiple=True, default=("",), help="Beginning of the text; repeatable.")
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True, help="Texts per prompt.")
@click.option("--dtype", type=click.Choice(WORDS["dtype"]), default="auto", help="As in `train eval`.")
@click.option("--stop", "stops", metavar="TEXT", multiple=True, help="Text before which to stop; repeatable.")
def sample(
    run: Run,
    settings: SampleSettings,
    model: str,
    tokenizer: str | None,
    dtype: str,
    prompts: tuple[str, ...],
    samples: int,
    stops: tuple[str, ...],
) -> None:
    """Generate texts from MODEL.

    All are generated at once; a single text is printed as it is generated. MODEL is as in `train eval`.

    \b
      webtext train sample build/model/export --prompt "The meaning of life is"
      webtext train sample build/model/export --prompt One --prompt Two --samples 4 --top-k none --top-p 0.9 --json

    \b
    Reads:  a model, and its tokenizer
    Writes: nothing
    """
    if "" in stops:
        raise ConfigError("--stop is empty", "give the text before which to stop, or leave it out")
    begins = [prompt for prompt in prompts for _ in range(samples)]
    n_texts = counted(len(begins), "text")
    _plan(run, f"would generate {n_texts} of {settings.max_tokens:,} tokens at most from '{model}'")
    from webtext.train.distributed import join_world
    from webtext.train.evaluate.measured import dtype_name, load_measured
    from webtext.train.model.sample import sample_texts, stream_texts
    from webtext.train.run.memory import batch_memory_is_an_error

    measured = load_measured(model, tokenizer, run.console.warn)
    tok = measured.text_tokenizer()
    too_many = batch_memory_is_an_error(f"{len(begins)} texts at once", samples, "--samples")
    with join_world() as world, too_many:
        network = measured.on(world.device, dtype)
        run.console.say(f"sample: {dtype_name(network)} on {world.device.type}")
        how = network, tok, begins, settings, stops
        if len(begins) == 1:
            texts, shown = [run.console.stream(piece for (piece,) in stream_texts(*how))], ""
        else:
            texts = sample_texts(*how)
            shown = "\n\n----\n\n".join(texts)
    rows = [{"prompt": prompt, "text": text} for prompt, text in zip(begins, texts, strict=True)]
    run.console.result({"samples": rows}, shown)


@verb(group, "export")
@click.argument("model")
@click.option("--tokenizer", metavar="FILE", help="Tokenizer to write with the model, so that the folder is complete.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", help="Data type of the weights; float32 is exact."
)
@click.option("--out", metavar="DIR", help="Folder to write.")
def export(run: Run, model: str, tokenizer: str | None, dtype: str, out: str | None) -> None:
    """Write MODEL as a Hugging Face GPT-2 folder.

    transformers loads it with equal logits.

    \b
      webtext train export build/model --tokenizer build/tokenizer/tokenizer.json --out build/model/export

    \b
    Reads:  a trained model, and its tokenizer
    Writes: DIR: config.json, model.safetensors, the tokenizer's files, and README.md, a model
            card, unless MODEL is such a folder itself
    """
    target = need_out(out, ("*.safetensors",))
    _plan(run, f"would write '{model}' to '{target}'")
    import torch

    from webtext.train.evaluate.measured import load_measured

    measured = load_measured(model, tokenizer, run.console.warn)
    written = None if tokenizer is None else measured.tokenizer
    measured.model.to_huggingface(target, written, dtype=getattr(torch, dtype), card=measured.card)
    run.console.result({"out": target}, f"wrote '{target}'")


def _plan(run: Run, text: str) -> None:
    if run.dry_run:
        run.console.say(text)
        raise DryRun


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
