"""`train compare`: which of several corpora makes the better model of one size, at one budget, over several seeds.

Every corpus gets the same model, schedule, seeds and number of tokens, and every model is measured in bits per byte on
documents that none of them was trained on. So only the corpus differs; the seeds and the documents show how much chance
alone does. The others are compared with the first corpus. With `karma`, the corpora are views of one build by vote
threshold (`karma.py`). A token set that is named twice is trained with other seeds the second time: then only chance
differs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.charts import Line, chart, dots
from webtext.base.config import changed, recipe_settings
from webtext.base.console import counted
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.experiments.corpora import (
    MEASURES,
    VALIDATION,
    described,
    frozen_validation,
    measure_trial,
    open_corpora,
    shared_settings,
    validation_bytes,
)
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.significance import ALPHA, POWER, Difference, Floats, differences, holm
from webtext.train.experiments.trials import Result, Trial, seeded, table
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

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


def compare_corpora(
    arguments: Sequence[str],
    out: str,
    settings: TrainSettings,
    compare: CompareSettings,
    run: Run,
    *,
    validation: str | None = None,
    tokenizer: str | None = None,
    karma: str | None = None,
) -> Result:
    """Train and measure all runs in `out`, and judge them; finished runs and measures are reused.

    `arguments` are as in `corpora.open_corpora`, or with the thresholds `karma` as in `karma.karma_views`; `validation`
    is the file of a frozen set. Whatever can be rejected is rejected before the first step. Writes runs/, views/, the
    validation set, the result and its page into `out`.
    """
    views = None if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    corpora = views or open_corpora(arguments, tokenizer)
    shared = shared_settings(corpora, settings, compare.tokens)
    frozen = frozen_validation(corpora, validation)
    measure = partial(measure_trial, validation=Folder(out).location(VALIDATION), tokenizer=corpora[0].tokenizer)
    rows: list[dict[str, Any]] = []
    trials: list[Trial] = []
    for i, corpus in enumerate(corpora):
        name, train, passes = corpus.name, corpus.source.train, corpus.passes(shared)
        n_before = sum(each.source.train.hash == train.hash for each in corpora[:i])
        seed, place = settings.seed + n_before * compare.n_seeds, Path(out) / "runs" / corpus.slug
        kept = changed(shared, keep_checkpoints=1, keep_best=False, seed=seed)
        trials += seeded(name, [corpus.source.name], kept, compare.n_seeds, place, measure=measure)
        row = {"corpus": name, "karma": corpus.karma, "documents": train.n_documents, "passes": passes}
        rows.append(row | {"seeds": list(range(seed, seed + compare.n_seeds))})
        again = "; a token set that was named before: other seeds, so only chance differs" if n_before else ""
        run.console.say(f"compare: '{name}': {passes:.2f} passes over {train.n_tokens:,} tokens{again}")
        if passes > 1:
            run.console.warn(f"'{name}' is repeated, and repeated text teaches less: its size makes a difference")
    about = described(frozen)
    run.console.say(f"compare: {counted(shared.steps, 'step')} each; validation set: {about}")
    with table("compare", out, trials, {"validation": about}, run, compare.side_by_side) as made:
        Folder(out).write_bytes(VALIDATION, validation_bytes(frozen))
        made.run(trials, "compare")
        measures = [Folder(trial.folder).read_object(MEASURES)["bits"] for trial in trials]
        bits = np.array(measures).reshape(len(corpora), compare.n_seeds, -1)
        n_bytes = np.array([len(text.encode()) for text in frozen.values()], np.float64)
        facts = {"tokens": total_tokens(shared), "settings": recipe_settings(shared), "validation": about}
        return made.publish(compared(rows, bits, n_bytes, facts))


def compared(corpora: Sequence[Mapping[str, Any]], bits: Floats, n_bytes: Floats, facts: Mapping[str, Any]) -> Result:
    """Judge the corpora by their runs' bits [corpora, seeds, documents] and the documents' bytes."""
    rows = []
    found = [None, *differences(bits, n_bytes)]
    corrected = holm([each.p if each else None for each in found])
    for row, of_seeds, difference, p in zip(corpora, bits.sum(-1) / n_bytes.sum(), found, corrected, strict=True):
        values = of_seeds.tolist()
        spread = statistics.stdev(values) if len(values) > 1 else None
        measured = {"bits_per_byte": values, "mean": statistics.fmean(values), "spread": spread}
        judged = asdict(difference) | {"p": p, "verdict": verdict(difference, p)} if difference else {}
        rows.append({**row, **measured, **judged})
    notes = [f"Each run: {facts['tokens']:,} tokens. Validation set: {facts['validation']}."]
    notes += NOTES if any(p is not None for p in corrected) else [NO_CHANCE]
    drawing = "" if rows[0]["karma"] is None else over_karma(rows)
    title = "Bits per byte, lower is better"
    return Result(title=title, notes=notes, columns=COLUMNS, rows=rows, facts=facts, chart=drawing)


def verdict(found: Difference, p: float | None) -> str:
    """Return what a difference says, given its corrected p value."""
    return NONE if p is None else NOISE if p >= ALPHA else BETTER if found.difference < 0 else WORSE


def over_karma(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw bits per byte over the threshold, with the interval of each difference from the first around its mean."""
    lines = [dots([(float(row["karma"]), row["mean"]) for row in rows], "karma")]
    for row in rows:
        if margin := row.get("margin"):
            lines.append(Line([(row["karma"], row["mean"] + side * margin) for side in (-1, 1)], "interval"))
    return chart({"bits per byte, bars: 95 %": lines}, x="karma", y="bits per byte", log_x=True)
