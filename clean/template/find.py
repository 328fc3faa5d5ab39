"""Find the lines that recur on the pages of a host, and make the documents again without them.

    documents ──► pages      each document's host, URL and text as hashes, by range of hosts
              ──► sample     of each host with enough pages up to MAX_PAGES, by part
              ──► lines      their lines as hashes, by range
              ──► templates  the lines that enough pages of a sample have: sorted hashes in an attachment
              ──► documents  without runs of such lines (`lines.py`)

Documents of one URL or with one text are one page, so copies alone make no template. Digests of texts choose the
sample: as good as random, whatever the order and the parts. In memory are a range of pages, 32 bytes each, one of
lines, 16 each, and all templates, 8 per line. Hashes have 64 bits.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.parts.counts import Counts
from webtext.base.parts.exchange import RangeWriter, count_ranges, range_of_hash, read_range
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, all_done, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url, host_of
from webtext.base.workers.journal import Failed
from webtext.clean.language import detect_language
from webtext.clean.template.lines import candidates, without_template
from webtext.clean.text.arrays import Keys, link_keys

CODE_VERSION = 1
WHOLE, WORK, LINES = "_whole", "_templates", ".lines"  # WHOLE, in documents, has them as they were extracted
MIN_PAGES, MAX_PAGES = 10, 1000  # of a host; of 1000 pages a share of a fifth is right within 2.5 points
MIN_RECURRING = 5  # because of a host's few pages some are often versions of one page
PAGES_PER_RANGE, SAMPLED_PER_RANGE = 1 << 20, 1 << 16
_PAGES = pa.schema([(name, pa.uint64()) for name in ("host", "url", "text", "document")])  # part << 32 | row
_NEEDED = pa.schema([("of", pa.uint64()), ("needed", pa.int64())])  # of a row in the sample, or a line


def leave_out_templates(whole: PartSet, out: str, ratio: float, parents: Sequence[PartSet], run: Run) -> PartSet:
    """Make the set `out` of the documents `whole` without templates, as if it were made from `parents` at once."""
    n_hosts, n_lines = (count_ranges(whole.records, each) for each in (PAGES_PER_RANGE, SAMPLED_PER_RANGE))
    name, parts, work = SetName.of(whole), range(len(whole.parts)), Folder(out).child(WORK)
    about = Recipe(stage="clean.template", code_version=CODE_VERSION, settings={"template_ratio": ratio})

    def tasks(payloads: Iterable[Any]) -> list[PartTask]:
        return [PartTask(index=i, sources=(), payload=each, depends=whole.hash) for i, each in enumerate(payloads)]

    def stage(function: Callable[[PartContext, PartTask], None], place: str, payloads: Iterable[Any]) -> SetName:
        sets = {place: (work.location(place), "exchange")}
        made = run_parts(function, tasks(payloads), recipe=about, outputs=sets, parents=[whole], run=run)
        return SetName.of(made[place])

    lines, writer = None, SetWriter(work.location("templates"), "exchange", about)
    if not all_done(tasks([None] * n_lines), writer, run):
        pages = stage(_spread_pages, "pages", [(name, part, n_hosts) for part in parts])
        sample = stage(_sample_pages, "sample", [(pages, len(parts), ratio)] * n_hosts)
        lines = stage(_spread_lines, "lines", [(name, part, sample, n_lines) for part in parts])
    templates = stage(_select_lines, "templates", [lines] * n_lines)
    used = sha256_json([CODE_VERSION, *(file.sha256 for part in templates.open().parts for file in part.attachments)])
    shortening = [
        PartTask(index=i, sources=each.sources, payload=(name, templates), depends=used + each.key + each.record_digest)
        for i, each in enumerate(whole.parts)
    ]
    recipe = Recipe(**whole.recipe | {"settings": whole.recipe["settings"] | {"template_ratio": ratio}})
    outputs = {"documents": (out, "documents")}
    made = run_parts(_leave_out, shortening, recipe=recipe, outputs=outputs, parents=parents, run=run)
    for scratch in ("pages", "sample", "lines"):  # nothing reads them again, and lines are half as large as the texts
        work.child(scratch).remove_all()
    return made["documents"]


def _host(url: str | None) -> str:
    canonical = canonical_url(url) if url else None
    return host_of(canonical) if canonical else ""


def _hashes(texts: Iterable[str]) -> Keys:
    return np.frombuffer(b"".join(hashlib.blake2b(each.encode(), digest_size=8).digest() for each in texts), "<u8")


def _spread_pages(context: PartContext, task: PartTask) -> None:
    """Write the pages of a part by range of hosts; in a worker, like all that follow."""
    documents, part, n_ranges = task.payload
    first = part << 32
    with RangeWriter(context.main, _PAGES, n_ranges) as exchange:
        for batch in documents.open().batches(part, ["url", "text_digest"]):
            urls = [url or "" for url in batch["url"].to_pylist()]
            hosts, numbers = list(map(_host, urls)), np.arange(first, first + len(urls), dtype=np.uint64)
            columns = [_hashes(hosts), _hashes(urls), link_keys(batch["text_digest"]), numbers]
            rows = np.flatnonzero([host != "" for host in hosts])
            exchange.add(range_of_hash(columns[0][rows], n_ranges), pa.table(columns, schema=_PAGES).take(rows))
            first += len(urls)


def _sample_pages(context: PartContext, task: PartTask) -> None:
    """Write the sample of each host in a range, and how many of its pages need to have a line."""
    pages, n_parts, ratio = task.payload
    rows = pa.Table.from_batches(read_range(pages.open(), task.index, _PAGES), _PAGES)
    host, url, text, document = (np.asarray(rows[name]) for name in _PAGES.names)
    order = np.lexsort((document, text))
    order = order[np.unique(np.stack([host, url], 1)[order], axis=0, return_index=True)[1]]  # one text of each URL
    distinct, first = np.unique(np.stack([host, text], 1)[order], axis=0, return_index=True)  # one URL of each text
    _, starts, sizes = np.unique(distinct[:, 0], return_index=True, return_counts=True)
    number, n_pages = np.arange(len(first)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)
    needed = np.maximum(np.floor(ratio * np.minimum(n_pages, MAX_PAGES)).astype(np.int64) + 1, MIN_RECURRING)
    chosen = (n_pages >= MIN_PAGES) & (number < MAX_PAGES)
    part, row = np.divmod(document[order[first[chosen]]], np.uint64(1 << 32))
    with RangeWriter(context.main, _NEEDED, n_parts) as exchange:
        exchange.add(part, pa.table([row, needed[chosen]], schema=_NEEDED))


def _spread_lines(context: PartContext, task: PartTask) -> None:
    """Write the lines of a part's sampled documents by range."""
    documents, part, sample, n_ranges = task.payload
    needed = dict(row.values() for some in read_range(sample.open(), part, _NEEDED) for row in some.to_pylist())
    batches = documents.open().batches(part, ["url", "text"]) if needed else ()
    with RangeWriter(context.main, _NEEDED, n_ranges) as exchange:
        for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
            if number in needed:
                host = _host(row["url"])
                keys = _hashes(f"{host}\n{line}" for line in candidates(row["text"]))
                table = pa.table([keys, np.full(len(keys), needed[number])], schema=_NEEDED)
                exchange.add(range_of_hash(keys, n_ranges), table)


