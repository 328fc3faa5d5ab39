"""Folders on disk and at URLs: published files are complete."""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import pickle
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from object_store import BUCKET, object_store

from webtext.base.errors import InputError, MachineError, NetworkError
from webtext.base.parts.exchange import RangeWriter, read_range
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.storage import Folder, file_sha256, no_space_is_an_error


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store():
        yield f"s3://{BUCKET}/build"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "local":
        return Folder(tmp_path / "build")
    return Folder(request.getfixturevalue("s3")).child(tmp_path.name)


def test_a_range_of_an_exchange_is_read(folder: Folder) -> None:
    writer = SetWriter(folder.url, "exchange", Recipe(stage="test", code_version=1, settings={}))
    rows = pa.table({"word": ["a", "b", "c"]})
    with writer.part(0, key="0") as part:
        with RangeWriter(part, rows.schema, 3) as ranges:
            ranges.add(np.array([2, 0, 2], np.uint64), rows)
        made = writer.seal([part.publish()])
    found = [[each["word"].to_pylist() for each in read_range(made, number, rows.schema)] for number in range(3)]
    assert found == [[["b"]], [], [["a", "c"]]]


def test_what_is_written_is_read_back_and_listed(folder: Folder) -> None:
    assert folder.names() == []
    folder.write_bytes("b.json", b"second")
    folder.write_bytes("a.json", b"first")
    folder.child("inner").write_bytes("c.json", b"third")
    assert folder.names(".json") == ["a.json", "b.json"]
    assert folder.read_bytes("a.json") == b"first"
    assert (folder.size("b.json"), folder.exists("b.json"), folder.exists("d.json")) == (6, True, False)
    with folder.open("b.json") as file:
        file.seek(3)
        assert file.read() == b"ond"
    folder.write_bytes("a.json", b"replaced")
    assert folder.read_bytes("a.json") == b"replaced"
    folder.remove("a.json")
    folder.remove("a.json")
    assert folder.names() == ["b.json"]
    assert pickle.loads(pickle.dumps(folder)).url == folder.url
    with pytest.raises(InputError, match="no file"):
        folder.read_bytes("missing")


def test_one_listing_has_the_sizes_of_all_files_and_a_version_changes_with_its_file(folder: Folder) -> None:
    assert folder.files() == {}
    folder.write_bytes("a.json", b"first")
    folder.write_bytes("b.json", b"second")
    folder.child("inner").write_bytes("c.json", b"third")
    assert folder.files() == {"a.json": 5, "b.json": 6}
    before = folder.version("a.json")
    folder.write_bytes("a.json", b"other")
    assert folder.status("a.json") == (5, folder.version("a.json"))
    assert folder.version("a.json") != before


def test_a_folder_on_disk_has_one_writer_or_several_that_share_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for shared in (False, True):
        with folder.held(), pytest.raises(InputError, match=f"process {os.getpid()} on"), folder.held(shared):
            pass
    said = rf"another run is writing '{tmp_path}'\nprocess \d+ on"
    with folder.held(True), folder.held(True), pytest.raises(InputError, match=said), folder.held():
        pass
    with folder.held():
        assert folder.names() == []


def test_a_part_set_lives_at_a_url_as_on_disk(folder: Folder) -> None:
    writer = SetWriter(folder.child("set").url, "dropped", Recipe(stage="test", code_version=1, settings={}))
    with writer.part(0, key="k") as part:
        part.write([{"id": "1", "stage": "filter", "reason": "planted", "text_start": ""}])
        part.attach("part-00000.note").write_text("beside it")
        writer.seal([part.publish()])
    opened = PartSet.open(folder.child("set").url, "dropped")
    opened.verify()
    assert opened.table(0).num_rows == 1
    assert list(writer.look()) == [0]
    folder.child("set").write_bytes("part-00000.note", b"altered  ")
    with pytest.raises(InputError, match="part-00000.note' was altered"):
        PartSet.open(folder.child("set").url).verify()


def test_nothing_appears_when_writing_fails(folder: Folder) -> None:
    with pytest.raises(RuntimeError), folder.scratch("a.bin") as path:  # noqa: PT012
        path.write_bytes(b"half")
        raise RuntimeError
    assert not folder.exists("a.bin")
    assert not path.exists()


def test_writers_of_one_name_never_share_a_temporary_file(folder: Folder) -> None:
    with folder.scratch("a.bin") as first, folder.scratch("a.bin") as second:
        first.write_bytes(b"equal")
        second.write_bytes(b"equal")
    assert first != second
    assert folder.read_bytes("a.bin") == b"equal"
    assert folder.names() == ["a.bin"]


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [("a/b", "a", "b"), ("b", ".", "b"), ("/b", "/", "b"), ("/a/b/", "/a", "b"), ("file:///b", "/", "b")],
)
def test_a_path_is_split_into_its_folder_and_its_name(path: str, folder: str, name: str) -> None:
    assert (Folder.split(path)[0].url, Folder.split(path)[1]) == (folder, name)
    assert Folder(folder).location(name).removeprefix("./") == path.removeprefix("file://").rstrip("/")


