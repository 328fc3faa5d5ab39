"""Reddit's API on loopback: real HTTP, answers as the real one gave them, and what it was asked.

Reddit answers with posts that a test plants (the recorded ones, too); trouble is planted as a list of (status, headers)
that the next requests get instead.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from local_web import InBackground

from webtext.app.main import run
from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress
from webtext.crawl.links.reddit_api import harvest
from webtext.crawl.links.reddit_api import listing as reddit_api
from webtext.crawl.links.reddit_api.harvest import PART_SECONDS
from webtext.crawl.links.settings import ApiSettings

CLIENT_ID, SECRET = "the-client-id", "the-secret-of-the-client"


class Asked(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class LocalReddit(InBackground):
    """A server on 127.0.0.1; use `settings` to ask it. `requests` are those that came in, tokens apart."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Asked] = []
        self.tokens: list[str] = []
        self.listings: dict[str, list[dict[str, Any]]] = {}
        self.trouble: list[tuple[int, dict[str, str]]] = []
        self.headers: dict[str, str] = {}
        self.before_answer: Callable[[], None] = lambda: None
        self.hold_after: int | None = None
        """While this is a number, that request and the later ones get no answer: whoever asks does not get any further."""
        self.port = 0
        self._runner = self.await_there(self._start())

    def settings(self, **changes: Any) -> ApiSettings:
        """Settings that ask fast."""
        return ApiSettings(**{"reddit_user": "example_name", "requests_per_minute": 60_000.0, **changes})

    def start(self, *arguments: str, part_seconds: float = PART_SECONDS) -> subprocess.Popen[bytes]:
        """Start `webtext crawl links` in a process of its own, which asks this server."""
        child = [sys.executable, __file__, str(self.port), str(part_seconds)]
        options = ["--reddit-user", "example_name", "--set", "crawl.api.requests_per_minute=60000"]
        command = [*child, "crawl", "links", *arguments, *options]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def wait_for_requests(self, n: int, child: subprocess.Popen[bytes]) -> None:
        """Wait until this many requests have come in; they and later ones get no answer until `hold_after` is reset."""
        self.hold_after = n
        while child.poll() is None and len(self.requests) < n:
            time.sleep(0.005)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.requests]

    def close(self) -> None:
        self.await_there(self._runner.cleanup())
        super().close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/api/v1/access_token", self._token)
        app.router.add_get("/{path:.*}", self._get)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        expected = "Basic " + base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if request.headers.get("Authorization") != expected or form.get("grant_type") != "client_credentials":
            return web.json_response({"message": "Unauthorized", "error": 401}, status=401)
        self.tokens.append(f"token-{len(self.tokens)}")
        return web.json_response({"access_token": self.tokens[-1], "token_type": "bearer", "expires_in": 3600})

    async def _get(self, request: web.Request) -> web.Response:
        self.requests.append(Asked(request.path, dict(request.query), dict(request.headers)))
        self.before_answer()
        number = len(self.requests)
        while self.hold_after is not None and number >= self.hold_after:
            await asyncio.sleep(0.005)
        if self.trouble:
            status, headers = self.trouble.pop(0)
            return web.Response(status=status, headers=headers)
        if request.headers.get("Authorization") != f"bearer {self.tokens[-1] if self.tokens else ''}":
            return web.json_response({"error": 401}, status=401)
        answer = self._listing(request)
        if answer is None:
            return web.json_response({"error": 404}, status=404)
        response = web.Response(body=json.dumps(answer), content_type="application/json", headers=self.headers)
        response.enable_compression()
        return response

    def _listing(self, request: web.Request) -> dict[str, Any] | None:
        posts = self.listings.get(request.path.strip("/"))
        if posts is None:
            return None
        names = [post["name"] for post in posts]
        start = names.index(request.query["after"]) + 1 if "after" in request.query else 0
        page = posts[start : start + int(request.query["limit"])]
        return listing(page, page[-1]["name"] if start + len(page) < len(posts) else None)


def constants(port: int) -> dict[str, Any]:
    """Return the values of `reddit_api` by name with which the server at this port is asked, and nothing else."""
    here = f"http://127.0.0.1:{port}"
    rule = AddressRule((AllowedAddress.parse(f"127.0.0.1:{port}"),))
    return {"API_URL": here, "TOKEN_URL": f"{here}/api/v1/access_token", "ADDRESSES": rule}


def listing(posts: list[dict[str, Any]], after: str | None = None) -> dict[str, Any]:
    return {"kind": "Listing", "data": {"after": after, "children": [{"kind": "t3", "data": post} for post in posts]}}


def post(number: int, **fields: Any) -> dict[str, Any]:
    """A post as Reddit's API returns it today, with the fields that we read."""
    return {
        "id": f"p{number}",
        "name": f"t3_p{number}",
        "subreddit": "books",
        "author": "someone",
        "selftext": "",
        "url": f"https://site{number}.example.org/",
        "score": 10,
        "created_utc": 1_450_000_000.0 + number,
        "is_self": False,
        "over_18": False,
        "removed_by_category": None,
        **fields,
    }


def recorded(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the answers of a recorded session with Reddit, without tokens."""
    cassette = json.loads((folder / "crawl" / "reddit" / f"praw_{name}.json").read_text())
    bodies = [each["response"]["body"]["string"] for each in cassette["interactions"]]
    return [answer for body in bodies if "access_token" not in (answer := json.loads(body))]


if __name__ == "__main__":
    port, harvest.PART_SECONDS = int(sys.argv[1]), float(sys.argv[2])
    for name, value in constants(port).items():
        setattr(reddit_api, name, value)
    sys.exit(run(sys.argv[3:]))
