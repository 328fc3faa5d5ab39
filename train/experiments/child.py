"""The process of a place: it reads calls from a socket, makes them one after another, and answers each.

    parent -> child    (function, arguments, log), pickled
    child -> parent    ("returned", value) or ("raised", WebtextError)

torch is loaded once for all of a place's calls. The process has a session of its own, so Ctrl-C reaches the parent alone, which
asks its children to end by SIGTERM. Where the parent is gone, a pipe that it held closes, and the child asks itself: a run saves
and ends, whatever became of who started it.
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
    """Serve calls until the parent closes the socket. Arguments: the files of the socket and of the pipe."""
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
    """All that this process and its libraries print goes to the end of the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _end_with_parent(alive: int) -> None:
    """Nothing is ever written into the pipe: that reading returns means that its other end is closed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
