"""Serves each unpacked package, and each domain of known pages, as a host of its own on loopback.

`python tests/proof/hosts.py OUT` ends when its input is closed.

As on the web: gzip where the reader takes it, ETag and 304, redirects, robots.txt of several kinds (none, a folder closed,
closed to AI crawlers), some 404, a 503 at the first request of every 100th page, and charsets that are declared, left out or
windows-1252.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web
from votes import OLD, number_of


class Site:
    """The hosts and what they answer."""

    def __init__(self, out: Path) -> None:
        site = json.loads((out / "site.json").read_text(encoding="utf-8"))
        self.port = int(site["port"])
        self.folders = {each["address"]: out / "site" / each["name"] for each in site["packages"]}
        self._busy: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        folder = self.folders[request.host.partition(":")[0]]
        number, path = number_of(folder.name), request.path
        if path == "/robots.txt":
            text = robots_txt(folder, number)
            return web.Response(text=text) if text else web.Response(status=404)
        if path.startswith(OLD):
            return web.Response(status=301, headers={"Location": "/" + request.rel_url.raw_path[len(OLD) :]})
        file = folder / path.lstrip("/")
        if not file.is_file() or ".." in file.parts:
            return web.Response(status=404, text="not found")
        if number_of(request.url.human_repr()) % 100 == 0 and request.path_qs not in self._busy:
            self._busy.add(request.path_qs)
            return web.Response(status=503, headers={"Retry-After": "1"}, text="busy")
        return self._page(request, file, number)

    def _page(self, request: web.Request, file: Path, number: int) -> web.Response:
        body, charset = file.read_bytes(), ""
        if number % 10 > 3:
            charset = "utf-8" if _is_utf8(body) else ""
        elif number % 10 == 0:
            with contextlib.suppress(UnicodeError):
                body, charset = body.decode("utf-8").encode("windows-1252"), "windows-1252"
        kind = "application/xhtml+xml" if file.suffix == ".xhtml" else "text/html"
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"Content-Type": kind + (f"; charset={charset}" if charset else ""), "ETag": etag}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        response = web.Response(body=body, headers=headers)
        response.enable_compression()
        return response

    async def run(self) -> None:
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        for address in self.folders:
            await web.TCPSite(runner, address, self.port).start()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def robots_txt(folder: Path, number: int) -> str:
    """Nothing on every 10th host, one closed folder on every 20th, closed to AI crawlers on every 40th, else open."""
    if number % 40 == 7:
        return "User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n"
    if number % 20 == 3:
        closed = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir())[-1]
        return f"User-agent: *\nDisallow: /{closed}/\n"
    return "" if number % 10 == 5 else "User-agent: *\nDisallow: /private/\n"


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeError:
        return False
    return True


@contextlib.contextmanager
def running(out: Path) -> Iterator[None]:
    """The site as a process of its own, ended with the block."""
    command: list[Any] = [sys.executable, __file__, out]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise OSError("the site cannot listen on its loopback addresses\nfree its port, named in site.json")
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    asyncio.run(Site(parser.parse_args().out).run())
