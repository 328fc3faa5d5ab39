"""Sign documents: a part set of kind `signatures`, one part per documents part, row for row.

    part-00000.parquet      id, text_digest, karma, date, split, has_words, failed
    part-00000.signatures   the signatures, row after row: uint32 [records, permutations], little-endian

Every row is signed, including rows that quality rules drop, so that other thresholds don't need a second pass. A row
that could not be signed says why in `failed`; like a text without words it has all bits set.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import write_array
from webtext.base.workers.attempt import Failed
from webtext.clean import _minhash
from webtext.clean.dedup.settings import PERMUTATIONS, SHINGLE_WORDS
from webtext.clean.text.arrays import shortened, texts_of

CODE_VERSION = 4  # raised when signatures or shingles change; guarded by a golden test. 4: datasketch's permutations
KIND = "signatures"
STAGE = "clean.signatures"
TEXTS_PER_BATCH = 1024
VALUE_BYTES = 4
NO_SHINGLE = np.uint32(0xFFFFFFFF)
SEED = 1  # datasketch's default
_FACTS = ("id", "text_digest", "karma", "date", "split")
Values = npt.NDArray[np.uint32]


def sign_documents(documents: PartSet, url: str, run: Run) -> PartSet:
    """Write the signatures of a set of documents to `url`; finished parts aren't signed again."""
    tasks, recipe = PartTask.for_each(documents), signature_recipe(STAGE)
    return make_set(_sign_part, tasks, url, KIND, recipe, [documents], run, "clean.dedup: sign")


def signature_recipe(stage: str) -> Recipe:
    """Return the recipe of a set of signatures. Two sets are comparable if only the stages in their recipes differ."""
    return Recipe(
        stage=stage,
        code_version=CODE_VERSION,
        settings={"shingle_words": SHINGLE_WORDS, "permutations": PERMUTATIONS},
        versions={"unicode": _minhash.UNICODE_VERSION},
    )


def minhash_of(text: str, count: int = PERMUTATIONS) -> Values:
    """Return the hash values of a text's MinHash, uint32 [count]: the row that the text has in a set of signatures.

    `MinHash(hashvalues=minhash_of(text), scheme="affine32")` is the same for datasketch. It can be compared with another
    one made this way, and with no other, which datasketch doesn't notice.

    >>> minhash_of("A rose is a rose.", count=3).tolist() == minhash_of("a rose is a ROSE", count=3).tolist()
    True
    """
    values: Values = sign_batch(pa.array([text], pa.large_string()), count)[0][0]
    return values


def sign_batch(texts: pa.Array, count: int = PERMUTATIONS) -> tuple[Values, npt.NDArray[np.bool_]]:
    """Return the texts' signatures [n, count], and which texts have words, bool [n]."""
    values, n_shingles = _minhash.sign(*texts_of(texts), SHINGLE_WORDS, *permutations(count))
    return values, n_shingles > 0


@functools.lru_cache(maxsize=8)
def permutations(count: int) -> npt.NDArray[np.uint32]:
    """Return the odd factors and the increments of x -> a * x + b mod 2^32, uint32 [2, count].

    They are drawn as datasketch draws them, from numpy's legacy generator, whose stream is frozen.
    """
    random = np.random.RandomState(SEED)
    a = random.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return np.array([a, random.randint(0, 1 << 32, count, dtype=np.uint32)])


def signed_rows(
    signatures: PartSet, part: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.RecordBatch, Values]]:
    """Yield the rows of a part and their signatures [n, permutations], at most 1,024 rows at a time, verified."""
    about = signatures.parts[part]
    n_bytes = [file.bytes for file in about.attachments if file.name.endswith(".signatures")]
    if n_bytes != [about.records * PERMUTATIONS * VALUE_BYTES]:
        raise InputError(
            f"'{signatures.folder.location(about.name)}' does not have a signature for each document",
            "remove the set and make it again",
        )
    with signatures.folder.open(signatures.attachment(part, ".signatures")) as file:
        for rows in signatures.batches(part, columns):
            data = file.read(rows.num_rows * PERMUTATIONS * VALUE_BYTES)
            yield rows, np.frombuffer(data, np.uint32).reshape(rows.num_rows, PERMUTATIONS)


def _sign_part(context: PartContext, task: PartTask) -> None:
    """Sign one part, in a worker."""
    name, part = task.payload
    output = context.main
    batches = name.open().batches(part, (*_FACTS, "text"), TEXTS_PER_BATCH)
    with open(output.attach(signatures_name(task.index)), "wb") as file:
        for batch, signed in context.apply_to_batches(lambda batch: sign_batch(shortened(batch["text"])[0]), batches):
            if isinstance(signed, Failed):  # counted already; its row keeps signatures aligned with documents
                failed = pa.array([signed.reason])
                signed = np.full((1, PERMUTATIONS), NO_SHINGLE), np.zeros(1, np.bool_)
            else:
                failed = shortened(batch["text"])[1]
                output.counts.keep(batch.num_rows)
            values, has_words = signed
            write_array(file, values)
            facts = {name: batch[name] for name in _FACTS}
            output.write_table(pa.table(facts | {"has_words": has_words, "failed": failed}))


def signatures_name(part: int) -> str:
    """Return the name of the attachment with a part's signatures."""
    return f"part-{part:05d}.signatures"
