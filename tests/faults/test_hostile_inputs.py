"""Hostile files in part sets: side files that never end, and URLs that the user didn't name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, parents_of
from webtext.base.parts.recipe import without_check
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine
from webtext.clean.dedup.index import corpus_of
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import dedup_documents

sys.path.insert(0, str(Path(__file__).parent.parent / "clean"))

from dedup_sets import corpus, index_of, write_set  # noqa: E402

MEGABYTES_ALLOWED = 200


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with LocalEngine(workers=1) as engine:
        yield Run(engine, Console("quiet"))


# --- files that never end -----------------------------------------------------------------------------------------------


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_terabyte(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


Ruin = Callable[[Path], None]
RUINS = (a_device, a_pipe, a_terabyte)
CHILD = """
import resource, sys, time
from webtext.app.main import main
megabytes = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
import webtext.clean.pipeline, webtext.app.reports.report, webtext.app.inspect.trace
before, begun = megabytes(), time.process_time()
try:
    main(sys.argv[1:])
except SystemExit as exit:
    print(exit.code, megabytes() - before, time.process_time() - begun)
"""


def outcome(*arguments: str) -> tuple[int, float, str]:
    """Run a verb for at most two minutes; return exit code, megabytes used beyond the imports, and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    code, megabytes, _ = done.stdout.split()[-3:]
    return int(code), float(megabytes), done.stderr


@pytest.mark.parametrize("ruin", [a_device, *(pytest.param(each, marks=pytest.mark.slow) for each in RUINS[1:])])
def test_a_manifest_that_never_ends_is_rejected(ruin: Ruin, tmp_path: Path) -> None:
    write_set(tmp_path / "set", corpus(1)[:5])
    (tmp_path / "set/manifest.json").unlink()
    ruin(tmp_path / "set/manifest.json")
    for arguments in (["inspect", "set"], ["clean", "dedup", "--out", str(tmp_path / "out")]):
        code, megabytes, said = outcome(*arguments, str(tmp_path / "set"))
        assert (code, "manifest.json'" in said) == (3, True), said
        assert megabytes < MEGABYTES_ALLOWED


SIDE_FILES = ("run.json", "manifest.json", "quarantine.json", "_parts/00000.json")
QUICK = {("run.json", a_device), ("manifest.json", a_pipe), ("quarantine.json", a_terabyte)}
RUINED = [
    pytest.param(name, ruin, marks=[] if (name, ruin) in QUICK else pytest.mark.slow)
    for name in SIDE_FILES
    for ruin in RUINS
]


@pytest.mark.parametrize(("name", "ruin"), RUINED)
def test_an_output_folder_with_a_side_file_that_never_ends_is_rejected_or_written_again(
    name: str, ruin: Ruin, tmp_path: Path, run: Run
) -> None:
    documents = write_set(tmp_path / "documents", corpus(1)[:20])
    dedup_documents([documents.folder.url], str(tmp_path / "out"), DedupSettings(), run)
    path = tmp_path / "out/corpus" / name
    path.unlink(missing_ok=True)
    ruin(path)
    (tmp_path / "out/corpus/part-00000.parquet").write_bytes(b"")  # so that the run has work to do
    code, megabytes, said = outcome("clean", "dedup", documents.folder.url, "--out", str(tmp_path / "out"))
    assert code in (0, 3), said
    assert code == 0 or f"{name}'" in said
    assert megabytes < MEGABYTES_ALLOWED


@pytest.mark.parametrize("ruin", RUINS)
def test_a_part_that_never_ends_is_rejected(ruin: Ruin, tmp_path: Path) -> None:
    write_set(tmp_path / "set", corpus(1)[:5])
    (tmp_path / "set/part-00000.parquet").unlink()
    ruin(tmp_path / "set/part-00000.parquet")
    with pytest.raises(InputError, match=r"part-00000.parquet' (is not a regular file|was altered)"):
        PartSet.open(str(tmp_path / "set"))


@pytest.mark.parametrize("lacks", ["recipe", "parts"])
def test_a_manifest_without_what_readers_need_is_damaged(lacks: str, tmp_path: Path) -> None:
    write_set(tmp_path / "set", corpus(1)[:5])
    path = tmp_path / "set/manifest.json"
    manifest = without_check(json.loads(path.read_text()))
    for broken in ({k: v for k, v in manifest.items() if k != lacks}, manifest | {"parts": [{"name": 5}]}):
        path.write_text(json.dumps(broken))
        with pytest.raises(InputError, match="manifest.json' is damaged"):
            PartSet.open(str(tmp_path / "set"))


# --- URLs in files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server on loopback: its URL, and the requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", paths
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_that_a_set_names_as_its_parent_is_not_opened(asked: tuple[str, list[str]], tmp_path: Path) -> None:
    url, paths = asked
    opened = write_set(tmp_path / "set", corpus(1)[:5])
    places = [f"{url}/documents", f"simplecache::{url}/documents", 5, None, "\0"]
    (tmp_path / "set/run.json").write_text(json.dumps({"parents": places}))
    assert list(parents_of(opened)) == []
    code, _, said = outcome("inspect", "set", str(tmp_path / "set"))
    assert code == 0, said
    assert paths == []


def test_parents_in_the_same_store_are_followed(tmp_path: Path) -> None:
    for url in ("memory://bucket/parent", "memory://other/parent"):
        write_set(url, corpus(1)[:5])
    child = write_set("memory://bucket/child", corpus(1)[:5])
    child.folder.write_bytes(
        "run.json", json.dumps({"parents": ["memory://bucket/parent", "memory://other/parent"]}).encode()
    )
    assert [parent.folder.url for parent in parents_of(child)] == ["memory://bucket/parent"]
    both = parents_of(child, Folder("memory://other/anything"))
    assert [parent.folder.url for parent in both] == ["memory://bucket/parent", "memory://other/parent"]


def test_an_index_of_a_remote_corpus_is_opened_beside_documents_of_the_same_store(tmp_path: Path, run: Run) -> None:
    local = write_set(tmp_path / "local", corpus(1)[:5])
    index = index_of(local, tmp_path / "index", DedupSettings(), run)
    for name in ("manifest.json", "part-00000.parquet", "_parts/00000.json"):
        Folder("memory://bucket/corpus").write_bytes(name, (tmp_path / "local" / name).read_bytes())
    (tmp_path / "index/run.json").write_text(json.dumps({"parents": ["memory://bucket/corpus"]}))
    index = PartSet.open(index.folder.url)
    found = corpus_of(index, Folder("memory://bucket/documents"))
    assert found is not None
    assert found.hash == local.hash
    assert corpus_of(index, Folder(tmp_path)) is None
