"""How the processes of one attempt find each other, and no process of an attempt before.

torchrun restarts all processes when one of them ends, and gives them the store of its agent, in which the addresses of the
attempt before still stand (torch 2.13: "Gloo connectFullMesh failed ... Connection refused"). So each attempt talks under a
prefix of its own, which process 0 draws and tells those that ask it now. The count of restarts that torchrun passes on is
no such prefix: an agent whose own processes all lived does not count a restart that another host asked for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from webtext.base.errors import ConfigError, EnvironmentError_

JOIN_SECONDS = 300.0
_POLL_SECONDS = 0.02


def attempt_store(rank: int, size: int) -> Store:
    """A store that holds nothing of any attempt before, at MASTER_ADDR and MASTER_PORT: torchrun's, or one of process 0.

    gloo is told to use the network on which that address lies: its own choice, by the host's name, is often 127.0.0.1.
    """
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise ConfigError(f"WORLD_SIZE is {size}, and MASTER_ADDR or MASTER_PORT is not set", "use torchrun")
    interface = interface_towards(os.environ["MASTER_ADDR"])
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    store: Store
    store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=JOIN_SECONDS)))
    return own_part(store, rank, size)


def own_part(store: Store, rank: int, size: int, clock: Callable[[], float] = time.monotonic) -> Store:
    """The part of `store` that is this attempt's alone, agreed upon by its `size` processes, who all call this.

    A process asks under a name that nobody had before; only a living process 0 answers it, and all processes of an attempt
    before are dead when the first of this one starts. Asks of dead ones are answered too, and nobody reads that.
    EnvironmentError_ names who has not come in `JOIN_SECONDS`.
    """
    if rank > 0:
        ask = uuid.uuid4().hex
        store.set(f"webtext/ask/{rank}", ask)
        try:
            attempt = store.get(f"webtext/answer/{ask}").decode()
        except RuntimeError:
            raise EnvironmentError_(f"process 0 of {size} did not come in {JOIN_SECONDS:.0f} s", _LOOK) from None
        own = PrefixStore(f"webtext/{attempt}", store)
        own.set(f"joined/{rank}", "")
        return own
    attempt, begun = uuid.uuid4().hex, clock()
    own = PrefixStore(f"webtext/{attempt}", store)
    while absent := [other for other in range(1, size) if not own.check([f"joined/{other}"])]:
        for asking in absent:
            if store.check([key := f"webtext/ask/{asking}"]):
                store.set(f"webtext/answer/{store.get(key).decode()}", attempt)
        if clock() - begun > JOIN_SECONDS:
            names = ", ".join(map(str, absent))
            raise EnvironmentError_(f"of {size} processes these did not come in {JOIN_SECONDS:.0f} s: {names}", _LOOK)
        time.sleep(_POLL_SECONDS)
    return own


def interface_towards(host: str) -> str | None:
    """The network interface by which this machine reaches `host`; None where that is itself, or cannot be told.

    >>> interface_towards("127.0.0.1")
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        try:
            probe.connect((host, 1))
            address = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", os.fsencode(name)[:15])
                with contextlib.suppress(OSError):  # one without an address
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                    if socket.inet_ntoa(answer[20:24]) == address and not address.startswith("127."):
                        return name
        except OSError:
            return None
    return None


_SIOCGIFADDR = 0x8915  # netdevice(7); another system refuses it
_LOOK = "look at their output, and whether their hosts reach MASTER_ADDR"
