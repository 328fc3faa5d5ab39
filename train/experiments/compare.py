"""`train compare`: which of several corpora makes the better model of one size, at one budget, over several seeds.

Every corpus gets the same model, schedule, seeds and number of tokens, and every model is measured in bits per byte on
documents that none of them was trained on. So only the corpus differs; the seeds and the documents show how much chance
alone does. The others are compared with the first corpus. With `karma`, the corpora are views of one build by vote
threshold (`karma.py`).

A token set that is named twice is trained with other seeds the second time: then only chance differs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.config import changed, recipe_settings
from webtext.base.console import counted
from webtext.base.line_chart import Line
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.corpora import Corpus, open_corpora, shared_settings
from webtext.train.experiments.experiment import experiment, publish, refuse_torchrun
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.measure import measure_trial
from webtext.train.experiments.processes import run_trials
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.significance import ALPHA, POWER, Difference, differences, holm, influence
from webtext.train.experiments.trials import Trial, seeded
from webtext.train.experiments.validation import FILE, ValidationSet, frozen_validation
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

MANY_PASSES = 4
"""Text repeated up to four times teaches almost as much as new text (Muennighoff et al. 2023, abstract)."""
BETTER, WORSE, NOISE, NONE = "better", "worse", "within noise", "no verdict"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One corpus against the first: the difference of means in bits per byte, the corrected p, and the verdict."""

    corpus: str
    difference: Difference
    p: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison: each corpus's bits per byte by seed, and the judgements of all but the first corpus.

    `settings` are those of all runs, except the seed.
    """

    corpora: Sequence[Corpus]
    settings: TrainSettings
    validation: ValidationSet
    trials: Mapping[str, Sequence[Trial]]
    values: Mapping[str, Sequence[float]]
    judgements: Sequence[Judgement]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for compare.json."""
        corpora = [
            {
                "name": corpus.name,
                "karma": corpus.karma,
                "tokens": corpus.tokens,
                "training_documents": corpus.train.n_documents,
                "training_tokens": corpus.train.n_tokens,
                "passes": corpus.passes(self.settings),
                "seeds": [trial.settings.seed for trial in self.trials[corpus.name]],
                "bits_per_byte": self.values[corpus.name],
            }
            for corpus in self.corpora
        ]
        return {
            "corpora": corpora,
            "trained_tokens": total_tokens(self.settings),
            "settings": recipe_settings(self.settings),
            "validation": str(self.validation),
            "judgements": [asdict(each) for each in self.judgements],
        }

    def sections(self) -> list[Section]:
        """Return a table of all corpora with the verdicts; with karma, also a chart over it."""
        judged = {each.corpus: _cells(each) for each in self.judgements}
        rows = [("corpus", "documents", "epochs", "mean", "spread", "difference", "smallest visible", "p", "verdict")]
        for corpus in self.corpora:
            values = self.values[corpus.name]
            spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "one seed"
            size = f"{corpus.train.n_documents:,}", f"{corpus.passes(self.settings):.2f}"
            found = judged.get(corpus.name, ("", "", "", ""))
            rows.append((corpus.name, *size, f"{statistics.fmean(values):.4f}", spread, *found))
        drawing = "" if self.corpora[0].karma is None else self._over_karma()
        return [Section(title="Bits per byte, lower is better", notes=self._notes(), rows=rows, chart=drawing)]

    def _notes(self) -> list[str]:
        notes = [f"Each run: {total_tokens(self.settings):,} tokens. Validation set: {self.validation}."]
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
            f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction over the corpora.",
        ]

    def _over_karma(self) -> str:
        """Draw bits per byte over the threshold, with the interval of each difference from the first around its mean."""
        points = [(float(each.karma or 0), statistics.fmean(self.values[each.name])) for each in self.corpora]
        lines = [dots(points, "karma")]
        for each, (x, y) in zip(self.judgements, points[1:], strict=True):
            if (margin := each.difference.margin) is not None:
                lines.append(Line([(x, y - margin), (x, y + margin)], "interval"))
        return chart({"bits per byte, bars: 95 %": lines}, x="karma", y="bits per byte", log_x=True)


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
) -> Comparison:
    """Train and measure all runs in `out`, and judge them; finished runs and measures are reused.

    `arguments` are as in `corpora.open_corpora`, or with the thresholds `karma` as in `karma.karma_views`; `validation`
    is the file of a frozen set. Whatever can be rejected is rejected before the first step. Writes runs/, views/, the
    validation set, the result and its page into `out`.
    """
    refuse_torchrun()
    corpora = (
        open_corpora(arguments, tokenizer) if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    )
    shared = shared_settings(corpora, settings, compare)
    frozen = frozen_validation(corpora, validation)
    trials: dict[str, list[Trial]] = {}
    for i, corpus in enumerate(corpora):
        n_before = sum(each.train.hash == corpus.train.hash for each in corpora[:i])
        kept = changed(shared, keep_checkpoints=1, keep_best=False, seed=settings.seed + n_before * compare.seeds)
        folder = Path(out) / "runs" / corpus.slug
        trials[corpus.name] = seeded(corpus.name, [corpus.tokens], kept, compare.seeds, folder)
        _announce(corpus, corpus.passes(shared), n_before > 0, run)
    run.console.say(f"compare: {counted(shared.steps, 'step')} each; validation set: {frozen}")
    everything = [trial for of_corpus in trials.values() for trial in of_corpus]
    how: dict[str, Any] = {"side_by_side": compare.side_by_side}
    with experiment("compare", out, everything, {"validation": str(frozen)}, run, **how):
        Folder(out).write_bytes(FILE, frozen.to_bytes())
        place = Folder(out).location(FILE)
        measure = partial(measure_trial, validation=place, tokenizer=corpora[0].tokenizer_path)
        made = [each.answer for each in run_trials(everything, run, label="compare", then=measure, **how)]
        bits, n_bytes = np.array(made).reshape(len(corpora), compare.seeds, -1), np.array(frozen.sizes, np.float64)
        values = bits.sum(-1) / n_bytes.sum()
        judgements = verdicts(list(trials), differences(values, influence(bits, n_bytes)))
        of_corpora = dict(zip(trials, values.tolist(), strict=True))
        found = Comparison(corpora, shared, frozen, trials, of_corpora, judgements)
        publish(out, "compare", found.to_json(), "Corpora compared", found.sections())
    return found


