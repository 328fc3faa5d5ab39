"""CPU time of crawling, compared with Scrapy and bare aiohttp, without and with TLS.

    python tests/bench/bench_crawl.py [PAGES] [DATA]

DATA is the folder of real data (default: WEBTEXT_TEST_DATA). Pages are taken from extract/pages.tar.xz, without the
smallest, so that their mean size is 150 KB; without DATA they are generated. webtext does more than the others:
robots.txt, address check, limits, WARC, index, fetch log. First the bodies that each crawler read are compared. Then
there are five rounds, each crawler in its own process; the median is printed. Needs the extra [bench].
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arguments import positional
from crawl_server import Answers, hosts, make_certificates, page_number, serving

PORT, TLS_PORT = 18_099, 18_443
N_PAGES, N_HOSTS, N_TLS_HOSTS = 2000, 200, 500
RUNS = 5
SMALLEST_LEFT_OUT = 50
PEERS = ("bare aiohttp", "Scrapy")


def bodies(data: str) -> list[bytes]:
    """Return real pages, or generated ones without a data folder."""
    if data:
        with tarfile.open(Path(data, "extract", "pages.tar.xz")) as archive:
            members = (archive.extractfile(member) for member in archive if member.isfile())
            return sorted((member.read() for member in members if member), key=len)[SMALLEST_LEFT_OUT:]
    chance = random.Random(1)
    words = [f"word{i}" for i in range(5000)]
    return [("<html>" + " ".join(chance.choices(words, k=17_500))).encode() for _ in range(100)]


def run_client(
    name: str, urls: Sequence[str], *, check: bool = False, authority: Path | None = None, modules: Sequence[str] = ()
) -> dict[str, Any]:
    """Run one crawler, which imports `modules` before it is measured."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # its threads spin while they start
    if authority:
        environment["SSL_CERT_FILE"] = str(authority)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "urls").write_text("\n".join(urls))
        Path(folder, "modules").write_text("\n".join(modules))
        program = str(Path(__file__).with_name("crawl_clients.py"))
        command = [sys.executable, program, name, f"{folder}/urls", folder, str(int(check)), f"{folder}/modules"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rounds(names: Sequence[str], urls: Sequence[str], authority: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the run with each crawler's median CPU milliseconds per page."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    modules = {name: run_client(name, urls[:1], authority=authority)["modules"] for name in names}
    for _ in range(RUNS):
        for name in names:
            results[name].append(run_client(name, urls, authority=authority, modules=modules[name]))
            print(f"{name}: {results[name][-1]['milliseconds']:.2f} ms", flush=True)
    return {name: sorted(runs, key=lambda run: run["milliseconds"])[RUNS // 2] for name, runs in results.items()}


def check_equal(answers: Answers, urls: Sequence[str]) -> None:
    expected = {url: hashlib.sha256(answers.body(page_number(url))).hexdigest() for url in urls}
    for name in ("webtext", *PEERS):
        found = run_client(name, urls, check=True)["found"]
        if found != expected:
            raise SystemExit(f"{name} read other bodies: {sum(found.get(u) != h for u, h in expected.items())} pages")


def main(n_pages: int, data: str) -> None:
    answers = Answers(bodies(data))
    urls = [f"http://{host}:{PORT}/page/{i}" for i, host in zip(range(n_pages), hosts(N_HOSTS) * n_pages, strict=False)]
    sizes = [len(answers.body(i)) for i in range(n_pages)]
    kind = "real pages" if data else "generated pages"
    print(f"{n_pages:,} {kind} of {statistics.mean(sizes) / 1000:.0f} KB from {N_HOSTS} hosts, CPU ms per page:")
    with serving(answers, hosts(N_HOSTS), PORT):
        check_equal(answers, urls[:500])
        table = rounds(("webtext", *PEERS), urls)
    ours = table["webtext"]
    for name, row in table.items():
        times = row["milliseconds"] / ours["milliseconds"]
        print(
            f"  {name:<13} {row['milliseconds']:6.2f}   {times:5.1f} times ours   peak {row['peak_kib'] >> 10:4d} MiB"
        )
    print(f"  webtext left {ours['bytes'] / n_pages / 1000:.1f} KB per page on disk")

    names = hosts(N_TLS_HOSTS)
    secure = [f"https://{host}:{TLS_PORT}/page/{i}" for i, host in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder:
        authority = make_certificates(Path(folder), names)
        with serving(answers, names, TLS_PORT, Path(folder)):
            table = rounds(("webtext", "bare aiohttp"), secure, authority)
    ours_ms, bare_ms = (row["milliseconds"] for row in table.values())
    print(f"TLS, a new host for each page, {len(names)} pages, CPU ms per page:")
    print(f"  webtext {ours_ms:.2f}, bare aiohttp {bare_ms:.2f}: {ours_ms / bare_ms:.2f} times")


if __name__ == "__main__":
    main(*positional(__doc__, pages=N_PAGES, data=os.environ.get("WEBTEXT_TEST_DATA", "")))
