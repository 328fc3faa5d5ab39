"""A link and its visit, on the web or in an archive: what its row in the fetch log is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webtext.base.web.opt_outs import header_opt_outs
from webtext.crawl.pages.exchange import Exchange, lower_headers
from webtext.crawl.pages.reasons import RETRIED_REASONS

MAX_CAUSE = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedLink:
    """A link, with the fields that its page row copies."""

    link_id: str
    url: str
    karma: int
    split: str
    voted: int  # when the earliest post was made, UTC seconds
    tried: str = ""  # the sources that failed before, each with its reason
    requests: int = 0  # sent by those sources
    posts: tuple[dict[str, Any], ...] = ()


class _NoPage(Exception):
    """`reason` is one of the fetch log's, and `cause` explains it to people."""

    def __init__(self, reason: str, cause: str = "") -> None:
        super().__init__(f"{reason}: {cause}" if cause else reason)
        self.reason = reason
        self.cause = cause or None


class FetchFailed(_NoPage):
    """A failed exchange."""


class FetchRefused(_NoPage):
    """A refused connection, or an answer that is not kept."""


class Evidence(NamedTuple):
    """An opt-out, where it stood, and when it was read there or captured (UTC seconds)."""

    rule: str
    source: str
    noticed: int


@dataclass(slots=True, kw_only=True)
class Visit:
    """The result of visiting one link. `reason` is None if and only if `exchange` has a page."""

    url: str
    source: str = "web"  # the page source that was asked
    reason: str | None = None
    exchange: Exchange | None = None
    final_url: str | None = None  # URL of the last response, or of the link that this one redirects to
    redirects: list[str] = field(default_factory=list)  # the URLs that answered with a redirect
    status: int | None = None
    seconds: float | None = None  # for all exchanges, without waiting for turns
    requests: int = 0  # without those for robots.txt
    cause: str | None = None  # what happened, for people
    evidence: list[Evidence] = field(default_factory=list)  # of the opt-outs that apply, obeyed or not; each once

    n_tries: int = 0
    retry_after: float = 0.0  # seconds that the last answer asked to wait
    asked: str = ""  # the last URL whose opt-outs were checked
    at: str = ""  # the next URL to request

    @property
    def may_pass(self) -> bool:
        """Whether another try may succeed."""
        return self.reason in RETRIED_REASONS

    def fail(self, error: FetchFailed | FetchRefused) -> None:
        """Set the reason, and the cause as one printable line, since it may quote a hostile server."""
        self.reason = error.reason
        quoted = (error.cause or "")[: 2 * MAX_CAUSE]
        text = "".join(character if character.isprintable() else " " for character in quoted)
        self.cause = " ".join(text.split())[:MAX_CAUSE] or None

    def arrive(self, address: str) -> None:
        """Called with the address of each hop, before anything is sent. A subclass may raise to postpone the visit."""

    def note(self, opt_outs: list[str], source: str, noticed: int) -> None:
        """Record opt-outs that `source` stated at the time `noticed` (UTC seconds); earlier ones are kept."""
        self.evidence += [Evidence(each, source, noticed) for each in opt_outs if each not in self.opt_outs]

    def note_headers(self, reply: Exchange) -> None:
        """Record the opt-outs in an answer's header fields."""
        self.note(header_opt_outs(lower_headers(reply.headers)), f"header of {reply.url}", reply.captured)

    @property
    def opt_outs(self) -> list[str]:
        return [each.rule for each in self.evidence]
