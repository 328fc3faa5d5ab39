"""Tracking parameters: parts of a URL that identify where a reader came from, and not the page. They are removed from links.

Otherwise a page that was shared in a mail and in an advertisement would be two links, each with part of the karma, and
would be fetched twice. The table contains only parameters that their makers document as analytics marks. `ref`,
`source`, `cid` and the like mean something else on other sites, so they are kept. Names are case-sensitive.

Only links lose them: while fetching, a redirect is followed to exactly the URL that it names.
"""

from __future__ import annotations

PREFIXES = ("utm_", "mtm_", "hsa_")
"""Campaigns in Google Analytics, which others imitate, and in Matomo; HubSpot's advertisements."""

NAMES = frozenset(
    {"gclid", "gclsrc", "dclid", "gbraid", "wbraid", "_ga", "_gl"}  # Google: advertisement clicks, linked domains
    | {"fbclid", "fb_action_ids", "fb_action_types", "fb_ref", "fb_source"}  # Facebook: clicks, Open Graph stories
    | {"msclkid", "yclid", "_openstat", "twclid", "ttclid", "li_fat_id", "rdt_cid"}  # Microsoft, Yandex, X, TikTok, ...
    | {"igshid", "igsh", "epik", "ScCid"}  # shared from Instagram, Pinterest, Snapchat
    | {"mc_cid", "mc_eid", "mkt_tok", "vero_id", "vero_conv", "oly_anon_id", "oly_enc_id"}  # mail: Mailchimp, ...
    | {"_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsCtaTracking"}  # HubSpot
    | {"pk_campaign", "pk_kwd", "pk_keyword", "piwik_campaign", "piwik_kwd", "piwik_keyword"}  # Matomo's older names
    | {"xtor", "WT.mc_id", "s_kwcid", "ef_id"}  # AT Internet, Webtrends, Adobe
)


def without_tracking(url: str) -> str:
    """Return a canonical URL without its tracking parameters; a query that becomes empty is removed with its `?`.

    Only complete parameters between `&` are removed; the others keep their order and encoding. Idempotent.

    >>> without_tracking("http://example.com/a?utm_source=mail&id=%41;x&gclid=7")
    'http://example.com/a?id=%41;x'
    >>> without_tracking("http://example.com/a?fbclid=IwAR0")
    'http://example.com/a'
    """
    page, mark, query = url.partition("?")
    if not mark:
        return url
    kept = "&".join(parameter for parameter in query.split("&") if not _tracks(parameter))
    return f"{page}?{kept}" if kept else page


def _tracks(parameter: str) -> bool:
    return parameter.startswith(PREFIXES) or parameter.partition("=")[0] in NAMES
