"""Draw a report as one self-contained page: inline style and SVG, no script, nothing loaded from elsewhere.

All untrusted text goes through `escape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from webtext import __version__
from webtext.app.reports.moved_rules import FACTORS
from webtext.app.reports.report_charts import CURVES, histogram, karma_by_year, loss_curves, other_curves, sankey
from webtext.app.reports.report_style import STYLE

Row = Mapping[str, Any]

STAGE_TITLES = {
    "links": "links: posts that voted",
    "pages": "pages: fetched links",
    "documents": "documents: pages with text",
    "corpus": "corpus: documents kept",
    "tokens": "tokens: documents packed",
}
PERPLEXITIES = {
    "perplexity_before": "model before training",
    "unigram_perplexity": "unigram table",
    "bigram_perplexity": "interpolated bigram",
    "perplexity": "model",
}
"""Evaluation key -> label, in the order shown."""


_SAMPLE = "this is a sample of {} of the links, not a whole build; estimate.json has the estimate for the whole"


def render(report: Row) -> str:
    """Return the whole page."""
    title = escape(report["title"])
    sections = [
        _header(report),
        *map(_alarm, report["alarms"]),
        *map(_stale, [_SAMPLE.format(report["sample"])] if report["sample"] is not None else []),
        *map(_stale, report["stale"]),
        _funnel(report["stages"]),
        _training(report["training"]),
        _paper(report["paper"]),
        _dropped(report["dropped"], report["lengths"], report["dropped_domains"]),
        _rules(report["rules"], report["histograms"]),
        _clusters(report["clusters"], report["cluster_sizes"]),
        _failures(report["failures"], report["n_failures"]),
        _corpus(report["corpus"]),
        _tokenizer(report["tokens"]),
        _costs(report["stages"]),
        _recipes(report["stages"]),
    ]
    return page(f"webtext report: {title}", sections)


def page(title: str, sections: Iterable[str]) -> str:
    """Return a self-contained page from an escaped title and sections of markup; empty sections are left out."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(section for section in sections if section)
        + "\n</body></html>\n"
    )


def _header(report: Row) -> str:
    """Return the header: each stage's output as a number."""
    tiles: list[tuple[str, str]] = []
    for stage in report["stages"]:
        kept = stage["counts"]["kept"]
        names = {"pages": "pages fetched", "corpus": "documents in the corpus"}
        if stage["name"] != "tokens":
            tiles.append(
                (f"{kept if stage['name'] == 'pages' else stage['records']:,}", names.get(stage["name"], stage["name"]))
            )
    if report["lengths"] is not None and report["lengths"]["kept_characters"]:
        tiles.append((_short(report["lengths"]["kept_characters"]), "characters"))
    for split, n in sorted((report["tokens"] or {"tokens": {}})["tokens"].items()):
        tiles.append((_short(n), {"train": "tokens to train on", "validation": "tokens held out"}.get(split, split)))
    perplexity = ((report["training"] or {}).get("evaluation") or {}).get("perplexity")
    if perplexity is not None:
        tiles.append((f"{perplexity:,.1f}", "held-out perplexity"))
    items = "".join(f"<li><b>{value}</b><span>{escape(name)}</span></li>" for value, name in tiles)
    seconds = sum(stage["seconds"] or 0 for stage in report["stages"])
    return (
        f"<header><h1>{escape(report['title'])}</h1><p>A build by webtext {__version__}, from votes to tokens in "
        f'{_duration(seconds)}.</p></header><ul class="way">{items}</ul>'
    )


def _alarm(alarm: Row) -> str:
    where = f"{alarm['ratio']:.0%} of what came into {escape(alarm['stage'])}"
    if "reason" in alarm:
        what = f"<code>{escape(alarm['reason'])}</code> took out {_count(alarm['records'], 'record')}"
    elif "cluster" in alarm:
        n = _count(alarm["records"], "duplicate")
        what = f"one document took out {n} of itself: <code>{escape(alarm['cluster'])}</code>"
    else:
        (of,) = {"domain", "source"} & alarm.keys()
        n, where = _count(alarm["records"], "document"), f"{alarm['ratio']:.1%} of those compared"
        what = f"the {of} <code>{escape(alarm[of])}</code> lost {n} as duplicates"
    return f'<div class="alarm" role="alert"><b>Look here:</b> {what}, {where}.</div>'


