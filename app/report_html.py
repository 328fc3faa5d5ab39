"""Draws a report as one self-contained page: inline style and SVG, no script, no address outside the page is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
:root{--ink:#1c2430;--soft:#66707e;--line:#dfe3e8;--kept:#2f7d5b;--dropped:#c9822b;--failed:#b3372f}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);max-width:68rem;margin:2rem auto;padding:0 1rem;background:#fff}
h1{font-size:1.6rem;margin-bottom:1rem}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%}
td,th{padding:.2rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.soft{color:var(--soft)}
.bar{height:.8rem;display:flex;border-radius:2px;overflow:hidden;background:var(--line);min-width:12rem}
.kept{background:var(--kept)}.dropped{background:var(--dropped)}.failed{background:var(--failed)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f7f9;padding:.4rem .6rem;margin:.2rem 0}
pre{font-size:.82rem;max-height:12rem;overflow:auto}
code{overflow-wrap:anywhere}
details{margin:.3rem 0}
summary{cursor:pointer}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.tiles{display:flex;flex-wrap:wrap;gap:1rem}
.tile{border:1px solid var(--line);border-radius:6px;padding:.6rem 1rem}
.tile b{font-size:1.3rem;display:block}
"""
WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 34


def render(report: Mapping[str, Any]) -> str:
    """The whole page. Every text from outside is escaped."""
    sections = [
        _tiles(report),
        _funnel(report["stages"]),
        _training(report["training"]),
        _dropped(report["dropped"]),
        _failures(report["failures"]),
        _corpus(report["corpus"]),
        _recipes(report["stages"]),
    ]
    title = f"webtext report: {escape(report['title'])}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n" + "\n".join(section for section in sections if section) + "\n</body></html>\n"
    )


def _tiles(report: Mapping[str, Any]) -> str:
    tiles = [(f"{stage['records']:,}", stage["name"]) for stage in report["stages"] if stage["name"] != "tokens"]
    if report["tokens"]:
        tiles += [(f"{n:,}", f"{split} tokens") for split, n in sorted(report["tokens"]["tokens"].items())]
    evaluation = (report["training"] or {}).get("evaluation") or {}
    tiles += [(f"{value:,.1f}", label.replace("_", " ")) for label, value in _perplexities(evaluation)]
    return (
        '<div class="tiles">' + "".join(f'<div class="tile"><b>{a}</b>{escape(b)}</div>' for a, b in tiles) + "</div>"
    )


def _perplexities(evaluation: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [
        (key, value) for key, value in evaluation.items() if "perplexity" in key and isinstance(value, (int, float))
    ]


def _funnel(stages: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for stage in stages:
        counts = stage["counts"]
        total = counts["records_in"] or 1
        parts = [("kept", "kept", counts["kept"])]
        parts += [("dropped", reason, n) for reason, n in counts["dropped"].items()]
        parts += [("failed", reason, n) for reason, n in counts["failed"].items()]
        bar = "".join(
            f'<div class="{css}" style="width:{100 * n / total:.3f}%" title="{escape(reason)}: {n:,}"></div>'
            for css, reason, n in parts
        )
        balance = "=" if sum(n for _, _, n in parts) == counts["records_in"] else "≠"
        rows.append(
            f'<tr><td><b>{stage["name"]}</b></td><td class="n">{counts["records_in"]:,} in {balance}</td>'
            f'<td><div class="bar">{bar}</div></td><td class="n">{_seconds(stage["seconds"])}</td></tr>'
        )
        for css, reason, n in parts:
            label = reason if css == "kept" else f"{css}: <code>{escape(reason)}</code>"
            rows.append(f'<tr><td></td><td class="n">{n:,}</td><td class="soft">{label}</td><td></td></tr>')
    return (
        "<h2>Funnel: records in = kept + dropped + failed</h2><table><tr><th>stage</th><th class=n>records</th>"
        f"<th></th><th class=n>time</th></tr>{''.join(rows)}</table>"
    )


def _training(training: Mapping[str, Any] | None) -> str:
    if training is None:
        return ""
    evaluation = training["evaluation"] or {}
    rows = "".join(
        f"<tr><td>{escape(key.replace('_', ' '))}</td><td class=n>{value:,.2f}</td></tr>"
        for key, value in _perplexities(evaluation)
    )
    table = f"<table><tr><th>held-out text</th><th class=n>perplexity per token</th></tr>{rows}</table>" if rows else ""
    curves = [("training", "#9db4d3", training["training_loss"]), ("held out", "#b3372f", training["validation_loss"])]
    sample = evaluation.get("sample")
    text = f"<h2>A sample of the model</h2><pre>{escape(sample)}</pre>" if sample else ""
    return f"<h2>Training</h2>{_curve_svg(curves, 'step', 'loss, nats per token')}{table}{text}"


def _curve_svg(curves: Sequence[tuple[str, str, Sequence[Sequence[float]]]], x_name: str, y_name: str) -> str:
    points = [point for _, _, curve in curves for point in curve]
    if len(points) < 2:
        return '<p class="soft">too few steps for a curve</p>'
    x_max = max(point[0] for point in points) or 1
    low, high = min(point[1] for point in points), max(point[1] for point in points)
    high += (high - low or 1) * 0.05

    def x(value: float) -> float:
        return LEFT + value / x_max * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low or 1) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in range(5):
        level = low + (high - low) * tick / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#dfe3e8"/>'
            f'<text x="{LEFT - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.2f}</text>'
        )
        step = x_max * tick / 4
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{step:,.0f}</text>')
    for i, (name, colour, curve) in enumerate(curves):
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in curve)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{WIDTH - 120}" y="{TOP + 18 * i}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - 102}" y="{TOP + 11 + 18 * i}">{name}</text>')
    axis = (
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 1}" text-anchor="middle">{x_name}</text><text x="4" y="10">{y_name}</text>'
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{y_name}">{"".join(parts)}{axis}</svg>'


