"""Reddit's API: the application's own token, and listings page by page.

The grant is application-only (OAuth 2.0, RFC 6749 section 4.4), so no user has to log in. `raw_json=1` requests strings
without HTML escapes; by default Reddit escapes `&`, `<` and `>`, as in the dumps. The User-Agent has the form that
Reddit's API rules require: `<platform>:<app ID>:<version> (by /u/<name>)`.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import time
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from webtext.base.errors import ConfigError, InputError, NetworkError
from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.links.reddit_api.client import Api, ApiAnswer
from webtext.crawl.links.settings import ApiSettings

APP_ID = "webtext"
API_URL = "https://oauth.reddit.com"
TOKEN_URL = "https://www.reddit.com/api/v1/access_token"
ADDRESSES = AddressRule()  # only public ones
CLIENT_ID, CLIENT_SECRET = "WEBTEXT_REDDIT_CLIENT_ID", "WEBTEXT_REDDIT_CLIENT_SECRET"
POSTS_PER_PAGE = 100  # Reddit's limit
RENEW_SECONDS = 60.0  # a token is renewed this long before it expires
MAX_TOKEN_SECONDS = 86400.0
_FULLNAME = re.compile(r"t\d_[0-9a-z]+")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The application's id and secret (reddit.com/prefs/apps). The secret appears in no message."""

    client_id: str
    client_secret: str = field(repr=False)

    @classmethod
    def read(cls, file: str | None) -> Credentials:
        """Read them from the TOML file, or from the environment. Raises ConfigError if there are none."""
        if file is not None:
            found = _from_file(file)
        else:
            found = {"client_id": os.environ.get(CLIENT_ID), "client_secret": os.environ.get(CLIENT_SECRET)}
        values = [found.get("client_id"), found.get("client_secret")]
        if not all(isinstance(value, str) and value.isascii() and value.isprintable() and value for value in values):
            place = (
                f"'{file}' lacks client_id or client_secret" if file else f"{CLIENT_ID} or {CLIENT_SECRET} is not set"
            )
            raise ConfigError(
                f"no credentials for Reddit's API: {place}",
                "get them at reddit.com/prefs/apps, and set these variables,",
                "or name a TOML file with client_id and client_secret: --reddit-credentials FILE",
            )
        return cls(*map(str, values))

    def header(self) -> str:
        """Return the value of an Authorization header (RFC 7617)."""
        pair = f"{self.client_id}:{self.client_secret}"
        return "Basic " + base64.b64encode(pair.encode()).decode()


def _from_file(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the credentials file '{file}' cannot be read: {error.strerror}", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):  # its message might show a line with the secret
        raise ConfigError(
            f"the credentials file '{file}' is not valid TOML", 'write client_id = "..." and client_secret = "..."'
        ) from None


@asynccontextmanager
async def open_reddit(settings: ApiSettings) -> AsyncIterator[Reddit]:
    """Open Reddit's API. Raises ConfigError without a name for the User-Agent, or without credentials."""
    credentials = Credentials.read(settings.reddit_credentials)
    async with Api(_user_agent(settings.reddit_name), ADDRESSES, settings.requests_per_minute) as api:
        yield Reddit(api, credentials)


def _user_agent(name: str) -> str:
    """Return the User-Agent that Reddit requires, with the real platform, application and version."""
    from webtext import __version__

    return f"{platform.system().lower()}:{APP_ID}:{__version__} (by /u/{name})"


class ListingPage(NamedTuple):
    """One page of a listing: things as received (`{"kind": ..., "data": ...}`), and the cursor of the next page."""

    things: list[Any]
    after: str | None
    read: int


class Reddit:
    """Reddit's API over an open `Api`."""

    def __init__(self, api: Api, credentials: Credentials) -> None:
        self._api = api
        self._credentials = credentials
        self._token = ""
        self._token_ends = 0.0

    async def listing(self, path: str, query: Mapping[str, str], after: str | None) -> ListingPage:
        """Return the page of the listing `path` (such as `r/programming/top`) that follows the post named `after`."""
        place = {"after": after, "limit": str(POSTS_PER_PAGE)} if after else {"limit": str(POSTS_PER_PAGE)}
        return self._page(await self._get(f"/{path}", {**query, **place}), path)

    async def _get(self, path: str, query: Mapping[str, str]) -> ApiAnswer:
        url = API_URL + path
        for is_last in (False, True):
            token = await self._valid_token()
            answer = await self._api.get(url, {**query, "raw_json": "1"}, {"Authorization": f"bearer {token}"})
            if answer.status != 401 or is_last:
                break
            self._token = ""  # revoked before it expired
        if not 200 <= answer.status < 300:
            raise NetworkError(f"Reddit refused '{path.lstrip('/')}': status {answer.status}", _hint(answer.status))
        return answer

    async def _valid_token(self) -> str:
        if self._token and time.monotonic() < self._token_ends - RENEW_SECONDS:
            return self._token
        header = {"Authorization": self._credentials.header()}
        answer = await self._api.post(TOKEN_URL, {"grant_type": "client_credentials"}, header)
        token = answer.value.get("access_token") if isinstance(answer.value, dict) else None
        if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
            raise ConfigError(
                f"Reddit issued no token: status {answer.status}",
                "check client_id and client_secret at reddit.com/prefs/apps",
            )
        lasts = answer.value.get("expires_in")
        lasts = lasts if isinstance(lasts, (int, float)) and not isinstance(lasts, bool) else 3600.0
        self._token = token
        self._token_ends = time.monotonic() + min(max(lasts, 2 * RENEW_SECONDS), MAX_TOKEN_SECONDS)
        return token

    def _page(self, answer: ApiAnswer, path: str) -> ListingPage:
        """Return the page in an answer. Raises NetworkError if it is not a listing."""
        data = answer.value.get("data") if isinstance(answer.value, dict) else None
        things = data.get("children") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(things, list):
            raise NetworkError(
                f"Reddit's answer for '{path}' is not a listing", "check the name, or rerun the same command"
            )
        after = data.get("after")
        return ListingPage(
            things, after if isinstance(after, str) and _FULLNAME.fullmatch(after) else None, answer.read
        )


def _hint(status: int) -> str:
    if status in (301, 302, 404):
        return "there is no such subreddit or listing: check the name"
    if status == 403:
        return "it is private, quarantined or banned: leave it out"
    return "check the credentials, then rerun the same command"