def verdicts(corpora: Sequence[str], found: Sequence[Difference]) -> list[Judgement]:
    """Judge the differences of all corpora but the first; their p values are corrected together."""
    return [
        Judgement(corpus, difference, p, _verdict(difference, p))
        for corpus, difference, p in zip(corpora[1:], found, holm([each.p for each in found]), strict=True)
    ]


def _verdict(difference: Difference, p: float | None) -> str:
    if p is None:
        return NONE
    if p >= ALPHA:
        return NOISE
    return BETTER if difference.mean < 0 else WORSE


def _cells(judgement: Judgement) -> tuple[str, str, str, str]:
    """Return the cells difference, smallest visible, p and verdict."""
    mean, margin, smallest = judgement.difference.mean, judgement.difference.margin, judgement.difference.smallest
    if margin is None or smallest is None:
        return f"{mean:+.4f}", "", "", judgement.verdict
    return f"{mean:+.4f} ± {margin:.4f}", f"{smallest:.4f}", f"{judgement.p:.2g}", judgement.verdict


def _announce(corpus: Corpus, passes: float, is_again: bool, run: Run) -> None:
    """Print how often the corpus is read, and anything that a reader might not expect."""
    again = "; a token set that was named before: other seeds, so only chance differs" if is_again else ""
    run.console.say(f"compare: '{corpus.name}': {passes:.2f} passes over {corpus.train.n_tokens:,} tokens{again}")
    if passes > MANY_PASSES:
        run.console.warn(
            f"'{corpus.name}' is repeated {passes:.1f} times: beyond {MANY_PASSES}, text teaches little more"
        )
