"""The proof's own parts: what it takes from the archive, what its hosts answer. `make proof` runs the whole."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import hosts
import packages
import tables
import theirs
from packages import Package
from votes import GONE, OLD, number_of, write_votes

PAGE = b"<html><head><title>Old news</title></head><body><p>caf\xc3\xa9</p></body></html>"
APT_CACHE = """#!/bin/sh
echo ' a-doc |    1.0-1 | http://archive.invalid bookworm/main amd64 Packages'
echo ' b-doc |    2.0-7 | http://archive.invalid bookworm/main amd64 Packages'
echo ' c-doc |    3.0-1 | http://archive.invalid bookworm/main amd64 Packages'
"""


def _package(name: str, version: str = "1.0-1", role: str = "crawl", pages: int = 5) -> Package:
    return Package(role, name, version, pages, 3)


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH whose `apt-cache` knows a-doc 1.0-1, b-doc 2.0-7 and c-doc 3.0-1."""
    folder = tmp_path / "bin"
    folder.mkdir()
    _script(folder / "apt-cache", APT_CACHE)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_list_has_the_sizes_that_the_proof_promises() -> None:
    listed = packages.read_list()
    chosen = {size: packages.prefix(listed, n) for size, n in packages.PAGES.items()}
    assert len(chosen["large"]) >= 300
    pages = {size: sum(each.pages for each in some if each.role == "crawl") for size, some in chosen.items()}
    assert pages["small"] >= 2_000
    assert pages["medium"] >= 20_000
    assert pages["large"] >= 50_000
    assert all(any(each.role == "held_out" for each in some) for some in chosen.values())


