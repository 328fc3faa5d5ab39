"""Print traces as text: one line per stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webtext.app.inspect.trace import Cluster, TokenTrace, Trace
from webtext.base.html_pages.rendering import day

LABEL_WIDTH = 10
MAX_POSTS = 5
MAX_OTHERS = 5
NO_TEXT = "(removed on request: the text is not shown)"


def trace_text(trace: Trace) -> str:
    """Return the outcome and reason, then every stage from the posts to the tokens."""
    reason = f": {trace.reason}" if trace.reason else ""
    others = f"further documents of this URL: {', '.join(trace.others[:MAX_OTHERS])}"
    more = f" and {len(trace.others) - MAX_OTHERS:,} more" if len(trace.others) > MAX_OTHERS else ""
    lines = [f"{trace.url} ended in {trace.stage}{reason}", *_stations(trace)]
    return "\n".join([*lines, others + more] if trace.others else lines)


def token_text(found: TokenTrace) -> str:
    """Return the document of a token, then its trace."""
    origin = found.origin
    text = f"{origin.shard}:{origin.offset} is token {origin.token_in_document:,} of document {origin.id}"
    if found.trace is None:
        return f"{text}, row {origin.row:,} of {origin.source_set}/{origin.source_part}"
    return f"{text}\n{trace_text(found.trace)}"


def cluster_text(cluster: Cluster) -> str:
    """Return the kept document and, below it, each duplicate with its Jaccard similarity and the start of its text."""
    kept, own = cluster.kept, cluster.decision
    about = f"karma {kept['karma']}, {_day(kept['date'])}, {kept['split']}" if kept["split"] else "in an earlier build"
    n = len(cluster.dropped)
    lines = [
        f"{n:,} document{'s were' if n > 1 else ' was'} dropped as {'duplicates' if n > 1 else 'a duplicate'} of {kept['id']}",
        *_member("removed" if own else "stays", kept, about),
    ]
    if own:
        lines.append(_line("", f"{own['reason']}{_requested(own)}"))
    for row in sorted(cluster.dropped, key=lambda row: (-(row["value"] or 0), row["id"])):
        to = "" if row["duplicate_of"] == kept["id"] else f" to {row['duplicate_of']}"
        about = f"{row['reason']}: similarity {row['value']:.4g}{to} (threshold {row['threshold']:.4g})"
        lines += _member("dropped", row, f"{row['id']}  {about}")
    return "\n".join(lines)


def dropped_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return decisions, each with the measured value and the start of the text."""
    return "\n".join(line for row in rows for line in _dropped(row)) or "nothing was dropped"


def _dropped(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['reason']}{_measured(row)}{_requested(row)}  {row['url'] or row['id']}"
    yield _line("", f"id {row['id']}")
    if row["duplicate_of"]:
        yield _line("", f"duplicate of {row['duplicate_of']}")
    yield _line("", repr(row["text_start"]) if row["request"] is None else NO_TEXT)


def _stations(trace: Trace) -> Iterator[str]:
    links = trace.links or ([trace.link] if trace.link else [])
    for link in links:
        yield _line("link", f"{link['url']}  karma {link['karma']}, {link['split']}")
        yield from _posts(link["posts"])
    if trace.document and not links:  # imported, or of links that are no longer collected
        yield from _posts(trace.document["posts"])
    if trace.page:
        yield from _page(trace.page)
    if trace.document:
        yield from _document(trace.document)
    for i, rule in enumerate(trace.rules):
        against = f"{'at least' if rule['bound'] == 'min' else 'at most'} {rule['threshold']:,.6g}"
        verdict = f"drops: {rule['rule']}" if rule["drops"] else "passes"
        value = "unknown" if rule["value"] is None else f"{rule['value']:,.6g}"
        yield _line("" if i else "rules", f"{rule['column']} {value}, {against}: {verdict}")
    if trace.decision:
        yield from _decision(trace.decision, trace.twin)
    for row in trace.tokens:
        yield _line("tokens", f"{row['shard']}, {row['start']:,} to {row['start'] + row['length'] - 1:,}")


def _page(page: Mapping[str, Any]) -> Iterator[str]:
    status = f"HTTP {page['status']}, " if page["status"] else ""
    place = f"pages/{page['warc_file']} at {page['warc_offset']:,}" if page["warc_file"] else page["outcome"]
    yield _line("page", f"{status}{_day(page['captured'])}, {place}")
    if page["final_url"] and page["final_url"] != page["url"]:
        yield _line("", f"redirected to {page['final_url']}")
    for each in page["opt_out_evidence"]:
        yield _line("opt-out", f"{each['rule']}: {each['source']}, {_day(each['noticed'])}")


def _posts(posts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for post in posts[:MAX_POSTS]:
        where = f" in r/{post['subreddit']}" if post["subreddit"] else ""
        points = f"{post['score']} points, {_day(post['created'])}"
        yield _line("post", f"{post['source']} {post['post_id']}{where}: {points}")
    if len(posts) > MAX_POSTS:
        yield _line("", f"and {len(posts) - MAX_POSTS:,} more posts")


def _decision(row: Mapping[str, Any], twin: Mapping[str, Any] | None) -> Iterator[str]:
    yield _line("dropped", f"{row['reason']}{_measured(row)}{_requested(row)}")
    if row["duplicate_of"]:
        yield _line("", f"duplicate of {row['duplicate_of']}" + (f"  {twin['url'] or ''}" if twin else ""))
    if twin:
        yield _line("", _start(twin))


def _document(row: Mapping[str, Any]) -> Iterator[str]:
    title = f", {row['title']!r}" if row["title"] else ""
    yield _line("document", f"{row['id']}{title}")
    score = f" {row['language_score']:.2f}" if row["language_score"] is not None else ""
    language = f", {row['language']}{score}" if row["language"] else ""
    agreement = row.get("extractor_agreement")
    agreed = "" if agreement is None else f", the extractors agree to {agreement:.2f}"
    yield _line("", f"{row['characters']:,} characters{language}, {row['split']}{agreed}")
    yield _line("", _start(row))


def _start(row: Mapping[str, Any]) -> str:
    return repr(row["text_start"]) if row["text_start"] or not row["characters"] else NO_TEXT


def _member(label: str, row: Mapping[str, Any], about: str) -> list[str]:
    lines = [_line(label, f"{row['url'] or row['id']}  {about}")]
    if row["text_start"] is not None:
        lines.append(_line("", NO_TEXT if row.get("request") is not None else repr(row["text_start"])))
    return lines


def _requested(row: Mapping[str, Any]) -> str:
    """Return the line of the removal list that asked for the removal, if any."""
    return f", asked for as {row['request']!r}" if row["request"] is not None else ""


def _measured(row: Mapping[str, Any]) -> str:
    """Return the value and its threshold, if any."""
    if row["value"] is None:
        return ""
    against = f" against {row['threshold']:.4g}" if row["threshold"] is not None else ""
    return f": {row['value']:.4g}{against}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}"


def _day(seconds: int | None) -> str:
    """Return the UTC day, or 'undated'."""
    return "undated" if seconds is None else day(seconds)
