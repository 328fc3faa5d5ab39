"""A small real name server on loopback, over UDP and TCP, that answers what a test plants."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Mapping
from typing import Any

from local_web import InBackground

A, CNAME, AAAA = 1, 5, 28
NO_ERROR, SERVER_FAILURE, UNKNOWN_NAME, REFUSED = 0, 2, 3, 5
Plan = list[str] | int | None | Callable[[bytes], bytes | None]
"""A name's addresses, the code of an error, silence, or a function of the query."""


class LocalNames(InBackground):
    """Answers for the names in `known`, a plan for each. All other names are unknown."""

    def __init__(self, known: Mapping[str, Plan]) -> None:
        super().__init__()
        self.known = known
        self.asked: list[tuple[str, int]] = []
        self.place = self.await_there(self._listen())

    async def _listen(self) -> tuple[str, int]:
        """Listen on one port for both: another one if a program uses the first choice."""
        loop = asyncio.get_running_loop()
        for _ in range(20):
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            place: tuple[str, int] = server.sockets[0].getsockname()
            try:
                await loop.create_datagram_endpoint(lambda: _Datagrams(self), place)
                return place
            except OSError:
                server.close()
        raise OSError("no port is free for UDP and TCP")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">H", await reader.readexactly(2))
                answer = self.answer(await reader.readexactly(size))
                if answer is not None:
                    writer.write(struct.pack(">H", len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def answer(self, query: bytes) -> bytes | None:
        name, kind = question(query)
        self.asked.append((name, kind))
        plan = self.known.get(name, UNKNOWN_NAME)
        if callable(plan):
            return plan(query)
        if isinstance(plan, list):
            return reply(query, *plan)
        return None if plan is None else reply(query, code=plan)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: LocalNames) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: tuple[str | Any, int]) -> None:
        answer = self._server.answer(data)
        if answer is not None and len(answer) > 1232:
            answer = (
                answer[:2] + b"\x83\x80" + answer[4:6] + bytes(6) + _question(data)
            )  # truncated: ask again over TCP
        if answer is not None:
            self._transport.sendto(answer, sender)


def question(query: bytes) -> tuple[str, int]:
    """Return the name, in lower case, and the type that a query asks for."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    return b".".join(labels).decode().lower(), int.from_bytes(query[at + 1 : at + 3], "big")


def _question(query: bytes) -> bytes:
    return query[12 : query.index(0, 12) + 5]


def record(kind: int, data: bytes, name: bytes = b"\xc0\x0c") -> bytes:
    """Return a resource record; without a name, of the name that was asked for."""
    return name + struct.pack(">HHIH", kind, 1, 60, len(data)) + data


def encoded(name: str) -> bytes:
    """Return a name as labels."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def reply(
    query: bytes, *addresses: str, code: int = NO_ERROR, before: tuple[bytes, ...] = (), owner: str = ""
) -> bytes:
    """Answer a query with those of these addresses that it asks for, after the records `before`, of the name `owner`."""
    packed = [ipaddress.ip_address(address).packed for address in addresses]
    wanted = {A: 4, AAAA: 16}.get(question(query)[1])
    name = encoded(owner) if owner else b"\xc0\x0c"
    records = [*before, *(record(A if len(each) == 4 else AAAA, each, name) for each in packed if len(each) == wanted)]
    head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    return head + _question(query) + b"".join(records)
