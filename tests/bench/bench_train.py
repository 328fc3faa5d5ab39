"""Training steps of the same GPT-2 in several trainers, interleaved: tokens per second, and memory.

    python tests/bench/bench_train.py --nanogpt ../nanoGPT               # about eight minutes on two cores
    python tests/bench/bench_train.py --rows small --rounds 9

Each trainer runs in its own process (`train_peers.py`) with the same initial weights, tokens and number of threads, and
makes a step when its turn comes. Before that, their first losses are compared. Ratios are of medians. nanoGPT is a
checkout that you name; for missing trainers, "not measured" is printed. All compute on the CPU; `bench_gpu.py` is for a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from train_peers import PEERS, ROWS

from webtext.train.model.gpt2 import GPT2

HERE = Path(__file__).parent
US = "webtext bfloat16"
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}


class Peer:
    """A trainer in its process; `ask` sends a word and returns the answer."""

    def __init__(self, name: str, row: str, weights: Path, options: argparse.Namespace) -> None:
        arguments = [name, row, str(weights), str(options.threads), options.nanogpt or ""]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "train_peers.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, word: str) -> Any:
        """Return the process's answer; None if it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(word, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> None:
        """Close the process's input, which ends it, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(row: str, options: argparse.Namespace) -> None:
    """Measure a row: start the peers one after another, compare their losses, interleave steps, print."""
    config, batch_size = ROWS[row]
    tokens = batch_size * config.context
    print(f"\n{row}: {config.n_layer} x {config.n_embd}, {batch_size} x {config.context} tokens")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        GPT2(config).to_huggingface(folder)
        peers = {}
        for name in PEERS:
            peer = Peer(name, row, Path(folder), options)
            ready = peer.ask("begin")
            if ready is None or "missing" in ready:
                print(
                    f"{name}: not measured: {'it failed to start' if ready is None else ready['missing']}", flush=True
                )
                peer.end()
            else:
                peers[name] = (peer, ready)
                print(f"{name}: first loss {ready['loss']:.4f}{ready['note']}", flush=True)
    check_losses({name: ready for name, (_, ready) in peers.items()})
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    clock = "cpu" if options.cpu_time else "seconds"
    try:
        for _ in range(options.rounds):
            for name, (peer, _) in peers.items():
                answer = peer.ask("step")
                seconds[name].append(answer[clock])
                print(f"{name}: {tokens / seconds[name][-1]:,.0f} tokens/s", flush=True)
        memory = {name: peer.ask("memory")["memory"] for name, (peer, _) in peers.items()}
    finally:
        for peer, _ in peers.values():
            peer.end()
    rates = {name: tokens / statistics.median(values) for name, values in seconds.items()}
    for name, rate in rates.items():
        print(
            f"{name:<34}{rate:>10,.0f} tokens/s{memory[name] / 2**30:>7.2f} GiB   webtext {rates[US] / rate:.2f} times"
        )


def check_losses(ready: dict[str, Any]) -> None:
    """Exit with an error if trainers of the same model have different losses on the same tokens."""
    exact = ready[US]["float32"]
    for name, answer in ready.items():
        if abs(answer["loss"] - exact) > TOLERANCE[answer["dtype"]]:
            raise SystemExit(f"{name} loses {answer['loss']} where float32 loses {exact}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", metavar="DIR", help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--rows", default="small,124M")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds of all threads: for a busy machine")
    options = parser.parse_args()
    print(f"{options.rounds} rounds, threads: {options.threads}, {'CPU' if options.cpu_time else 'elapsed'} seconds")
    for row in options.rows.split(","):
        measure(row, options)


if __name__ == "__main__":
    main()
