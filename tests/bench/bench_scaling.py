"""Weak scaling: n workers, or n Ray nodes of one core each, make n times as many parts as one.

    python tests/bench/bench_scaling.py [DATA] [--runs 3] [--only extraction signatures packing]

DATA (default: WEBTEXT_TEST_DATA) has extract/, neardup/ and gpt2/. Efficiency is the time of n independent runs of one
worker each, side by side, divided by the time of one run over all their parts. Both share the same cores, so it shows
what the engine and the driver cost, not how many cores there are. Runs of one n alternate; figures are medians of
seconds by the clock, after one that starts and imports everything. A run counts only if it gives the parts
that the independent runs give.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / folder) for folder in ("bench", "clean", "ray")]

from real_data import real_data  # noqa: E402

STAGES = ("extraction", "signatures", "packing")
SIZES = (1, 2, 4)
MAX_LOCAL = 2
PARTS = 4  # of one worker
PAGES_PER_PART = 40


class Timed(NamedTuple):
    """One run: seconds by the clock, and digests of its parts."""

    seconds: float
    digests: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="folder of real data; default: WEBTEXT_TEST_DATA")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind, in turn")
    parser.add_argument("--only", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--driver", nargs=3, metavar=("WORKERS", "ADDRESS", "DATA"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(int(arguments.driver[0]), arguments.driver[1], arguments.driver[2])
        return
    data = real_data(arguments.data)
    from ray_nodes import cluster

    with tempfile.TemporaryDirectory() as name, cluster() as nodes, ExitStack() as started:
        folder = Path(name)
        inputs = {stage: make_inputs(stage, data, folder) for stage in arguments.only}
        alone = [started.enter_context(driver(1, "", data)) for _ in range(max(SIZES))]
        print(f"{'stage':12} {'n':>2} {'independent':>12}  {'engine':8} {'seconds':>8} {'efficiency':>11}")
        for n in SIZES:
            nodes.grow_to(n)
            with ExitStack() as now:
                engines = {"ray": now.enter_context(driver(1, nodes.address, data))}
                if n <= MAX_LOCAL:
                    engines["local"] = now.enter_context(driver(n, "", data))
                for stage in arguments.only:
                    before, after = measure(stage, n, inputs[stage], folder, alone[:n], engines, arguments.runs)
                    for engine, seconds in after.items():
                        row = f"{stage:12} {n:>2} {before:>12.2f}  {engine:8} {seconds:>8.2f} {before / seconds:>11.2f}"
                        print(row, flush=True)


def measure(
    stage: str,
    n: int,
    inputs: Callable[[int, int], str],
    folder: Path,
    alone: Sequence[Driver],
    engines: dict[str, Driver],
    runs: int,
) -> tuple[float, dict[str, float]]:
    """Return the seconds of independent runs, and what each engine took."""
    independent: list[float] = []
    timed: dict[str, list[Timed]] = {name: [] for name in engines}
    for run in range(runs + 1):  # the first one imports what the workers need, and isn't counted
        for i, each in enumerate(alone):
            each.begin(stage, inputs(i, 1), folder / f"{stage}-{n}-{run}-{i}")
        answers = [each.end() for each in alone]
        independent.append(max(answer.seconds for answer in answers))
        digests = [digest for answer in answers for digest in answer.digests]
        for name, each in engines.items():
            each.begin(stage, inputs(0, n), folder / f"{stage}-{n}-{run}-{name}")
            timed[name].append(each.end())
            assert timed[name][-1].digests == digests, f"{stage}: {name} with {n} gives other parts"
    medians = {name: statistics.median(each.seconds for each in runs_[1:]) for name, runs_ in timed.items()}
    return statistics.median(independent[1:]), medians


class Driver:
    """Another process, which drives an engine that is already warm."""

    def __init__(self, workers: int, address: str, data: Path) -> None:
        command = [sys.executable, __file__, "--driver", str(workers), address, str(data)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == "ready"

    def begin(self, stage: str, inputs: str, out: Path) -> None:
        assert self.process.stdin is not None
        print(json.dumps([stage, inputs, str(out)]), file=self.process.stdin, flush=True)

    def end(self) -> Timed:
        return Timed(*json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def driver(workers: int, address: str, data: Path) -> Iterator[Driver]:
    made = Driver(workers, address, data)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def drive(workers: int, address: str, data: str) -> None:
    """Run the stages that standard input names."""
    from webtext.base.console import Console
    from webtext.base.run import Run
    from webtext.base.workers.local_engine import LocalEngine

    if address:
        from webtext.base.workers.ray_engine import RayEngine

        engine: Any = RayEngine(address, quiet=True)
    else:
        engine = LocalEngine(workers, quiet=True)
    with engine:
        print("ready", flush=True)
        for line in sys.stdin:
            stage, inputs, out = json.loads(line)
            begun = time.monotonic()
            digests = run_stage(stage, inputs.split(), out, data, Run(engine, Console("quiet")))
            print(json.dumps([time.monotonic() - begun, digests]), flush=True)


def run_stage(stage: str, inputs: list[str], out: str, data: str, run: Any) -> list[str]:
    """Return a digest of each part that the stage makes."""
    from webtext.base.parts.partset import PartSet
    from webtext.clean.dedup.sign import sign_documents
    from webtext.clean.extract.body import ExtractSettings
    from webtext.clean.extract.pages import extract_documents
    from webtext.shards.writing.pack import PackSettings, pack_shards

    if stage == "extraction":
        made = extract_documents(inputs, out, ExtractSettings(), run)
    elif stage == "signatures":
        made = sign_documents(PartSet.open(inputs[0], "documents"), out, run)
    else:
        made = pack_shards(inputs[0], str(Path(data) / "gpt2"), out, PackSettings(), run)
    if stage == "packing":  # its records name their shards, and so their parts
        return [file.sha256 for part in made.parts for file in part.attachments]
    return [part.record_digest for part in made.parts]


def make_inputs(stage: str, data: Path, folder: Path) -> Callable[[int, int], str]:
    """Write what a stage reads; the answer gives the input of n workers, from the i-th worker on."""
    return make_pages(data, folder) if stage == "extraction" else make_documents(data, folder)


def make_pages(data: Path, folder: Path) -> Callable[[int, int], str]:
    """WARC files of real pages, at addresses of their own for each worker."""
    from extraction_sets import read_evaluation
    from warc_files import write_warc

    bodies = [page.body for page in read_evaluation(data)][: PARTS * PAGES_PER_PART]
    (folder / "warc").mkdir()
    for i in range(max(SIZES) * PARTS):
        chosen = bodies[i % PARTS :: PARTS]
        write_warc(warc(folder, i), [(f"http://{i}.example/{number}", body) for number, body in enumerate(chosen)])
    return lambda i, n: " ".join(str(warc(folder, at)) for at in range(i * PARTS, (i + n) * PARTS))


def warc(folder: Path, i: int) -> Path:
    return folder / "warc" / f"{i:03d}.warc.gz"


def make_documents(data: Path, folder: Path) -> Callable[[int, int], str]:
    """Sets of documents, whose parts are all the same."""
    from webtext.base.parts.identifiers import text_digest
    from webtext.base.parts.partset import PartSet
    from webtext.base.parts.partwriter import PartWriter
    from webtext.base.parts.recipe import Recipe
    from webtext.base.parts.stage import SetWriter

    def write(n_parts: int, add: Callable[[PartWriter], None], name: str) -> None:
        writer = SetWriter(str(folder / name), "documents", Recipe(stage="bench", code_version=1, settings={}))
        parts = []
        for index in range(n_parts):
            with writer.part(index, key=str(index)) as part:
                add(part)
                part.counts.keep(len(rows))
                parts.append(part.publish())
        writer.seal(parts)

    with lzma.open(data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    rows = [
        {"id": str(i), "link_ids": [], "posts": [], "text": text, "text_digest": text_digest(text), "split": "train"}
        for i, text in enumerate(texts)
    ]
    if not (folder / "documents").exists():
        write(1, lambda part: part.write(rows), "documents")
        table = PartSet.open(str(folder / "documents"), "documents").table(0)
        for n in SIZES:
            write(PARTS * n, lambda part: part.write_table(table), f"documents-{n}")
    return lambda _, n: str(folder / f"documents-{n}")


if __name__ == "__main__":
    main()
