"""`train compare`: which of several corpora makes the better model of one size, at one budget, over several seeds.

Every corpus gets the same model, schedule, seeds and number of tokens (of bytes, if tokenizers differ), and every model
is measured in bits per byte on texts that none of them was trained on. So only the corpus differs; the seeds and the
texts show how much chance alone does. The others are compared with the first corpus. With `karma`, the corpora are
views of one build by vote threshold (`karma.py`).

A token set that is named twice is trained with other seeds the second time: then only chance differs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.config import changed, recipe_settings
from webtext.base.console import Console, counted
from webtext.base.errors import InputError
from webtext.base.line_chart import Line
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.corpora import Budget, Corpus, budgets, one_pass, open_corpora, share_tokenizer
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.measure import VALIDATION, EvaluationSet, measure_trial, open_evaluation_sets
from webtext.train.experiments.processes import refuse_torchrun
from webtext.train.experiments.settings import CompareSettings
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
from webtext.train.experiments.trials import Trial, TrialResult, experiment, publish, run_trials, seeded
from webtext.train.experiments.validation import FILE, ValidationSet, frozen_validation
from webtext.train.settings import TrainSettings

OVERALL = "overall"
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
    overall_of: Sequence[str]
    values: Values
    judgements: Sequence[Judgement]
    results: Mapping[str, Sequence[TrialResult]]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for compare.json."""
        corpora = [
            {
                "name": corpus.name,
                "karma": corpus.karma,
                "tokens": corpus.tokens,
                "training_documents": corpus.train.n_documents,
                "training_tokens": corpus.train.n_tokens,
                "trained_tokens": budget.tokens,
                "trained_bytes": round(budget.tokens * corpus.bytes_per_token),
                "passes": budget.passes,
                "seeds": [result.trial.settings.seed for result in self.results[corpus.name]],
                "settings": recipe_settings(budget.settings),
            }
            for corpus, budget in zip(self.corpora, self.budgets, strict=True)
        ]
        return {
            "corpora": corpora,
            "validation": str(self.validation),
            "overall_of": list(self.overall_of),
            "bits_per_byte": self.values,
            "judgements": [asdict(each) for each in self.judgements],
        }

    def sections(self) -> list[Section]:
        """Return the verdicts, and a table for overall and each set; with karma, a chart over it."""
        notes = []
        for each in self.judgements[: len(self.corpora) - 1]:  # overall comes first
            than = "than" if each.verdict in (BETTER, WORSE) else "against"
            notes.append(
                f"{each.corpus}: {each.verdict} {than} {self.corpora[0].name} ({_difference(each)} bits per byte)"
            )
        for corpus, budget in zip(self.corpora, self.budgets, strict=True):
            size = f"{counted(corpus.train.n_documents, 'document')}, {corpus.train.n_tokens:,} tokens"
            notes.append(f"{corpus.name}: {size}; trained on {budget.tokens:,}, {budget.passes:.2f} epochs")
        found = [Section(title="Verdicts", notes=[*notes, *self._notes()])]
        for name in (OVERALL, *_others(self.values, self.overall_of)):
            judged = {each.corpus: each for each in self.judgements if each.set == name}
            rows = [("corpus", "mean", "spread", "difference, 95 %", "smallest visible", "p", "verdict")]
            for corpus_name, values in self.values[name].items():
                spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "one seed"
                own, judgement = (corpus_name, f"{statistics.fmean(values):.4f}", spread), judged.get(corpus_name)
                rows.append((*own, *(_cells(judgement) if judgement else ("", "", "", ""))))
            of = "" if name != OVERALL else f": mean of {', '.join(self.overall_of)}"
            found.append(Section(title=f"{name}{of}, bits per byte", rows=rows))
        return [*found, *self._over_karma()]

    def _notes(self) -> list[str]:
        equal = (
            "tokens" if share_tokenizer(self.corpora) else "bytes (tokenizers differ, so models differ in vocabulary)"
        )
        notes = [f"Lower is better. Runs have equal {equal}.", f"Validation set: {self.validation}"]
        if all(each.p is None for each in self.judgements):
            return [
                *notes,
                "One seed or document, or no spread at all, shows nothing about chance. Give --seeds 3 or more.",
            ]
        return [
            *notes,
            "Spread: standard deviation over seeds. Difference: of means, ± its 95 % interval by other seeds and documents.",
            f"Smallest visible: {POWER:.0%} of such experiments would find a true difference of this size. Within noise "
            "doesn't prove equality: a smaller one may be there.",
            f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction: overall over the corpora, else "
            "over all corpora and sets.",
        ]

    def _over_karma(self) -> list[Section]:
        """Draw bits per byte over the threshold, with the interval of each difference from the first around its mean."""
        if any(corpus.karma is None for corpus in self.corpora):
            return []
        points = [(float(c.karma or 0), statistics.fmean(self.values[OVERALL][c.name])) for c in self.corpora]
        lines = [dots(points, "karma")]
        for each, (x, y) in zip(self.judgements, points[1:], strict=False):
            if (margin := each.difference.margin) is not None:
                lines.append(Line([(x, y - margin), (x, y + margin)], "interval"))
        drawing = chart({"bits per byte": lines}, x="karma", y="bits per byte", log_x=True)
        return [
            Section(title="Over karma", notes=["Bars: 95 % intervals of differences from the first."], chart=drawing)
        ]


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
    rejected before the first step. Writes runs/, views/, the validation set, the result and its page into `out`.
    """
    refuse_torchrun()
    corpora = (
        open_corpora(arguments, tokenizer) if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    )
    if karma is not None and compare.tokens is None:
        compare = replace(compare, tokens=one_pass(corpora, settings))
    plan = budgets(corpora, settings, compare)
    sets = open_evaluation_sets(evaluation)
    frozen = frozen_validation(corpora, validation)
    _check_frozen(out, frozen)
    _announce(corpora, plan, frozen, run.console)
    trials: dict[str, list[Trial]] = {}
    for i, (corpus, budget) in enumerate(zip(corpora, plan, strict=True)):
        n_before = sum(each.train.hash == corpus.train.hash for each in corpora[:i])
        seed = settings.seed + n_before * compare.seeds  # a token set that was named before gets the next seeds
        kept = changed(budget.settings, keep_checkpoints=1, keep_best=False, seed=seed)
        place = Path(out) / "runs" / corpus.slug
        trials[corpus.name] = seeded(corpus.name, [corpus.tokens], kept, compare.seeds, place)
    everything = [trial for of_corpus in trials.values() for trial in of_corpus]
    with experiment("compare", out, everything, run, side_by_side=compare.side_by_side):
        Folder(out).write_bytes(FILE, frozen.to_bytes())
        sets.insert(0, EvaluationSet(VALIDATION, tuple(text.encode() for _, text in frozen.documents)))
        tokenizers = {each.folder: corpus.tokenizer_path for corpus in corpora for each in trials[corpus.name]}
        then = partial(measure_trial, sets=tuple(sets), tokenizers=tokenizers)
        made = iter(run_trials(everything, run, label="compare", side_by_side=compare.side_by_side, then=then))
        results = {name: [next(made) for _ in of_corpus] for name, of_corpus in trials.items()}
        found = judge(corpora, plan, frozen, sets, results)
        publish(out, "compare", found.to_json(), "Corpora compared", found.sections())
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
    values: dict[str, dict[str, list[float]]] = {}
    documents: dict[str, Influence] = {}
    for name in names:
        of_set = {corpus.name: [result.answer[name] for result in results[corpus.name]] for corpus in corpora}
        values[name] = {corpus: [each.bits_per_byte for each in of] for corpus, of in of_set.items()}
        bits = np.array([[each.losses for each in of] for of in of_set.values()]) / math.log(2)
        documents[name] = influence(bits, np.array(of_set[corpora[0].name][0].sizes))
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
    return Comparison(corpora, plan, frozen, overall_of, values, judgements, results)


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


def _difference(judgement: Judgement) -> str:
    mean, margin = judgement.difference.mean, judgement.difference.margin
    return f"{mean:+.4f}" if margin is None else f"{mean:+.4f} ± {margin:.4f}"


def _cells(judgement: Judgement) -> tuple[str, str, str, str]:
    smallest = judgement.difference.smallest
    known = ("", "") if smallest is None or judgement.p is None else (f"{smallest:.4f}", f"{judgement.p:.2g}")
    return _difference(judgement), *known, judgement.verdict


def _verdict(difference: Difference, p: float | None) -> str:
    if p is None:
        return NONE
    if p >= ALPHA:
        return NOISE
    return BETTER if difference.mean < 0 else WORSE


def _others(names: Sequence[str] | Values, overall_of: Sequence[str]) -> list[str]:
    """Return the sets that have a row of their own; one that is all of overall has none."""
    return [name for name in names if name != OVERALL and [name] != list(overall_of)]


def _check_frozen(out: str, frozen: ValidationSet) -> None:
    """Raise InputError if the folder has another validation set, since its runs were measured on that."""
    folder = Folder(out)
    if folder.exists(FILE) and folder.read_bytes(FILE) != frozen.to_bytes():
        raise InputError(
            f"'{folder.location(FILE)}' is not the validation set of these corpora",
            f"keep it by --validation {folder.location(FILE)}, or choose another --out",
        )


def _announce(corpora: Sequence[Corpus], plan: Sequence[Budget], frozen: ValidationSet, console: Console) -> None:
    """Print what will be compared, and anything that a reader might not expect."""
    for i, (corpus, budget) in enumerate(zip(corpora, plan, strict=True)):
        again = any(corpus.train.hash == other.train.hash for other in corpora[:i])
        console.say(
            f"compare: '{corpus.name}': {counted(budget.settings.steps, 'step')}, {budget.tokens:,} tokens, about "
            f"{budget.tokens * corpus.bytes_per_token:,.0f} bytes, {budget.passes:.2f} passes over {corpus.train.n_tokens:,}"
            + "; a token set that was named before: other seeds, so only chance differs"
            * again
        )
        if budget.passes > MANY_PASSES:
            console.warn(
                f"'{corpus.name}' is repeated {budget.passes:.1f} times: beyond {MANY_PASSES}, text teaches little more"
            )
    if not share_tokenizer(corpora):
        console.say(
            "compare: tokenizers differ: runs have equal bytes of text, not equal tokens, and different vocabularies"
        )
    console.say(f"compare: validation set: {frozen}")
