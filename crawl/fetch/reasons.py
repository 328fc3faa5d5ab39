"""Why a link has no page of its own: the closed list of reasons in the fetch log, each with its outcome.

`refused` is our decision or the site's wish, `failed` is what the web did, `linked` means another link holds the page.
One reason is a family: `http_NNN` (failed), the status of an answer that is neither a page nor a redirect.
"""

from __future__ import annotations

from collections.abc import Mapping

from webtext.base.opt_outs import OPT_OUTS

FETCHED, LINKED, FAILED, REFUSED = "fetched", "linked", "failed", "refused"

REDIRECTS_TO_LINK = "redirects_to_link"
ROBOTS_UNREACHABLE = "robots_unreachable"
EXCLUDED_DOMAIN = "excluded_domain"
HOST_ASKED_TO_WAIT = "host_asked_to_wait"
HOST_KEPT_FAILING = "host_kept_failing"
OVER_HOST_CAP = "over_host_cap"
BAD_URL = "bad_url"
NOT_TEXT = "not_text"
NOT_ARCHIVED = "not_archived"
ARCHIVE_UNAVAILABLE = "archive_unavailable"
ARCHIVE_DAMAGED = "archive_damaged"

REASONS: Mapping[str, tuple[str, str]] = {
    REDIRECTS_TO_LINK: (LINKED, "leads to a URL that another link's row answers for"),
    **{reason: (REFUSED, meaning) for reason, (_, meaning) in OPT_OUTS.items()},
    ROBOTS_UNREACHABLE: (
        REFUSED,
        "robots.txt could not be fetched (no answer, 5xx or 429; `cause` says which): all is forbidden, RFC 9309",
    ),
    EXCLUDED_DOMAIN: (REFUSED, "redirects to a site that the links leave out: Wikipedia, Reddit, a blocklist's"),
    HOST_ASKED_TO_WAIT: (REFUSED, "not asked: the host's Retry-After is longer than max_pause"),
    OVER_HOST_CAP: (REFUSED, "not asked: max_pages_per_host links of the host come before it, by karma, then by date"),
    BAD_URL: (REFUSED, "not asked: the link's URL is not http(s), or it lacks a host or a path"),
    "address_not_public": (REFUSED, "the host has an address that is not public, or is this machine"),
    "port_not_web": (REFUSED, "the URL names a port of another service"),
    "contact_missing": (REFUSED, "leads off this machine, and the User-Agent has no contact"),
    NOT_TEXT: (REFUSED, "neither HTML nor plain text nor Markdown, by Content-Type or by its first bytes"),
    "dns_failed": (FAILED, "the host name has no address"),
    "dns_unanswered": (FAILED, "no name server said whether the host name has an address"),
    "connection_failed": (FAILED, "no connection, or it broke before the end"),
    "tls_failed": (FAILED, "no TLS connection with a valid certificate"),
    "timed_out": (FAILED, "the connection or the whole answer took too long"),
    "too_slow": (FAILED, "the body came at less than min_rate"),
    HOST_KEPT_FAILING: (FAILED, "not asked: the host failed max_host_failures times in a row"),
    "too_large": (FAILED, "more bytes than max_bytes"),
    "bad_response": (FAILED, "not HTTP, or broken: headers, chunks, lengths, transfer codings"),
    "bad_redirect": (FAILED, "a redirect without a usable http(s) Location"),
    "redirect_loop": (FAILED, "a redirect to a URL that was passed before"),
    "too_many_redirects": (FAILED, "more redirects than max_redirects"),
    NOT_ARCHIVED: (FAILED, "the archive has no capture of the page that could be kept"),
    ARCHIVE_UNAVAILABLE: (FAILED, "the archive gave no answer, or said again and again that it is busy"),
    ARCHIVE_DAMAGED: (FAILED, "what the archive gave is not what its index says, or is no HTTP response"),
    "fetcher_raised": (FAILED, "an error of the fetcher itself: a bug worth reporting"),
}
"""Reason -> (outcome, meaning)."""


RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
RETRIED_REASONS = frozenset(
    {
        "timed_out",
        "connection_failed",
        "dns_unanswered",
        ROBOTS_UNREACHABLE,
        *(f"http_{status}" for status in RETRIED_STATUSES),
    }
)
"""What may pass: such a link is tried again."""


def outcome_of(reason: str) -> str:
    """The outcome that goes with `reason`.

    >>> outcome_of("tdm_reserved"), outcome_of("http_404")
    ('refused', 'failed')
    """
    return REASONS[reason][0] if reason in REASONS else FAILED
