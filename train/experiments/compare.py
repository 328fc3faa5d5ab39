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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.charts import Line
from webtext.base.config import changed, recipe_settings
from webtext.base.console import counted
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.corpora import open_corpora, shared_settings
from webtext.train.experiments.engine import experiment, publish, run_trials
from webtext.train.experiments.karma import karma_views
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.significance import ALPHA, POWER, Difference, differences, holm, influence
from webtext.train.experiments.trials import Trial, seeded
from webtext.train.experiments.validation import FILE, MEASURES, frozen_validation, measure_trial
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

BETTER, WORSE, NOISE, NONE = "better", "worse", "within noise", "no verdict"
NOTES = (
    "Spread: standard deviation over seeds. Difference: of means, ± its 95 % interval by other seeds and documents.",
    f"Smallest visible: {POWER:.0%} of such experiments would find a true difference of this size. Within noise "
    "doesn't prove equality: a smaller one may be there.",
    f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction over the corpora.",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One corpus with its runs, and how its mean differs from the first corpus's; `p` is corrected over the corpora."""

    corpus: str
    karma: int | None
    documents: int
    passes: float
    seeds: Sequence[int]
    bits_per_byte: Sequence[float] = ()
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
            size = f"{row.documents:,}", f"{row.passes:.2f}", f"{statistics.fmean(row.bits_per_byte):.4f}", spread
            found = row.difference
            difference = "" if found is None else f"{found.mean:+.4f}"
            smallest = ""
            if found is not None and found.margin is not None:
                difference, smallest = f"{difference} ± {found.margin:.4f}", f"{found.smallest:.4f}"
            p = "" if row.p is None else f"{row.p:.2g}"
            cells.append((row.corpus, *size, difference, smallest, p, row.verdict))
        notes = [f"Each run: {self.tokens:,} tokens. Validation set: {self.validation}."]
        if all(row.p is None for row in self.rows):
            notes.append("One seed or document shows nothing about chance. Give --seeds 3 or more.")
        else:
            notes += NOTES
        drawing = "" if self.rows[0].karma is None else self._over_karma()
        return [Section(title="Bits per byte, lower is better", notes=notes, rows=cells, chart=drawing)]

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
    views = None if karma is None else karma_views(arguments, karma, out, tokenizer, run)
    corpora = views or open_corpora(arguments, tokenizer)
    shared = shared_settings(corpora, settings, compare.tokens)
    frozen = frozen_validation(corpora, validation)
    rows: list[Row] = []
    trials: list[Trial] = []
    for i, corpus in enumerate(corpora):
        name, train, passes = corpus.name, corpus.source.train, corpus.passes(shared)
        n_before = sum(each.source.train.hash == train.hash for each in corpora[:i])
        kept = changed(shared, keep_checkpoints=1, keep_best=False, seed=settings.seed + n_before * compare.seeds)
        mine = seeded(name, [corpus.source.name], kept, compare.seeds, Path(out) / "runs" / corpus.slug)
        trials += mine
        rows.append(Row(name, corpus.karma, train.n_documents, passes, [trial.settings.seed for trial in mine]))
        again = "; a token set that was named before: other seeds, so only chance differs" if n_before else ""
        run.console.say(f"compare: '{name}': {passes:.2f} passes over {train.n_tokens:,} tokens{again}")
        if passes > 1:
            run.console.warn(f"'{name}' is repeated, and repeated text teaches less: its size makes a difference")
    run.console.say(f"compare: {counted(shared.steps, 'step')} each; validation set: {frozen}")
    with experiment("compare", out, trials, {"validation": str(frozen)}, run, side_by_side=compare.side_by_side):
        Folder(out).write_bytes(FILE, frozen.to_bytes())
        place = Folder(out).location(FILE)
        measure = partial(measure_trial, validation=place, tokenizer=corpora[0].tokenizer)
        run_trials(trials, run, label="compare", side_by_side=compare.side_by_side, then=measure)
        measures = [Folder(trial.folder).read_object(MEASURES)["bits"] for trial in trials]
        bits = np.array(measures).reshape(len(corpora), compare.seeds, -1)
        n_bytes = np.array(frozen.sizes, np.float64)
        values = bits.sum(-1) / n_bytes.sum()
        judged = [(None, None, ""), *verdicts(differences(values, influence(bits, n_bytes)))]
        rows = [
            replace(row, bits_per_byte=of_seeds.tolist(), difference=difference, p=p, verdict=verdict)
            for row, of_seeds, (difference, p, verdict) in zip(rows, values, judged, strict=True)
        ]
        found = Comparison(rows, total_tokens(shared), recipe_settings(shared), str(frozen))
        publish(out, "compare", found.to_json(), "Corpora compared", found.sections())
    return found


def verdicts(found: Sequence[Difference]) -> list[tuple[Difference, float | None, str]]:
    """Return each difference with its p value, corrected for all of them, and the verdict."""
    judged = []
    for difference, p in zip(found, holm([each.p for each in found]), strict=True):
        verdict = NONE if p is None else NOISE if p >= ALPHA else BETTER if difference.mean < 0 else WORSE
        judged.append((difference, p, verdict))
    return judged
