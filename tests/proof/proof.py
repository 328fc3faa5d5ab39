"""The proof: a corpus from real pages that nobody here wrote, our way and the usual tools' way, and models trained on both.

    make proof SIZE=small|medium|large [NANOGPT=DIR]    600, 10,000 or 60,000 pages: some minutes, two hours, a night

DIR is a checkout of nanoGPT, which is left out without it.
Everything is in build/proof/SIZE; the same command resumes. It judges by validation sets and by half of the held-out
texts; `--final` judges by the test sets and the other half instead, once. docs/proof.md shows what came out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.parse import urlsplit

import ours
import packages
import theirs
import verdict
import webpages
from hosts import robots_txt
from protego import Protego
from shape import CORPORA, MIXED, N_CHECKPOINTS, OWN, SEEDS, STEPS
from votes import number_of, write_votes

PORT = 8450
DEPENDENTS = 20  # said of a domain of known pages, so that its pages have the votes that they need
SECONDS_BETWEEN_KILLS = {"small": 30.0, "medium": 30.0, "large": 60.0}
ROOT = Path(__file__).resolve().parents[2]


class Figures:
    """run.json: what each finished step answered; a step that is in it is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        """The answer of `run`, from the file if it is there."""
        if name not in self.values:
            started = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')}  {name}", flush=True)
            self.values[name] = run()
            self.values.setdefault("seconds", {})[name] = round(time.monotonic() - started, 1)
            temporary = self.path.with_suffix(".partial")
            temporary.write_text(json.dumps(self.values, indent=1, sort_keys=True) + "\n")
            temporary.rename(self.path)
        return self.values[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=packages.PAGES, default="small")
    parser.add_argument("--out", type=Path, default=ROOT / "build/proof", help="folder of all sizes")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("WEBTEXT_TEST_DATA"), help="folder with eval/, wcxb/ and extract/"
    )
    parser.add_argument("--gold", type=Path, help="folder of gold pages; default: the largest that make gold has made")
    parser.add_argument("--final", action="store_true", help="judge by the test sets")
    given = parser.parse_args()
    made = [given.gold] if given.gold else [ROOT / "build/gold" / size for size in ("large", "small")]
    gold = next((folder for folder in made if any(folder.glob("*.parquet"))), None)
    try:
        prove(given.size, given.out.resolve() / given.size, given.nanogpt, given.data, gold, final=given.final)
    except (OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")


def prove(
    size: str, out: Path, nanogpt: Path | None, data: Path | None, gold: Path | None, *, final: bool
) -> dict[str, Any]:
    """Every step of the proof; the figures of all."""
    if nanogpt is None:
        print("no --nanogpt: nanoGPT's runs are left out", flush=True)
    elif not (nanogpt / "train.py").is_file():
        raise OSError(f"'{nanogpt}' has no train.py\nname a checkout of nanoGPT with --nanogpt")
    if data is None:
        print("no --data: WikiText-103, PTB and pages of known text are left out", flush=True)
    if gold is None:
        print("no --gold: held-out manuals are left out", flush=True)
        if data is None:
            raise OSError("nothing to judge by\nrun make gold, or name a folder of data with --data")
    out.mkdir(parents=True, exist_ok=True)
    figures = Figures(out / "run.json")
    site = figures.step("site", lambda: make_site(size, out, data, gold))
    (out / "site.json").write_text(json.dumps(site))
    figures.step("votes", lambda: write_votes(out, site))
    port, workers = site["port"], os.cpu_count() or 1
    figures.step("our crawl", lambda: ours.crawl(out, port))
    figures.step("disturbed", lambda: ours.disturbed(out, port, size, SECONDS_BETWEEN_KILLS[size]))
    figures.step("our build", lambda: ours.build(out, port, size))
    figures.step("equality", lambda: ours.equality(out))
    figures.step("ledger", lambda: ours.ledger(out))
    figures.step("their corpus", lambda: theirs.corpus(out, ours.DELAY, workers))
    figures.step("their newer corpus", lambda: theirs.newer_corpus(out, workers))
    figures.step("tokenizer", lambda: ours.union_tokenizer(out, port))
    names = [*CORPORA, *(MIXED if figures.step("mixed corpus", lambda: ours.mixed(out)) else ())]
    packed = {c: figures.step(f"our tokens of {c}", lambda c=c: ours.tokens(out, port, c)) for c in names}
    for corpus in names:
        figures.step(f"their tokens of {corpus}", lambda corpus=corpus: theirs.tokens(out, corpus))
    steps = figures.step("steps", lambda: equal_bytes(STEPS[size], packed))
    figures.step("training", lambda: train(size, out, port, nanogpt, steps))
    figures.step("funnel", lambda: funnel(out, figures.values["ledger"]))
    name = "final verdict" if final else "verdict"
    figures.step(name, lambda: verdict.judge(out, data, gold, linked(out, site), workers, final=final))
    figures.step("machine", machine)
    figures.step("versions", lambda: theirs.versions(nanogpt))
    python = theirs.environment(out.parent)
    subprocess.run([python, Path(__file__).with_name("plots.py"), figures.path, out], check=True)
    print(f"figures in '{figures.path}', plots beside it", flush=True)
    return figures.values


def equal_bytes(steps: int, packed: dict[str, Any]) -> dict[str, int]:
    """Corpus -> the steps whose tokens have as many bytes as `steps` have where a token has the corpora's mean of bytes."""
    mean = fmean(each["bytes_per_token"] for name, each in packed.items() if name in CORPORA)
    return {name: _steps(steps * mean / each["bytes_per_token"]) for name, each in packed.items()}


def _steps(n: float) -> int:
    return max(1, round(n / N_CHECKPOINTS)) * N_CHECKPOINTS  # nanoGPT keeps its last model only at such a step


def train(size: str, out: Path, port: int, nanogpt: Path | None, steps: dict[str, int]) -> list[dict[str, Any]]:
    """All runs of both trainers, one core each, as many at a time as there are cores.

    Every corpus is trained on at equal bytes by both trainers; `OWN` also at equal tokens, and for as long as nanoGPT takes,
    by ours.
    """
    runs: list[Callable[[], list[dict[str, Any]]]] = []
    for seed, c in itertools.product(SEEDS[size], steps):
        runs.append(lambda c=c, seed=seed: ours.train(out, port, c, seed, steps[c]))
        if nanogpt is not None:
            runs.append(lambda c=c, seed=seed: theirs.nanogpt(out, nanogpt, c, seed, steps[c], 1))
    for seed, c in itertools.product(SEEDS[size], OWN):
        runs.append(lambda c=c, seed=seed: ours.train(out, port, c, seed, STEPS[size], "@tokens"))
    rows = _all(runs)
    runs = []
    for seed, c in itertools.product(SEEDS[size], OWN if nanogpt else ()):
        longer = _steps(steps[c] * _cpu(rows, f"nanogpt-{c}-") / _cpu(rows, f"webtext-{c}-"))
        runs.append(lambda c=c, seed=seed, longer=longer: ours.train(out, port, c, seed, longer, "@cpu"))
    return rows + _all(runs)


def _all(runs: list[Callable[[], list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [row for rows in pool.map(lambda run: run(), runs) for row in rows]


def _cpu(rows: list[dict[str, Any]], name: str) -> float:
    return median(row["cpu_seconds"] for row in rows if row["name"].startswith(name))


def linked(out: Path, site: dict[str, Any]) -> set[str]:
    """The linked pages that exist, but for those that their host's robots.txt closes to everybody."""
    folders = {f"{each['address']}:{site['port']}": out / "site" / each["name"] for each in site["packages"]}
    robots = {host: Protego.parse(robots_txt(folder, number_of(folder.name))) for host, folder in folders.items()}
    rows = (line.split("\t") for line in (out / "links.tsv").read_text().splitlines())
    return {
        url for url, leads_to, _ in rows if leads_to == "page" and robots[urlsplit(url).netloc].can_fetch(url, "any")
    }


def funnel(out: Path, ledger: list[dict[str, Any]]) -> dict[str, list[tuple[str, int]]]:
    """Label -> records, from links to documents kept, on both sides."""
    counts = {row["stage"]: row for row in ledger}
    duplicates = sum(n for reason, n in counts["corpus"]["dropped"].items() if "duplicate" in reason)
    kept = counts["corpus"]["kept"]
    mine = [
        counts["pages"]["records_in"],
        counts["pages"]["kept"],
        counts["documents"]["kept"],
        kept + duplicates,
        kept,
    ]
    labels = ["links", "pages", "documents", "after the rules", "after deduplication"]
    return {"ours": list(zip(labels, mine, strict=True)), "theirs": list(zip(labels, theirs.funnel(out), strict=True))}


def make_site(size: str, out: Path, data: Path | None, gold: Path | None) -> dict[str, Any]:
    """Download and unpack; each package, and each domain of known pages but in the small size, gets an address of its own."""
    hosts = [asdict(package) for package in packages.take(size, out)]
    if data is not None and size != "small":
        hosts += [{"name": name, "dependents": DEPENDENTS} for name in webpages.take(data, gold, out)]
    return {"port": PORT, "packages": [row | {"address": _address(i)} for i, row in enumerate(hosts)]}


def _address(i: int) -> str:
    return f"127.9.{i // 250}.{i % 250 + 1}"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": os.cpu_count(),
        "processor": model[0] if model else platform.machine(),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
