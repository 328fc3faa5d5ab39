"""Peak memory of the driver process of `clean dedup` by the number of parts, and the memory per additional part.

    python tests/bench/bench_driver_memory.py [--parts 250 1000 5000] [--failed 2] [--folder DIR]

Each part has two kept documents and some that fail. Each run is a separate process with two workers. Its peak is the
kernel's (`ru_maxrss`, without workers), minus the peak of a run over one part.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from webtext.base.console import Console
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import dedup_documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="+", default=[250, 1000, 5000], help="numbers of parts")
    parser.add_argument("--failed", type=int, default=2, help="records per part that failed when the part was made")
    parser.add_argument("--folder", type=Path, help="folder to write to; default: the system's temporary folder")
    parser.add_argument("--driver", type=int, metavar="PARTS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(arguments.folder, arguments.driver)
        return
    print(f"{'parts':>6}  {'peak MiB':>9}  {'KiB per part':>12}  {'seconds':>8}", flush=True)
    alone = 0.0
    for n_parts in (1, *arguments.parts):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            make(Path(folder) / "documents", n_parts, arguments.failed)
            begun = time.monotonic()
            command = [sys.executable, __file__, "--driver", str(n_parts), "--folder", folder]
            peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        alone = alone or peak
        each = f"{(peak - alone) * 1024 / n_parts:12.1f}" if n_parts > 1 else " " * 12
        print(f"{n_parts:>6,}  {peak:>9.1f}  {each}  {time.monotonic() - begun:>8.0f}", flush=True)


def make(folder: Path, n_parts: int, n_failed: int) -> None:
    """Write a documents set; in every tenth part the second document has a near duplicate in the previous part."""
    writer = SetWriter(str(folder), "documents", Recipe(stage="bench", code_version=1, settings={}))
    parts = []
    for index in range(n_parts):
        with writer.part(index, key=str(index)) as part:
            words = [f"word{(index - (index % 10 == 0)) * 60 + i}" for i in range(60)]
            for number, text in enumerate((f"document {index} " * 20, " ".join(words))):
                row = {"id": f"{index}-{number}", "link_ids": [], "posts": [], "text": text}
                part.write([row | {"text_digest": text_digest(text), "split": "train"}])
                part.counts.keep()
            for number in range(n_failed):
                part.fail(f"{index}-failed-{number}", "raised", "ValueError: " + "a cause " * 10)
            parts.append(part.publish())
    writer.seal(parts)


def drive(folder: Path, n_parts: int) -> None:
    """Deduplicate the set and print this process's peak in MiB."""
    with LocalEngine(2) as engine:
        run = Run(engine, Console("quiet"))
        result = dedup_documents([str(folder / "documents")], str(folder / "out"), DedupSettings(), run)
    assert len(result.corpus.parts) == n_parts
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
