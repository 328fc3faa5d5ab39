"""The proof: a corpus from real pages that nobody here wrote, our way and the usual tools' way, and models trained on both.

    make proof SIZE=small              2,000 pages, a few minutes
    make proof SIZE=large NANOGPT=DIR  60,000 pages, hours; DIR is a checkout of nanoGPT, which is left out without it

Everything is in build/proof/SIZE; the same command resumes. docs/proof.md shows what came out.
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
from typing import Any
from urllib.parse import urlsplit

import ours
import packages
import theirs
import verdict
from hosts import robots_txt
from protego import Protego
from shape import CORPORA, SEEDS
from votes import number_of, write_votes

PORT = 8450
SECONDS_BETWEEN_KILLS = {"small": 30.0, "medium": 60.0, "large": 60.0}
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
    parser.add_argument("--data", type=Path, default=os.environ.get("WEBTEXT_TEST_DATA"), help="folder with eval/")
    arguments = parser.parse_args()
    try:
        prove(arguments.size, arguments.out.resolve() / arguments.size, arguments.nanogpt, arguments.data)
    except (OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")


def prove(size: str, out: Path, nanogpt: Path | None, data: Path | None) -> dict[str, Any]:
    """Every step of the proof; the figures of all."""
    if nanogpt is None:
        print("no --nanogpt: nanoGPT's runs are left out", flush=True)
    elif not (nanogpt / "train.py").is_file():
        raise OSError(f"'{nanogpt}' has no train.py\nname a checkout of nanoGPT with --nanogpt")
    if data is None:
        print("no --data: WikiText-103 and PTB are left out", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    figures = Figures(out / "run.json")
    site = figures.step("site", lambda: make_site(size, out))
    (out / "site.json").write_text(json.dumps(site))
    figures.step("votes", lambda: write_votes(out, site))
    port = site["port"]
    figures.step("our crawl", lambda: ours.crawl(out, port))
    figures.step("disturbed", lambda: ours.disturbed(out, port, size, SECONDS_BETWEEN_KILLS[size]))
    figures.step("our build", lambda: ours.build(out, port, size))
    figures.step("equality", lambda: ours.equality(out))
    figures.step("ledger", lambda: ours.ledger(out))
    figures.step("their corpus", lambda: theirs.corpus(out, ours.DELAY, os.cpu_count() or 1))
    for corpus in CORPORA:
        figures.step(f"our tokens of {corpus}", lambda corpus=corpus: ours.tokens(out, port, corpus))
        figures.step(f"their tokens of {corpus}", lambda corpus=corpus: theirs.tokens(out, corpus))
    figures.step("training", lambda: train(size, out, port, nanogpt))
    figures.step("funnel", lambda: funnel(out, figures.values["ledger"]))
    figures.step("verdict", lambda: verdict.judge(out, data, linked(out, site), os.cpu_count() or 1))
    figures.step("machine", machine)
    figures.step("versions", lambda: theirs.versions(nanogpt))
    python = theirs.environment(out.parent)
    subprocess.run([python, Path(__file__).with_name("plots.py"), figures.path, out], check=True)
    print(f"figures in '{figures.path}', plots beside it", flush=True)
    return figures.values


def train(size: str, out: Path, port: int, nanogpt: Path | None) -> list[dict[str, Any]]:
    """All runs of both trainers on both corpora, one core each, as many at a time as there are cores."""
    runs: list[Callable[[], list[dict[str, Any]]]] = []
    for seed, corpus in itertools.product(SEEDS[size], CORPORA):
        runs.append(lambda corpus=corpus, seed=seed: ours.train(out, port, corpus, seed, size))
        if nanogpt is not None:
            runs.append(lambda corpus=corpus, seed=seed: theirs.nanogpt(out, nanogpt, corpus, seed, size, 1))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [row for rows in pool.map(lambda run: run(), runs) for row in rows]


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


def make_site(size: str, out: Path) -> dict[str, Any]:
    """Download and unpack; each package gets an address of its own."""
    taken = packages.take(size, out)
    rows = [
        asdict(package) | {"address": f"127.9.{i // 250}.{i % 250 + 1}", "held_out": package.role == "held_out"}
        for i, package in enumerate(taken)
    ]
    return {"port": PORT, "packages": rows}


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
