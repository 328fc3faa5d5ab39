"""Settings for requests to APIs and for `crawl refresh`, apart so that `--help` loads no network code."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Literal
from urllib.parse import urlsplit

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.crawl.exchange.addresses import AllowedAddress, is_loopback_host
from webtext.crawl.user_agent import check_contact

_REDDIT_USER = re.compile(r"(?:/?u/)?([A-Za-z0-9_-]{3,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How Reddit and Hacker News are queried.

    None of these settings is in a recipe, since a links set depends only on the answers, which are files. The secret
    itself is not a setting; only the file that contains it is named.
    """

    reddit_user: str | None = setting(
        None,
        "your Reddit user name, for the User-Agent that Reddit requires; needed for Reddit's API",
        in_recipe=False,
        group="APIs",
    )
    reddit_credentials: str | None = setting(
        None,
        "TOML file with client_id and client_secret; off: WEBTEXT_REDDIT_CLIENT_ID and WEBTEXT_REDDIT_CLIENT_SECRET",
        in_recipe=False,
    )
    contact: str | None = setting(
        None, "e-mail or URL for the User-Agent; needed for Hacker News' APIs", in_recipe=False
    )
    requests_per_minute: float = setting(
        100.0, "maximum requests per minute to Reddit or Algolia; their own limits are obeyed, too", in_recipe=False
    )
    part_seconds: float = setting(
        30.0, "seconds of answers per file, which is the most that a killed run has to request again", in_recipe=False
    )
    max_tries: int = setting(8, "attempts per request before the run gives up", in_recipe=False)
    answer_seconds: float = setting(60.0, "time limit for one answer, in seconds", in_recipe=False)
    allow_address: tuple[str, ...] = setting(
        (), "open an address that is not public: ADDRESS[/BITS][:PORT]; repeatable", in_recipe=False
    )
    reddit_url: str = setting("https://oauth.reddit.com", "URL of Reddit's API", in_recipe=False)
    reddit_token_url: str = setting(
        "https://www.reddit.com/api/v1/access_token", "URL that issues Reddit's tokens", in_recipe=False
    )
    hacker_news_url: str = setting(
        "https://hacker-news.firebaseio.com/v0", "URL of Hacker News' items", in_recipe=False
    )
    algolia_url: str = setting(
        "https://hn.algolia.com/api/v1", "URL of the search for Hacker News' stories", in_recipe=False
    )

    def __post_init__(self) -> None:
        if self.reddit_user is not None and not _REDDIT_USER.fullmatch(self.reddit_user):
            raise ConfigError(
                f"[crawl.api] reddit_user = {self.reddit_user!r}: not a Reddit user name",
                "letters, digits, '-' and '_', e.g. --reddit-user example_name",
            )
        for name in ("requests_per_minute", "answer_seconds", "max_tries"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"[crawl.api] {name} = {getattr(self, name)}: expected more than 0")
        if not self.part_seconds >= 0:
            raise ConfigError(f"[crawl.api] part_seconds = {self.part_seconds}: expected 0 or more")
        check_contact(self.contact, "[crawl.api] contact")
        for address in self.allow_address:
            AllowedAddress.parse(address)
        for field in fields(self):
            if field.name.endswith("_url"):
                _check_url(getattr(self, field.name), field.name)

    @property
    def reddit_name(self) -> str:
        """The name without the prefix `u/` or `/u/`. Raises ConfigError if none was given."""
        match = _REDDIT_USER.fullmatch(self.reddit_user or "")
        if match is None:
            raise ConfigError(
                "no name for Reddit's User-Agent: Reddit requires the user name of whoever runs a program",
                "set --reddit-user NAME, or reddit_user in [crawl.api]",
            )
        return match[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSettings:
    """Which posts still count. All other values of the rule come from the links set."""

    min_karma: int | None | Literal["same"] = setting(
        "same", "keep posts with at least this score today; same: the threshold of the links set"
    )


def _check_url(url: str, name: str) -> None:
    """Raise ConfigError unless the URL uses TLS or is on this machine: a secret and a token are sent to it."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(parts.hostname or ""))
        is_good = is_good and bool(parts.hostname) and not parts.query and "@" not in parts.netloc
    except ValueError:
        is_good = False
    if not is_good or not url.isascii() or any(character.isspace() for character in url):
        raise ConfigError(
            f"[crawl.api] {name} = {url!r}: expected an https:// URL without a query",
            "http:// is allowed only for addresses of this machine: it would send the secret in plain text",
        )
