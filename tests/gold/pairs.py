"""Make pairs of a page and its true text from pinned packages: `make gold SIZE=small|large`.

Reads packages.toml; fetches each package with apt-get, unpacks it, reads its sources, takes its pages or makes them, and
writes build/gold/SIZE/NAME.parquet (`SCHEMA`) and NAME.json (pairs, and pages left out by reason). A package with both
files isn't made again, so the same command resumes. A package that can't be had is counted, and tried again next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py3langid import langid

sys.path.insert(0, str(Path(__file__).parents[1]))
from gold import align, generators, sources, truth  # noqa: E402

WORK = Path(__file__).parents[2] / "build/gold"
TABLE = tomllib.loads(Path(__file__).with_name("packages.toml").read_text(encoding="utf-8"))
SEALED = frozenset(TABLE["sealed"])
PAGES, MADE = {"small": 12, "large": 80}, {"small": 32, "large": 96}
"""The most pairs of a book: of its own pages; and of pages made here, divided by the templates of its format (4 to 16)."""
MODULUS, DEVELOPMENT, TEST = 10, 6, 8
"""The hash of a source package's name, modulo 10: below 6 training, then development, from 8 on test."""
PACKAGE_SECONDS = 1800
APT = WORK / "apt"
_APT_OPTIONS = {"Dir::State": APT, "Dir::Cache": APT / "cache", "Dir::Etc::SourceList": APT / "sources.list"}
_APT_OPTIONS |= {"Dir::Etc::SourceParts": "/dev/null", "APT::Sandbox::User": "root"}
APT_GET = ("apt-get", "-qq", *(f"-o{name}={value}" for name, value in _APT_OPTIONS.items()))
SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # first 32 hex of SHA-256 of package, generator, theme, language and page
        ("package", pa.string()),
        ("version", pa.string()),
        ("source", pa.string()),  # the source package
        ("licence", pa.string()),  # short names from the package's copyright file
        ("split", pa.string()),  # train, development or test
        ("generator", pa.string()),
        ("theme", pa.string()),
        ("made", pa.bool_()),  # made here from the source, not by the distribution
        ("format", pa.string()),  # of the source
        ("language", pa.string()),
        ("page", pa.string()),
        ("html", pa.binary()),
        ("blocks", pa.list_(pa.struct([("kind", pa.string()), ("text", pa.string())]))),
        ("neutral", pa.list_(pa.string())),  # words between gold's that are neither gold nor boilerplate
        ("found", pa.float32()),  # share of the source's words that are in the page, in order
        ("more", pa.float32()),  # words of the page between gold's that nothing explains, per word of gold
    ]
)


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned package: a binary one, or with `is_source` a source package."""

    name: str
    version: str
    sha256: str  # of the .deb, or of the .dsc, which has the hashes of its files
    is_source: bool = False
    small: bool = False
    makes_pages: bool = False  # also with the other templates, though it has pages of its own
    needs: Sequence[str] = ()  # packages with the document types that its sources name
    support: bool = False  # only needed by others


class Gone(Exception):
    """A package that the archive no longer has, or has with other bytes; the message is the reason."""


def main() -> int:
    """Make the pairs that are missing and print how many there are; 1 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "large"), default="small", help="which packages, how many pages")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--make", metavar="PACKAGE", help="make the pairs of one package in this process, and print their number"
    )
    options = parser.parse_args()
    packages = {entry["name"]: Package(**entry) for entry in TABLE["package"]}
    if options.make:
        print(json.dumps(make(packages[options.make], options.size)))
        return 0
    wanted = [one for one in packages.values() if not one.support and (options.size == "large" or one.small)]
    out = WORK / options.size
    out.mkdir(parents=True, exist_ok=True)
    if missing := [one for one in wanted if not (out / f"{one.name}.json").exists()]:
        prepare(packages, {name for one in missing for name in one.needs})
    with ThreadPoolExecutor(options.workers) as threads:
        for line in threads.map(partial(make_apart, size=options.size), (one.name for one in missing)):
            print(line, file=sys.stderr, flush=True)
    return int(report(out, [one.name for one in wanted]) == 0)


