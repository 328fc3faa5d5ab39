"""A Ray cluster on this machine, whose nodes have addresses of their own on loopback, and one CPU each."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Before Ray is imported: its programs shall not use the token of a cluster that this user has, and its workers not wait
# for all other processes of a busy machine, as they do by default. A driver in a process of its own gets both from here.
os.environ.setdefault("RAY_AUTH_TOKEN", os.urandom(32).hex())
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}

from ray.cluster_utils import Cluster  # noqa: E402

PATIENCE = 120.0  # a guard against hanging; nothing is measured by it


class Nodes:
    """The nodes of a cluster; the first one is also its head, to which drivers connect."""

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._n_added = 0
        self.others: list[Any] = []
        self.add()
        self.address: str = self._cluster.address

    def add(self) -> int:
        """Start a node; return the process id of its raylet, which starts and ends the node's workers."""
        self._n_added += 1
        address = f"127.0.0.{1 + self._n_added}"  # Ray takes 127.0.0.1 for the machine's outer address
        node = self._cluster.add_node(num_cpus=1, node_ip_address=address, include_dashboard=False)
        if self._n_added > 1:
            self.others.append(node)
        return raylet(node)

    def grow_to(self, n: int) -> None:
        while 1 + len(self.others) < n:
            self.add()

    def kill(self, node: Any) -> None:
        """Kill a node and its workers with SIGKILL, as a power cut of its machine would end them."""
        pid = raylet(node)
        workers = [child for worker in children(pid) for child in [worker, *children(worker)]]
        os.kill(pid, signal.SIGKILL)
        for worker in workers:
            kill(worker)
        self._cluster.remove_node(node, allow_graceful=False)
        self.others.remove(node)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextmanager
def cluster() -> Iterator[Nodes]:
    """Start a cluster of one node. A folder of its own keeps it apart from a cluster in use; names of sockets are short."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        os.environ["RAY_TMPDIR"] = folder
        nodes = Nodes()
        try:
            yield nodes
        finally:
            nodes.shutdown()
            del os.environ["RAY_TMPDIR"]


def raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE, f"waited in vain until {what}"
        time.sleep(0.05)
