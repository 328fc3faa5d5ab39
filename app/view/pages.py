"""The viewer's pages as HTML. Every value of a build goes through `shown`, which makes it plain, visible text."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from webtext.app.inspect.trace import Cluster, Trace
from webtext.app.view.search import PAGE_ROWS, SETS, Query
from webtext.base.visible import visible

TITLES = {"documents": "all documents", "corpus": "kept documents", "dropped": "decisions to drop"}
TEXT_CHARACTERS = 200_000
CLUSTER_MEMBERS = 50
KEYS = (
    ("/", "to the search"),
    ("j, k", "next and previous row; Enter opens it"),
    ("n, p", "next and previous page"),
    ("o, s, t", "overview, search, training"),
    ("b", "back"),
    ("?", "these keys"),
)


def page(title: str, body: str) -> str:
    """Return a whole page; `title` is plain text, `body` HTML."""
    return "".join([*page_start(title), body, PAGE_END])


def page_start(title: str) -> Iterator[str]:
    """Yield a page up to its content, for one whose content comes in pieces; PAGE_END completes it."""
    keys = "".join(f"<dt>{escape(key)}</dt><dd>{escape(what)}</dd>" for key, what in KEYS)
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>' + plain(title, 100) + " · webtext</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="stylesheet" href="/style.css">'
        '<script src="/keys.js" defer></script></head><body><header><nav aria-label="views">'
        '<a href="/" data-key="o">overview</a> <a href="/search" data-key="s">search</a> '
        f'<a href="/training" data-key="t">training</a></nav><details id="keys"><summary>keys</summary><dl>{keys}</dl>'
        f"</details></header><main><h1>{shown(title, 200)}</h1>"
    )


PAGE_END = "</main></body></html>\n"


def overview(title: str, stages: Sequence[tuple[str, Mapping[str, Any]]], missing: Sequence[str]) -> str:
    """Return the funnel: each stage's records in, kept, dropped and failed by reason."""
    rows = []
    for name, counts in stages:
        lost = [(reason, n) for kind in ("dropped", "failed") for reason, n in counts[kind].items()]
        reasons = [
            (_searched(reason) if name == "corpus" and reason in counts["dropped"] else shown(reason)) + f" {n:,}"
            for reason, n in sorted(lost, key=lambda item: -item[1])
        ]
        rows.append([escape(name), f"{counts['records_in']:,}", f"{counts['kept']:,}", ", ".join(reasons)])
    note = f"<p>Not made yet: {escape(', '.join(missing))}.</p>" if missing else ""
    return page(title, _table(["stage", "in", "kept", "dropped or failed"], rows, numbers=(1, 2)) + note)


def search_form(query: Query, reasons: Sequence[str]) -> str:
    """Return the form of a search, with the query's values."""
    options = "".join(
        f'<option value="{name}"{" selected" * (name == query.set)}>{TITLES[name]}</option>' for name in SETS
    )
    known = "".join(f'<option value="{escape(reason)}">' for reason in reasons)
    fields = [
        ("text", "text", "search", ""),
        ("domain", "domain", "text", ""),
        ("language", "language", "text", 'size="4"'),
        ("reason", "reason", "text", 'list="reasons"'),
        ("karma from", "min_karma", "text", 'inputmode="numeric" size="6"'),
        ("from", "since", "text", 'placeholder="2019-12-31" size="10"'),
        ("to", "until", "text", 'placeholder="2019-12-31" size="10"'),
    ]
    inputs = "".join(
        f'<label>{label} <input type="{kind}" name="{name}" value="{escape(getattr(query, name))}" {more}></label>'
        for label, name, kind, more in fields
    )
    return (
        f'<form action="/search" role="search"><label>in <select name="set">{options}</select></label>{inputs}'
        f'<datalist id="reasons">{known}</datalist><button>search</button></form>'
    )


