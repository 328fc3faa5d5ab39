"""A model of the vote score in one small file: a line that names the format, a line of JSON, weights, and their SHA-256.

The score of a text is 1 / (1 + e^-x), x = factor * sum of its features' weights / sqrt(their number) + offset. The weights
are int8 [2^bits], so that sums are equal on every machine. The SHA-256 is of all bytes before it.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.recipe import canonical_json
from webtext.base.storage import Folder, json_object
from webtext.clean import _ngrams
from webtext.clean.text.arrays import texts_of

MAGIC = b"webtext vote score 1"
MAX_BITS, HASH_BYTES = 24, 32
MAX_CHARACTERS = 10_000  # only the start of a longer text is read, as for its language
SCORE_DIGITS = 6  # more would differ between machines


@dataclass(frozen=True, slots=True)
class ScoreModel:
    """An open model: its header (`write_model`) and its weights; pickled, it is opened again and must be the same."""

    location: str
    sha256: str
    header: Mapping[str, Any]
    weights: npt.NDArray[np.int8]

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.location, self.sha256)

    def scores(self, texts: pa.Array) -> pa.Array:
        """Return each text's score, float64 in [0, 1]; null for a text without a word."""
        found, ends = features(texts, self.header["bits"])
        sums = np.diff(np.concatenate([[0], np.cumsum(self.weights[found], dtype=np.int64)])[ends])
        powers = self.header["factor"] * sums / np.sqrt(np.maximum(np.diff(ends), 1)) + self.header["offset"]
        scores = np.round(1 / (1 + np.exp(-np.clip(powers, -50, 50))), SCORE_DIGITS)
        return pa.array(scores, mask=np.diff(ends) == 0)


def features(texts: pa.Array, bits: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return the features of the texts' starts and where they end: text i has features[ends[i]:ends[i + 1]]."""
    return _ngrams.features(*texts_of(pc.utf8_slice_codeunits(texts, 0, MAX_CHARACTERS)), bits)


def write_model(
    location: str, weights: npt.NDArray[np.int8], factor: float, offset: float, card: Mapping[str, Any]
) -> ScoreModel:
    """Write the file and return the model; the card says how it was made and judged, and changes no score."""
    header = {"factor": factor, "offset": offset, "card": card}
    header |= {"bits": len(weights).bit_length() - 1, "unicode": _ngrams.UNICODE_VERSION}
    data = b"\n".join((MAGIC, canonical_json(header), weights.tobytes()))
    folder, name = Folder.split(location)
    folder.write_bytes(name, data + hashlib.sha256(data).digest())
    return open_model(location)


def open_model(location: str) -> ScoreModel:
    """Open a model; raises InputError if the file isn't a complete, unaltered model that this version can apply."""
    folder, name = Folder.split(location)
    data = folder.read_bytes(name)  # bounded
    magic, _, rest = data.partition(b"\n")
    if magic != MAGIC:
        raise InputError(f"'{location}' is not a vote score of version 1", "name a file that clean score train wrote")
    head, _, rest = rest.partition(b"\n")
    weights = np.frombuffer(rest[:-HASH_BYTES], np.int8)
    if hashlib.sha256(data[:-HASH_BYTES]).digest() != rest[-HASH_BYTES:]:
        raise InputError(f"the model '{location}' was altered or is truncated", "make it again, or copy it again")
    header = json_object(head, location, "make it again")
    if not _is_sound(header, len(weights)):
        raise InputError(
            f"the model '{location}' has sizes or numbers that no score can be computed with", "make it again"
        )
    if header["unicode"] != _ngrams.UNICODE_VERSION:
        raise InputError(
            f"the model '{location}' was made with Unicode {header['unicode']}, not {_ngrams.UNICODE_VERSION}",
            "its words may be others in this package: train it again",
        )
    return ScoreModel(location, hashlib.sha256(data).hexdigest(), header, weights)


def _is_sound(header: Mapping[str, Any], n_weights: int) -> bool:
    try:
        finite = math.isfinite(header["factor"] + header["offset"])
        return finite and 1 <= header["bits"] <= MAX_BITS and n_weights == 1 << header["bits"] and "unicode" in header
    except (KeyError, TypeError, OverflowError):
        return False


@functools.lru_cache(maxsize=2)
def _open_again(location: str, sha256: str) -> ScoreModel:
    opened = open_model(location)
    if opened.sha256 != sha256:
        raise InputError(f"the model '{location}' changed while it was used", "rerun the same command")
    return opened