def _stale(sentence: str) -> str:
    return f'<div class="alarm" role="alert"><b>Look here:</b> {escape(sentence)}</div>'


def _funnel(stages: Sequence[Row]) -> str:
    key = "".join(f'<span><i class="{name}"></i>{name}</span>' for name in ("kept", "dropped", "failed"))
    return (
        '<h2>The funnel</h2><p class="soft">At every stage, records in = kept + dropped + failed.</p>'
        + _wide(sankey(stages))
        + f'<p class="key">{key}</p>'
        + "".join(map(_stage, stages))
    )


def _stage(stage: Row) -> str:
    counts = stage["counts"]
    total = counts["records_in"]
    reasons = [("dropped", reason, n) for reason, n in counts["dropped"].items()]
    reasons += [("failed", reason, n) for reason, n in counts["failed"].items()]
    reasons.sort(key=lambda item: -item[2])
    bar = "".join(
        f'<i class="{css}" style="width:{100 * n / (total or 1):.3f}%" title="{escape(reason)}: {n:,}"></i>'
        for css, reason, n in (("kept", "kept", counts["kept"]), *reasons)
        if n
    )
    items = "".join(
        f'<li><i class="{css}"></i><code>{escape(reason)}</code> <b>{n:,}</b> <span class="soft">{_share(n, total)}</span></li>'
        for css, reason, n in reasons
    )
    balance = "=" if counts["kept"] + sum(n for _, _, n in reasons) == total else "≠"
    sums = [counts["kept"], sum(counts["dropped"].values()), sum(counts["failed"].values())]
    return (
        f'<div class="stage"><p><b>{escape(STAGE_TITLES[stage["name"]])}</b><span class="soft">'
        f"{total:,} {stage['unit']} {balance} {sums[0]:,} + {sums[1]:,} + {sums[2]:,}</span></p>"
        f'<div class="bar">{bar}</div><ul class="reasons">{items}</ul></div>'
    )


def _training(training: Row | None) -> str:
    if training is None:
        return ""
    evaluation = training["evaluation"] or {}
    shown = [(name, label, evaluation[name]) for name, label in PERPLEXITIES.items() if evaluation.get(name)]
    longest = max((math.log(value) for _, _, value in shown), default=1.0) or 1.0
    rows = "".join(
        f'<tr><td>{label}</td><td class="n"><b>{value:,.2f}</b></td>'
        f"{_meter('model' if name == 'perplexity' else 'table', math.log(value) / longest)}</tr>"
        for name, label, value in shown
    )
    table = (
        '<h3>Held-out perplexity</h3><p class="soft">Per token, lower is better; the bars are logarithmic.</p>'
        f"<table>{rows}</table>"
    )
    sample = evaluation.get("sample")
    text = f"<h3>Sample from the model</h3><pre>{escape(sample)}</pre>" if sample else ""
    key = '<span><i class="table"></i>training, averaged</span><span><i class="model"></i>held out</span>'
    curves = _figure(loss_curves(training["training_loss"], training["validation_loss"]), f"Loss by step. {key}")
    names = ", ".join(label for name, label in CURVES.items() if len(training["curves"].get(name, ())) > 1)
    if names:
        drawn = "".join(map(_wide, other_curves(training["curves"])))
        curves += f"<details><summary>{names}</summary>{drawn}</details>"
    return f"<h2>Training</h2>{curves}{table if rows else ''}{text}"