def _dropped(reasons: Sequence[Mapping[str, Any]]) -> str:
    if not reasons:
        return ""
    blocks = []
    for reason in reasons:
        rows = "".join(_dropped_row(row) for row in reason["samples"])
        blocks.append(
            f"<details><summary><code>{escape(reason['reason'])}</code> ({escape(reason['stage'])}): "
            f"{reason['records']:,} documents</summary><table>{rows}</table></details>"
        )
    return "<h2>Dropped documents, with samples</h2>" + "".join(blocks)


def _dropped_row(row: Mapping[str, Any]) -> str:
    measured = "" if row["value"] is None else f"{row['value']:.4g}"
    threshold = "" if row["threshold"] is None else f" against {row['threshold']:.4g}"
    twin = f"<br>duplicate of <code>{escape(row['duplicate_of'])}</code>" if row["duplicate_of"] else ""
    return (
        f"<tr><td><code>{escape(row['url'] or row['id'])}</code>{twin}<pre>{escape(row['text_start'])}</pre></td>"
        f"<td class=n>{measured}{threshold}</td></tr>"
    )


def _failures(failures: Sequence[Mapping[str, Any]]) -> str:
    if not failures:
        return ""
    rows = "".join(
        f"<tr><td>{escape(f['stage'])}</td><td><code>{escape(f['reason'])}</code></td><td><code>{escape(f['id'])}</code></td>"
        f"<td class=soft>{escape(f['cause'])}</td></tr>"
        for f in failures[:200]
    )
    return f"<h2>Failed records</h2><table>{rows}</table>"


def _corpus(corpus: Mapping[str, Any] | None) -> str:
    if corpus is None:
        return ""
    domains = "".join(f"<tr><td>{escape(name)}</td><td class=n>{n:,}</td></tr>" for name, n in corpus["domains"])
    rows = "".join(
        f"<tr><td><code>{escape(row['url'] or row['id'])}</code><pre>{escape(row['text'])}</pre></td>"
        f"<td class=n>{row['characters']:,} characters<br>karma {row['karma']}<br>{escape(row['split'])}</td></tr>"
        for row in corpus["samples"]
    )
    return (
        f"<h2>Corpus</h2><p>{corpus['documents']:,} documents, {corpus['characters']:,} characters.</p>"
        f"{_histogram_svg(corpus['length_histogram'])}"
        f"<details><summary>domains</summary><table>{domains}</table></details>"
        f"<details><summary>kept documents, a sample</summary><table>{rows}</table></details>"
    )


def _histogram_svg(bins: Sequence[Sequence[int]]) -> str:
    bins = [b for i, b in enumerate(bins) if any(n for _, n in bins[: i + 1]) and any(n for _, n in bins[i:])]
    if not bins:
        return ""
    tallest = max(n for _, n in bins)
    width = (WIDTH - LEFT - RIGHT) / len(bins)
    parts = []
    for i, (bound, n) in enumerate(bins):
        height = n / tallest * 120
        x = LEFT + i * width
        parts.append(
            f'<rect x="{x:.1f}" y="{134 - height:.1f}" width="{width - 2:.1f}" height="{height:.1f}" fill="#2b62a8">'
            f"<title>up to {bound:,} characters: {n:,}</title></rect>"
        )
        if i % max(1, len(bins) // 8) == 0:
            parts.append(f'<text x="{x + width:.1f}" y="150" text-anchor="middle">{bound:,}</text>')
    label = (
        f'<text x="{WIDTH / 2}" y="166" text-anchor="middle">characters in a document (upper bound of each bar)</text>'
    )
    return f'<svg viewBox="0 0 {WIDTH} 170" width="100%" role="img" aria-label="document lengths">{"".join(parts)}{label}</svg>'


def _recipes(stages: Sequence[Mapping[str, Any]]) -> str:
    blocks = []
    for stage in stages:
        recipe = stage["recipe"]
        rows = "".join(
            f"<tr><td>{escape(key)}</td><td><code>{escape(str(value))}</code></td></tr>"
            for key, value in {**recipe["settings"], **recipe["versions"]}.items()
        )
        note = "" if stage["reproducible"] else " · not reproducible: records that killed workers were set aside"
        blocks.append(
            f"<details><summary>{stage['name']}: {stage['parts']:,} parts, {stage['bytes']:,} bytes{note}</summary>"
            f"<table>{rows}</table></details>"
        )
    return "<h2>Recipes</h2>" + "".join(blocks)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f} s"