def test_a_full_disk_is_a_short_error_with_a_remedy(tmp_path: Path) -> None:
    message = (
        r"no space left while writing 'there'\non the file system at '/.*', [0-9,]+ bytes are free.*\nfree some space"
    )
    with pytest.raises(MachineError, match=message), no_space_is_an_error("there"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_second_run_learns_who_holds_the_folder_and_since_when(tmp_path: Path) -> None:
    if not Path("/proc/locks").is_file():
        pytest.skip("the system does not list its locks in /proc/locks")
    hold = "import sys\nfrom webtext.base.storage import Folder\nwith Folder(sys.argv[1]).held(): print(); input()"
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(InputError) as caught, Folder(tmp_path).held():
            pass
        holder.stdin.close()
    assert caught.value.lines[0] == f"another run is writing '{tmp_path}'"
    said = re.fullmatch(r"process (\d+) on (\S+) since (.{19}): (.*)", caught.value.lines[1])
    assert said is not None
    assert (int(said[1]), said[2]) == (holder.pid, platform.node())
    assert abs(datetime.fromisoformat(said[3]).timestamp() - time.time()) < 300
    assert said[4] == " ".join(" ".join(command).split())
    with Folder(tmp_path).held():
        pass


def test_a_holder_that_cannot_be_seen_is_said_to_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a lock of another host on a network file system."""
    with Folder(tmp_path).held():
        monkeypatch.setattr("webtext.base.storage.Path.read_text", lambda *_: "")
        with pytest.raises(InputError, match="runs on another host or in another container"), Folder(tmp_path).held():
            pass


def test_a_file_that_has_the_bytes_already_is_left_as_it_is(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_bytes("a", b"one")
    first = (tmp_path / "a").stat()
    folder.write_bytes("a", b"one")
    assert (tmp_path / "a").stat().st_ino == first.st_ino
    folder.write_bytes("a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"


def test_a_full_device_raises_the_same_error(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    folder = Folder(tmp_path)
    with pytest.raises(MachineError, match="no space left"), folder.scratch("a.bin"), open("/dev/full", "wb") as full:
        full.write(b"x" * 100_000)
    assert folder.names() == []


def test_a_file_in_the_place_of_the_folder_is_a_short_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((MachineError, FileExistsError, NotADirectoryError)):
        Folder(tmp_path / "file" / "inner").write_bytes("a", b"")


def test_leftovers_of_killed_runs_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".part-00000.parquet.123.tmp").write_bytes(b"half")
    folder = Folder(tmp_path)
    assert folder.names() == []
    folder.remove_leftovers()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_address_is_a_short_error() -> None:
    with pytest.raises(InputError, match="unknown kind of address 'gopher://'"):
        Folder("gopher://host/x")


def test_a_folder_in_place_of_a_file_is_a_short_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="'.*folder' cannot be read: Is a directory"):
        Folder(tmp_path).open("folder")


def test_a_remote_that_fails_is_a_short_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder("memory://bucket/deep")

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no\ncredentials")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.exists", refuse)
    with pytest.raises(NetworkError, match="'memory://bucket/deep' doesn't respond: ValueError: no credentials"):
        folder.exists("x")


def test_a_folder_whose_name_is_not_utf8_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    folder = Folder(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(InputError, match=r"udcff' is not valid UTF-8"), folder.held():
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [b"", b"[1]", b"null", b"{", b"[" * 100_000, b"\xff", b"{}\n{}"])
def test_a_file_without_a_json_object_is_a_short_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(InputError, match=r"x\.json' is damaged: ") as error:
        Folder(tmp_path).read_object("x.json", "mend it")
    assert error.value.lines[1] == "mend it"


def test_what_is_written_is_strict_json(tmp_path: Path) -> None:
    Folder(tmp_path).write_object("x.json", {"a": [math.nan, {"b": math.inf}], "c": (1.5, -math.inf)})
    assert Folder(tmp_path).read_object("x.json") == {"a": [None, {"b": None}], "c": [1.5, None]}


@given(data=st.binary(max_size=200), start=st.integers(0, 20))
def test_a_file_is_digested_from_its_current_position(data: bytes, start: int) -> None:
    file = io.BytesIO(data)
    file.seek(start)
    assert file_sha256(file) == hashlib.sha256(data[start:]).hexdigest()
