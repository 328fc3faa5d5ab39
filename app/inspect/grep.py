"""Count a string or a regular expression in the texts of a part set, by karma.

For example translations that occur in the training set, or `<UNK>` (Radford et al. 2019, table 1 and section 3.1). RE2
finds both, in time that is linear in the text whatever the pattern is, so no timeout is needed, and what is counted
doesn't depend on the machine. Occurrences don't overlap. Text is compared as UTF-8, without normalisation.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import re2

from webtext.base.console import counted
from webtext.base.errors import ConfigError
from webtext.base.inputs.files import DOCUMENTS
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean.decontaminate.comparison import aligned
from webtext.clean.text.arrays import texts_of

KARMA = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Where ranges of karma begin; 3 is the least that a link in WebText has."""
RANGES = ("unknown", "below 3", *(f"{a:,}-{b - 1:,}" for a, b in itertools.pairwise(KARMA)), f"{KARMA[-1]:,} and more")
COUNTS = ("documents", "bytes", "matching_documents", "occurrences")
COLUMNS = ["id", "url", "karma", "text"]
CONTEXT_BYTES, MATCH_BYTES = 100, 400
Counts = npt.NDArray[np.int64]


class Query(NamedTuple):
    """What to find: a string, or an expression in RE2's syntax."""

    pattern: str
    regex: bool = False
    ignore_case: bool = False

    def compiled(self) -> Any:
        """Return the expression; raises ConfigError if it is invalid, or would match everywhere."""
        options = re2.Options()
        options.literal, options.case_sensitive, options.log_errors = not self.regex, not self.ignore_case, False
        try:
            found = re2.compile(self.pattern.encode(), options)
        except UnicodeEncodeError:
            raise ConfigError(f"the pattern {self.pattern!r} is not valid UTF-8", "expected text") from None
        except re2.error as error:
            cause = error.args[0].decode(errors="replace")
            raise ConfigError(f"the expression '{self.pattern}' is invalid: {cause}", "expected RE2's syntax") from None
        if found.search(b""):
            raise ConfigError(f"the pattern '{self.pattern}' matches the empty text", "expected one that doesn't")
        return found


def open_texts(place: str) -> PartSet:
    """Open a set of documents, or the corpus of a build."""
    return PartSet.open(place if Folder(place).exists(MANIFEST) else Folder(place).location("corpus"), DOCUMENTS)


def grep(opened: PartSet, query: Query, n: int, run: Run) -> dict[str, Any]:
    """Return counts in total and by karma, and the first `n` documents with the pattern, in the set's order."""
    query.compiled()
    tasks = [(SetName.of(opened), i, query, n) for i in range(len(opened.parts))]
    counts, failed = np.zeros((len(RANGES), len(COUNTS)), np.int64), Counter[str]()
    shown: list[dict[str, Any]] = []
    for of_part, failures, first in run.map(_search_part, tasks, "inspect grep"):
        counts += of_part
        failed.update(failures)
        shown += first[: n - len(shown)]
    rows = [{"karma": karma} | _named(row) for karma, row in zip(RANGES, counts, strict=True) if row[0]]
    found = {"by_karma": rows, "failed": dict(failed), "shown": shown, "set": opened.folder.url}
    return query._asdict() | found | _named(counts.sum(axis=0))


def _named(counts: Counts) -> dict[str, int]:
    return dict(zip(COUNTS, counts.tolist(), strict=True))


def grep_text(found: Mapping[str, Any]) -> str:
    """Return the counts as a table, and the documents with the context of the first occurrence."""
    searched = f"{counted(found['documents'], 'document')} with {found['bytes']:,} bytes"
    rows = ([row["karma"], *(f"{row[name]:,}" for name in COUNTS)] for row in found["by_karma"])
    lines = [
        f"{counted(found['occurrences'], 'occurrence')} in {found['matching_documents']:,} of {searched}",
        *(f"not searched: {counted(n, 'document')}, {reason}" for reason, n in found["failed"].items()),
        aligned([["karma", "documents", "bytes", "with it", "occurrences"], *rows]),
    ]
    for row in found["shown"]:
        karma = "unknown" if row["karma"] is None else f"{row['karma']:,}"
        times = counted(row["occurrences"], "occurrence")
        lines.append(f"\n{row['url'] or ''} {row['id']}, karma {karma}: {times}\n  {row['context']!r}")
    return "\n".join(lines)


def _search_part(
    journal: Journal, task: tuple[SetName, int, Query, int]
) -> tuple[Counts, dict[str, int], list[dict[str, Any]]]:
    """Return COUNTS by range of karma [ranges, 4], how many documents failed, by reason, and the first ones found."""
    documents, part, query, n = task
    compiled, counts, failed = query.compiled(), np.zeros((len(RANGES), len(COUNTS)), np.int64), Counter[str]()
    shown: list[dict[str, Any]] = []

    def search(batch: pa.RecordBatch) -> list[tuple[int, int, str]]:
        data, ends = texts_of(batch["text"])
        return [_occurrences(compiled, data.data[start:end]) for start, end in itertools.pairwise(ends.tolist())]

    for batch, texts in journal.apply_to_batches(search, documents.open().batches(part, COLUMNS)):
        if isinstance(texts, Failed):
            failed[texts.reason] += 1
            continue
        karma = batch["karma"].to_pylist()
        of = [0 if each is None else 1 + bisect.bisect_right(KARMA, each) for each in karma]
        np.add.at(counts, of, np.array([(1, n_bytes, times > 0, times) for n_bytes, times, _ in texts]))
        for row, (_, times, context) in enumerate(texts):
            if times and len(shown) < n:
                about = {name: batch[name][row].as_py() for name in ("id", "url")}
                shown.append(about | {"karma": karma[row], "occurrences": times, "context": context})
    return counts, failed, shown


def _occurrences(compiled: Any, text: memoryview) -> tuple[int, int, str]:
    """Return a text's bytes, its occurrences (empty ones aren't counted), and the first with its context."""
    times, context = 0, ""
    for match in compiled.finditer(text):
        start, end = match.span()
        if times == 0 and end > start:
            around = slice(max(0, start - CONTEXT_BYTES), min(end, start + MATCH_BYTES) + CONTEXT_BYTES)
            context = bytes(text[around]).decode(errors="ignore")
        times += end > start
    return len(text), times, context
