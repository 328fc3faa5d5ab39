"""Takes the listed documentation packages from Debian's archive by apt and unpacks their HTML files, without installing any.

`packages.tsv` pins names and versions. A version that the archive has replaced is taken in its current version; a package that is
gone, in favour of a substitute from the list's end. Both are printed. `dependents` is the number of packages that depend on the
package's source, when the list was made; `pages` its HTML files.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

LIST = Path(__file__).with_name("packages.tsv")
PAGES = {"small": 600, "medium": 10_000, "large": 1_000_000}  # large takes the whole list
BYTES_PER_PAGE = 250_000  # of disk, with everything that is made of a page: packages, site, both corpora, models
SUFFIXES = (".html", ".htm", ".xhtml")
PER_CALL = 16  # packages that one call of apt downloads


@dataclass(frozen=True, slots=True)
class Package:
    """One line of the list; `role` is crawl or substitute."""

    role: str
    name: str
    version: str
    pages: int
    dependents: int

    @property
    def deb(self) -> str:
        """The name of its file, as apt gives it, without the architecture."""
        return f"{self.name}_{self.version.replace(':', '%3a')}"


def take(size: str, out: Path) -> list[Package]:
    """Download the packages of a size beside `out` and unpack them into it; what is there stays. OSError when that fails."""
    listed = read_list()
    wanted = available(prefix(listed, PAGES[size]), [each for each in listed if each.role == "substitute"])
    debs = out.parent / "debs"  # of all sizes
    debs.mkdir(parents=True, exist_ok=True)
    needed, free = sum(each.pages for each in wanted) * BYTES_PER_PAGE, shutil.disk_usage(debs).free
    if not (out / "site").exists() and free < needed:
        raise OSError(
            f"'{out}' has {free / 1e9:.1f} GB free, size {size} needs {needed / 1e9:.1f} GB\n"
            "free some space, or take a smaller size"
        )
    download([each for each in wanted if _file(each, debs) is None], debs)
    for package in wanted:
        unpack(debs / (_file(package, debs) or ""), out / "site" / package.name)
    return wanted


def read_list() -> list[Package]:
    """The packages of `packages.tsv`, in its order."""
    with open(LIST, encoding="utf-8", newline="") as file:
        return [
            Package(row["role"], row["package"], row["version"], int(row["pages"]), int(row["dependents"]))
            for row in csv.DictReader(file, delimiter="\t")
        ]


def prefix(listed: Iterable[Package], n_pages: int) -> list[Package]:
    """The first packages that together have `n_pages` pages to crawl."""
    taken, pages = [], 0
    for package in listed:
        if pages >= n_pages or package.role == "substitute":
            break
        taken.append(package)
        pages += package.pages
    return taken


def available(wanted: list[Package], substitutes: list[Package]) -> list[Package]:
    """`wanted` as the archive has it today. OSError when apt knows none of them."""
    known: dict[str, list[str]] = {}
    for line in _apt("apt-cache", "madison", *(each.name for each in wanted + substitutes)).splitlines():
        name, version = (part.strip() for part in line.split("|")[:2])
        known.setdefault(name, []).append(version)
    if not known:
        raise OSError(
            f"apt knows none of {len(wanted)} packages, the first: {wanted[0].name}\n"
            "run 'apt-get update' as root, on a machine with access to Debian's archive"
        )
    spare = [each for each in substitutes if each.name in known]
    return [_as_found(package, known, spare) for package in wanted]


def _as_found(package: Package, known: dict[str, list[str]], spare: list[Package]) -> Package:
    versions = known.get(package.name)
    if versions is None:
        if not spare:
            raise OSError(f"package {package.name} is gone, and no substitute is left\nadd one to '{LIST.name}'")
        found = replace(spare.pop(0), role=package.role)
        print(f"package {package.name} is gone: {found.name} takes its place", flush=True)
        return replace(found, version=known[found.name][0])
    if package.version in versions:
        return package
    print(f"package {package.name} {package.version} was replaced: took {versions[0]}", flush=True)
    return replace(package, version=versions[0])


def download(packages: list[Package], folder: Path) -> None:
    """Fetch by apt, which checks every file's hash; a file gets its place only when it is complete."""
    incoming = folder / "incoming"
    for start in range(0, len(packages), PER_CALL):
        shutil.rmtree(incoming, ignore_errors=True)  # of a download that was interrupted
        incoming.mkdir()
        incoming.chmod(0o777)  # apt downloads as the user _apt where it is run by root
        some = packages[start : start + PER_CALL]
        _apt("apt-get", "download", "-q", *(f"{each.name}={each.version}" for each in some), cwd=incoming)
        for file in incoming.iterdir():
            file.rename(folder / file.name)
        print(f"downloaded {min(start + PER_CALL, len(packages))} of {len(packages)} packages", flush=True)
    shutil.rmtree(incoming, ignore_errors=True)


def unpack(deb: Path, folder: Path) -> None:
    """Write the HTML files of a package under `folder`, gzipped ones decoded; links and everything else are left out."""
    if folder.is_dir():
        return
    temporary = folder.with_name(folder.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as process,
        contextlib.suppress(tarfile.ReadError),
        tarfile.open(fileobj=process.stdout, mode="r|") as files,
    ):
        for member in files:
            _write_page(member, files, temporary)
    if process.returncode:
        raise OSError(f"'{deb}' cannot be unpacked\nremove it, and run the same command again")
    temporary.rename(folder)


def _write_page(member: tarfile.TarInfo, files: tarfile.TarFile, folder: Path) -> None:
    name = PurePosixPath(member.name.removeprefix("./").removeprefix("usr/share/").removesuffix(".gz"))
    if member.isreg() and name.suffix.lower() in SUFFIXES and ".." not in name.parts:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        data = files.extractfile(member).read()  # type: ignore[union-attr]
        target.write_bytes(gzip.decompress(data) if member.name.endswith(".gz") else data)


def _file(package: Package, debs: Path) -> str | None:
    return next((path.name for path in debs.glob(f"{package.deb}_*.deb")), None)


def _apt(*command: str, cwd: Path | None = None) -> str:
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise OSError(
            f"'{command[0]}' was not found\nthe pages come from Debian's archive: use Debian or its like"
        ) from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OSError(
            f"'{' '.join(command[:2])}' failed: {reason}\n"
            "run 'apt-get update' as root, then the same command again: what is downloaded stays"
        ) from None
