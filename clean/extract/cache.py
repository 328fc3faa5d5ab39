"""Cache of extraction results, for identical bodies: mirrors, error pages with status 200, unchanged captures.

Each part has its own cache, and the least recently used result is evicted first. So the number of reused results
depends only on the part, not on workers or kills. Memory: MAX_CHARACTERS of text and MAX_BODIES keys.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from webtext.clean.extract.body import Body
from webtext.clean.reasons import Dropped, Refused

MAX_CHARACTERS = 16_000_000  # of up to four bytes
MAX_BODIES = 20_000

Result = Body | Dropped | Refused


class ResultCache:
    """Caches the results of a pure function of (body, Content-Type); evicts the least recently used one first."""

    def __init__(self, extract: Callable[[bytes, str], Result]) -> None:
        self.n_reused = 0
        self._extract = extract
        self._found: OrderedDict[bytes, Result] = OrderedDict()
        self._n_characters = 0

    def __call__(self, body: bytes, content_type: str) -> Result:
        """Return the result of `extract`; its exceptions aren't cached."""
        digest = hashlib.sha256(body)
        digest.update(content_type.encode("utf-8", "surrogatepass"))
        key = digest.digest()
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
            self.n_reused += 1
            return found
        found = self._found[key] = self._extract(body, content_type)
        self._n_characters += _n_characters(found)
        while self._n_characters > MAX_CHARACTERS or len(self._found) > MAX_BODIES:
            _, oldest = self._found.popitem(last=False)
            self._n_characters -= _n_characters(oldest)
        return found


def _n_characters(result: Result) -> int:
    return len(result.text) if isinstance(result, Body) else 0
