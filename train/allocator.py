"""Memory that training frees on a CPU and takes again at every step.

glibc gives each large piece back to the system and fetches it anew, page by page, zeroed: a quarter of the time of the
output layer of a 124M model. Told to keep them, it reuses them.
"""

from __future__ import annotations

import ctypes

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER_TRIM, _LARGEST_KEPT = 2**31 - 1, 2**30


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, in pieces of up to 1 GiB; False where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT) and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM))