def prepare(packages: Mapping[str, Package], needed: Iterable[str]) -> None:
    """Give apt-get a state of its own that knows source packages; install themes, unpack document types."""
    if not (generators.VENV / "ready").exists():
        _run(sys.executable, "-m", "venv", str(generators.VENV))
        _run(f"{generators.VENV}/bin/pip", "install", "-q", "-r", str(Path(__file__).with_name("themes.txt")))
        (generators.VENV / "ready").touch()
    (APT / "lists/partial").mkdir(parents=True, exist_ok=True)
    (APT / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    sites = _run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    lines = {f"{kind} {site}\n" for kind in ("deb", "deb-src") for site in sites.splitlines()}
    (APT / "sources.list").write_text("".join(sorted(lines)), encoding="utf-8")
    _run(*APT_GET, "update")
    for name in needed:
        if not (WORK / "support" / name).exists():
            with suppress(Gone):  # then the sources that need it are counted as not parsed
                fetch(packages[name], WORK / "support" / name)
    catalogs = (WORK / "support").rglob("catalog.xml")
    os.environ["XML_CATALOG_FILES"] = " ".join(map(str, sorted(catalogs, key=lambda path: len(path.parts))))


def fetch(package: Package, tree: Path) -> str:
    """Download and unpack a package, and return the name of its source package; Gone if the archive lacks it."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        command = ("source", "--download-only", "--only-source") if package.is_source else ("download",)
        _run(*APT_GET, *command, f"{package.name}={package.version}", cwd=folder)
        files = sorted(Path(folder).iterdir())
        pinned = [path for path in files if path.suffix == (".dsc" if package.is_source else ".deb")]
        if not pinned:
            raise Gone("package_gone")
        if hashlib.sha256(pinned[0].read_bytes()).hexdigest() != package.sha256:
            raise Gone("package_changed")
        tree.mkdir(parents=True)
        if not package.is_source:
            _run("dpkg-deb", "-x", str(pinned[0]), str(tree))
            return _run("dpkg-deb", "-f", str(pinned[0]), "Source").split(" ")[0].strip() or package.name
        for path in files:
            if ".tar." in path.name and not path.name.endswith(".asc"):
                with tarfile.open(path) as archive:
                    archive.extractall(tree, filter="data")
        return package.name


def make_apart(name: str, size: str) -> str:
    """Make the pairs of a package in a process of its own, and return a line that says how many, or how it ended."""
    command = [sys.executable, __file__, "--size", size, "--make", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PACKAGE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{name}: took more than {PACKAGE_SECONDS} seconds"
    return f"{name}: {done.stdout.strip() or f'exit status {done.returncode}: {done.stderr.strip()[-500:]}'}"


def make(package: Package, size: str) -> dict[str, int]:
    """Write the pairs of a package; return their number and that of the pages left out, by reason."""
    counts: Counter[str] = Counter()
    out = WORK / size / package.name
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        tree = Path(folder, "tree")
        try:
            source = fetch(package, tree)
            rows = list(pairs(package, tree, size, Path(folder), counts))
        except (Gone, OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            return {str(error) if isinstance(error, Gone) else f"failed: {error!r}": 1}
        shared = {"package": package.name, "version": package.version, "source": source, "licence": licence(tree)}
    split = split_of(source)
    for row in rows:
        row |= shared | {"split": split}
        row["id"] = _hash(*(row[key] for key in ("package", "generator", "theme", "language", "page")))[:32]
    kept = [row for row in rows if split == "test" or f"{row['generator']} {row['language']}" not in SEALED]
    counts += Counter(pairs=len(kept), sealed_combination=len(rows) - len(kept))
    pq.write_table(pa.Table.from_pylist(kept, SCHEMA), f"{out}.new", compression="zstd")
    os.replace(f"{out}.new", f"{out}.parquet")
    Path(f"{out}.json").write_text(json.dumps(counts), encoding="utf-8")
    return counts


def pairs(package: Package, tree: Path, size: str, scratch: Path, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the pairs of a package, and count the pages left out. The same pages are chosen for every template."""

    def order(name: str) -> str:
        return _hash(package.name, name)

    for number, book in enumerate(sources.books(tree)):
        texts = read(book, book.pages or book.sources)
        versions = [(book.generator, "", book.pages)] if book.pages else []
        n_made = MADE[size] // min(max(len(generators.COMMANDS[book.format]), 4), 16)
        if package.makes_pages or not book.pages:
            known = [name for name, text in texts.items() if not isinstance(text, truth.Unresolved)]
            counts["source_not_resolved"] += len(texts) - len(known)
            usable = sorted((name for name in known if is_in(book.language, texts[name])), key=order)
            counts["not_translated"] += len(known) - len(usable)
            if usable:
                versions += generators.made(book, scratch / str(number), usable[: 3 * n_made])
        for generator, theme, pages in versions:
            if len(set(book.sources.values())) == 1:
                texts = read(book, pages)  # each generator cuts a book in its own way
            titles = frozenset(word for text in texts.values() for word in title_words(text))
            shared = {"generator": generator, "theme": theme, "made": pages is not book.pages, "format": book.format}
            left = n_made if shared["made"] else PAGES[size]
            for name in sorted(pages, key=order):
                try:
                    row = pair(texts.get(name, truth.Unresolved("no_source")), pages[name], titles, book.language)
                except align.LeftOut as reason:
                    counts[str(reason)] += 1
                    continue
                yield shared | row | {"page": str((book.folder / name).relative_to(tree)), "language": book.language}
                left -= 1
                if not left:
                    break


def pair(
    text: list[truth.Block] | truth.Unresolved, page: bytes, titles: frozenset[str], language: str
) -> dict[str, Any]:
    """Return a page and its gold; LeftOut also if its text is likelier English: translations are often partial."""
    found = align.align(text, page, titles)
    if not is_in(language, found.blocks):
        raise align.LeftOut("not_translated")
    return found._asdict() | {"html": page, "blocks": [block._asdict() for block in found.blocks]}


def is_in(language: str, blocks: Sequence[truth.Block]) -> bool:
    """Whether py3langid takes a text for its stated language rather than for English; any but English if it's unknown."""
    base = re.split("[_@-]", language)[0]
    prose = " ".join(block.text for block in blocks if block.kind != truth.CODE)
    if base == "en":
        return True
    if base not in identifier().labels:
        return bool(identifier().classify(prose)[0] != "en")
    return bool(identifier("en", base).classify(prose)[0] == base)


@cache
def identifier(*languages: str) -> Any:
    """Return a classifier of texts in one of some languages; its labels are all that it knows."""
    made = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    if languages:
        made.set_languages(sorted(languages))
    return made


def read(book: truth.Book, pages: Iterable[str]) -> dict[str, list[truth.Block] | truth.Unresolved]:
    """Return the text of each page; a book of one file is cut into the pages that a generator made of it."""
    mains = set(book.sources.values())
    return truth.read(replace(book, sources=dict.fromkeys(pages, *mains)) if len(mains) == 1 else book)


def title_words(text: list[truth.Block] | truth.Unresolved) -> Iterator[str]:
    """Yield the words of a text's titles and menus."""
    for block in text if isinstance(text, list) else ():
        if block.kind in (truth.HEADING, truth.CAPTION, truth.MENU):
            yield from align.words(block.text)


def licence(tree: Path) -> str:
    """Return the short names of a package's licences, from its copyright file; empty if there is none."""
    names: set[str] = set()
    for path in [*tree.glob("usr/share/doc/*/copyright"), *tree.glob("debian/copyright")]:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        names |= set(re.findall(r"^License: *(\S.*?) *$", text, re.MULTILINE))
        names |= set() if names else set(re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text))
    return ", ".join(sorted(names))


