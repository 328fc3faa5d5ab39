"""Load a kept index into datasketch's `MinHashLSH`, in memory or on Redis, to query it with single documents.

    lsh = load_lsh("october/index")
    lsh.query(minhash_of("some text", "october/index"))     # ids of possible near duplicates

An index with datasketch's signatures (`--signatures datasketch`) can be queried with any MinHash that has datasketch's
default scheme and seed and was made from the same shingles. An index with webtext's signatures can be queried only with
the result of `minhash_of`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import InputError, missing_extra
from webtext.base.parts.partset import PartSet
from webtext.clean.dedup.datasketch_signatures import SCHEME, to_minhash
from webtext.clean.dedup.index import KIND, signature_file, value_bytes
from webtext.clean.dedup.reference import permutations
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import about_signatures, sign_batch

if TYPE_CHECKING:
    from datasketch import MinHash, MinHashLSH

WEBTEXT_SEED = 0
"""datasketch refuses to compare MinHashes of different seeds; its default is 1."""


def load_lsh(
    *indexes: str, bands: int = 25, rows: int = 5, storage: Mapping[str, Any] | None = None, buffer: int = 10_000
) -> MinHashLSH:
    """Load the documents of the indexes into one `MinHashLSH`; documents without words are left out.

    `storage` is datasketch's `storage_config`, e.g. `{"type": "redis", "basename": b"october", "redis": {"host":
    "127.0.0.1", "port": 6379}}`. In Redis, keys are ids in UTF-8 and nothing is pickled, so attach to a loaded store
    with `prepickle=False`. Raises InputError if the store already has documents or the indexes have different settings.
    """
    sets = [PartSet.open(index, KIND) for index in indexes]
    if len({str(opened.recipe["settings"]) for opened in sets}) != 1:
        raise InputError(f"{len(sets)} indexes with different settings", "name indexes with equal settings")
    lsh = _new_lsh(sets[0].recipe["settings"]["permutations"], bands, rows, storage)
    if not lsh.is_empty():
        raise InputError("the storage already contains documents", "use another 'basename', or remove the documents")
    as_bytes = storage is not None and storage["type"] != "dict"
    with lsh.insertion_session(buffer_size=buffer) as session:
        for opened in sets:
            for part in range(len(opened.parts)):
                facts = opened.table(part, ["id", "has_words"])
                signatures = _signatures(opened, part)
                for row in np.flatnonzero(facts["has_words"].to_numpy(zero_copy_only=False)).tolist():
                    name = facts["id"][row].as_py()
                    session.insert(
                        name.encode() if as_bytes else name, _minhash(signatures[row]), check_duplication=False
                    )
    return lsh


def minhash_of(text: str, index: str) -> MinHash:
    """Return the MinHash of a text, signed in the same way as the documents of the index."""
    about = PartSet.open(index, KIND).recipe["settings"]
    names = ("shingle_words", "permutations", "signatures")
    settings = DedupSettings(
        **{name: about[name] for name in names}, threshold=1.0, bands=1, rows=1
    )  # threshold and bands don't matter: the settings are only used to sign
    if about_signatures(settings) != about:
        raise InputError(
            f"the index '{index}' was made by another version of webtext", "make it again with --keep-index"
        )
    signatures, _ = sign_batch(pa.array([text]), settings)
    return _minhash(signatures[0])


def _new_lsh(count: int, bands: int, rows: int, storage: Mapping[str, Any] | None) -> MinHashLSH:
    try:
        from datasketch import MinHashLSH
    except ImportError:
        raise missing_extra("datasketch", "lsh") from None
    config = dict(storage) if storage is not None else None
    return MinHashLSH(num_perm=count, params=(bands, rows), storage_config=config, prepickle=False)


def _signatures(signatures: PartSet, part: int) -> npt.NDArray[Any]:
    dtype = np.uint32 if value_bytes(signatures) == 4 else np.uint8
    values = np.fromfile(signature_file(signatures, part), dtype)
    return values.reshape(signatures.parts[part].records, -1)


def _minhash(signature: npt.NDArray[Any]) -> MinHash:
    if signature.dtype == np.uint32:
        return to_minhash(signature)
    from datasketch import MinHash

    return MinHash(
        seed=WEBTEXT_SEED,
        hashvalues=signature.astype(np.uint32),
        permutations=_permutations(len(signature)),
        scheme=SCHEME,
    )


@functools.lru_cache(maxsize=8)
def _permutations(count: int) -> npt.NDArray[np.uint32]:
    return np.array(permutations(count))
