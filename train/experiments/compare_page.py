"""The result of `train compare` as aligned lines and as a self-contained page: verdicts, numbers, curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape

from webtext.base.console import counted
from webtext.base.line_chart import Line, line_chart
from webtext.train.evaluate.page import colour, page, paragraphs, swatch, table
from webtext.train.experiments.compare import BETTER, OVERALL, WORSE, Comparison, Judgement
from webtext.train.experiments.measure import VALIDATION
from webtext.train.experiments.significance import ALPHA, POWER
from webtext.train.experiments.trials import TrialResult

HEIGHT = 420
_STYLE = """
.better{color:#00794f;font-weight:600}.worse{color:#b8480a;font-weight:600}
@media(prefers-color-scheme:dark){.better{color:#3fc495}.worse{color:#f0894e}}
svg .each{stroke-width:1;opacity:.35}
svg .mean,svg .interval{stroke-width:2.4}
svg .first{stroke-width:1;stroke-dasharray:4}
"""


def comparison_text(found: Comparison) -> str:
    """Format a block for each set: each corpus's mean and spread, its difference from the first, its verdict."""
    width = max(len(corpus.name) for corpus in found.corpora)
    lines = []
    for name in found.rows:
        lines.append(f"{_title(found, name)}, bits per byte")
        for corpus in found.corpora:
            values = found.values[name][corpus.name]
            line = f"  {corpus.name:<{width}}  {_spread_text(values)}"
            judgement = found.judgement(corpus.name, name)
            if judgement is not None:
                smallest = _number(judgement.difference.smallest)
                visible = f"  (smallest visible {smallest})" if smallest else ""
                line = f"{line}  {_difference_text(judgement)}  {judgement.verdict}{visible}"
            lines.append(line)
    for corpus, budget in zip(found.corpora, found.budgets, strict=True):
        size = f"{counted(corpus.train.n_documents, 'document')}, {corpus.train.n_tokens:,} tokens"
        lines.append(f"{corpus.name}: {size}; trained on {budget.tokens:,}, {budget.passes:.2f} epochs")
    return "\n".join([*lines, *_notes(found)])


def comparison_page(found: Comparison) -> str:
    """Return the page: first the verdicts, then every set, then the curves of every run."""
    tables = (f"<h2>{escape(_title(found, name))}</h2>{_table(found, name)}" for name in found.rows)
    parts = (_headline(found), _over_karma(found), *tables, paragraphs(_notes(found)), _corpora(found), _curves(found))
    return page("Corpora compared", *parts, "<h2>Runs</h2>", _runs(found), style=_STYLE)


def _headline(found: Comparison) -> str:
    first = found.corpora[0].name
    rows = []
    for corpus in found.corpora[1:]:
        judgement = found.judgement(corpus.name, OVERALL)
        assert judgement is not None
        than = f"than {first}" if judgement.verdict in (BETTER, WORSE) else f"against {first}"
        rows.append(
            f"<p><b>{escape(corpus.name)}</b>: {_verdict_html(judgement)} {escape(than)} "
            f"({_difference_text(judgement)} bits per byte)</p>"
        )
    return "".join(rows)


def _over_karma(found: Comparison) -> str:
    """Draw bits per byte over the threshold, with the interval of each difference from the first around its mean."""
    if any(corpus.karma is None for corpus in found.corpora):
        return ""
    points = [(float(c.karma or 0), statistics.fmean(found.values[OVERALL][c.name])) for c in found.corpora]
    (first, level), last = points[0], points[-1][0]

    def label_of(x: float, y: float) -> str:
        return f"karma {x:,.0f}: {y:.4f} bits per byte"

    lines = [Line([(first, level), (last, level)], "first", colour(0)), Line(points, "mean", colour(0), label_of)]
    for corpus, (x, y) in zip(found.corpora, points, strict=True):
        judgement = found.judgement(corpus.name, OVERALL)
        margin = judgement.difference.margin if judgement else None
        if margin is not None:
            lines.append(Line([(x, y - margin), (x, y + margin)], "interval", colour(0)))
    drawing = line_chart(
        lines, x_label="karma", y_label="bits per byte", label="bits per byte over karma", height=HEIGHT, log_x=True
    )
    caption = "Bars: 95 % intervals of the differences from the first threshold, whose level is dashed."
    return f"<h2>Over karma</h2>{drawing}<p>{caption}</p>"


def _corpora(found: Comparison) -> str:
    rows = [
        (escape(corpus.name), f"{corpus.train.n_documents:,}", f"{corpus.train.n_tokens:,}", f"{budget.tokens:,}")
        + (f"{budget.passes:.2f}",)
        for corpus, budget in zip(found.corpora, found.budgets, strict=True)
    ]
    head = ("corpus", "training documents", "training tokens", "tokens of a run", "epochs")
    return f"<h2>Corpora</h2>{table(head, rows)}"


def _table(found: Comparison, name: str) -> str:
    rows = []
    for i, corpus in enumerate(found.corpora):
        values = found.values[name][corpus.name]
        judgement = found.judgement(corpus.name, name)
        against = [""] * 6
        if judgement is not None:
            found_here = judgement.difference
            noise = [_number(each) for each in (found_here.seeds, found_here.documents, found_here.smallest)]
            p = "" if judgement.p is None else f"{judgement.p:.2g}"
            against = [_difference_text(judgement), *noise, p, _verdict_html(judgement)]
        spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "one seed"
        rows.append((swatch(colour(i)) + escape(corpus.name), f"{statistics.fmean(values):.4f}", spread, *against))
    head = "corpus|mean|spread|difference, 95 %|noise: seeds|documents|smallest visible|p|verdict"
    return table(head.split("|"), rows, words=(0, 8))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _curves(found: Comparison) -> str:
    """Draw bits per byte of the validation set during training: a thin line for each run, a thick one for the mean."""
    lines: list[Line] = []
    for i, corpus in enumerate(found.corpora):
        scale = corpus.bytes_per_token if found.is_per_byte else 1.0
        runs = [_points(result, scale) for result in found.results[corpus.name]]
        if not all(runs):
            continue
        lines += [Line(points, "each", colour(i)) for points in runs if len(runs) > 1]
        mean = [(column[0][0], statistics.fmean(y for _, y in column)) for column in zip(*runs, strict=False)]

        def label_of(x: float, y: float, name: str = corpus.name) -> str:
            return f"{name}, {x:,.0f}: {y:.4f} bits per byte"

        lines.append(Line(mean, "mean", colour(i), label_of))
    if not lines:
        return ""
    seen = "bytes of text seen" if found.is_per_byte else "tokens seen"
    drawing = line_chart(
        lines, x_label=seen, y_label="bits per byte", label=f"bits per byte over the {seen}", height=HEIGHT
    )
    caption = "The validation set during training, by the runs' measured windows. Thin: each run. Thick: the mean."
    return f"<h2>During training</h2>{drawing}<p>{caption}</p>"


def _points(result: TrialResult, scale: float) -> list[tuple[float, float]]:
    """Return a run's held-out losses per byte, at the tokens per byte of the complete validation set."""
    measure = result.answer[VALIDATION]
    per_byte = measure.tokens / measure.bytes / math.log(2)
    return [(n * scale, loss * per_byte) for n, loss in result.curve().held_out]


def _runs(found: Comparison) -> str:
    rows = [
        [
            escape(result.trial.name),
            *(f"{result.answer[name].bits_per_byte:.4f}" for name in found.sets),
            escape(result.trial.folder),
        ]
        for corpus in found.corpora
        for result in found.results[corpus.name]
    ]
    return table(("run", *map(escape, found.sets), "folder"), rows, words=(0, len(found.sets) + 1))


def _notes(found: Comparison) -> list[str]:
    n_seeds = min(len(values) for values in found.values[OVERALL].values())
    equal = "bytes (tokenizers differ, so models differ in vocabulary)" if found.is_per_byte else "tokens"
    notes = [f"Lower is better. Runs have equal {equal}.", f"Validation set: {found.validation}"]
    if n_seeds < 2:
        return [*notes, "One seed shows nothing about chance: no verdict. Give --seeds 3 or more."]
    if all(each.p is None for each in found.judgements):
        return [*notes, "One document, or runs without any spread, show nothing about chance: no verdict."]
    return [
        *notes,
        f"Spread: standard deviation over {n_seeds} seeds. Difference: of means, ± its 95 % interval. Its noise: standard "
        "errors by seeds (the spread of all corpora, pooled) and by documents (drawn again, the same ones for all).",
        f"Smallest visible: {POWER:.0%} of such experiments would find a true difference of this size. Within noise "
        "doesn't prove equality: a smaller one may be there.",
        f"Verdict: t test, two-sided, p below {ALPHA} after Holm's correction: overall over the corpora, else "
        "over all corpora and sets.",
    ]


def _title(found: Comparison, name: str) -> str:
    if name != OVERALL:
        return name
    of = ", ".join(found.overall_of)
    return f"overall: {of}" if len(found.overall_of) == 1 else f"overall: mean of {of}"


def _spread_text(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}, one seed"
    return f"{statistics.fmean(values):.4f}, spread {statistics.stdev(values):.4f}"


def _difference_text(judgement: Judgement) -> str:
    difference = judgement.difference
    margin = "" if difference.margin is None else f" ± {difference.margin:.4f}"
    return f"{difference.mean:+.4f}{margin}"


def _verdict_html(judgement: Judgement) -> str:
    return f'<span class="{judgement.verdict.replace(" ", "-")}">{judgement.verdict}</span>'