def _dropped(reasons: Sequence[Row], lengths: Row | None, domains: Sequence[tuple[str, int]]) -> str:
    bars = _histogram(lengths) if lengths else ""
    if not reasons and not bars:
        return ""
    blocks = "".join(
        f"<details><summary><code>{escape(reason['reason'])}</code>"
        f'<span class="n">{reason["records"]:,} by {escape(reason["stage"])}</span></summary>'
        f"{''.join(map(_dropped_document, reason['samples']))}</details>"
        for reason in reasons
    )
    about = "Each reason with a random choice of what it dropped." if reasons else "Nothing was dropped."
    if domains:
        table = _bars([(escape(name), n) for name, n in domains])
        blocks += f"<details><summary>the domains that lost most documents</summary>{table}</details>"
    return f'<h2>Dropped documents</h2><p class="soft">{about}</p>{bars}{blocks}'


def _dropped_document(row: Row) -> str:
    measured = f"{row['value']:.4g}" if row["value"] is not None else ""
    if row["threshold"] is not None:
        measured += f", threshold {row['threshold']:.4g}"
    twin = f" · duplicate of <code>{escape(row['duplicate_of'])}</code>" if row["duplicate_of"] else ""
    trace = f"<details><summary>its path</summary><pre>{escape(row['trace'])}</pre></details>" if row["trace"] else ""
    return _article(row, f"{measured}{twin}") + trace


def _rules(rules: Sequence[Row], histograms: Sequence[Row]) -> str:
    drawn = "".join(map(_histogram, histograms))
    if not rules:
        return f"<h2>Signals</h2>{drawn}" if drawn else ""
    factors = "".join(f'<th class="n">× {factor:g}</th>' for factor in FACTORS)
    rows = "".join(
        f"<tr><td><code>{escape(rule['rule'])}</code><br>"
        f'<span class="soft">{escape(rule["column"])} {"below" if rule["bound"] == "min" else "above"} {rule["threshold"]:,.4g}'
        f'</span></td><td class="n">{rule["alone"]:,}</td>'
        + "".join(f'<td class="n" title="{threshold:,.4g}">{n:,}</td>' for threshold, n in rule["moved"])
        + "</tr>"
        for rule in rules
    )
    about = (
        "Documents that each rule drops with its threshold multiplied, and those that it alone drops now. A document can "
        "break several rules; it is counted under one reason above."
    )
    return (
        f'<h2>Rules, and what moving them would change</h2><p class="soft">{about}</p><div class="wide" tabindex="0"><table>'
        f'<tr><th>rule</th><th class="n">alone</th>{factors}</tr>{rows}</table></div>{drawn}'
    )


def _clusters(clusters: Iterable[Row], sizes: Sequence[tuple[int, int]]) -> str:
    blocks = []
    for cluster in clusters:
        kept = cluster["kept"] or {"id": cluster["id"], "url": None, "text_start": "", "karma": None}
        karma = f"karma {kept['karma']:,} · " if kept["karma"] is not None else ""
        name = escape(kept["url"] or cluster["id"])
        stays = kept["text_start"]
        members = "".join(_article(row, _similar(row), marked(row["text_start"], stays)) for row in cluster["members"])
        blocks.append(
            f'<details><summary><code>{name}</code><span class="n">{cluster["dropped"]:,} dropped for it</span></summary>'
            f'<div class="pair"><div>{_article(kept, f"{karma}stays")}</div><div>{members}</div></div></details>'
        )
    about = "Each kept document beside some of its duplicates. Words that it hasn't got are marked."
    if not blocks:
        return ""
    table = _bars([(f"up to {size:,} documents", n) for size, n in sizes])
    return (
        f"<h2>Clusters of duplicates</h2><details><summary>by size</summary>{table}</details><h3>The largest</h3>"
        f'<p class="soft">{about}</p>{"".join(blocks)}'
    )


def _failures(failures: Sequence[Row], n_failures: int) -> str:
    if not failures:
        return ""
    rows = "".join(
        f"<tr><td>{escape(row['stage'])}</td><td><code>{escape(row['reason'])}</code></td><td><code>{escape(row['id'])}</code>"
        f'<br><span class="soft">{escape(row["cause"])}</span></td></tr>'
        for row in failures
    )
    more = f" The first {len(failures):,} are shown." if n_failures > len(failures) else ""
    return (
        f'<h2>Failed records</h2><p class="soft">{_count(n_failures, "record")} could not be processed.{more}</p>'
        f"<details><summary>which, and why</summary><table>{rows}</table></details>"
    )


