"""A model of the vote score in one small file: a line that names the format, a line of JSON, weights, and their SHA-256.

The score of a text is 1 / (1 + e^-x), x = factor * sum of its features' weights / sqrt(their number) + offset. The weights
are int16 [2^bits], so that sums are equal on every machine.
"""

from __future__ import annotations

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
from webtext.base.storage import Folder, decode_json
from webtext.clean import _ngrams
from webtext.clean.text.arrays import texts_of

MAGIC = b"webtext vote score 1"
MAX_BITS, HASH_BYTES = 18, 32
MAX_CHARACTERS = 10_000  # only the start of a longer text is read, as for its language
SCORE_DIGITS = 6  # more would differ between machines


@dataclass(frozen=True, slots=True)
class ScoreModel:
    """An open model: its header (`write_model`) and its weights, and the SHA-256 of its file."""

    location: str
    sha256: str
    header: Mapping[str, Any]
    weights: npt.NDArray[np.int16]

    def scores(self, texts: pa.Array) -> pa.Array:
        """Return each text's score, float64 in [0, 1]; null for a text without a word."""
        found, ends = features(texts, self.header["bits"])
        sums = np.diff(np.concatenate([[0], np.cumsum(self.weights[found], dtype=np.float64)])[ends])
        powers = self.header["factor"] * sums / np.sqrt(np.maximum(np.diff(ends), 1)) + self.header["offset"]
        scores = np.round(1 / (1 + np.exp(-np.clip(powers, -50, 50))), SCORE_DIGITS)
        return pa.array(scores, mask=np.diff(ends) == 0)


def features(texts: pa.Array, bits: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return the features of the texts' starts and where they end: text i has features[ends[i]:ends[i + 1]]."""
    return _ngrams.features(*texts_of(pc.utf8_slice_codeunits(texts, 0, MAX_CHARACTERS)), bits)


def write_model(location: str, weights: npt.NDArray[np.int16], header: Mapping[str, Any]) -> ScoreModel:
    """Write the file and return the model. The header has factor, offset, and a card that changes no score."""
    about = {"bits": len(weights).bit_length() - 1, "unicode": _ngrams.UNICODE_VERSION}
    data = b"\n".join((MAGIC, canonical_json({**header, **about}), weights.astype("<i2").tobytes()))
    folder, name = Folder.split(location)
    folder.write_bytes(name, data + hashlib.sha256(data).digest())
    return open_model(location)


def check_place(location: str) -> None:
    """Raise InputError if `location` is a file that isn't a model: it would be replaced."""
    folder, name = Folder.split(location)
    if folder.exists(name):
        with folder.open(name) as file:
            if file.read(len(MAGIC)) not in (b"", MAGIC):
                raise InputError(f"'{location}' is not a vote score, and would be replaced", "choose another --out")


def open_model(location: str) -> ScoreModel:
    """Open a model; raises InputError if the file isn't a complete, unaltered model that this version can apply."""
    folder, name = Folder.split(location)
    data = folder.read_bytes(name)  # bounded
    magic, _, rest = data.partition(b"\n")
    if magic != MAGIC:
        raise InputError(f"'{location}' is not a vote score of version 1", "name a file that clean score train wrote")
    head, _, rest = rest.partition(b"\n")
    if hashlib.sha256(data[:-HASH_BYTES]).digest() != rest[-HASH_BYTES:]:
        raise InputError(f"the model '{location}' was altered or is truncated", "make it again, or copy it again")
    header = decode_json(head, dict[str, Any], location, "make it again")
    if header.get("unicode") != _ngrams.UNICODE_VERSION:
        made = f"Unicode {header.get('unicode')}, this package {_ngrams.UNICODE_VERSION}"
        raise InputError(f"the words of the model '{location}' are those of {made}", "train it again")
    try:
        is_sound = math.isfinite(header["factor"] + header["offset"]) and 1 <= header["bits"] <= MAX_BITS
        weights = np.frombuffer(rest[:-HASH_BYTES], "<i2", 1 << header["bits"] if is_sound else 0)
    except (KeyError, TypeError, OverflowError, ValueError):
        is_sound = False
    if not is_sound or 2 * len(weights) != len(rest) - HASH_BYTES:
        raise InputError(f"'{location}' has sizes or numbers that give no score", "make it again")
    return ScoreModel(location, hashlib.sha256(data).hexdigest(), header, weights)
