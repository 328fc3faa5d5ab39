"""Peak memory of the driver process of `clean dedup` by the number of parts, and the memory per additional part.

    python tests/bench/bench_driver_memory.py [--parts 250 1000 5000] [--failed 2] [--folder DIR]
    python tests/bench/bench_driver_memory.py --run-parts [--parts 5000] [--megabytes 0]

Each part has two kept documents and some that fail. Each run is a separate process with two workers. Its peak is the
kernel's (`ru_maxrss`, without workers), minus the peak of a run over one part.

With --run-parts: seconds, CPU seconds and peak of the driver for a set whose parts have one row and a file of
--megabytes, made by `run_parts`; for a rerun that finds it done; and for one after its files were touched.
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
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import dedup_documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="+", default=[250, 1000, 5000], help="numbers of parts")
    parser.add_argument("--failed", type=int, default=2, help="records per part that failed when the part was made")
    parser.add_argument("--folder", type=Path, help="folder to write to; default: the system's temporary folder")
    parser.add_argument("--run-parts", action="store_true", help="measure run_parts alone, and reruns of it")
    parser.add_argument("--megabytes", type=int, default=0, help="size of each part's file with --run-parts")
    parser.add_argument("--driver", type=int, metavar="PARTS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver and arguments.run_parts:
        drive_run_parts(arguments.folder, arguments.driver, arguments.megabytes)
        return
    if arguments.run_parts:
        measure_run_parts(arguments.parts, arguments.megabytes, arguments.folder)
        return
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


def measure_run_parts(numbers: list[int], megabytes: int, place: Path | None) -> None:
    print(f"{'parts':>6}  {'MB':>7}  {'run':<7}  {'seconds':>8}  {'CPU':>7}  {'peak MiB':>8}", flush=True)
    for n_parts in numbers:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            command = [sys.executable, __file__, "--run-parts", "--driver", str(n_parts), "--folder", folder]
            for name in ("fresh", "rerun", "touched"):
                if name == "touched":
                    for path in Path(folder).rglob("part-*"):
                        path.touch()
                answer = subprocess.run(
                    [*command, "--megabytes", str(megabytes)], check=True, capture_output=True, text=True
                )
                seconds, cpu, peak = map(float, answer.stdout.split())
                row = f"{n_parts:>6,}  {n_parts * megabytes:>7,}  {name:<7}"
                print(f"{row}  {seconds:>8.1f}  {cpu:>7.2f}  {peak:>8.1f}", flush=True)


def drive_run_parts(folder: Path, n_parts: int, megabytes: int) -> None:
    """Make the set, or find it done; print this process's seconds, CPU seconds and peak in MiB."""
    from bench_driver_memory import write_part  # by a name that workers can import

    tasks = [PartTask(index=index, sources=(), payload=megabytes) for index in range(n_parts)]
    recipe, outputs = Recipe(stage="bench", code_version=1, settings={}), {"out": (str(folder / "out"), "dropped")}
    begun = time.monotonic()
    with LocalEngine(2) as engine:
        run_parts(write_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=Run(engine, Console("quiet")))
    own = resource.getrusage(resource.RUSAGE_SELF)
    print(time.monotonic() - begun, own.ru_utime + own.ru_stime, own.ru_maxrss / 1024)


def write_part(context: PartContext, task: PartTask) -> None:
    """Write one row and a file of zeros; in the worker."""
    if task.payload:
        context.main.attach(f"part-{task.index:05d}.zeros").write_bytes(bytes(task.payload << 20))
    context.main.write([{"id": str(task.index), "stage": "filter", "reason": "bench", "value": 0.0, "text_start": ""}])


if __name__ == "__main__":
    main()
