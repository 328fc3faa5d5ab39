"""Ctrl-C and a full disk while a verb runs: a short message, the right exit code, no process left, nothing half-written."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.base.parts.partset import PartSet

SECONDS = 300.0  # to wait for anything before a test gives up
PROSE = "<p>It was a page of plain words that somebody had read and voted for, number {}, line {}.</p>"


def webtext(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "webtext.app.main", *arguments]


def dump(folder: Path, posts: int) -> Path:
    path = folder / "RS_2017-01"
    with open(path, "w") as file:
        for i in range(posts):
            url = f"http://host-{i % 997}.example/{i}?{'x' * 60}"
            post = {"id": f"{i:x}", "url": url, "score": i % 9, "created_utc": 1_483_228_800 + i, "is_self": False}
            file.write(json.dumps(post) + "\n")
    return path


def archive(folder: Path, pages: int) -> Path:
    """A plain WARC of pages that take an extractor some hundredths of a second each."""
    path = folder / "pages.warc"
    with open(path, "wb") as file:
        for i in range(pages):
            body = "".join(PROSE.format(i, line) for line in range(400)).encode()
            http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!doctype html><html><body>" + body
            head = (
                "WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\n"
                f"WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{i:012d}>\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
                f"WARC-Target-URI: http://host.example/{i}\r\nContent-Length: {len(http)}\r\n\r\n"
            )
            file.write(head.encode() + http + b"\r\n\r\n")
    return path


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, f"waited {SECONDS:.0f} s for {what}"
        time.sleep(0.02)


def session_of(pid: int) -> set[int]:
    """The living processes of the session that `pid` leads: itself, its workers, whoever they started."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == pid and state != "Z":
            found.add(int(stat.parent.name))
    return found


SLOW = [pytest.mark.slow]
WAYS = {
    "as a terminal does": (signal.SIGINT, True),
    "to the command alone": (signal.SIGINT, False),
    "as a batch system does": (signal.SIGTERM, True),
    "as kill does": (signal.SIGTERM, False),
}
QUICK = {("clean", "as a terminal does"), ("clean", "as kill does")}
SENT = [
    pytest.param(verb, *way, id=f"{verb}-{name}", marks=[] if (verb, name) in QUICK else SLOW)
    for verb in ("links", "clean")
    for name, way in WAYS.items()
]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("verb", "number", "whole_group"), SENT)
def test_ctrl_c_and_sigterm_end_with_130_and_a_message_and_leave_no_process(
    verb: str, number: int, whole_group: bool, tmp_path: Path
) -> None:
    """Sent while workers are at work: a terminal sends it to every process of the command, `kill` to one."""
    out = tmp_path / "out"
    command = (
        webtext("crawl", "links", str(dump(tmp_path, 400_000)), "--out", str(out))
        if verb == "links"
        else webtext("clean", "run", str(archive(tmp_path, 400)), "--out", str(out))
    )
    process = subprocess.Popen(
        [*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until("a worker that writes", lambda: any(out.rglob("*.tmp")) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert len(session_of(process.pid)) > 1
        if whole_group:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        stdout, stderr = process.communicate(timeout=SECONDS)
        assert process.returncode == 130, stderr
        assert stderr.endswith("error: interrupted\n  what is finished is kept; rerun the same command to resume\n"), (
            stderr
        )
        assert "Traceback" not in stderr
        assert stdout == ""
        wait_until("the workers to end", lambda: not session_of(process.pid))
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
    assert not list(out.rglob("manifest.json"))


KEPT, LOST = "what is finished is kept; rerun the same command to resume", "can't resume: the same command starts again"


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("train run tokens --out model", KEPT),
        ("train sweep tokens --over learning_rate=1 --out sweep", KEPT),
        ("crawl fetch links --out pages", KEPT),
        ("clean run pages --out corpus", KEPT),
        ("train sample model", LOST),
        ("train eval model tokens", LOST),
        ("tokenizer train text.txt --out tokenizer.json", LOST),
        ("inspect set pages --verify", LOST),
    ],
)
def test_an_interrupted_verb_says_whether_it_has_kept_anything(
    verb: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webtext.base.command._engine", lambda *_: signal.raise_signal(signal.SIGINT))
    assert run(verb.split()) == 130
    head = "" if said == KEPT else f"'webtext {' '.join(verb.split()[:2])}' "
    assert capsys.readouterr().err == f"error: interrupted\n  {head}{said}\n"


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_gives_the_bytes_of_an_undisturbed_run(tmp_path: Path) -> None:
    source = dump(tmp_path, 5_000)
    outs = [tmp_path / "whole", tmp_path / "interrupted"]
    whole, again = (
        webtext("crawl", "links", str(source), "--out", str(out), "--set", "crawl.links.parts=3", "--quiet")
        for out in outs
    )
    process = subprocess.Popen(again, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until("something written", lambda: any(outs[1].rglob("*")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(SECONDS)
    for command in (whole, again):
        subprocess.run(command, check=True, timeout=SECONDS)
    manifests = [(out / "manifest.json").read_bytes() for out in outs]
    assert manifests[0] == manifests[1]
    PartSet.open(str(outs[1])).verify()


def may_mount(folder: Path) -> bool:
    try:
        return run_on_a_disk_of("1m", folder, ["true"]).returncode == 0
    except FileNotFoundError:
        return False


def run_on_a_disk_of(size: str, folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command while a file system of that size is mounted at `folder`; then, list its manifests on stdout.

    In a mount namespace of its own, and in a user namespace where this user may not mount.
    """
    script = f"""
        mount -t tmpfs -o size={size} none {shlex.quote(str(folder))} || exit 99
        {shlex.join(command)}
        code=$?
        find {shlex.quote(str(folder))} -name manifest.json
        exit $code
    """
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    whole = ["unshare", *user, "--mount", "bash", "-c", script]
    return subprocess.run(whole, capture_output=True, text=True, timeout=SECONDS)


def run_with_files_of(size: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command whose processes may not make a file longer than that."""
    limit = f"import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    whole = [sys.executable, "-c", f"{limit}; os.execv(sys.argv[1], sys.argv[1:])", *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize(
    ("verb", "limit"),
    [
        ("links", "a full disk"),
        ("clean", "a limit on files"),
        pytest.param("links", "a limit on files", marks=SLOW),
        pytest.param("clean", "a full disk", marks=SLOW),
    ],
)
def test_no_room_to_write_is_a_short_error_and_seals_nothing(verb: str, limit: str, tmp_path: Path) -> None:
    """Where no file system may be mounted, the limit on file sizes simulates the full disk too."""
    small = tmp_path / "small"
    small.mkdir()
    out = small / "out"
    command = (
        webtext("crawl", "links", str(dump(tmp_path, 5_000)), "--out", str(out), "--quiet")
        if verb == "links"
        else webtext("clean", "extract", str(archive(tmp_path, 10)), "--out", str(out), "--quiet")
    )
    if limit == "a full disk" and may_mount(small):
        answer = run_on_a_disk_of("16k", small, command)
        assert "no space left while writing" in answer.stderr
        assert f"on the file system at '{small}', " in answer.stderr
    else:
        answer = run_with_files_of(4096, command)
        assert "exceeds the limit on file sizes" in answer.stderr
        assert not list(small.rglob("manifest.json"))
    assert answer.returncode == 4
    assert len(answer.stderr.splitlines()) <= 3
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
