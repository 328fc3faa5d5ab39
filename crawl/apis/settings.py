"""The settings for asking APIs. Apart from the code, so that `--help` loads no network code."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.crawl.addresses import AllowedAddress, is_loopback_host
from webtext.crawl.fetch.settings import check_contact

_REDDIT_USER = re.compile(r"(?:/?u/)?([A-Za-z0-9_-]{3,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How Reddit and Hacker News are asked.

    Nothing here is in a recipe: a links set depends on the answers, which lie in files. Neither is the secret: it has no
    setting, only the file that holds it.
    """

    reddit_user: str | None = setting(
        None, "your name at Reddit, for the User-Agent that Reddit demands; needed to ask it", in_recipe=False
    )
    reddit_credentials: str | None = setting(
        None,
        "TOML file with client_id and client_secret; off: WEBTEXT_REDDIT_CLIENT_ID and WEBTEXT_REDDIT_CLIENT_SECRET",
        in_recipe=False,
    )
    contact: str | None = setting(
        None, "e-mail or URL for the User-Agent at Hacker News; needed to ask it", in_recipe=False
    )
    requests_per_minute: float = setting(
        100.0, "most requests to Reddit or Algolia in a minute; what the answers allow holds too", in_recipe=False
    )
    part_seconds: float = setting(
        30.0, "seconds of answers that one file holds: what a killed run asks again", in_recipe=False
    )
    max_tries: int = setting(8, "how often a request is sent before the run gives up", in_recipe=False)
    answer_seconds: float = setting(60.0, "longest time one answer may take", in_recipe=False)
    allow_address: tuple[str, ...] = setting(
        (), "open an address that is not public: ADDRESS[/BITS][:PORT]; repeatable", in_recipe=False
    )
    reddit_url: str = setting("https://oauth.reddit.com", "where Reddit's API is", in_recipe=False)
    reddit_token_url: str = setting(
        "https://www.reddit.com/api/v1/access_token", "where Reddit gives tokens", in_recipe=False
    )
    hacker_news_url: str = setting(
        "https://hacker-news.firebaseio.com/v0", "where Hacker News' items are", in_recipe=False
    )
    algolia_url: str = setting(
        "https://hn.algolia.com/api/v1", "where Hacker News' stories are found by time", in_recipe=False
    )

    def __post_init__(self) -> None:
        if self.reddit_user is not None and not _REDDIT_USER.fullmatch(self.reddit_user):
            raise ConfigError(
                f"[crawl.api] reddit_user = {self.reddit_user!r}: no name at Reddit",
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
        """The name alone, whether it was given as `name`, `u/name` or `/u/name`. ConfigError when none was given."""
        match = _REDDIT_USER.fullmatch(self.reddit_user or "")
        if match is None:
            raise ConfigError(
                "no name for Reddit's User-Agent: it asks every program to say who runs it",
                "give --reddit-user NAME, or reddit_user in [crawl.api]",
            )
        return match[1]


def _check_url(url: str, name: str) -> None:
    """A secret and a token go there: over TLS, or no further than this machine."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(parts.hostname or ""))
        is_good = is_good and bool(parts.hostname) and not parts.query and "@" not in parts.netloc
    except ValueError:
        is_good = False
    if not is_good or not url.isascii() or any(character.isspace() for character in url):
        raise ConfigError(
            f"[crawl.api] {name} = {url!r}: expected an https:// URL without a query",
            "http:// is for addresses of this machine only: it would show the secret to everybody on the way",
        )
