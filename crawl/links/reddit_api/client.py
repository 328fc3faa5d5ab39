"""A client for a JSON API: answers of bounded size, rate limits, retries, and no connection to a forbidden address.

Redirects are not followed, so that a token is sent only to the host that it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from webtext.base.errors import NetworkError
from webtext.base.web.content_coding import BodyError, decode_body
from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.body import read_body
from webtext.crawl.fetch.client.client import host_and_port
from webtext.crawl.fetch.client.connections import guarded_session
from webtext.crawl.fetch.client.failures import NotConnected, failure_of
from webtext.crawl.fetch.client.headers import retry_after
from webtext.crawl.fetch.client.resolver import PinnedResolver
from webtext.crawl.pages.visit import FetchFailed, FetchRefused

MAX_ANSWER_BYTES = 8 << 20  # as sent and decoded; 100 posts of Reddit are about half a MiB
MAX_WAIT_SECONDS = 3600.0  # if a service asks for a longer pause, the run ends with an error
MAX_BACKOFF_SECONDS = 60.0
MAX_TRIES = 8  # per request, with pauses of two minutes in all; a service that is down for longer needs a rerun
ANSWER_SECONDS = 60.0  # for one answer; Reddit's own time limit is shorter
HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip"}


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer: the HTTP status, the JSON value (None unless the status is 2xx) and the UTC second of reading."""

    status: int
    value: Any
    read: int


class RateLimit:
    """The rate limit: a number of requests per minute, or fewer if the answers' headers leave fewer.

    `X-Ratelimit-Remaining` requests may be sent in the next `X-Ratelimit-Reset` seconds; they are spread evenly.
    """

    def __init__(self, requests_per_minute: float) -> None:
        self._interval = 60 / requests_per_minute
        self._free_at = 0.0

    @property
    def wait(self) -> float:
        return max(0.0, self._free_at - time.monotonic())

    async def turn(self) -> None:
        while (wait := self.wait) > 0:
            await asyncio.sleep(wait)
        self._free_at = time.monotonic() + self._interval

    def obey(self, headers: Mapping[str, str]) -> None:
        """Obey the rate-limit headers of an answer; values that are not numbers are ignored."""
        remaining, reset = _number(headers.get("X-Ratelimit-Remaining")), _number(headers.get("X-Ratelimit-Reset"))
        if remaining is not None and reset is not None:
            self.pause(reset / remaining if remaining >= 1 else reset)

    def pause(self, seconds: float) -> None:
        self._free_at = max(self._free_at, time.monotonic() + seconds)


class Api(contextlib.AbstractAsyncContextManager["Api"]):
    """A connection to one API. Use it as an async context manager; requests may run concurrently."""

    def __init__(self, user_agent: str, rule: AddressRule, requests_per_minute: float) -> None:
        self._resolver = PinnedResolver(rule)
        self._session = guarded_session(user_agent, self._resolver, rule)
        self._pace = RateLimit(requests_per_minute)

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._resolver.close()

    async def get(self, url: str, query: Mapping[str, str], headers: Mapping[str, str]) -> ApiAnswer:
        """Send GET `url?query` and return the answer. Status 429 or 5xx, broken answers and invalid JSON are retried.

        Raises NetworkError if no usable answer came in MAX_TRIES attempts, or if the address is forbidden.
        """
        return await self._ask("GET", f"{url}?{urlencode(query)}", headers, None)

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> ApiAnswer:
        """Send a form by POST; retries and errors are as in `get`."""
        form_type = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._ask("POST", url, {**headers, **form_type}, urlencode(form).encode())

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiAnswer:
        host, _ = host_and_port(url)
        cause = f"its rate limit asks for a pause of {self._pace.wait:,.0f} s"
        for attempt in range(1, MAX_TRIES + 1):
            if self._pace.wait > MAX_WAIT_SECONDS:
                break
            await self._pace.turn()
            try:
                return await self._exchange(method, url, headers, body)
            except FetchRefused as error:
                raise NetworkError(
                    f"no connection to '{host}': {error.reason}", "its name must resolve to a public address"
                ) from None
            except _RetryLater as later:
                cause, wait = str(later), later.seconds
            except FetchFailed as error:
                cause, wait = str(error), 0.0
                if isinstance(error, NotConnected):
                    self._resolver.next_address(host)
            if attempt < MAX_TRIES or wait:
                self._pace.pause(wait or _backoff(attempt))
        raise NetworkError(
            f"no usable answer from '{host}': {cause}",
            "earlier answers are kept; rerun the same command later to resume",
        )

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiAnswer:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        request = self._session.request(
            method,
            URL(url, encoded=True),
            headers={**HEADERS, **headers},
            data=body,
            allow_redirects=False,
            timeout=timeout,
        )
        try:
            async with request as response:
                self._pace.obey(response.headers)
                status = response.status
                if status == 429 or status >= 500:
                    asked_for = retry_after(response.headers.get("Retry-After"), response.headers.get("Date"))
                    raise _RetryLater(f"status {status}", asked_for)
                raw = await read_body(response.headers, response.content, MAX_ANSWER_BYTES, truncate=False)
                coding = ", ".join(response.headers.getall("Content-Encoding", ()))
        except (FetchFailed, FetchRefused):
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise failure_of(error) from None
        return ApiAnswer(status, _json(raw, coding) if 200 <= status < 300 else None, int(time.time()))


class _RetryLater(Exception):
    """The service asks for a pause of `seconds`; 0 if it does not say how long."""

    def __init__(self, cause: str, seconds: float) -> None:
        super().__init__(f"{cause}, retry after {seconds:,.0f} s" if seconds else cause)
        self.seconds = seconds


def _json(raw: bytes, content_coding: str) -> Any:
    try:
        return json.loads(decode_body(raw, "", content_coding, MAX_ANSWER_BYTES), parse_constant=_refuse)
    except (BodyError, ValueError, RecursionError) as error:
        raise FetchFailed("bad_response", f"invalid JSON: {error}"[:200]) from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _backoff(attempt: int) -> float:
    """Return seconds before the next attempt: doubled each time, with jitter so that clients don't retry in step."""
    return float(min(2 ** (attempt - 1), MAX_BACKOFF_SECONDS)) * random.uniform(0.5, 1.5)
