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
from webtext.train.experiments.experiment import experiment, publish
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.measure import measure_trial, read_measures
from webtext.train.experiments.processes import run_trials
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.significance import ALPHA, POWER, Difference, Floats, differences, holm, influence
from webtext.train.experiments.trials import Trial, seeded
from webtext.train.experiments.validation import FILE, frozen_validation
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

BETTER, WORSE, NOISE, NONE = "better", "worse", "within noise", "no verdict"


@dataclass(frozen=True, slots=True)
class Row:
    """One corpus with its runs, and how its mean differs from the first corpus's; `p` is corrected over the corpora."""

    corpus: str
    karma: int | None
    documents: int
    passes: float
    seeds: Sequence[int]
    bits_per_byte: Sequence[float]
    difference: Difference | None = None
    p: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison; `tokens` and `settings` are those of each run, except the seed."""

    rows: Sequence[Row]
    tokens: int
    settings: Mapping[str, Any]
    validation: str

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for compare.json."""
        return asdict(self)

    def sections(self) -> list[Section]:
        """Return a table of all corpora with the verdicts; with karma, also a chart over it."""
        cells = [("corpus", "documents", "epochs", "mean", "spread", "difference", "smallest visible", "p", "verdict")]
        for row in self.rows:
            spread = f"{statistics.stdev(row.bits_per_byte):.4f}" if len(row.seeds) > 1 else "one seed"
            size = f"{row.documents:,}", f"{row.passes:.2f}"
            found = (*_difference(row.difference), "" if row.p is None else f"{row.p:.2g}", row.verdict)
            cells.append((row.corpus, *size, f"{statistics.fmean(row.bits_per_byte):.4f}", spread, *found))
        drawing = "" if self.rows[0].karma is None else self._over_karma()
        return [Section(title="Bits per byte, lower is better", notes=self._notes(), rows=cells, chart=drawing)]

    def _notes(self) -> list[str]:
        notes = [f"Each run: {self.tokens:,} tokens. Validation set: {self.validation}."]
        if all(row.p is None for row in self.rows):
            return [*notes, "One seed or document shows nothing about chance. Give --seeds 3 or more."]
        return [
            *notes,
            "Spread: standard deviation over seeds. Difference: of means, ± its 95 % interval by other seeds and documents.",
            f"Smallest visible: {POWER:.0%} of such experiments would find a true difference of this size. Within noise "
            "doesn't prove equality: a smaller one may be there.",
            f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction over the corpora.",
        ]

    def _over_karma(self) -> str:
        """Draw bits per byte over the threshold, with the interval of each difference from the first around its mean."""
        points = [(float(row.karma or 0), statistics.fmean(row.bits_per_byte)) for row in self.rows]
        lines = [dots(points, "karma")]
        for row, (x, y) in zip(self.rows, points, strict=True):
            if row.difference and (margin := row.difference.margin):
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
    corpora = (
        open_corpora(arguments, tokenizer) if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    )
    shared = shared_settings(corpora, settings, compare.tokens)
    frozen = frozen_validation(corpora, validation)
    folder = Folder(out)
    trials: list[list[Trial]] = []
    for i, corpus in enumerate(corpora):
        n_before = sum(each.train.hash == corpus.train.hash for each in corpora[:i])
        kept = changed(shared, keep_checkpoints=1, keep_best=False, seed=settings.seed + n_before * compare.seeds)
        place = Path(out) / "runs" / corpus.slug
        trials.append(seeded(corpus.name, [corpus.tokens], kept, compare.seeds, place))
        again = "; a token set that was named before: other seeds, so only chance differs" if n_before else ""
        passes = corpus.passes(shared)
        run.console.say(f"compare: '{corpus.name}': {passes:.2f} passes over {corpus.train.n_tokens:,} tokens{again}")
        if passes > 1:
            run.console.warn(
                f"'{corpus.name}' is repeated, and repeated text teaches less: its size makes a difference"
            )
    run.console.say(f"compare: {counted(shared.steps, 'step')} each; validation set: {frozen}")
    everything = [trial for of_corpus in trials for trial in of_corpus]
    with experiment("compare", out, everything, {"validation": str(frozen)}, run, side_by_side=compare.side_by_side):
        folder.write_bytes(FILE, frozen.to_bytes())
        measure = partial(measure_trial, validation=folder.location(FILE), tokenizer=corpora[0].tokenizer_path)
        run_trials(everything, run, label="compare", side_by_side=compare.side_by_side, then=measure)
        bits = np.array([[read_measures(trial) for trial in of_corpus] for of_corpus in trials])
        found = Comparison(
            judge(corpora, shared, trials, bits, np.array(frozen.sizes, np.float64)),
            total_tokens(shared),
            recipe_settings(shared),
            str(frozen),
        )
        publish(out, "compare", found.to_json(), "Corpora compared", found.sections())
    return found


def judge(
    corpora: Sequence[Corpus], shared: TrainSettings, trials: Sequence[Sequence[Trial]], bits: Floats, n_bytes: Floats
) -> list[Row]:
    """Compare all corpora with the first, given bits [corpora, seeds, documents] and bytes [documents]."""
    values = bits.sum(-1) / n_bytes.sum()
    found = differences(values, influence(bits, n_bytes))
    judged = [(None, None, ""), *verdicts(found)]
    return [
        Row(
            corpus.name,
            corpus.karma,
            corpus.train.n_documents,
            corpus.passes(shared),
            [trial.settings.seed for trial in of_corpus],
            of_values.tolist(),
            *judgement,
        )
        for corpus, of_corpus, of_values, judgement in zip(corpora, trials, values, judged, strict=True)
    ]


def verdicts(found: Sequence[Difference]) -> list[tuple[Difference, float | None, str]]:
    """Return each difference with its p value, corrected for all of them, and the verdict."""
    judged = []
    for difference, p in zip(found, holm([each.p for each in found]), strict=True):
        verdict = NONE if p is None else NOISE if p >= ALPHA else BETTER if difference.mean < 0 else WORSE
        judged.append((difference, p, verdict))
    return judged


def _difference(found: Difference | None) -> tuple[str, str]:
    """Return the cells difference and smallest visible."""
    if found is None or found.margin is None:
        return "" if found is None else f"{found.mean:+.4f}", ""
    return f"{found.mean:+.4f} ± {found.margin:.4f}", f"{found.smallest:.4f}"
