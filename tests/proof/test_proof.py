"""The proof's own parts: what it takes from the archive, what its hosts answer. `make proof` runs the whole."""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parent))

import blind
import hosts
import ours
import packages
import proof
import tables
import theirs
import verdict
import webpages
from packages import Package
from shape import CORPORA, N_CHECKPOINTS
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
    pages = {size: sum(each.pages for each in some) for size, some in chosen.items()}
    assert pages["small"] >= 600
    assert pages["medium"] >= 10_000
    assert pages["large"] >= 50_000


def test_a_replaced_version_is_taken_as_it_is_now_and_printed(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = packages.available([_package("a-doc"), _package("b-doc")], [])
    assert found == [_package("a-doc"), _package("b-doc", "2.0-7")]
    assert capsys.readouterr().out == "package b-doc 1.0-1 was replaced: took 2.0-7\n"


def test_a_package_that_is_gone_has_a_substitute_of_its_role(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = packages.available([_package("lost-doc", role="crawl")], [_package("c-doc", "2.9-1", role="substitute")])
    assert found == [_package("c-doc", "3.0-1", role="crawl")]
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
    package = {"name": "a-doc", "address": "127.9.0.1", "dependents": 7}
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


def test_a_corpus_of_longer_tokens_takes_fewer_steps_for_as_many_bytes() -> None:
    steps = proof.equal_bytes(1000, {"ours": {"bytes_per_token": 3.0}, "theirs": {"bytes_per_token": 5.0}})
    assert steps == {"ours": 1335, "theirs": 800}
    assert all(n % N_CHECKPOINTS == 0 for n in steps.values())


def test_known_pages_are_served_or_judged_by_but_no_domain_is_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, learned = tmp_path / "data", []
    golds = [
        {"id": f"{i:04}", "url": f"https://site{i}.example/a", "page_type": "article", "text": f"Text {i}"}
        | {"with": [], "without": []}
        for i in range(12)
    ]
    _archive(data / "wcxb/pages.tar.xz", {f"{gold['id']}.html": PAGE for gold in golds})
    (data / "wcxb/gold.jsonl.xz").write_bytes(lzma.compress("\n".join(map(json.dumps, golds)).encode()))
    _archive(data / "extract/pages.tar.xz", {"news.html": PAGE})
    passages = {"https://site3.example/news": {"file": "news.html", "with": ["Old"], "without": []}}
    (data / "extract/evaldata.json").write_text(json.dumps(passages))
    monkeypatch.setattr(webpages, "learn", lambda examples: learned.extend(examples) or "{}")
    (tmp_path / "out").mkdir()
    served = set(webpages.take(data, None, tmp_path / "out"))
    judged = {domain for domain, _ in verdict.articles(tmp_path / "out")}
    assert served | judged == {f"site{i}.example" for i in range(12)}
    assert not served & judged
    assert {example.domain for example in learned} == judged
    pages = sorted(path.parts[-3] for path in (tmp_path / "out/site").rglob("*.html"))
    assert pages == sorted([*served, *(["site3.example"] if "site3.example" in served else [])])


def _archive(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:xz") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))


def test_with_its_hook_every_python_takes_the_other_model_for_the_package_s(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(webpages.HOOK)
    (tmp_path / "model.json").write_text('{"another": "model"}')
    code = "from webtext.clean.extract import scorer; print(scorer._model().decode())"
    for folder, expected in ((tmp_path, '{"another": "model"}'), (tmp_path / "none", '"learned from"')):
        command, variables = [sys.executable, "-P", "-c", code], os.environ | {"PYTHONPATH": str(folder)}
        assert expected in subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


def test_groups_take_turns_and_short_texts_are_left_out() -> None:
    texts = [("many", f"{i} " * 400) for i in range(9)] + [("few", "one " * 400), ("few", "short")]
    groups = [group for group, _ in verdict.in_turns(texts)]
    assert sorted(groups[:2]) == ["few", "many"]
    assert groups[2:] == ["many"] * 8


def test_documents_are_graded_without_their_corpus(tmp_path: Path) -> None:
    for name, folder in CORPORA.items():
        (tmp_path / folder).mkdir(parents=True)
        table = pa.table({"url": [f"http://{name}/{i}" for i in range(9)], "text": [f"{name} {i}" for i in range(9)]})
        parquet.write_table(table, tmp_path / folder / "part.parquet")
    assert blind.write(tmp_path, n=3) == 6
    key = json.loads((tmp_path / "blind/key.json").read_text())
    texts = {path.stem: path.read_text() for path in (tmp_path / "blind").glob("*.txt")}
    assert {number: text.split()[0] for number, text in texts.items()} == {n: name for n, (name, _) in key.items()}
    grades = "".join(f"{number} {'clean' if name == 'ours' else 'junk'}\n" for number, (name, _) in key.items())
    assert blind.table(key, grades).splitlines()[2:] == ["| ours | 3 | 0 | 0 |", "| theirs | 0 | 0 | 3 |"]
    with pytest.raises(ValueError, match="expected a line `NN GRADE` for 6 documents"):
        blind.table(key, grades.replace("junk", "bad"))


def test_the_mixed_corpus_has_all_our_known_pages_and_manuals_by_their_share_in_the_other(tmp_path: Path) -> None:
    """Theirs has 100 characters of an article and 200 of a manual; ours 50 and nine manuals of 30: three fit beside 50."""
    hosts = [{"address": "1.1.1.1"}, {"address": "2", "role": "x"}]
    (tmp_path / "site.json").write_text(json.dumps({"port": 80, "packages": hosts}))
    article, manual = "http://1.1.1.1:80/a", "http://2:80/{}"
    sides = {"ours": [(article, "x" * 50)] + [(manual.format(i), "y" * 30) for i in range(9)]}
    sides["theirs"] = [(article, "x" * 100), (manual.format(0), "y" * 200)]
    for name, rows in sides.items():
        (tmp_path / CORPORA[name]).mkdir(parents=True)
        table = pa.Table.from_pylist([{"url": url, "text": text} for url, text in rows])
        parquet.write_table(table, tmp_path / CORPORA[name] / "part.parquet")
    assert ours.mixed(tmp_path) == {"documents": 4, "characters": 140}
    assert sum(url == article for url, _ in verdict.documents(tmp_path / "mixed/corpus")) == 1
    (tmp_path / "site.json").write_text(json.dumps({"port": 80, "packages": hosts[1:]}))
    assert ours.mixed(tmp_path) == {}


def test_the_page_has_the_tables_of_the_committed_figures() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/proof.md").read_text(encoding="utf-8")
    printed = tables.tables(json.loads((root / "docs/measurements/proof/run.json").read_text(encoding="utf-8")))
    assert [table for table in printed.split("\n\n") if table not in page] == []
