"""Which documents are near given texts: datasketch's MinHashLSH, asked with the signatures of a set.

The texts to look up are signed and kept in the LSH, and the signatures of sets pass by, so memory grows with the texts alone.
A similarity is an estimate: the share of equal values of two signatures.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datasketch import LeanMinHash, MinHashLSH

from webtext.base.errors import InputError
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, InputFile, Refused, find_inputs
from webtext.base.inputs.records import objects, records
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.clean.dedup.index import corpus_of, open_signatures
from webtext.clean.dedup.settings import PERMUTATIONS, recall
from webtext.clean.dedup.sign import NO_SHINGLE, SEED, Values, minhash_of, sign_batch, signed_rows
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text.arrays import shortened
from webtext.clean.text.clean_text import clean_text, is_longer

MIN_RECALL = 0.99  # of pairs at the threshold
MOST = 100  # documents named for a text
LONG, EMPTY, WORDLESS = (Refused(reason, "") for reason in (TOO_MANY_BYTES, "empty_text", "no_words"))
MADE = {"seed": SEED, "scheme": "affine32"}  # of datasketch's MinHashes that are our signatures
Signed = Iterator[tuple[Sequence[str], Values, Callable[[int], str | None]]]
"""Ids and signatures of some rows, and the URL of each row."""


def look_up(names: Sequence[str], indexes: Sequence[str], threshold: float) -> list[dict[str, Any]]:
    """Return for each text of files its name, `reason` if it can't be compared, and `matches`, nearest first.

    `-` means JSON lines on standard input. An index is a part set of signatures or of documents, or a .npz file with the
    arrays keys [n], hashvalues uint32 [n, permutations], seed and scheme. A match has id, similarity (estimated Jaccard), url
    and index. Raises InputError if an index can't be read, or has signatures that can't be compared.
    """
    minhash = functools.partial(LeanMinHash, **MADE)
    wide = (n for n in range(PERMUTATIONS // 2, 1, -1) if recall(threshold, PERMUTATIONS // n, n) >= MIN_RECALL)
    rows = next(wide, 1)
    lsh = MinHashLSH(num_perm=PERMUTATIONS, params=(PERMUTATIONS // rows, rows))
    answers: list[dict[str, Any]] = []
    asked = {}
    for i, (name, text) in enumerate(_texts(names)):
        if isinstance(text, str) and (values := minhash_of(text)).min() == NO_SHINGLE:
            text = WORDLESS
        answers.append({"text": name, "reason": text.reason if isinstance(text, Refused) else None, "matches": []})
        if isinstance(text, str):
            asked[i] = minhash(hashvalues=values)
            lsh.insert(i, asked[i])
    for index in indexes:
        for ids, signatures, url_of in _of_arrays(index) if index.endswith(".npz") else _of_set(index):
            for row in np.flatnonzero((signatures < NO_SHINGLE).any(axis=1)).tolist():
                theirs = minhash(hashvalues=signatures[row])
                for i in lsh.query(theirs):
                    if (similarity := theirs.jaccard(asked[i])) >= threshold:
                        found = answers[i]["matches"]
                        found.append({"id": ids[row], "similarity": similarity, "url": url_of(row), "index": index})
                        found.sort(key=lambda each: (-each["similarity"], each["id"]))
                        del found[MOST:]
    return answers


def _texts(names: Sequence[str]) -> Iterator[tuple[str, str | Refused]]:
    """Yield the name of each text, and the text as documents store it or why no document has it."""
    for name in names:
        sets, files = ([], []) if name == "-" else find_inputs([name], DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True)
        files += [InputFile(each.folder, part.name) for each in sets for part in each.parts]
        read = [(file.location, records(file, ("text",), "text")) for file in files]
        for place, found in read or [("-", objects(sys.stdin.buffer))]:
            for number, record in enumerate(found, start=1):
                text = record if isinstance(record, Refused) else record.get("text")
                if isinstance(text, str):
                    text = LONG if is_longer(text) else clean_text(text) or EMPTY
                yield f"{place}:{number}", text if isinstance(text, str | Refused) else Refused("no_text", "")


def _of_set(url: str) -> Signed:
    """Yield the signatures of a set; for documents they are made now."""
    opened = PartSet.open(url)
    documents = opened if opened.kind in DOCUMENTS else corpus_of(open_signatures(url))

    @functools.lru_cache(maxsize=1)
    def urls(part: int) -> Any:
        return documents.table(part, ["url"])["url"] if documents else pa.nulls(opened.parts[part].records)

    for part in range(len(opened.parts)):
        first = 0
        texts = ((rows, sign_batch(shortened(rows["text"])[0])[0]) for rows in opened.batches(part, ["id", "text"]))
        for rows, values in texts if documents is opened else signed_rows(opened, part, ["id"]):
            url_of = functools.partial(lambda part, first, row: urls(part)[first + row].as_py(), part, first)
            yield rows["id"].to_pylist(), values, url_of
            first += rows.num_rows


def _of_arrays(url: str) -> Signed:
    """Yield the signatures of a file that somebody made of datasketch's MinHashes; nothing in it is unpickled."""
    folder, name = Folder.split(url)
    try:
        with folder.open(name) as file, np.load(file, allow_pickle=False) as arrays:
            ids, values = arrays["keys"].astype(str).tolist(), arrays["hashvalues"]
            made = {each: arrays[each].tolist() for each in MADE}
        if made != MADE or values.dtype.kind != "u" or values.shape != (len(ids), PERMUTATIONS):
            raise ValueError(f"{len(ids)} keys, hashvalues {values.dtype} {values.shape}, {made}")
    except InputError:
        raise
    except Exception as error:  # numpy, zipfile and zlib raise many kinds
        hint = f"expected the arrays keys [n], hashvalues [n, {PERMUTATIONS}] of minhash_of, and {MADE}"
        raise InputError(f"'{url}' has no signatures to compare: {error}", hint) from None
    yield ids, values.astype(np.uint32), lambda _: None