def split_of(source: str) -> str:
    """Return the split of a source package and of all that is made from it."""
    number = int(_hash(source)[:8], 16) % MODULUS
    return "train" if number < DEVELOPMENT else "development" if number < TEST else "test"


def report(out: Path, names: Sequence[str]) -> int:
    """Print the pairs by split, generator and language, and the pages left out by reason; return the number of pairs."""
    found = [name for name in names if (out / f"{name}.json").exists()]
    counts = sum((Counter(json.loads((out / f"{name}.json").read_text(encoding="utf-8"))) for name in found), Counter())
    n_pairs = counts.pop("pairs", 0)
    print(f"{n_pairs:,} pairs from {len(found)} of {len(names)} packages; pages left out: {dict(counts.most_common())}")
    keys = ["split", "generator", "language"]
    rows = [
        row
        for name in found
        for row in pq.read_table(out / f"{name}.parquet", columns=[*keys, "source", "made"]).to_pylist()
    ]
    for key in keys:
        print(f"\n| {key} | pairs | made here | source packages |\n|---|---|---|---|")
        for value, n in Counter(row[key] for row in rows).most_common():
            of = [row for row in rows if row[key] == value]
            print(f"| {value} | {n:,} | {sum(row['made'] for row in of):,} | {len({row['source'] for row in of})} |")
    return n_pairs


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(*command: str, cwd: str | None = None) -> str:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=truth.SECONDS, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
