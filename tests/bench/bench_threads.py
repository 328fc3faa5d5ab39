"""Training steps of small models with one thread and several, which spin or sleep at barriers: tokens per second.

    python tests/bench/bench_threads.py                   # as the machine is
    python tests/bench/bench_threads.py --beside 7        # beside seven busy processes of its own

Each way runs in a process of its own and makes a step when its turn comes. `typical` is the median of the steps, `best` their
minimum, which on a busy machine is closest to an idle one; `CPU` are seconds of all threads per step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

ROWS = {  # layers, width, context, batch, vocabulary
    "0.1M": (2, 64, 64, 8, 512),
    "0.9M": (2, 128, 128, 8, 4096),
    "3M": (4, 256, 128, 8, 4096),
    "11M": (6, 384, 256, 4, 4096),
    "26M": (8, 512, 256, 4, 4096),
}
WAITS = {"spin": {"GOMP_SPINCOUNT": "300000"}, "sleep": {"OMP_WAIT_POLICY": "passive"}}  # libgomp's default, and ours
BUSY = "while True: pass"


def work(row: str, threads: int) -> None:
    """Make a step for each line of input, and print its seconds and CPU seconds."""
    import torch

    from webtext.train.model.gpt2 import GPT2
    from webtext.train.model.precision import cast_parameters
    from webtext.train.optimizer.optimizer import gradient_norm, is_fault, make_optimizer, update
    from webtext.train.run.memory import keep_freed_memory
    from webtext.train.settings import TrainSettings
    from webtext.train.shape import GPT2Config

    torch.set_num_threads(threads)
    keep_freed_memory()
    n_layer, width, context, batch, vocab_size = ROWS[row]
    config = GPT2Config(n_layer=n_layer, n_head=width // 32, n_embd=width, context=context, vocab_size=vocab_size)
    torch.manual_seed(0)
    model = GPT2(config).train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    optimizer = make_optimizer(dict(model.named_parameters()), TrainSettings())
    tokens = torch.randint(vocab_size, (batch, context + 1))
    for line in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        with cast_parameters(model, torch.bfloat16):
            loss = model.loss(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            loss.backward()
        norm = gradient_norm(model)
        update(optimizer, norm, 1.0, is_fault(loss, norm, (1e9, 1e9)))
        optimizer.zero_grad(set_to_none=True)
        print(time.perf_counter() - began, time.process_time() - cpu, line.strip(), flush=True)


def measure(row: str, options: argparse.Namespace) -> None:
    """Measure a row in rounds of one step each, and print a line for each way."""
    ways = {
        (n, wait): f"{n} threads, {wait}" for n in (1, options.threads) for wait in WAITS if n > 1 or wait == "spin"
    }
    steps: dict[tuple[int, str], list[tuple[float, float]]] = {way: [] for way in ways}
    workers = {
        (n, wait): subprocess.Popen(
            [sys.executable, __file__, "--worker", row, "--threads", str(n)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | WAITS[wait],
        )
        for n, wait in ways
    }  # fmt: skip
    for number in range(options.rounds + 3):
        for way, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            print("step", file=worker.stdin, flush=True)
            seconds, cpu, _ = worker.stdout.readline().split()
            if number >= 3:
                steps[way].append((float(seconds), float(cpu)))
    for worker in workers.values():
        worker.communicate()
    tokens = ROWS[row][2] * ROWS[row][3]
    for way, name in ways.items():
        seconds, cpu = zip(*steps[way], strict=True)
        typical, best = tokens / statistics.median(seconds), tokens / min(seconds)
        mean = tokens / statistics.mean(seconds)
        print(
            f"{row:>6}  {name:<18}{mean:>9,.0f} mean{typical:>10,.0f} typical{best:>10,.0f} best tokens/s"
            f"{statistics.median(cpu):>8.3f} s of CPU", flush=True
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="busy processes of its own")
    parser.add_argument("--worker", metavar="ROW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.threads)
        return
    print(f"{options.rounds} steps each, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} + {options.beside}")
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.beside)]
    try:
        for row in options.rows.split(","):
            measure(row, options)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
