"""Settings for requests to Reddit's API, apart so that `--help` loads no network code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError

_REDDIT_USER = re.compile(r"(?:/?u/)?([A-Za-z0-9_-]{3,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How Reddit is queried.

    None of these settings is in a recipe, since a links set depends only on the answers, which are files. The secret
    itself is not a setting; only the file that contains it is named.
    """

    reddit_user: str | None = setting(
        None,
        "your Reddit user name, for the User-Agent that Reddit requires; needed for Reddit's API",
        in_recipe=False,
        group="Reddit's API",
    )
    reddit_credentials: str | None = setting(
        None,
        "TOML file with client_id and client_secret; off: WEBTEXT_REDDIT_CLIENT_ID and WEBTEXT_REDDIT_CLIENT_SECRET",
        in_recipe=False,
    )
    requests_per_minute: float = setting(
        100.0, "maximum requests per minute to Reddit; its own limits are obeyed, too", in_recipe=False, flag=False
    )

    def __post_init__(self) -> None:
        if self.reddit_user is not None and not _REDDIT_USER.fullmatch(self.reddit_user):
            raise ConfigError(
                f"[crawl.api] reddit_user = {self.reddit_user!r}: not a Reddit user name",
                "letters, digits, '-' and '_', e.g. --reddit-user example_name",
            )
        if not self.requests_per_minute > 0:
            raise ConfigError(f"[crawl.api] requests_per_minute = {self.requests_per_minute}: expected more than 0")

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
