"""Two hosts, each a network namespace with an address: torchrun on both trains one model and survives a killed rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import flags, losses

from webtext.app.main import run

FLAGS = flags(microbatch_size=1, steps=10, checkpoint_interval=4, eval_interval=5, dtype="float32", learning_rate=0.01)
FORKING_TORCHRUN = str(Path(__file__).with_name("forking_torchrun.py"))
ADDRESSES = ("10.77.0.1", "10.77.0.2")
DIES_ONCE = """
import os, signal, sys
from pathlib import Path
from webtext.train.run.trainer import Trainer
died = Path(sys.argv[1])
queue_step = Trainer._queue_step

def die_or_queue_step(self):
    if self.step == 7 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return queue_step(self)

Trainer._queue_step = die_or_queue_step
from webtext.app.main import run
sys.exit(run(sys.argv[2:]))
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces, joined by a cable."""
    if shutil.which("ip") is None:
        pytest.skip("needs iproute2")
    names = (f"webtext-{os.getpid()}-a", f"webtext-{os.getpid()}-b")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs iproute2 and the right to make network namespaces: {error.stderr.strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.mark.slow
def test_two_hosts_train_one_model_and_continue_when_a_rank_of_one_is_killed(
    hosts: tuple[str, str], tokens: str, tmp_path: Path
) -> None:
    """Only the killed rank's host counts a restart, so each attempt has a store of its own, as the guide says."""
    script = tmp_path / "dies_once.py"
    script.write_text(DIES_ONCE)
    command = ["train", "run", tokens, *FLAGS, "--quiet", "--out"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "cable", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def start(host: int, died: str) -> subprocess.Popen[bytes]:
        place = ["--local-addr", ADDRESSES[host], "--rdzv-conf", f"is_host={1 - host}"]
        meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES[0]}:29500", "--rdzv-id", "1"]
        torchrun = [sys.executable, FORKING_TORCHRUN, *meet, *place, "--max-restarts", "1"]
        return subprocess.Popen(
            ["ip", "netns", "exec", hosts[host], *torchrun, str(script), died, *command, str(tmp_path / "two")],
            stderr=open(tmp_path / f"log-{host}", "w"),  # noqa: SIM115
            env=environment,
        )

    processes = [start(0, str(script)), start(1, str(tmp_path / "died"))]
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "".join((tmp_path / f"log-{host}").read_text() for host in (0, 1))
    assert (tmp_path / "died").exists()
    assert run([*command, str(tmp_path / "one")]) == 0
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
