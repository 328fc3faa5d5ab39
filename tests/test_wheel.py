"""A wheel's tag, its contents, and what it says about them. `make wheel` runs these tests on each wheel that it built."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")
CORES = ("crawl/_sift", "clean/_language", "clean/_minhash", "clean/_ngrams", "clean/_signals", "tokenizer/_bpe")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel that WEBTEXT_WHEEL names, or one that is built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    named = os.environ.get("WEBTEXT_WHEEL")
    if not named:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            folder,
            ROOT,
        ]
        subprocess.run([*command, "--config-settings", f"build-dir={folder / 'build'}"], check=True)
        (named,) = folder.glob("*.whl")
    with zipfile.ZipFile(named) as archive:
        yield archive


def information(wheel: zipfile.ZipFile, name: str) -> str:
    """Return the text of a file in the wheel's .dist-info folder."""
    (path,) = (each for each in wheel.namelist() if each.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_python_3_11_has_a_wheel_of_its_own_and_later_ones_share_one(wheel: zipfile.ZipFile) -> None:
    python, abi, platform = Path(wheel.filename or "").stem.split("-")[-3:]
    assert (python, abi) in (("cp311", "cp311"), ("cp312", "abi3"))
    assert ("manylinux" in platform or "macosx" in platform) == ("WEBTEXT_WHEEL" in os.environ)
    suffixes = {name.partition(".")[2] for name in wheel.namelist() if name.endswith(".so")}
    assert len(suffixes) == 1
    assert suffixes == {"abi3.so"} or (abi == "cp311" and suffixes.pop().startswith("cpython-311-"))


def test_it_has_every_module_and_every_core_with_its_stub_and_nothing_of_the_build(wheel: zipfile.ZipFile) -> None:
    names = [name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith("/")]
    files = (file for stage in STAGES for file in (ROOT / stage).rglob("*.py") if "native" not in file.parts)
    modules = {f"webtext/{file.relative_to(ROOT)}" for file in files} | {"webtext/__init__.py"}
    assert {name for name in names if name.endswith(".py")} == modules
    cores = {f"webtext/{core}" for core in (*CORES, "tokenizer/_trainer")}
    assert {name.partition(".")[0] for name in names if name.endswith(".so")} == cores
    assert {name.partition(".")[0] for name in names if name.endswith(".pyi")} == cores
    assert {Path(name).suffix for name in names} == {
        ".py",
        ".pyi",
        ".so",
        ".txt",
        ".toml",
        ".json",
        ".sbatch",
        ".typed",
        ".css",
        ".html",
        ".jinja",
        ".js",
        ".yaml",
    }


def test_it_is_small_and_names_no_folder_of_the_machine_that_built_it(wheel: zipfile.ZipFile) -> None:
    assert Path(wheel.filename or "").stat().st_size < 3_000_000
    for name in wheel.namelist():
        assert not any(folder in wheel.read(name) for folder in (os.fsencode(ROOT), b"/site-packages/", b"build-env-"))


def test_the_bill_of_materials_names_what_is_compiled_in_and_what_is_asked_for(wheel: zipfile.ZipFile) -> None:
    bill = json.loads(information(wheel, "sboms/webtext.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    metadata = email.message_from_string(information(wheel, "METADATA"))
    package = bill["metadata"]["component"]
    assert (package["name"], package["version"]) == (metadata["Name"], metadata["Version"])
    components = {each["name"]: each for each in bill["components"]}
    linked = {name: each["licenses"][0]["license"]["id"] for name, each in components.items() if "version" in each}
    assert linked == {"nanobind": "BSD-3-Clause", "robin-map": "MIT"}
    asked = {
        name: each["properties"][0]["value"] for name, each in components.items() if each.get("scope") == "required"
    }
    assert asked == {"numpy": "numpy>=2.0", "regex": "regex>=2024.11.6", "click": "click>=8.1"}
    assert {"torch", "pyarrow", "s3fs", "lm-eval"} <= {
        name for name, each in components.items() if each.get("scope") == "optional"
    }
    known = {package["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    assert all({each["ref"], *each["dependsOn"]} <= known for each in bill["dependencies"])


def test_it_has_the_licences_of_the_code_that_is_compiled_in(wheel: zipfile.ZipFile) -> None:
    assert information(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert "Wenzel Jakob" in information(wheel, "licenses/nanobind.txt")
    assert information(wheel, "licenses/robin-map.txt").startswith("MIT License\n\nCopyright (c) 2017 Thibaut")