def _corpus(corpus: Row | None) -> str:
    if corpus is None:
        return ""
    splits = ", ".join(f"{n:,} {split}" for split, n in corpus["splits"].items())
    domains = _bars([(escape(name), n) for name, n in corpus["domains"]])
    karma = _bars([(f"{bound:,} or more", n) for bound, n in corpus["karma"]])
    years = _bars([(str(year), n) for year, n in corpus["years"]])
    texts = "".join(_article(row, _about_kept(row)) for row in corpus["samples"])
    grid = karma_by_year(corpus["karma_by_year"])
    over_time = (
        _figure(grid, "Documents by the year of their first vote and their karma; darker are more.") if grid else ""
    )
    return (
        f'<h2>The corpus</h2><p class="soft">{_count(corpus["documents"], "document")} of '
        f"{_count(corpus['n_domains'], 'domain')}: {splits}.</p>"
        f"{over_time}<details><summary>the domains with the most documents</summary>{domains}</details>"
        f"<details><summary>by karma, each up to the next</summary>{karma}</details>"
        f"<details><summary>by the year of the first vote</summary>{years}</details>"
        f"<h3>A random choice of kept documents</h3>{texts}"
    )


def _bars(counts: Sequence[tuple[str, int]]) -> str:
    most = max((n for _, n in counts), default=1)
    rows = (f'<tr><td>{name}</td><td class="n">{n:,}</td>{_meter("kept", n / most)}</tr>' for name, n in counts)
    return f"<table>{''.join(rows)}</table>"


def _about_kept(row: Row) -> str:
    karma = f"karma {row['karma']:,} · " if row["karma"] is not None else ""
    title = f"<b>{escape(row['title'])}</b> · " if row["title"] else ""
    return f"{title}{karma}{row['characters']:,} characters · {escape(row['split'])}"


def _similar(row: Row) -> str:
    value = "" if row["value"] is None else f" {row['value']:.3g}"
    return f"{escape(row['reason'])}{value}"


def marked(text: str, other: str) -> str:
    """Return a text, escaped, with the words marked that another text lacks at that place."""
    words, others = re.split(r"(\s+)", text), re.split(r"(\s+)", other)
    found = []
    for kind, _, _, start, end in SequenceMatcher(None, others, words, autojunk=False).get_opcodes():
        run = escape("".join(words[start:end]))
        found.append(run if kind == "equal" or not run.strip() else f"<mark>{run}</mark>")
    return "".join(found)


def _wide(drawing: str) -> str:
    return f'<div class="wide chart" tabindex="0">{drawing}</div>' if drawing else ""


def _figure(drawing: str, caption: str) -> str:
    return f'<figure>{_wide(drawing)}<figcaption class="key">{caption}</figcaption></figure>'


def _histogram(found: Row) -> str:
    key = '<span><i class="kept"></i>kept</span><span><i class="dropped"></i>dropped</span>'
    drawn = histogram(found)
    return _figure(drawn, f"Documents by <code>{escape(found['column'])}</code>. {key}") if drawn else ""


def _article(row: Row, about: str, text: str | None = None) -> str:
    """Return one document: its URL, a description and the start of its text (both already escaped)."""
    name = escape(row["url"] or row["id"])
    return f'<article><code>{name}</code><p class="soft">{about}</p><pre>{text or escape(row["text_start"])}</pre></article>'


def _recipes(stages: Sequence[Row]) -> str:
    blocks = []
    for stage in stages:
        recipe = stage["recipe"]
        rows = "".join(
            f"<tr><td>{escape(key)}</td><td><code>{escape(str(value))}</code></td></tr>"
            for key, value in {**recipe["settings"], **recipe["versions"]}.items()
        )
        time = f" · {_duration(stage['seconds'])}" if stage["seconds"] is not None else ""
        is_killed = (
            not stage["reproducible"] and stage["name"] != "pages"
        )  # the web may answer differently another time
        note = " · not reproducible: records that killed workers were set aside" if is_killed else ""
        about = f"{_count(stage['parts'], 'part')} · {_bytes(stage['bytes'])}{time}{note}"
        blocks.append(
            f'<details><summary>{stage["name"]}<span class="n">{about}</span></summary><table>{rows}</table></details>'
        )
    what = "Everything that can change a record: settings, and versions of the libraries that decide content."
    return f'<h2>Recipes</h2><p class="soft">{what}</p>{"".join(blocks)}'


