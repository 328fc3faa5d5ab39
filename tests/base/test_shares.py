"""Shares of a stage: several runs make a set together, and its bytes are those of one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from test_hash_once import CountingEngine, alter  # noqa: E402
from test_stage import double, files, tasks  # noqa: E402

from webtext.base.console import Console  # noqa: E402
from webtext.base.errors import DryRun, InputError, ShareDone  # noqa: E402
from webtext.base.parts import shares  # noqa: E402
from webtext.base.parts.partset import PartSet  # noqa: E402
from webtext.base.parts.recipe import without_check  # noqa: E402
from webtext.base.parts.shares import of_share  # noqa: E402
from webtext.base.run import Run, Share  # noqa: E402
from webtext.base.storage import Folder  # noqa: E402

NUMBERS = [range(i, i + 10) for i in range(0, 80, 10)]
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from test_stage import double, tasks
from webtext.base.console import Console
from webtext.base.errors import ShareDone
from webtext.base.parts import shares
from webtext.base.run import Run, Share
from webtext.base.workers.engine import LocalEngine
shares.POLL_SECONDS, shares.GRACE_SECONDS = 0.05, {grace}
with LocalEngine(1) as engine:
    run = Run(engine, Console("human"), share=Share({k}, {n}))
    try:
        double(Path({folder!r}), tasks([range(i, i + 10) for i in range(0, 80, 10)], endless={endless!r}), run)
    except ShareDone:
        print("not sealed")
"""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingEngine]:
    monkeypatch.setattr(shares, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shares, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(shares, "SEALING_SECONDS", 0.1)
    with CountingEngine() as engine:
        yield engine


def share(engine: CountingEngine, k: int, n: int) -> Run:
    return Run(engine, Console("human"), share=Share(k, n))


@pytest.fixture
def whole(engine: CountingEngine, tmp_path: Path) -> dict[str, bytes]:
    """The files of one run that makes all parts."""
    double(tmp_path / "whole", tasks(NUMBERS), Run(engine, Console("quiet")))
    engine.maps.clear()
    return files(tmp_path / "whole")


def start(folder: Path, k: int, n: int, endless: list[int] | None = None, grace: float = 1.0) -> subprocess.Popen[str]:
    script = SCRIPT.format(here=str(HERE), folder=str(folder), k=k, n=n, endless=endless or [], grace=grace)
    return subprocess.Popen([sys.executable, "-c", script], stdout=-1, stderr=-1, text=True, start_new_session=True)


def wait_for_lease(folder: Path, name: str, process: subprocess.Popen[str]) -> None:
    while name not in Folder(folder / "kept").held_shares():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 11])
def test_shares_are_equal_in_size_and_make_every_part_once(n: int) -> None:
    made = tasks([[i] for i in range(100)])
    each = [of_share(Share(k, n), made) for k in range(1, n + 1)]
    assert Counter(task.index for mine in each for task in mine) == Counter(range(100))
    assert max(map(len, each)) - min(map(len, each)) <= 1


