"""Loss curves of training runs over the tokens they saw, as one self-contained page: inline SVG, no script.

The losses come from the `metrics.jsonl` of model folders; nothing is measured here. Training losses are averaged over
equal stretches; held-out losses are drawn as measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webtext.base.charts import Line
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.evaluate.page import Section, as_page, chart, dots
from webtext.train.metrics import METRICS, read_metrics

CURVE_POINTS = 300
_REMEDY = "name the folder of a training run"

Points = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """The losses of one run in nats per token, each with the number of tokens seen until then."""

    name: str
    training: Points
    held_out: Points


def read_curve(model: str) -> Curve:
    """Read the losses from a model folder's metrics.jsonl. Raises InputError if there are none."""
    place = Folder(model).location(METRICS)
    n_tokens = 0
    training: Points = []
    held_out: Points = []
    for row in read_metrics(Folder(model), _REMEDY):
        try:
            n_tokens = int(row.get("tokens", n_tokens))
            for key, points in (("loss", training), ("validation_loss", held_out)):
                if key in row and math.isfinite(loss := float(row[key])):
                    points.append((n_tokens, loss))
        except (TypeError, ValueError) as error:
            raise InputError(f"'{place}' has a row that is not a measurement ({error})", _REMEDY) from None
    if n_tokens == 0 or not (training or held_out):
        raise InputError(f"'{place}' has no loss after the first step", "wait until the run has made some steps")
    return Curve(model, thinned(training, CURVE_POINTS), held_out)


def curve_page(curves: Sequence[Curve]) -> str:
    """Return a page with both losses of every run over the tokens, and a table of each run's last losses."""
    if not curves:
        raise ConfigError("no run is named", "e.g. webtext train curve build/model --out curve.html")
    rows = [("run", "tokens", "training loss", "held-out loss")]
    lines: dict[str, list[Line]] = {}
    for curve in curves:
        rows.append((curve.name, f"{_furthest(curve):,}", _last(curve.training), _last(curve.held_out)))
        held_out = dots(curve.held_out, f"{curve.name}, held-out loss")
        lines[curve.name] = [Line(curve.training, "training"), held_out]
    note = "Thin: training loss, averaged over stretches. Thick with dots: held-out loss, as measured."
    drawing = chart(lines, x="tokens seen", y="loss, nats per token")
    return as_page(
        "Loss of training runs", [Section(title="Loss over the tokens seen", notes=[note], rows=rows, chart=drawing)]
    )


def thinned(points: Points, most: int) -> Points:
    """Reduce `points` to at most `most`: the end of each stretch, with the stretch's mean."""
    stride = -(-len(points) // most) or 1
    stretches = [points[i : i + stride] for i in range(0, len(points), stride)]
    return [(stretch[-1][0], sum(loss for _, loss in stretch) / len(stretch)) for stretch in stretches]


def _furthest(curve: Curve) -> int:
    return max(n for n, _ in (*curve.training, *curve.held_out))


def _last(points: Points) -> str:
    return f"{points[-1][1]:.4f}" if points else "not measured"
