"""A really full disk: the error names its file system and the bytes, and a rerun gives an undisturbed run's bytes."""

from __future__ import annotations

import errno
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.base.errors import MachineError
from webtext.base.storage import no_space_is_an_error

WORDS = Path(__file__).read_text().split()
WRITE_ARRAY = """\
import numpy, sys
from webtext.base.storage import write_array
with open(sys.argv[1], "wb") as file:
    write_array(file, numpy.ones(1 << 20, numpy.uint32))
"""


def python(*arguments: str) -> str:
    return shlex.join([sys.executable, *arguments])


def texts(path: Path) -> Path:
    draw = random.Random(3)
    rows = [{"id": str(i), "text": " ".join(draw.choices(WORDS, k=200))} for i in range(600)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("size", ["150k", "330k", "480k"])
def test_a_build_on_a_full_disk_says_what_is_missing_and_resumes_once_there_is_room(
    size: str, tmp_path: Path, in_a_mount_namespace: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    """At these sizes different writers fail: Arrow's, the signatures' and the scratch files'."""
    source, small = texts(tmp_path / "texts.jsonl"), tmp_path / "small"
    small.mkdir()
    dedup = ["-m", "webtext.app.main", "clean", "dedup", str(source), "--quiet", "--out"]
    assert run([*dedup[2:], str(tmp_path / "whole")]) == 0
    manifest = (tmp_path / "whole/corpus/manifest.json").read_text()
    command = python(*dedup, str(small / "out"))
    answer = in_a_mount_namespace(f"""
        mount -t tmpfs -o size={size} none {shlex.quote(str(small))} || exit 99
        {command} && exit 98
        mount -o remount,size=100m {shlex.quote(str(small))}
        {command} || exit 97
        find {shlex.quote(str(small))} -name '*.tmp' >&2
        cat {shlex.quote(str(small))}/out/corpus/manifest.json
    """)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stderr.splitlines()
    assert len(lines) == 3, answer.stderr
    assert re.fullmatch(rf"error: no space left while writing '{small}/out.*'", lines[0])
    assert re.fullmatch(
        rf"  on the file system at '{small}', ([\d,]+ bytes were needed, )?[\d,]+ bytes are free", lines[1]
    )
    assert lines[2] == "  free some space and rerun the same command to resume"
    assert answer.stdout == manifest


def test_an_array_on_a_full_disk_says_how_many_bytes_it_has(
    tmp_path: Path, in_a_mount_namespace: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    answer = in_a_mount_namespace(f"""
        mount -t tmpfs -o size=64k none {shlex.quote(str(tmp_path))}
        {python("-c", WRITE_ARRAY, str(tmp_path / "values"))}
    """)
    assert f"no space left while writing '{tmp_path}/values'" in answer.stderr
    assert re.search(
        rf"on the file system at '{tmp_path}', 4,194,304 bytes were needed, [\d,]+ bytes are free", answer.stderr
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError("1048576 requested and 15360 written"),  # numpy
        OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"),  # Arrow
        OSError("Error while serializing: I/O error: No space left on device (os error 28)"),  # safetensors
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_every_library_s_error_for_a_full_disk_is_recognised(error: OSError, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"no space left while writing .*\n.*7 bytes were needed"):  # noqa: SIM117
        with no_space_is_an_error(str(tmp_path / "set" / "part"), 7):
            raise error
