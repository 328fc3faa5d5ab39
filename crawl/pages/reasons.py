"""The reasons in the fetch log why a link has no page of its own: a closed list, each with its outcome.

`refused` means that we or the site decided against it, `failed` that the web failed, and `linked` that another row has
the page. One reason is a family: `http_NNN` (failed), the status of an answer that is neither a page nor a redirect.
"""

from __future__ import annotations

from collections.abc import Mapping

from webtext.base.web.opt_outs import OPT_OUTS

FETCHED, LINKED, FAILED, REFUSED = "fetched", "linked", "failed", "refused"

REDIRECTS_TO_LINK = "redirects_to_link"
ROBOTS_UNREACHABLE = "robots_unreachable"
EXCLUDED_DOMAIN = "excluded_domain"
HOST_ASKED_TO_WAIT = "host_asked_to_wait"
CRAWL_DELAY_TOO_LONG = "crawl_delay_too_long"
HOST_KEPT_FAILING = "host_kept_failing"
OVER_HOST_CAP = "over_host_cap"
BAD_URL = "bad_url"
NOT_TEXT = "not_text"
NOT_ARCHIVED = "not_archived"
ARCHIVE_UNAVAILABLE = "archive_unavailable"
ARCHIVE_DAMAGED = "archive_damaged"

REASONS: Mapping[str, tuple[str, str]] = {
    REDIRECTS_TO_LINK: (LINKED, "redirects to a URL that belongs to another row"),
    **{reason: (REFUSED, each.meaning) for reason, each in OPT_OUTS.items()},
    ROBOTS_UNREACHABLE: (
        REFUSED,
        "robots.txt could not be fetched (no answer, 5xx, 429, an unknown coding), which forbids everything (RFC 9309)",
    ),
    EXCLUDED_DOMAIN: (REFUSED, "is on, or leads to, an excluded site: Wikipedia, Reddit or one on a blocklist"),
    HOST_ASKED_TO_WAIT: (REFUSED, "not asked: the host's Retry-After is longer than max_pause"),
    CRAWL_DELAY_TOO_LONG: (REFUSED, "not asked: robots.txt asks for more than 30 seconds between requests"),
    OVER_HOST_CAP: (REFUSED, "not asked: the host has max_pages_per_host links with more karma"),
    BAD_URL: (REFUSED, "not asked: the URL is not a canonical http(s) URL, or longer than 8 KiB"),
    "address_not_public": (REFUSED, "the host has an address that is not public, or an address of this machine"),
    "port_not_web": (REFUSED, "the URL has the port of another service"),
    "contact_missing": (REFUSED, "the host is not this machine, and the User-Agent has no contact"),
    NOT_TEXT: (REFUSED, "not HTML, plain text or Markdown, by its Content-Type or its first bytes"),
    "dns_failed": (FAILED, "the host name has no address"),
    "dns_unanswered": (FAILED, "no name server answered"),
    "connection_failed": (FAILED, "no connection, or a broken one"),
    "tls_failed": (FAILED, "no TLS connection with a valid certificate"),
    "timed_out": (FAILED, "the connection or the whole answer took too long"),
    "too_slow": (FAILED, "the body came more slowly than 500 bytes per second"),
    HOST_KEPT_FAILING: (FAILED, "not asked: the host or its address failed, or was busy, ten times in a row"),
    "too_large": (FAILED, "more bytes than max_bytes"),
    "bad_response": (FAILED, "not HTTP, too large a head, or invalid chunks, lengths or transfer codings"),
    "repeated_length": (FAILED, "more than one Content-Length, equal or not"),
    "length_beside_coding": (FAILED, "a Content-Length beside a Transfer-Encoding"),
    "blank_before_colon": (FAILED, "a blank between the name of a header and its colon"),
    "invalid_header": (FAILED, "a header whose name or value is invalid in another way"),
    "bad_content_coding": (FAILED, "a Content-Encoding that is unknown or contradicts the body"),
    "bad_redirect": (FAILED, "a redirect without a usable http(s) Location"),
    "redirect_loop": (FAILED, "a redirect to a URL that was visited before"),
    "too_many_redirects": (FAILED, "more than five redirects"),
    NOT_ARCHIVED: (FAILED, "the archive has no usable capture of the page"),
    ARCHIVE_UNAVAILABLE: (FAILED, "the archive did not answer, or stayed busy"),
    ARCHIVE_DAMAGED: (FAILED, "the data don't match the index or aren't an HTTP response"),
    "fetcher_raised": (FAILED, "an exception in the fetcher: a bug worth reporting"),
}
"""Reason -> (outcome, meaning)."""


RETRIED_REASONS = frozenset(f"http_{status}" for status in (408, 429, 500, 502, 503, 504))
RETRIED_REASONS |= {"timed_out", "connection_failed", "dns_unanswered", ROBOTS_UNREACHABLE}
"""Failures that may pass: such a link is retried."""


def outcome_of(reason: str) -> str:
    """Return the outcome of `reason`.

    >>> outcome_of("tdm_reserved"), outcome_of("http_404")
    ('refused', 'failed')
    """
    return REASONS[reason][0] if reason in REASONS else FAILED
