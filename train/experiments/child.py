"""The process of one call: it reads the call from a socket, makes it, and answers with what it returned or raised.

    parent -> child    (function, arguments), pickled
    child -> parent    ("returned", value) or ("raised", WebtextError)

It has a session of its own, so Ctrl-C reaches the parent alone, which asks its children to end by SIGTERM. Where the parent
is gone, the socket closes, and the child asks itself: a run saves and ends, whatever became of who started it.
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
    """Serve one call. Argument: the file of the socket. What libraries print goes where stderr goes: the call's log."""
    connection = Connection(int(sys.argv[1]))
    function, arguments = connection.recv()
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    try:
        answer = ("returned", function(*arguments))
    except WebtextError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        answer = ("raised", error)
    with contextlib.suppress(BrokenPipeError):
        connection.send(answer)


def _end_with_parent(connection: Connection) -> None:
    """The parent sends nothing more: that there is something to read means that its end is closed."""
    connection.poll(None)
    os.kill(os.getpid(), signal.SIGTERM)