def results(query: Query, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of a search as they are found, then links to the pages before and after."""
    yield '<ol class="rows">'
    n = 0
    for n, row in enumerate(rows, 1):
        if n <= PAGE_ROWS:
            yield f"<li>{_row(row)}</li>"
    yield "</ol>"
    number = query.first_row // PAGE_ROWS + 1
    before = (
        f'<a href="{escape(query.url(page=str(number - 1)))}" data-key="p" rel="prev">previous</a>'
        if number > 1
        else ""
    )
    after = (
        f'<a href="{escape(query.url(page=str(number + 1)))}" data-key="n" rel="next">next</a>' if n > PAGE_ROWS else ""
    )
    yield f'<p class="soft" id="end">{"nothing found" if not n else f"page {number}"} {before} {after}</p>'


def _row(row: Mapping[str, Any]) -> str:
    name = row.get("title") or row["url"] or row["id"]
    about = [shown(row[each]) for each in ("domain", "language") if row.get(each)]
    about += [f"karma {row['karma']:,}"] if row.get("karma") is not None else []
    about += [day(row["date"])] if row.get("date") is not None else []
    about += [f"{shown(row['reason'])}{_measured(row)}"] if row.get("reason") else []
    return f'<a href="{document_url(row["id"])}">{shown(name, 160)}</a><br><small>{" · ".join(about)}</small>'


def document(trace: Trace, cluster: Cluster | None, text: str, tokens: str) -> str:
    """Return everything about a document; `tokens` is HTML."""
    row = trace.document or {}
    verdict = f"dropped: {shown(trace.reason)}" if trace.stage == "dropped" else f"in {escape(trace.stage)}"
    verdict += f" ({shown(trace.reason)})" if trace.reason and trace.stage != "dropped" else ""
    decision = trace.decision
    facts = [
        ("outcome", verdict + (_measured(decision) if decision else "")),
        ("address", _external(row.get("url") or trace.url)),
    ]
    facts += [
        (name, shown(row[name]))
        for name in ("id", "domain", "language", "karma", "split", "author")
        if row.get(name) is not None
    ]
    facts += [("captured", day(row["date"]))] if row.get("date") is not None else []
    if trace.twin:
        facts.append(
            (
                "instead",
                f'<a href="{document_url(trace.twin["id"])}">{shown(trace.twin["url"] or trace.twin["id"])}</a>',
            )
        )
    facts += [("tokens", f"{shown(each['shard'])} from {each['start']:,}, {each['length']:,}") for each in trace.tokens]
    parts = ["<table>", *(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in facts), "</table>"]
    if trace.rules:
        parts += [
            "<h2>Rules</h2>",
            _table(["measure", "value", "bound", "verdict"], list(map(_rule, trace.rules)), numbers=(1,)),
        ]
    posts = [post for link in trace.links or [row] for post in link.get("posts") or ()]
    if posts:
        parts += [
            "<h2>Votes</h2>",
            _table(["community", "score", "posted", "post"], list(map(_post, posts)), numbers=(1,)),
        ]
    if cluster is not None:
        parts += ["<h2>Duplicates</h2>", _cluster(cluster)]
    if trace.template:
        parts += [_folded("Left out as the host's template", "\n".join(trace.template))]
    parts += [f'<h2>Text</h2><pre tabindex="0">{shown(text, TEXT_CHARACTERS)}</pre>']
    parts += [f"<details><summary>Tokens</summary>{tokens}</details>"] if tokens else []
    return page(row.get("title") or row.get("url") or trace.url, "".join(parts))


def trace_only(trace: Trace, text: str) -> str:
    """Return what is known of a URL that became no document."""
    return page(trace.url, f'<pre tabindex="0">{shown(text, TEXT_CHARACTERS)}</pre>')


def training(is_there: bool) -> str:
    """Return the frame around the curves, which reload by themselves."""
    frame = '<iframe src="/training/curves" title="loss, rate, gradient and speed"></iframe>'
    return page(
        "training",
        frame if is_there else "<p>Nothing has been trained in this build yet: run <code>webtext train run</code>.</p>",
    )


def failure(title: str, lines: Sequence[str]) -> str:
    """Return the page of an error."""
    return page(title, "".join(f"<p>{shown(line, 1000)}</p>" for line in lines))


def shown(value: Any, most: int = 2000) -> str:
    """Return a value as HTML text with a direction of its own, like `plain`."""
    return f"<bdi>{plain(value, most)}</bdi>"


def plain(value: Any, most: int) -> str:
    r"""Return a value as HTML text, cut to `most` characters, with visible control characters.

    >>> plain("<b>\x1b\u202e", 40), plain("abcdef", 4)
    ('&lt;b&gt;\\x1b\\u202e', 'abcd… and 2 more characters')
    """
    text = str(value)
    more = f"… and {len(text) - most:,} more characters" if len(text) > most else ""
    return escape(visible(text[:most])) + more


def document_url(identifier: str) -> str:
    """Return the address of a document's page, as HTML."""
    return escape(f"/document?id={quote(identifier, safe='')}")


def day(seconds: int) -> str:
    """Return the UTC date of a time, or the number if no calendar has it."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _external(url: str) -> str:
    safe = url.startswith(("http://", "https://"))
    return f'<a href="{escape(url)}" rel="noopener noreferrer nofollow">{shown(url)}</a>' if safe else shown(url)


def _searched(reason: str) -> str:
    return f'<a href="{escape(Query(set="dropped", reason=reason).url())}">{shown(reason)}</a>'


def _measured(row: Mapping[str, Any]) -> str:
    if row.get("value") is None:
        return ""
    threshold = f", threshold {row['threshold']:,.4g}" if row.get("threshold") is not None else ""
    return f" ({row['value']:,.4g}{threshold})"


def _rule(rule: Mapping[str, Any]) -> list[str]:
    value = "unknown" if rule["value"] is None else f"{rule['value']:,.6g}"
    bound = f"{'at least' if rule['bound'] == 'min' else 'at most'} {rule['threshold']:,.6g}"
    return [
        shown(rule["column"]),
        value,
        bound,
        f"<strong>drops: {shown(rule['rule'])}</strong>" if rule["drops"] else "passes",
    ]


def _post(post: Mapping[str, Any]) -> list[str]:
    score = f"{post['score']:,}" if post.get("score") is not None else ""
    created = day(post["created"]) if post.get("created") is not None else ""
    return [shown(post.get("subreddit") or ""), score, created, shown(f"{post['source']} {post['post_id']}")]


def _cluster(cluster: Cluster) -> str:
    kept = cluster.kept
    rows = [["kept", f'<a href="{document_url(kept["id"])}">{shown(kept["url"] or kept["id"])}</a>', ""]]
    for row in sorted(cluster.dropped, key=lambda row: (-(row["value"] or 0), row["id"]))[:CLUSTER_MEMBERS]:
        rows.append(
            [
                shown(row["reason"]),
                f'<a href="{document_url(row["id"])}">{shown(row["url"] or row["id"])}</a>',
                _measured(row),
            ]
        )
    more = len(cluster.dropped) - CLUSTER_MEMBERS
    return _table(["", "document", "similarity"], rows) + (f"<p>and {more:,} more</p>" if more > 0 else "")


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{shown(text, TEXT_CHARACTERS)}</pre></details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table; cells are HTML."""

    def line(cells: Sequence[str], kind: str) -> str:
        return "".join(f"<{kind}{' class=n' if i in numbers else ''}>{cell}</{kind}>" for i, cell in enumerate(cells))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide" tabindex="0"><table><tr>{line(head, "th")}</tr>{body}</table></div>'
