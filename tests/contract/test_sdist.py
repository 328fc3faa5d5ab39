"""The source distribution contains the tracked files and nothing else that a checkout may hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_an_sdist_packs_no_untracked_file_of_a_user(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no git repository")
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    tracked, copy = listed.stdout.splitlines(), tmp_path / "checkout"
    for name in (*tracked, ".env", "build.toml", "links/part-00000.parquet", "app/.env", "tests/.netrc"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if name in tracked:
            shutil.copyfile(REPOSITORY / name, copy / name)
        else:
            (copy / name).write_text("secret")
    build = "from scikit_build_core.build import build_sdist; build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    with tarfile.open(next((copy / "dist").glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert packed == {*tracked, "PKG-INFO"} - {".clang-format", ".gitignore"}