def _select_lines(context: PartContext, task: PartTask) -> None:
    """Write the lines of a range that enough pages have."""
    rows = pa.Table.from_batches(read_range(task.payload.open(), task.index, _NEEDED), _NEEDED)
    lines, first, n_pages = np.unique(np.asarray(rows["of"]), return_index=True, return_counts=True)
    found = lines[n_pages >= np.asarray(rows["needed"])[first]].astype("<u8")
    context.main.attach(f"part-{task.index:05d}{LINES}").write_bytes(found.tobytes())


def _leave_out(context: PartContext, task: PartTask) -> None:
    """Write a part without template lines."""
    (whole, templates), writer = (name.open() for name in task.payload), context.main
    files = [templates.folder.read_bytes(templates.attachment(part, LINES)) for part in templates.parts]
    lines = np.frombuffer(b"".join(files), "<u8")  # ascending, as the ranges are
    writer.counts = (counts := whole.parts[task.index].counts) + Counts(-counts.kept, -counts.kept)
    writer.name_failures(whole.failures(task.index))
    for batch, left in context.apply_to_batches(lambda batch: _shortened(batch, lines), whole.batches(task.index)):
        if not isinstance(left, Failed):  # else counted already
            writer.counts.keep(left.num_rows)
            if left.num_rows < batch.num_rows:
                writer.counts.drop("only_template", batch.num_rows - left.num_rows)
            writer.write_table(left)


def _shortened(documents: pa.RecordBatch, lines: Keys) -> pa.Table:
    """Return the documents without template lines; those that have other lines."""
    rows = documents.to_pylist()
    for row in rows:
        host = _host(row["url"])
        mine = candidates(row["text"]) if host and len(lines) else []
        keys = _hashes(f"{host}\n{line}" for line in mine)
        recurs = lines[np.minimum(np.searchsorted(lines, keys), len(lines) - 1)] == keys
        text = without_template(row["text"], set(itertools.compress(mine, recurs))) if recurs.any() else row["text"]
        if text != row["text"]:
            language, score = detect_language(text) or (None, None)
            row |= {"text": text, "text_digest": text_digest(text), "language": language, "language_score": score}
    return pa.Table.from_pylist([row for row in rows if row["text"].strip()], schema=documents.schema)