def test_a_replaced_version_is_taken_as_it_is_now_and_printed(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packages.available([_package("a-doc"), _package("b-doc")], []) == [
        _package("a-doc"),
        _package("b-doc", "2.0-7"),
    ]
    assert capsys.readouterr().out == "package b-doc 1.0-1 was replaced: took 2.0-7\n"


def test_a_package_that_is_gone_has_a_substitute_of_its_role(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = packages.available([_package("lost-doc", role="held_out")], [_package("c-doc", "2.9-1", role="substitute")])
    assert found == [_package("c-doc", "3.0-1", role="held_out")]
    assert capsys.readouterr().out == "package lost-doc is gone: c-doc takes its place\n"


def test_without_a_substitute_a_package_that_is_gone_is_an_error(apt: Path) -> None:
    with pytest.raises(OSError, match=r"package lost-doc is gone, and no substitute is left"):
        packages.available([_package("lost-doc")], [])


def test_an_archive_that_apt_knows_nothing_of_is_an_error_with_the_remedy(apt: Path) -> None:
    _script(apt / "apt-cache", "#!/bin/sh\nexit 0\n")
    with pytest.raises(OSError, match=r"apt knows none of 1 packages, the first: a-doc\nrun 'apt-get update' as root"):
        packages.available([_package("a-doc")], [])


def test_a_download_that_fails_says_why_and_keeps_what_is_complete(apt: Path, tmp_path: Path) -> None:
    _script(apt / "apt-get", "#!/bin/sh\ntouch half_1.0_all.deb\necho 'E: Could not resolve host' >&2\nexit 100\n")
    (tmp_path / "debs").mkdir()
    (tmp_path / "debs/whole_1.0_all.deb").touch()
    with pytest.raises(
        OSError, match=r"'apt-get download' failed: E: Could not resolve host\n.*what is downloaded stays"
    ):
        packages.download([_package("half")], tmp_path / "debs")
    _script(apt / "apt-get", "#!/bin/sh\necho whole > half_1.0_all.deb\n")
    packages.download([_package("half")], tmp_path / "debs")
    assert sorted(path.name for path in (tmp_path / "debs").iterdir()) == ["half_1.0_all.deb", "whole_1.0_all.deb"]
    assert (tmp_path / "debs/half_1.0_all.deb").read_text() == "whole\n"


def test_a_disk_that_is_too_small_is_an_error_before_the_download(
    apt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(apt / "apt-get", "#!/bin/sh\necho 'never called' >&2\nexit 1\n")
    monkeypatch.setattr(packages, "read_list", lambda: [_package("a-doc", pages=2000)])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10**8))
    with pytest.raises(OSError, match=r"has 0\.1 GB free, size small needs 0\.5 GB\nfree some space"):
        packages.take("small", tmp_path / "small")


def test_a_package_is_unpacked_without_what_is_not_html(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: a-doc\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: a\n"
    )
    (tree / "usr/share/doc/a").mkdir(parents=True)
    (tree / "usr/share/doc/a/index.html").write_bytes(PAGE)
    (tree / "usr/share/doc/a/image.png").write_bytes(b"PNG")
    (tree / "usr/share/doc/a/link.html").symlink_to("/etc/passwd")
    subprocess.run(["dpkg-deb", "-b", tree, tmp_path / "a.deb"], check=True, stdout=subprocess.DEVNULL)
    packages.unpack(tmp_path / "a.deb", tmp_path / "site")
    assert [path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.*")] == [
        "doc/a/index.html"
    ]


def test_a_file_that_is_not_a_package_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(b"no package")
    with pytest.raises(OSError, match=r"a\.deb' cannot be unpacked\nremove it"):
        packages.unpack(tmp_path / "a.deb", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def _get(url: str, **headers: str) -> tuple[int, Message, bytes]:
    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: object) -> None:
            return None

    try:
        answer = urllib.request.build_opener(NoRedirect).open(urllib.request.Request(url, headers=headers))
        return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_the_hosts_answer_as_the_web_does(tmp_path: Path) -> None:
    with socket.create_server(("127.9.0.1", 0)) as probe:
        free_port = probe.getsockname()[1]
    origin = f"http://127.9.0.1:{free_port}"
    all_names = [f"{i}.html" for i in range(5000)]  # which ones are busy depends on the port: one in 100
    busy = next(name for name in all_names if number_of(f"{origin}/{name}") % 100 == 0)
    plain = next(name for name in all_names if number_of(f"{origin}/{name}") % 100)
    names = {busy, *all_names[:200]}
    (tmp_path / "site/a-doc").mkdir(parents=True)
    for name in names:
        (tmp_path / "site/a-doc" / name).write_bytes(PAGE * 9)
    package = {"name": "a-doc", "address": "127.9.0.1", "held_out": False, "dependents": 7}
    site = {"port": free_port, "packages": [package]}
    (tmp_path / "site.json").write_text(json.dumps(site))
    write_votes(tmp_path, site)
    with hosts.running(tmp_path):
        status, headers, body = _get(f"{origin}/{plain}", **{"Accept-Encoding": "gzip"})
        assert (status, headers["Content-Encoding"], body[:2]) == (200, "gzip", b"\x1f\x8b")
        assert _get(f"{origin}/{plain}", **{"If-None-Match": headers["ETag"]})[0] == 304
        assert [_get(f"{origin}/{busy}")[0] for _ in range(2)] == [503, 200]
        status, headers, _ = _get(f"{origin}{OLD}{plain}")
        assert (status, headers["Location"]) == (301, f"/{plain}")
        assert _get(f"{origin}{GONE}{plain}")[0] == 404
        assert _get(f"{origin}/../../site.json")[0] == 404
    rows = [line.split("\t") for line in (tmp_path / "links.tsv").read_text().splitlines()]
    assert {row[1] for row in rows} == {"page", "old", "gone"}
    assert {row[2] for row in rows} == {"3"}  # log2(1 + 7), and no page links to another


@pytest.mark.slow
def test_an_environment_that_pip_cannot_fill_is_an_error_and_not_taken_for_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theirs, "PINS", "no-such-package-of-the-proof==1\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        OSError, match=r"pip cannot install no-such-package-of-the-proof==1 .*\ncheck the access to PyPI"
    ):
        theirs.environment(tmp_path)
    assert not (tmp_path / "their-env/installed.txt").exists()


def test_the_page_has_the_tables_of_the_committed_figures() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/proof.md").read_text(encoding="utf-8")
    printed = tables.tables(json.loads((root / "docs/measurements/proof/run.json").read_text(encoding="utf-8")))
    assert [table for table in printed.split("\n\n") if table not in page] == []