@pytest.mark.parametrize("n", [2, 4])
def test_shares_that_run_one_after_another_give_the_bytes_of_one_run(
    n: int, engine: CountingEngine, whole: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each but the last one names those that are missing; the last one reads no part of the others."""
    for k in range(1, n):
        with pytest.raises(ShareDone):
            double(tmp_path / "shared", tasks(NUMBERS), share(engine, k, n))
        named = ", ".join(f"--share {other}/{n}" for other in range(k + 1, n + 1))
        assert f"rerun the same command with {named};" in capsys.readouterr().err
        with pytest.raises(InputError, match="is not sealed"):
            PartSet.open(str(tmp_path / "shared" / "kept"))
    double(tmp_path / "shared", tasks(NUMBERS), share(engine, n, n))
    assert files(tmp_path / "shared") == whole
    assert engine.maps == [("_make_part", 8 // n)] * n
    double(tmp_path / "shared", tasks(NUMBERS), share(engine, 1, n))
    double(tmp_path / "shared", tasks(NUMBERS), Run(engine, Console("quiet")))
    assert engine.maps == [("_make_part", 8 // n)] * n


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_shares_that_run_at_once_give_the_bytes_of_one_run(n: int, whole: dict[str, bytes], tmp_path: Path) -> None:
    processes = [start(tmp_path / "shared", k, n, grace=30.0) for k in range(1, n + 1)]
    for process in processes:
        said, error = process.communicate(timeout=300)
        assert (process.returncode, said) == (0, ""), error
    assert files(tmp_path / "shared") == whole


@pytest.mark.slow
def test_the_others_end_when_a_share_is_killed_and_its_rerun_seals_the_set(
    engine: CountingEngine, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Share 2 dies in its last part. The other one waits for it, and verifies what it had published before it ends."""
    mine = [task.index for task in of_share(Share(2, 2), tasks(NUMBERS))]
    killed = start(tmp_path / "shared", 2, 2, endless=mine[-1:])
    wait_for_lease(tmp_path / "shared", "2-of-2", killed)
    other = start(tmp_path / "shared", 1, 2)
    entries = tmp_path / "shared/kept/_parts"
    while len(list(entries.glob("*.json"))) < 7:
        assert other.poll() is None, "a share ends only when no other is at work"
        time.sleep(0.02)
    time.sleep(1.5)
    assert other.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    said, error = other.communicate(timeout=100)
    assert (other.returncode, said) == (0, "not sealed\n")
    assert "1 of 8 are missing\n  rerun the same command with --share 2/2; then rerun this one" in error
    killed.communicate()
    double(tmp_path / "shared", tasks(NUMBERS), share(engine, 2, 2))
    assert engine.maps == [("_make_part", 1)]
    assert files(tmp_path / "shared") == whole


def test_parts_of_a_killed_share_are_verified_before_the_set_is_sealed(
    engine: CountingEngine, whole: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the versions that a share records at its end, the sealing one verifies its parts and finds the bad one."""
    for k in (1, 2):
        with pytest.raises(ShareDone):
            double(tmp_path / "shared", tasks(NUMBERS), share(engine, k, 3))
    bad = of_share(Share(2, 3), tasks(NUMBERS))[0].index
    alter(tmp_path / f"shared/kept/part-{bad:05d}.parquet", keeps_time=True)
    path = tmp_path / "shared/kept/run.json"
    versions = {n: v for n, v in json.loads(path.read_text())["versions"].items() if f"{bad:05d}" not in n}
    path.write_text(json.dumps({"versions": versions}))
    engine.maps.clear()
    with pytest.raises(ShareDone):
        double(tmp_path / "shared", tasks(NUMBERS), share(engine, 3, 3))
    assert engine.maps == [("_make_part", 2), ("altered_files", 1)]
    assert "1 of 8 are missing\n  rerun the same command with --share 2/3;" in capsys.readouterr().err
    double(tmp_path / "shared", tasks(NUMBERS), share(engine, 2, 3))
    assert files(tmp_path / "shared") == whole


def test_a_run_resumes_with_another_number_of_shares(
    engine: CountingEngine, whole: dict[str, bytes], tmp_path: Path
) -> None:
    for k, n in ((1, 4), (1, 2), (3, 3)):
        with pytest.raises(ShareDone):
            double(tmp_path / "shared", tasks(NUMBERS), share(engine, k, n))
    double(tmp_path / "shared", tasks(NUMBERS), Run(engine, Console("quiet")))
    assert sum(n for name, n in engine.maps if name == "_make_part") == 8
    assert files(tmp_path / "shared") == whole


def test_the_same_share_another_n_and_a_whole_run_are_refused_while_a_share_is_at_work(
    engine: CountingEngine, tmp_path: Path
) -> None:
    with shares.at_work(Folder(tmp_path / "kept"), Share(1, 2)):
        with pytest.raises(InputError, match=r"another run is writing '.*' \(1-of-2\)"):
            double(tmp_path, tasks(NUMBERS), share(engine, 1, 2))
        with pytest.raises(
            InputError, match=r"another run is writing '.*' \(1-of-2\)\nwait for it, or run one of 3 shares"
        ):
            double(tmp_path, tasks(NUMBERS), share(engine, 1, 3))
        with pytest.raises(InputError, match="another run is writing"):
            double(tmp_path, tasks(NUMBERS), Run(engine, Console("quiet")))
    with Folder(tmp_path / "kept").held(), pytest.raises(InputError, match="another run is writing"):
        double(tmp_path, tasks(NUMBERS), share(engine, 1, 2))
    assert engine.maps == []


def test_a_changed_recipe_is_unsealed_and_made_again_by_the_shares(engine: CountingEngine, tmp_path: Path) -> None:
    double(tmp_path / "shared", tasks([*NUMBERS, [1]]), Run(engine, Console("quiet")))
    double(tmp_path / "whole", tasks(NUMBERS), Run(engine, Console("quiet")), version=2)
    with pytest.raises(ShareDone):
        double(tmp_path / "shared", tasks(NUMBERS), share(engine, 1, 2), version=2)
    with pytest.raises(InputError, match="is not sealed"):
        PartSet.open(str(tmp_path / "shared" / "kept"))
    double(tmp_path / "shared", tasks(NUMBERS), share(engine, 2, 2), version=2)
    assert files(tmp_path / "shared") == files(tmp_path / "whole")


def test_a_dry_run_of_a_share_plans_its_parts_and_writes_nothing(
    engine: CountingEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(engine, Console("human"), dry_run=True, share=Share(1, 4))
    with pytest.raises(DryRun):
        double(tmp_path, tasks(NUMBERS), run)
    assert "test.double: 2 parts, 0 done, 2 to do" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_records_that_kill_workers_of_several_shares_are_all_in_quarantine(
    engine: CountingEngine, tmp_path: Path
) -> None:
    harmful = [[1000, 2], [1000, 4]]
    with pytest.raises(ShareDone):
        double(tmp_path, tasks(harmful), share(engine, 1, 2))
    made = double(tmp_path, tasks(harmful), share(engine, 2, 2))["kept"]
    assert made.counts.failed == {"killed_worker": 2}
    assert len(without_check(json.loads((tmp_path / "kept/quarantine.json").read_text()))) == 2
