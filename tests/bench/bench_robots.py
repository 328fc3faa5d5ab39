"""robots.txt verdicts on a corpus of real files: agreement with Google's reference parser, and CPU time.

    python tests/bench/bench_robots.py [DATA]

Reads DATA/crawl/robots (DATA defaults to WEBTEXT_TEST_DATA): protego_robots_corpus.tar.gz and google_verdicts.tsv.gz.
Peers in the same run: Protego on the unchanged file, and the standard library's parser.
"""

from __future__ import annotations

import gzip
import tarfile
import time
import urllib.robotparser
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from arguments import data_folder
from protego import Protego

from webtext.crawl.opt_outs.robots import Robots

Judge = Callable[[str, str], bool]


def ours(content: bytes) -> Judge:
    robots = Robots(content)
    return lambda token, path: robots.allows(path, token)


def protego_alone(content: bytes) -> Judge:
    parsed = Protego.parse(content.decode("utf-8", "replace"))
    return lambda token, path: parsed.can_fetch(f"http://host{path}", token)


def standard_library(content: bytes) -> Judge:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(content.decode("utf-8", "replace").splitlines())
    return lambda token, path: parser.can_fetch(token, f"http://host{path}")


def main(folder: Path) -> None:
    verdicts: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    with gzip.open(folder / "google_verdicts.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            name, token, path, allowed = line.rstrip("\n").split("\t")
            verdicts[name].append((token, path, allowed == "1"))
    files: dict[str, bytes] = {}
    with tarfile.open(folder / "protego_robots_corpus.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and (name := member.name.rpartition("/")[2]) in verdicts:
                files[name] = content.read()
    n_verdicts = sum(len(verdicts[name]) for name in files)
    print(f"{len(files):,} files, {n_verdicts:,} verdicts")
    for label, parse in (("webtext", ours), ("protego", protego_alone), ("urllib.robotparser", standard_library)):
        start, agree = time.process_time(), 0
        for name, content in files.items():
            judge = parse(content)
            agree += sum(judge(token, path) == allowed for token, path, allowed in verdicts[name])
        microseconds = (time.process_time() - start) / n_verdicts * 1e6
        print(f"{label:<20} {agree:>9,} agree = {agree / n_verdicts:.3%}, {microseconds:.1f} µs CPU per verdict")


if __name__ == "__main__":
    main(data_folder(__doc__) / "crawl" / "robots")
