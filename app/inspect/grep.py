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
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import re2

from webtext.base.console import counted
from webtext.base.errors import ConfigError
from webtext.base.inputs.files import DOCUMENTS
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.shares import of_share
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean.decontaminate.comparison import aligned
from webtext.clean.text.arrays import texts_of

KARMA = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Where ranges of karma begin; 3 is the least that a link in WebText has."""
LABELS = ("unknown", "below 3", *(f"{a:,}-{b - 1:,}" for a, b in itertools.pairwise(KARMA)), f"{KARMA[-1]:,} and more")
COUNTS = ("documents", "bytes", "matching_documents", "occurrences")
CONTEXT_BYTES, MATCH_BYTES = 100, 400


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to find: a string, or an expression in RE2's syntax."""

    text: str
    regex: bool = False
    ignore_case: bool = False

    def compiled(self) -> Any:
        """Return the expression; raises ConfigError if it is invalid, or would match everywhere."""
        options = re2.Options()
        options.literal, options.case_sensitive, options.log_errors = not self.regex, not self.ignore_case, False
        try:
            found = re2.compile(self.text.encode(), options)
        except UnicodeEncodeError:
            raise ConfigError(f"the pattern {self.text!r} is not valid UTF-8", "expected text") from None
        except re2.error as error:
            cause = error.args[0].decode(errors="replace")
            raise ConfigError(f"the expression '{self.text}' is invalid: {cause}", "expected RE2's syntax") from None
        if found.search(b""):
            raise ConfigError(f"the pattern '{self.text}' matches the empty text", "expected one that doesn't")
        return found


class _Found(NamedTuple):
    """What a part contains: COUNTS by range of karma, the first documents with the pattern, failures by reason."""

    counts: Any
    shown: list[dict[str, Any]]
    failed: Counter[str]


def open_texts(place: str) -> PartSet:
    """Open a set of documents, or the corpus of a build."""
    return PartSet.open(place if Folder(place).exists(MANIFEST) else Folder(place).location("corpus"), DOCUMENTS)


def grep(opened: PartSet, pattern: Pattern, n: int, run: Run) -> dict[str, Any]:
    """Return counts in total and by karma, and the first `n` documents with the pattern, in the set's order."""
    pattern.compiled()
    mine = {part.name for part in of_share(run.share, opened.parts)}
    tasks = [(SetName.of(opened), i, pattern, n) for i, part in enumerate(opened.parts) if part.name in mine]
    total = _Found(np.zeros((len(LABELS), len(COUNTS)), np.int64), [], Counter())
    for found in run.map(_search_part, tasks, "inspect grep"):
        total.counts.__iadd__(found.counts)
        total.shown.extend(found.shown[: n - len(total.shown)])
        total.failed.update(found.failed)
    rows = [
        {"karma": label, **dict(zip(COUNTS, counts, strict=True))}
        for label, counts in zip(LABELS, total.counts.tolist(), strict=True)
        if counts[0]
    ]
    about = {"pattern": pattern.text, "regex": pattern.regex, "ignore_case": pattern.ignore_case}
    about |= {"set": opened.folder.url, "by_karma": rows, "shown": total.shown, "failed": dict(total.failed)}
    return about | dict(zip(COUNTS, total.counts.sum(axis=0).tolist(), strict=True))


def grep_text(found: Mapping[str, Any]) -> str:
    """Return the counts as a table, and the documents with the context of the first occurrence."""
    searched = f"{counted(found['documents'], 'document')} with {found['bytes']:,} bytes"
    lines = [
        f"{counted(found['occurrences'], 'occurrence')} in {found['matching_documents']:,} of {searched}",
        *(f"not searched: {counted(n, 'document')}, {reason}" for reason, n in found["failed"].items()),
        aligned([["karma", "documents", "bytes", "with it", "occurrences"]]
                + [[row["karma"], *(f"{row[name]:,}" for name in COUNTS)] for row in found["by_karma"]]),
    ]  # fmt: skip
    for row in found["shown"]:
        karma = "unknown" if row["karma"] is None else f"{row['karma']:,}"
        times = counted(row["occurrences"], "occurrence")
        lines += [f"\n{row['url'] or ''} {row['id']}, karma {karma}: {times}", f"  {row['context']!r}"]
    return "\n".join(lines)


def _search_part(journal: Journal, task: tuple[SetName, int, Pattern, int]) -> _Found:
    documents, part, pattern, n = task
    compiled = pattern.compiled()
    found = _Found(np.zeros((len(LABELS), len(COUNTS)), np.int64), [], Counter())

    def search(batch: pa.RecordBatch) -> list[tuple[int, int, str]]:
        """Return the bytes of each text, the occurrences, and the first one with its context."""
        data, ends = texts_of(batch["text"])
        return [_occurrences(compiled, data[start:end]) for start, end in itertools.pairwise(ends.tolist())]

    batches = documents.open().batches(part, ["id", "url", "karma", "text"])
    for batch, texts in journal.apply_to_batches(search, batches):
        if isinstance(texts, Failed):
            found.failed[texts.reason] += 1
            continue
        for row, (n_bytes, occurrences, context) in enumerate(texts):
            karma = batch["karma"][row].as_py()
            label = 0 if karma is None else 1 + bisect.bisect_right(KARMA, karma)
            found.counts[label] += (1, n_bytes, occurrences > 0, occurrences)
            if occurrences and len(found.shown) < n:
                about = {name: batch[name][row].as_py() for name in ("id", "url")}
                found.shown.append(about | {"karma": karma, "occurrences": occurrences, "context": context})
    return found


def _occurrences(compiled: Any, text: np.ndarray) -> tuple[int, int, str]:
    n, context = 0, ""
    for match in compiled.finditer(text.data):
        start, end = match.span()
        if n == 0:
            until = min(end, start + MATCH_BYTES) + CONTEXT_BYTES
            context = text[max(0, start - CONTEXT_BYTES) : until].tobytes().decode(errors="ignore")
        n += end > start
    return len(text), n, context
