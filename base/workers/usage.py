"""What a process has used: its peak of memory."""

from __future__ import annotations

import resource
import sys


def peak_bytes() -> int:
    """Return the most memory that this process has had resident so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
