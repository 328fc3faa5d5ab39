"""`forking_torchrun.py ...`: torchrun whose ranks are forked from it instead of starting their own interpreters.

Everything else is torchrun's own: rendezvous, environment, restarts, signals, exit codes, logs.
"""

from __future__ import annotations

import zygote  # next to this file
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

import webtext.app.main
import webtext.train.command
import webtext.train.parallel.parallelize
import webtext.train.run.trainer  # noqa: F401

if __name__ == "__main__":
    subprocess_handler.Popen = zygote.ForkedHere  # type: ignore[attr-defined]
    run.main()
