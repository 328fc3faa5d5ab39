"""Write the gold set as three Parquet files: `python tests/gold/export.py --size large --out DIR`.

Rows without a licence are left out and counted.
"""

import argparse
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "large"), default="large", help="gold set; default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the files")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    tables = sorted((Path(__file__).parents[2] / "build/gold" / given.size).glob("*.parquet"))
    counts: Counter[tuple[str, str]] = Counter()
    for split in ("train", "development", "test"):
        with pq.ParquetWriter(given.out / f"{split}.parquet", pq.read_schema(tables[0]), compression="zstd") as writer:
            for path in tables:
                found = pq.read_table(path, filters=[("split", "==", split)])
                counts.update((split, licence or "none: left out") for licence in found["licence"].to_pylist())
                writer.write_table(found.filter(pc.field("licence") != ""))
    print("| split | licence | pages |\n|---|---|---|")
    for (split, licence), n in counts.most_common():
        print(f"| {split} | {licence} | {n:,} |")
