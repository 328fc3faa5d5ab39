"""Run `torchrun` on the nodes of a Ray cluster, one on each. Start it by hand; nothing imports it.

    python train/recipes/torchrun_on_ray.py --nodes 2 --gpus 8 train run build/tokens --out build/model

Ray finds the nodes and reserves their devices; torchrun does the rest, as on any two hosts. `--cpus` instead of
`--gpus` starts that many processes on CPUs. Needs `pip install ray` on every node.
"""

# Ray is not one of our dependencies:
# mypy: ignore-errors

import argparse
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PORT = 29500


@ray.remote(num_cpus=0)
def address() -> str:
    """Return the address of the node on which this runs."""
    return str(ray.util.get_node_ip_address())


@ray.remote(max_retries=0)
def torchrun(host: str, n_nodes: int, n_processes: int, is_host: bool, own: str, arguments: list[str]) -> int:
    """Run torchrun on this node and return its exit code."""
    meet = ["--nnodes", str(n_nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{PORT}"]
    place = ["--rdzv-conf", f"is_host={int(is_host)}", "--local-addr", own, "--nproc-per-node", str(n_processes)]
    command = [sys.executable, "-m", "torch.distributed.run", *meet, *place, "--max-restarts", "20"]
    return subprocess.run([*command, "-m", "webtext.app.main", *arguments]).returncode


def main() -> int:
    """Run torchrun on all nodes and return the largest exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, required=True)
    devices = parser.add_mutually_exclusive_group(required=True)
    devices.add_argument("--gpus", type=int, help="GPUs per node, one for each process")
    devices.add_argument("--cpus", type=int, help="CPUs per node, one for each process")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of webtext: train run ...")
    given = parser.parse_args()
    n, need = (given.gpus, {"GPU": given.gpus, "CPU": 1}) if given.gpus else (given.cpus, {"CPU": given.cpus})
    ray.init(address="auto")
    group = placement_group([need] * given.nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def on(i: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)

    own = ray.get([address.options(scheduling_strategy=on(i)).remote() for i in range(given.nodes)])
    runs = [
        torchrun.options(num_cpus=need["CPU"], num_gpus=need.get("GPU", 0), scheduling_strategy=on(i)).remote(
            own[0], given.nodes, n, i == 0, own[i], given.arguments
        )
        for i in range(given.nodes)
    ]
    return max(ray.get(runs))


if __name__ == "__main__":
    sys.exit(main())
