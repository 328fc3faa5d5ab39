"""How the processes of one attempt of a run find each other, and ignore processes of earlier attempts.

torchrun restarts all processes when one of them ends, and passes them its agent's store, which still contains the
addresses of the previous attempt (torch 2.13: "Gloo connectFullMesh failed ... Connection refused"). So each attempt
communicates under its own prefix, which process 0 draws and sends to those that ask for it. The restart count that
torchrun passes on can't be that prefix: an agent whose own processes all lived doesn't count a restart that another
host requested.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
import uuid
from datetime import timedelta

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from webtext.base.errors import ConfigError, MachineError

JOIN_SECONDS = 300.0
_POLL_SECONDS = 0.02
_SIOCGIFADDR = 0x8915  # netdevice(7); other systems reject it


def attempt_store(rank: int, size: int) -> Store:
    """Return a store without entries of earlier attempts, at MASTER_ADDR and MASTER_PORT: torchrun's, or process 0's.

    Also sets gloo's network to that of the address, because gloo's own choice, by host name, is often 127.0.0.1.
    """
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise ConfigError(f"WORLD_SIZE is {size}, but MASTER_ADDR or MASTER_PORT is not set", "use torchrun")
    if interface := interface_towards(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=JOIN_SECONDS)))
    return own_part(store, rank, size)


def own_part(store: Store, rank: int, size: int) -> Store:
    """Return the part of `store` that belongs to this attempt. All `size` processes of the attempt call this to agree.

    A process asks under a name that nobody used before, and only a living process 0 answers. All processes of an
    earlier attempt are dead when the first of this one starts. Their requests are answered too, but nobody reads that.
    Raises MachineError with the processes that have not arrived within `JOIN_SECONDS`.
    """
    attempt, give_up = uuid.uuid4().hex, time.monotonic() + JOIN_SECONDS
    if rank > 0:
        store.set(f"webtext/ask/{rank}", attempt)
        attempt = store.get(f"webtext/answer/{attempt}").decode()
    own = PrefixStore(f"webtext/{attempt}", store)
    own.set(f"joined/{rank}", "")
    while rank == 0 and (absent := [other for other in range(size) if not own.check([f"joined/{other}"])]):
        for asking in absent:
            if store.check([key := f"webtext/ask/{asking}"]):
                store.set(f"webtext/answer/{store.get(key).decode()}", attempt)
        if time.monotonic() > give_up:
            raise MachineError(
                f"of {size} processes these did not join in {JOIN_SECONDS:.0f} s: {', '.join(map(str, absent))}",
                "check their output, and whether their hosts can reach MASTER_ADDR",
            )
        time.sleep(_POLL_SECONDS)
    return own


def interface_towards(host: str) -> str | None:
    """Return the network interface by which this machine reaches `host`; None if that is itself or unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((host, 1))  # of UDP: sends nothing
        address = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex() if address[0] != 127 else ():
            with contextlib.suppress(OSError):  # an interface without an address
                if fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", os.fsencode(name)[:15]))[20:24] == address:
                    return name
    return None