def _paper(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    sizes = list(dict.fromkeys(size for row in rows for size in row["paper"]))
    head = "".join(f'<th class="n">{escape(size)}</th>' for size in ("this model", *sizes))
    lines = "".join(
        f'<tr><td>{escape(row["task"])}<br><span class="soft">{escape(row["measure"])}</span></td>'
        f'<td class="n"><b>{row["ours"]:.4g}</b></td>'
        + "".join(
            f'<td class="n">{row["paper"][size]:.4g}</td>' if size in row["paper"] else "<td></td>" for size in sizes
        )
        + "</tr>"
        for row in rows
    )
    about = "Table 3 of Radford et al. 2019; the models of the paper were measured by its authors."
    return (
        f'<h3>Beside the GPT-2 paper</h3><p class="soft">{about}</p><div class="wide" tabindex="0">'
        f"<table><tr><th>set</th>{head}</tr>{lines}</table></div>"
    )


def _tokenizer(tokens: Row | None) -> str:
    if tokens is None:
        return ""
    per_token, per_document = tokens["characters_per_token"], tokens["tokens_per_document"]
    rows = [
        ("vocabulary, ids", tokens["vocab_size"] and f"{tokens['vocab_size']:,}"),
        ("characters per token", per_token and f"{per_token:.3f}"),
        ("tokens per document", per_document and f"{per_document:,.1f}"),
        *((f"documents, {split}", f"{n:,}") for split, n in sorted(tokens["documents"].items())),
    ]
    cells = "".join(f'<tr><td>{escape(name)}</td><td class="n">{value}</td></tr>' for name, value in rows if value)
    return f"<h2>Tokens</h2><table>{cells}</table>"


def _costs(stages: Sequence[Row]) -> str:
    """Return the table of what each stage took; a time is of the stage's last run, which may have made a few parts only."""
    rows = "".join(
        f'<tr><td>{escape(stage["name"])}</td><td class="n">{_duration(stage["seconds"])}</td>'
        + "".join(
            f'<td class="n">{"" if stage[name] is None else write(stage[name])}</td>'
            for name, write in (("cpu_seconds", _duration), ("peak_bytes", _bytes))
        )
        + f'<td class="n">{_bytes(stage["bytes"])}</td></tr>'
        for stage in stages
        if stage["seconds"] is not None
    )
    head = "".join(f'<th class="n">{name}</th>' for name in ("time", "CPU", "memory of a worker", "written"))
    about = "Of the last run of each stage: a resumed run makes only the parts that were missing."
    return (
        f'<h2>Time, CPU and memory</h2><p class="soft">{about}</p><div class="wide" tabindex="0">'
        f"<table><tr><th>stage</th>{head}</tr>{rows}</table></div>"
        if rows
        else ""
    )


def _meter(css: str, ratio: float) -> str:
    return f'<td class="meter"><i class="{css}" style="width:{100 * ratio:.1f}%"></i></td>'


def _share(n: int, total: int) -> str:
    return f"{n / total:.1%}" if total else ""


def _short(n: int) -> str:
    """Return a count in three or four digits.

    >>> [_short(n) for n in (9_999, 16_234, 606_400, 1_912_000)]
    ['9,999', '16.2 k', '606 k', '1.91 M']
    """
    if n < 10_000:
        return f"{n:,}"
    unit, size = next(
        (unit, size) for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)) if n >= size
    )
    return f"{n / size:.{max(0, 3 - len(str(n // size)))}f} {unit}"


def _bytes(n: int) -> str:
    short = _short(n)
    return f"{short}B" if short[-1].isalpha() else f"{short} B"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
