"""An object store on loopback: moto's server behind a proxy that records every request and can spoil answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

from aiohttp import ClientSession, TCPConnector, web

BUCKET = "bucket"
ERROR = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code><Message>planted</Message></Error>"
SECONDS = 0.2  # that a slow answer takes
HOP = {"transfer-encoding", "content-encoding", "connection", "content-length", "keep-alive"}
SESSION = web.AppKey("session", ClientSession)
Spoil = Callable[[str, str], str]


class ObjectStore:
    """`requests` has (operation, key) of each request; `spoil(operation, key)` names what to do to it.

    `500`, `503`, `403` and `400` answer so at once; `lost` does what is asked, and answers 500; `cut` ends the body in
    its middle; `reset` closes the connection; `slow` answers late; an empty name changes nothing."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.url = upstream, ""
        self.requests: list[tuple[str, str]] = []
        self.spoil: Spoil = lambda operation, key: ""

    def clear(self) -> None:
        self.requests.clear()
        self.spoil = lambda operation, key: ""

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(operation for operation, _ in self.requests))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        operation, key = _named(request)
        self.requests.append((operation, key))
        how, body = self.spoil(operation, key), await request.read()
        if how.isdigit():
            return _error(how)
        if how == "slow":
            await asyncio.sleep(SECONDS)
        if how == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in HOP - {"content-encoding"}
        }
        target = self.upstream + request.raw_path
        async with request.app[SESSION].request(request.method, target, data=body or None, headers=headers) as got:
            data = await got.read()
            kept = {name: value for name, value in got.headers.items() if name.lower() not in HOP}
            length = int(got.headers.get("Content-Length", len(data)))
        if how == "lost":
            return _error("500")
        answer = web.StreamResponse(status=got.status, headers=kept)
        answer.content_length = length
        await answer.prepare(request)
        if how == "cut" and len(data) > 1:
            await answer.write(data[: len(data) // 2])
            assert request.transport is not None
            request.transport.close()
        elif request.method != "HEAD":
            await answer.write(data)
        return answer


def _named(request: web.Request) -> tuple[str, str]:
    """The S3 operation of a request, and its key or prefix."""
    split = urlsplit(request.raw_path)
    key, query = request.path.removeprefix(f"/{BUCKET}").lstrip("/"), parse_qs(split.query, keep_blank_values=True)
    if request.method == "GET" and not key:
        return "LIST", query.get("prefix", [""])[0]
    if "uploads" in query or "uploadId" in query:
        return f"{request.method} part", key
    return request.method, key


def _error(status: str) -> web.Response:
    code = {"500": "InternalError", "503": "SlowDown", "403": "AccessDenied", "400": "InvalidRequest"}[status]
    return web.Response(status=int(status), text=ERROR.format(code), content_type="application/xml")


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run both servers, point the AWS variables of this process and its children at them, and make the bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    moto = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = ObjectStore(f"http://127.0.0.1:{port}")
    loop, before = asyncio.new_event_loop(), dict(os.environ)

    async def serve() -> web.AppRunner:
        logging.getLogger("aiohttp.server").disabled = True  # of connections that were closed on purpose
        app = web.Application(client_max_size=1 << 30)
        app[SESSION] = ClientSession(auto_decompress=False, connector=TCPConnector(limit=0))
        app.router.add_route("*", "/{path:.*}", store.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        store.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def end(runner: web.AppRunner) -> None:
        await runner.app[SESSION].close()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    os.environ |= {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "4",  # its pauses are long
    }
    try:
        while True:
            assert moto.poll() is None, "moto's server ended: another process may have taken its port"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
        yield store
    finally:
        os.environ.clear()
        os.environ |= before
        asyncio.run_coroutine_threadsafe(end(runner), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        moto.kill()
        moto.wait()


if __name__ == "__main__":
    with object_store() as running:
        print(running.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
