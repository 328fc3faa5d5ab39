"""The process of one slot: it reads calls from a socket, makes them one after another, and answers each.


    parent -> child    (function, arguments, log), pickled
    child -> parent    ("returned", value) or ("raised", WebtextError)

torch is loaded once for all calls of a slot. The process has its own session, so Ctrl-C reaches only the parent, which
ends its children by SIGTERM. If the parent dies, a pipe from it closes, and the child sends SIGTERM to itself: so a run
saves and ends, whatever happened to the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

from webtext.base.errors import WebtextError

START = "from webtext.train.experiments.child import main; main()"


def main() -> None:
    """Serve calls until the parent closes the socket. Arguments: the file descriptors of socket and pipe."""
    connection, alive = Connection(int(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            function, arguments, log = connection.recv()
            _print_into(log)
            try:
                answer = ("returned", function(*arguments))
            except WebtextError as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
                answer = ("raised", error)
            connection.send(answer)


def _print_into(log: str) -> None:
    """Append everything that this process and its libraries print to the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _end_with_parent(alive: int) -> None:
    """Wait for the end of the parent: nothing is ever written into the pipe, so a read returns when it is closed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
