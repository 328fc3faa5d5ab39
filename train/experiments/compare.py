"""`train compare`: which of several corpora makes the better model of one size, at one budget, over several seeds.

Every corpus gets the same model, schedule, seeds and number of tokens (of bytes, if tokenizers differ), and every model
is measured in bits per byte on texts that none of them was trained on. So only the corpus differs; the seeds and the
texts show how much chance alone does. The others are compared with the first corpus. With `karma`, the corpora are
views of one build by vote threshold (`karma.py`).

A token set that is named twice is trained with other seeds the second time: then only chance differs.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from webtext.base.config import changed, recipe_settings
from webtext.base.console import Console
from webtext.base.errors import DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.experiments.corpora import Budget, Corpus, budgets, one_pass, open_corpora, share_tokenizer
from webtext.train.experiments.cost import cost_of
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.measure import (
    VALIDATION,
    EvaluationSet,
    Measure,
    measure_trial,
    open_evaluation_sets,
)
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.side_by_side import refuse_torchrun
from webtext.train.experiments.significance import (
    ALPHA,
    POWER,
    Difference,
    Influence,
    average,
    differences,
    holm,
    influence,
)
from webtext.train.experiments.trials import Trial, TrialResult, run_trials
from webtext.train.experiments.validation import FILE, ValidationSet, frozen_validation, pack_validation
from webtext.train.settings import TrainSettings

COMPARISON, OVERALL = "compare.json", "overall"
CURVE_POINTS = 10
MANY_PASSES = 4
"""Text repeated up to four times teaches almost as much as new text (Muennighoff et al. 2023, abstract)."""
BETTER, WORSE, NOISE, NONE = "better", "worse", "within noise", "no verdict"
Values = Mapping[str, Mapping[str, Sequence[float]]]
"""Set -> corpus -> bits per byte of each seed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One corpus against the first on one set: the difference of means, the corrected p, and the verdict."""

    corpus: str
    set: str
    difference: Difference
    p: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `results` has each corpus's trials, in the order of the seeds."""

    corpora: Sequence[Corpus]
    budgets: Sequence[Budget]
    validation: ValidationSet
    sets: Sequence[str]
    overall_of: Sequence[str]
    values: Values
    judgements: Sequence[Judgement]
    results: Mapping[str, Sequence[TrialResult]]

    @property
    def rows(self) -> Sequence[str]:
        """Names of the rows: overall, and each set; a set that is all of overall has no row of its own."""
        return (OVERALL, *_others(self.sets, self.overall_of))

    @property
    def is_per_byte(self) -> bool:
        """Whether tokenizers differ, so that runs have equal bytes instead of equal tokens."""
        return not share_tokenizer(self.corpora)

    def judgement(self, corpus: str, name: str) -> Judgement | None:
        """Return the judgement of a corpus on a set; None for the first corpus."""
        return next((each for each in self.judgements if (each.corpus, each.set) == (corpus, name)), None)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for compare.json."""
        return {
            "corpora": [
                {
                    "name": corpus.name,
                    "karma": corpus.karma,
                    "tokens": corpus.tokens,
                    "tokens_hash": corpus.train.hash,
                    "tokenizer_hash": corpus.tokenizer.hash,
                    "training_documents": corpus.train.n_documents,
                    "training_tokens": corpus.train.n_tokens,
                    "trained_tokens": budget.tokens,
                    "trained_bytes": round(budget.tokens * corpus.bytes_per_token),
                    "passes": budget.passes,
                    "seeds": [result.trial.settings.seed for result in self.results[corpus.name]],
                    "folders": [result.trial.folder for result in self.results[corpus.name]],
                    "settings": recipe_settings(budget.settings),
                }
                for corpus, budget in zip(self.corpora, self.budgets, strict=True)
            ],
            "budget": "bytes" if self.is_per_byte else "tokens",
            "validation": {
                "documents": len(self.validation.documents),
                "bytes": self.validation.n_bytes,
                "sha256": self.validation.hash,
                "source": self.validation.source,
            },
            "overall_of": list(self.overall_of),
            "test": "t, two-sided, of documents x seeds, pooled variance, Holm's correction",
            "alpha": ALPHA,
            "power": POWER,
            "bits_per_byte": {name: {k: list(v) for k, v in of_set.items()} for name, of_set in self.values.items()},
            "judgements": [asdict(each) for each in self.judgements],
        }


def compare_corpora(
    arguments: Sequence[str],
    out: str,
    settings: TrainSettings,
    compare: CompareSettings,
    run: Run,
    *,
    evaluation: Sequence[str] = (),
    validation: str | None = None,
    tokenizer: str | None = None,
    karma: str | None = None,
) -> Comparison:
    """Train and measure all runs in `out`, and judge them; finished runs and measures are reused.

    `arguments` are as in `corpora.open_corpora`, or with the thresholds `karma` as in `karma.karma_views`; `evaluation`
    is as in `measure.open_evaluation_sets`; `validation` is the file of a frozen set. Whatever can be rejected is
    rejected before the first step. Writes runs/, views/, the validation set and compare.json into `out`; the caller
    writes the page.
    """
    refuse_torchrun()
    corpora = (
        open_corpora(arguments, tokenizer) if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    )
    if karma is not None and compare.tokens is None:
        compare = replace(compare, tokens=one_pass(corpora, settings))
    plan = budgets(corpora, settings, compare)
    sets = open_evaluation_sets(evaluation)
    frozen = frozen_validation(corpora, validation, compare.validation_bytes)
    _check_frozen(out, frozen)
    trials = {
        corpus.name: _trials(corpus, corpora[:i], budget.settings, compare.seeds, out)
        for i, (corpus, budget) in enumerate(zip(corpora, plan, strict=True))
    }
    _announce(corpora, plan, frozen, compare, run.console)
    everything = [trial for of_corpus in trials.values() for trial in of_corpus]
    run.console.say(f"compare: {cost_of(everything, run, compare)}")
    if run.dry_run:
        raise DryRun
    with Folder(out).held():
        Folder(out).write_bytes(FILE, frozen.to_bytes())
        sets.insert(0, EvaluationSet(VALIDATION, VALIDATION, Folder(out).location(FILE), frozen.hash))
        results = _run(corpora, trials, frozen, sets, out, compare, run)
        found = judge(corpora, plan, frozen, sets, results)
        Folder(out).write_bytes(COMPARISON, json.dumps(found.to_json(), indent=1, ensure_ascii=False).encode() + b"\n")
    return found


def judge(
    corpora: Sequence[Corpus],
    plan: Sequence[Budget],
    frozen: ValidationSet,
    sets: Sequence[EvaluationSet],
    results: Mapping[str, Sequence[TrialResult]],
) -> Comparison:
    """Judge every set, and overall: the mean over the evaluation sets, or the validation set if there are none."""
    names = [each.name for each in sets]
    overall_of = [name for name in names if name != VALIDATION] or [VALIDATION]
    measures = {
        name: [[result.answer[name] for result in results[corpus.name]] for corpus in corpora] for name in names
    }
    values: dict[str, dict[str, list[float]]] = {
        name: {corpus.name: [each.bits_per_byte for each in of] for corpus, of in zip(corpora, rows, strict=True)}
        for name, rows in measures.items()
    }
    documents = {name: _influence(rows) for name, rows in measures.items()}
    values[OVERALL] = {
        corpus.name: [
            statistics.fmean(of) for of in zip(*(values[name][corpus.name] for name in overall_of), strict=True)
        ]
        for corpus in corpora
    }
    documents[OVERALL] = average([documents[name] for name in overall_of])
    judgements = [
        judgement
        for rows in ([OVERALL], _others(names, overall_of))
        for judgement in verdicts(values, rows, [corpus.name for corpus in corpora], documents)
    ]
    return Comparison(corpora, plan, frozen, names, overall_of, values, judgements, results)


def verdicts(
    values: Values, sets: Sequence[str], corpora: Sequence[str], documents: Mapping[str, Influence] | None = None
) -> list[Judgement]:
    """Compare every other corpus with the first on each of the sets; all p values are corrected together."""
    found = []
    for name in sets:
        of_set = differences([values[name][corpus] for corpus in corpora], documents[name] if documents else None)
        found += [(corpus, name, difference) for corpus, difference in zip(corpora[1:], of_set, strict=True)]
    ps = holm([difference.p for _, _, difference in found])
    return [Judgement(*each, p, _verdict(each[2], p)) for each, p in zip(found, ps, strict=True)]


def _influence(measures: Sequence[Sequence[Measure]]) -> Influence:
    bits = np.array([[each.losses for each in of_corpus] for of_corpus in measures]) / math.log(2)
    return influence(bits, np.array(measures[0][0].sizes))


def _others(names: Sequence[str], overall_of: Sequence[str]) -> list[str]:
    return [name for name in names if [name] != list(overall_of)]


def _verdict(difference: Difference, p: float | None) -> str:
    if p is None:
        return NONE
    if p >= ALPHA:
        return NOISE
    return BETTER if difference.mean < 0 else WORSE


def _trials(corpus: Corpus, before: Sequence[Corpus], settings: TrainSettings, seeds: int, out: str) -> list[Trial]:
    """Return a corpus's runs; a token set that was named before gets the next seeds."""
    n_before = sum(each.train.hash == corpus.train.hash for each in before)
    first = settings.seed + n_before * seeds
    watched = -(-settings.steps // CURVE_POINTS)
    interval = None if settings.monitor.eval_interval is None else min(settings.monitor.eval_interval, watched)
    kept = changed(settings, keep_checkpoints=1, keep_best=False, eval_interval=interval)
    return [
        Trial(
            name=f"{corpus.name}, seed {seed}",
            tokens=(corpus.tokens,),
            settings=replace(kept, seed=seed),
            folder=Folder(out).location(f"runs/{corpus.slug}/seed-{seed}"),
        )
        for seed in range(first, first + seeds)
    ]


def _run(
    corpora: Sequence[Corpus],
    trials: Mapping[str, Sequence[Trial]],
    frozen: ValidationSet,
    sets: Sequence[EvaluationSet],
    out: str,
    compare: CompareSettings,
    run: Run,
) -> dict[str, list[TrialResult]]:
    measured: list[Trial] = []
    tokenizers: dict[str, str] = {}
    for corpus in corpora:
        held_out = pack_validation(frozen, corpus, out)
        measured += [replace(trial, held_out=held_out) for trial in trials[corpus.name]]
        tokenizers |= {trial.name: corpus.tokenizer_path for trial in trials[corpus.name]}
    then = partial(_measured, sets=tuple(sets), tokenizers=tokenizers)
    made = run_trials(measured, run, label="compare", side_by_side=compare.side_by_side, then=then)
    by_name = {result.trial.name: result for result in made}
    return {name: [by_name[trial.name] for trial in of_corpus] for name, of_corpus in trials.items()}


def _measured(trial: Trial, *, sets: Sequence[EvaluationSet], tokenizers: Mapping[str, str]) -> dict[str, Measure]:
    return measure_trial(trial, sets=sets, tokenizer=tokenizers[trial.name])


def _check_frozen(out: str, frozen: ValidationSet) -> None:
    """Raise InputError if the folder has another validation set, since its runs were measured on that."""
    folder = Folder(out)
    if folder.exists(FILE) and folder.read_bytes(FILE) != frozen.to_bytes():
        raise InputError(
            f"'{folder.location(FILE)}' is not the validation set of these corpora",
            f"keep it by --validation {folder.location(FILE)}, or choose another --out",
        )


def _announce(
    corpora: Sequence[Corpus],
    plan: Sequence[Budget],
    frozen: ValidationSet,
    compare: CompareSettings,
    console: Console,
) -> None:
    """Print what will be compared, and anything that a reader might not expect."""
    say = console.say
    for i, (corpus, budget) in enumerate(zip(corpora, plan, strict=True)):
        say(
            f"compare: '{corpus.name}': {budget.settings.steps:,} steps, {budget.tokens:,} tokens, about "
            f"{budget.tokens * corpus.bytes_per_token:,.0f} bytes, {budget.passes:.2f} passes over {corpus.train.n_tokens:,}"
        )
        if budget.passes > MANY_PASSES:
            console.warn(
                f"'{corpus.name}' is repeated {budget.passes:.1f} times: beyond {MANY_PASSES}, text teaches little more"
            )
        if any(corpus.train.hash == other.train.hash for other in corpora[:i]):
            say(f"compare: '{corpus.name}' is a token set that was named before: other seeds, so only chance differs")
    if not share_tokenizer(corpora):
        say("compare: tokenizers differ: runs have equal bytes of text, not equal tokens, and different vocabularies")
    say(f"compare: validation set: {frozen}")
    if compare.seeds == 1:
        say("compare: one seed shows nothing about chance: there will be no verdict")
