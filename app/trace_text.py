"""What was traced, as text for people: one line for each station on the way."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webtext.app.trace import Cluster, Trace

LABEL_WIDTH = 10
MAX_POSTS = 5


def trace_text(trace: Trace) -> str:
    """Where it ended and why, then every station from the posts to the tokens."""
    reason = f": {trace.reason}" if trace.reason else ""
    return "\n".join([f"{trace.url} ended in {trace.stage}{reason}", *_stations(trace)])


def cluster_text(cluster: Cluster) -> str:
    """The document that stays, and below it each that was dropped for it, with the starts of their texts."""
    kept = cluster.kept
    n = len(cluster.dropped)
    lines = [
        f"{n:,} document{'s were' if n > 1 else ' was'} dropped as {'duplicates' if n > 1 else 'a duplicate'} of {kept['id']}",
        *_member("stays", kept, f"karma {kept['karma']}, {_day(kept['date'])}, {kept['split']}"),
    ]
    for row in sorted(cluster.dropped, key=lambda row: (-(row["value"] or 0), row["id"])):
        lines += _member(
            "dropped", row, f"{row['reason']}: similarity {row['value']:.4g} (threshold {row['threshold']:.4g})"
        )
    return "\n".join(lines)


def dropped_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Decisions, each with what was measured and how the text begins."""
    return "\n".join(line for row in rows for line in _dropped(row)) or "nothing was dropped"


def _dropped(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['reason']}{_measured(row)}  {row['url'] or row['id']}"
    if row["duplicate_of"]:
        yield _line("", f"duplicate of {row['duplicate_of']}")
    yield _line("", repr(row["text_start"]))


def _stations(trace: Trace) -> Iterator[str]:
    for link in trace.links or ([trace.link] if trace.link else []):
        yield _line("link", f"{link['url']}  karma {link['karma']}, {link['split']}")
        for post in link["posts"][:MAX_POSTS]:
            where = f" in r/{post['subreddit']}" if post["subreddit"] else ""
            yield _line(
                "post", f"{post['source']} {post['post_id']}{where}: {post['score']} points, {_day(post['created'])}"
            )
        if len(link["posts"]) > MAX_POSTS:
            yield _line("", f"and {len(link['posts']) - MAX_POSTS:,} more posts")
    if trace.page:
        page = trace.page
        status = f"HTTP {page['status']}, " if page["status"] else ""
        place = f"pages/{page['warc_file']} at {page['warc_offset']:,}" if page["warc_file"] else page["outcome"]
        yield _line("page", f"{status}{_day(page['captured'])}, {place}")
        if page["final_url"] and page["final_url"] != page["url"]:
            yield _line("", f"redirected to {page['final_url']}")
    if trace.document:
        yield from _document(trace.document)
    if trace.decision:
        row = trace.decision
        yield _line("dropped", f"{row['reason']}{_measured(row)}")
        if row["duplicate_of"]:
            yield _line("", f"duplicate of {row['duplicate_of']}")
    for row in trace.tokens:
        yield _line("tokens", f"{row['shard']}, {row['start']:,} to {row['start'] + row['length'] - 1:,}")


def _document(row: Mapping[str, Any]) -> Iterator[str]:
    title = f", {row['title']!r}" if row["title"] else ""
    yield _line("document", f"{row['id']}{title}")
    language = f", {row['language']} {row['language_score']:.2f}" if row["language"] else ""
    yield _line("", f"{row['characters']:,} characters{language}, {row['split']}")
    yield _line("", repr(row["text_start"]))


def _member(label: str, row: Mapping[str, Any], about: str) -> list[str]:
    return [_line(label, f"{row['url'] or row['id']}  {about}"), _line("", repr(row["text_start"]))]


def _measured(row: Mapping[str, Any]) -> str:
    """The value and what it was held against, as far as there are such."""
    if row["value"] is None:
        return ""
    against = f" against {row['threshold']:.4g}" if row["threshold"] is not None else ""
    return f": {row['value']:.4g}{against}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}"


def _day(seconds: int | None) -> str:
    """The UTC day; 'undated' where none is known."""
    if seconds is None:
        return "undated"
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%d")
