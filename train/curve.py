"""Loss curves of training runs over the tokens they saw, as one self-contained page: inline SVG, no script.

Read from the `metrics.jsonl` of model folders; nothing is measured here. Training losses are thinned to means of equal
stretches, held-out losses are drawn as they were taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from webtext.base.errors import ConfigError, InputError
from webtext.base.line_chart import Line, line_chart
from webtext.base.storage import Folder, json_object

HEIGHT = 460
CURVE_POINTS = 300
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
"""Told apart by people who are colour-blind (Okabe & Ito 2008); the yellow is darkened for white paper."""
STYLE = """
:root{--paper:#fff;--ink:#1c2430;--soft:#677281;--line:#e2e6eb;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#15191f;--ink:#e4e8ee;--soft:#96a1b0;--line:#2c333d}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:0 auto;padding:2rem 1rem}
h1{font-size:1.4rem;margin:0 0 .5rem}
svg{display:block;width:100%;height:auto}
svg text{font:13px system-ui,sans-serif;fill:var(--soft)}
svg .grid{stroke:var(--line)}
svg .training{fill:none;stroke-width:1.2;opacity:.45}
svg .held-out{fill:none;stroke-width:2.4}
table{border-collapse:collapse;margin-top:1rem}
td,th{padding:.25rem .8rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td:first-child{overflow-wrap:anywhere}
th{font-weight:500;color:var(--soft)}
.n{text-align:right;font-variant-numeric:tabular-nums}
i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.5rem}
"""
_REMEDY = "name the folder of a training run"

Points = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: losses in nats a token, each with the tokens seen until then."""

    name: str
    training: Points
    held_out: Points


def read_curve(model: str) -> Curve:
    """The losses that a model folder's metrics.jsonl tells. InputError when there are none."""
    folder = Folder(model)
    if not folder.exists("metrics.jsonl"):
        raise InputError(f"'{model}' holds no metrics.jsonl", _REMEDY)
    lines = folder.read_bytes("metrics.jsonl").splitlines(keepends=True)
    place = folder.location("metrics.jsonl")
    n_tokens = 0
    training: Points = []
    held_out: Points = []
    for line in lines:
        if not line.endswith(b"\n"):
            break  # the run is within a line
        row = json_object(line, place, _REMEDY)
        try:
            n_tokens = int(row.get("tokens", n_tokens))
            for key, points in (("loss", training), ("validation_loss", held_out)):
                if key in row and math.isfinite(loss := float(row[key])):
                    points.append((n_tokens, loss))
        except (TypeError, ValueError) as error:
            raise InputError(f"'{place}' holds a row that is no measurement ({error})", _REMEDY) from None
    if n_tokens == 0 or not (training or held_out):
        raise InputError(f"'{place}' tells no loss after the first step", "wait until the run has made some")
    return Curve(model, _thinned(training), held_out)


def curve_page(curves: Sequence[Curve]) -> str:
    """The page: both losses of every run over the tokens, and a table of where each ended."""
    if not curves:
        raise ConfigError("no run is named", "e.g. webtext train curve build/model --out curve.html")
    rows = "".join(
        f'<tr><td><i style="background:{colour}"></i>{escape(curve.name)}</td>'
        f'<td class="n">{_furthest(curve):,}</td><td class="n">{_last(curve.training)}</td>'
        f'<td class="n">{_last(curve.held_out)}</td></tr>'
        for curve, colour in _coloured(curves)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>loss curves</title><style>{STYLE}</style></head><body><h1>Loss over the tokens seen</h1>"
        f"{losses_drawn(_coloured(curves))}"
        "<p>Thin: training, means of stretches. Thick, with a dot for each measurement: held out.</p>"
        '<table><tr><th>run</th><th class="n">tokens</th><th class="n">training loss</th>'
        f'<th class="n">held-out loss</th></tr>{rows}</table></body></html>\n'
    )


def losses_drawn(curves: Sequence[tuple[Curve, str]]) -> str:
    """Both losses of every run over the tokens, each run in its colour, as SVG for a page with STYLE."""
    lines: list[Line] = []
    for curve, colour in curves:

        def told(n: float, loss: float, name: str = curve.name) -> str:
            return f"{name}, {n:,.0f} tokens: held-out loss {loss:.4f}"

        lines.append(Line(curve.training, "training", colour))
        lines.append(Line(curve.held_out, "held-out", colour, told))
    return line_chart(
        lines, x_label="tokens seen", y_label="loss, nats a token", label="loss over the tokens seen", height=HEIGHT
    )


def _coloured(curves: Sequence[Curve]) -> list[tuple[Curve, str]]:
    return [(curve, COLOURS[i % len(COLOURS)]) for i, curve in enumerate(curves)]


def _thinned(points: Points) -> Points:
    """At most CURVE_POINTS points: each the end of its stretch, with the stretch's mean."""
    stride = -(-len(points) // CURVE_POINTS) or 1
    stretches = [points[i : i + stride] for i in range(0, len(points), stride)]
    return [(stretch[-1][0], sum(loss for _, loss in stretch) / len(stretch)) for stretch in stretches]


def _furthest(curve: Curve) -> int:
    return max(n for n, _ in (*curve.training, *curve.held_out))


def _last(points: Points) -> str:
    return f"{points[-1][1]:.4f}" if points else "not measured"
