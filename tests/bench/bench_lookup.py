"""Lookup: planted copies against an index of their originals: which are found, the index on disk, documents scanned per second.

    python tests/bench/bench_lookup.py [DATA]

Reads DATA/neardup/near_dups.jsonl.xz (DATA defaults to WEBTEXT_TEST_DATA). Times are CPU seconds of one core for
scanning the index, median of 3 runs, without reading the texts of candidates.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from arguments import positional
from bench_dedup import write
from real_data import real_data
from resources import cpu_seconds

from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import SetName
from webtext.base.run import Run
from webtext.base.workers.journal import Journal
from webtext.clean.dedup import lookup
from webtext.clean.dedup.index import keep_index
from webtext.clean.dedup.reference import jaccard, shingle_set
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import sign_batch, sign_documents

RUNS = 3


def main() -> None:
    (data,) = positional(__doc__, data="")
    with lzma.open(real_data(data) / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    originals = {row["id"]: row["text"] for row in rows if "of" not in row}
    copies = [row for row in rows if "of" in row]
    with tempfile.TemporaryDirectory() as folder:
        run, settings = Run.quiet(1), DedupSettings()
        corpus = write(Path(folder), originals.items())
        signatures = sign_documents(corpus, f"{folder}/signatures", settings, run)
        index = keep_index(corpus, signatures, f"{folder}/index", settings, run)
        n_bytes = sum(path.stat().st_size for path in Path(index.folder.url).rglob("*") if path.is_file())
        print(f"index of {corpus.records:,} documents: {n_bytes / corpus.records:.0f} B each")
        asked = Path(folder, "asked.jsonl")
        asked.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in copies))
        answers = list(lookup.look_up([str(asked)], [index.folder.url], 0.8, run))
        near = [jaccard(shingle_set(row["text"], 5), shingle_set(originals[row["of"]], 5)) >= 0.8 for row in copies]
        found = [answer.document is not None for answer in answers]
        counts = dict(Counter(answer.answer for answer in answers))
        print(f"{len(copies):,} planted copies looked up among {corpus.records:,} originals: {counts}")
        print(
            f"{sum(near):,} have Jaccard >= 0.8 with their original, {sum(map(min, near, found)):,} of them are found"
        )
        for n in (1, 100, len(copies)):
            texts = [row["text"] for row in copies[:n]]
            values, has_words = sign_batch(pa.array(texts, pa.large_string()), 5, 128)
            block = lookup._Texts([text_digest(text) for text in texts], values, has_words, 0.8)
            task = (SetName.of(index), range(len(index.parts)), block)
            seconds = cpu_seconds(lambda task=task: lookup._scan(Journal(), task), RUNS)
            print(f"{n:,} texts: {corpus.records / seconds:,.0f} documents scanned per CPU second")


if __name__ == "__main__":
    main()
