"""Training, offloading, reading, evaluating and sampling on this machine's GPU, row by row.

    python tests/bench/bench_gpu.py --pack --nanogpt ../nanoGPT --tokens build/tokens   # here: fills build/carried
    python tests/bench/bench_gpu.py --out results --minutes 6      # there; again, to measure the next rows
    python tests/bench/bench_gpu.py --out results --rows "124M,1558M"             # measures these again
    python tests/bench/bench_gpu.py --out toy --dry-run                           # all rows at toy size, on the CPU

It needs no installation: this checkout, torch 2.11 or later, numpy, safetensors, click and msgspec. `build/carried` is
for a machine without a network: packages for its Python (`--python`), nanoGPT and a token set of GPT-2's vocabulary,
used instead of random tokens. Each row (`gpu_rows.py`) is measured in a process of its own, for at most 120 seconds, is
printed, and is then in `bench_gpu.json` in the folder of the results, with the table beside it. Rows that are there aren't
measured again, so the same command resumes. A row that fails is there with its reason. The first six rows need six minutes.

A microbatch has the largest power of two of sequences, up to 64, that fits. Tokens per second are of the median step.
"of peak" is of the data sheet's dense bfloat16 rate. The first step compiles. Trainers of the same model begin with the
same values and read the same tokens, and the losses of their first steps are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CARRIED_MIB = 64
NEEDS = ("click", "msgspec")  # beside torch, numpy and safetensors
ROW_SECONDS = 120.0
SHORTEST_ROW = 30.0
SAME_LOSS = 0.05  # nats, between trainers that compute in bfloat16
SAME_STEPS = (
    ("124M", "124M nanoGPT", "124M uncompiled", "124M deterministic"),
    ("1558M", "1558M offloaded", "1558M FSDP2 offloaded"),
)
ROWS: dict[str, tuple[str, dict[str, Any]]] = {  # in the order of measuring: a function of `gpu_rows.py`, its arguments
    "card": ("card", {}),
    "124M": ("training", {"model": "124M"}),
    "124M nanoGPT": ("nanogpt", {}),
    "16M losses": ("losses_of_devices", {}),
    "1558M": ("training", {"model": "1558M", "batch_size": 64}),
    "1558M offloaded": ("offloaded", {}),
    "124M uncompiled": ("training", {"model": "124M", "compile": "off"}),
    "124M document masks": ("training", {"model": "124M", "documents": "masked"}),
    "124M sampling": ("sampling", {}),
    "124M evaluation": ("evaluation", {}),
    "124M deterministic": ("repeated_training", {}),
    "124M saver": ("saver", {}),
    "124M kernels": ("kernels", {"model": "124M"}),
    "124M resumed": ("resumed", {}),
    "124M Muon": ("training", {"model": "124M", "optimizer": "muon"}),
    "1558M FSDP2 offloaded": ("fsdp2", {}),
}
Row = dict[str, Any]


def measured(command: Sequence[str], environment: Mapping[str, str], answer: Path, limit: float) -> Row:
    """Run a row's process and return the JSON in `answer`, or why there is none. Kills it and its children at the end."""
    began = time.perf_counter()
    with open(answer.with_suffix(".log"), "w+") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGUSR1)  # it writes where it stands to its log
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        log.seek(0)
        said = log.read().split("\n")[-40:]
    seconds = round(time.perf_counter() - began, 1)
    if child.returncode and seconds >= limit:
        return {"failed": f"it took more than {limit:g} s", "log": said, "row_seconds": limit}
    if child.returncode or not answer.exists():
        reason = next(filter(None, reversed(said)), f"its process ended with {child.returncode}")
        return {"failed": reason[:300], "log": said, "row_seconds": seconds}
    return {**json.loads(answer.read_text()), "row_seconds": seconds}


def check_losses(rows: Mapping[str, Row]) -> None:
    """Mark rows as failed whose losses differ from those of the first trainer of the same steps that ran."""
    for names in SAME_STEPS:
        first, *others = [rows[name] for name in names if "results" in rows.get(name, {})] or [{}]
        for row in others:
            pairs = zip(row["results"], first["results"], strict=True)
            if not all(abs(mine[0] - theirs[0]) <= SAME_LOSS for mine, theirs in pairs):
                row["failed"] = f"its losses differ: {row['results']}, expected {first['results']}"


def table(machine: Mapping[str, str], rows: Mapping[str, Row]) -> str:
    """Return all rows as Markdown: the steps as a table, and below it what else was measured."""
    columns = ["row", "million parameters", "microbatch", "tokens/s", "ms", "of peak", "GiB", "first step, s"]
    lines = [_shown(machine), "", f"|{'|'.join(columns)}|", f"|---{'|---:' * (len(columns) - 1)}|"]
    below = [""]
    for name, row in rows.items():
        if "failed" in row:
            below.append(f"- {name}: not measured: {row['failed']}")
            continue
        rest = {key: value for key, value in row.items() if key not in ("row_seconds", "results")}
        if "results" in row:
            size = f"{name}|{rest.pop('parameters') / 1e6:,.1f}|{rest.pop('microbatch')}"
            speed = f"{rest.pop('tokens_per_second'):,.0f}|{rest.pop('milliseconds'):,.1f}"
            peak = "" if (ratio := rest.pop("peak_ratio")) is None else f"{ratio:.1%}"
            lines.append(f"|{size}|{speed}|{peak}|{rest.pop('memory_gib'):.1f}|{rest.pop('first_step_seconds'):.1f}|")
        if rest:
            below.append(f"- {name}: {_shown(rest)}")
    return "\n".join([*lines, *below]) + "\n"


def _shown(row: Mapping[str, Any]) -> str:
    shown, lists = [], []
    for key, value in row.items():
        if isinstance(value, list):
            lists += [f"\n  - {_shown(each)}" for each in value]
        elif key.endswith("_ratio") and value is not None:
            shown.append(f"{key.removesuffix('_ratio')} {value:.1%}")
        else:
            shown.append(f"{key.replace('_', ' ')} {f'{value:,.4g}' if isinstance(value, float) else value}")
    return ", ".join(shown) + "".join(lists)


def this_machine(toy: bool) -> dict[str, str]:
    """Return what results belong to: card, driver, torch and Python. Needs no torch, which takes seconds to import."""
    versions = {"torch": importlib.metadata.version("torch"), "python": platform.python_version()}
    if toy:
        return {"card": "none, a dry run on the CPU", **versions}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        print("bench_gpu.py: skipped, nvidia-smi names no GPU; --dry-run tries all rows on the CPU")
        raise SystemExit(0) from None
    card, driver = found.split(", ")
    return {"card": card, "driver": driver, **versions}


def link_tree(folder: Path) -> Path:
    """Make the package `webtext` of links to this checkout, as `make check` does; return the folder to import it from."""
    package = folder / "tree" / "webtext"
    package.mkdir(parents=True)
    for stage in ("base", "tokenizer", "shards", "train"):
        (package / stage).symlink_to(ROOT / stage)
    (package / "__init__.py").symlink_to(ROOT / "app" / "_package.py")
    return package.parent


def pack(folder: Path, python: str, nanogpt: str, tokens: Path) -> None:
    """Fill `folder` for a machine without a network; an error if it is too large together with git's files."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux_2_28")]
    kind = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *platforms]
    site = ["--target", str(folder / "site"), *NEEDS]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *kind, *site], check=True)
    (folder / "nanogpt").mkdir(parents=True)
    shutil.copy(Path(nanogpt, "model.py"), folder / "nanogpt")
    shutil.copytree(tokens, folder / "tokens")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [*(ROOT / name for name in listed.rstrip("\0").split("\0")), *folder.rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file()) / 2**20
    print(f"'{folder}' and the checkout's files: {size:.1f} MiB")
    if size > CARRIED_MIB:
        raise SystemExit(f"more than {CARRIED_MIB} MiB: give --tokens a smaller token set")


def measure(options: argparse.Namespace) -> None:
    """Measure the rows that are asked for, and write and print each."""
    end, most = time.perf_counter() + 60 * options.minutes, ROW_SECONDS * (5 if options.dry_run else 1)
    for name in ("nanogpt", "tokens"):
        if not getattr(options, name) and (options.carried / name).exists():
            setattr(options, name, options.carried / name)
    file, machine = options.out / "bench_gpu.json", this_machine(options.dry_run)
    found: Row = json.loads(file.read_text()) if file.exists() else {"machine": machine, "rows": {}}
    rows: dict[str, Row] = found["rows"]
    if found["machine"] != machine:
        raise SystemExit(f"'{file}' is of another machine ({_shown(found['machine'])}): choose another --out")
    wanted = options.rows.split(",") if options.rows else [name for name in ROWS if name not in rows]
    if unknown := sorted(set(wanted) - set(ROWS)):
        raise SystemExit(f"there are no rows {', '.join(unknown)}; expected some of {', '.join(ROWS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        site, tree = options.carried.resolve() / "site", link_tree(Path(folder))
        places = [str(tree), str(site), os.environ.get("PYTHONPATH", "")]
        for name in wanted:
            limit = min(most, end - time.perf_counter())
            if limit < SHORTEST_ROW:
                print(f"{name}: not started, because {options.minutes:g} minutes are nearly over; rerun to measure it")
                continue
            cache = str(Path(folder) / "compiled")  # removed after each row, so that each compiles for itself
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, places)), "TORCHINDUCTOR_CACHE_DIR": cache}
            size, given = "toy" if options.dry_run else "full", (options.nanogpt, options.tokens)
            words = [folder, size, *(str(path or "") for path in given), name]
            command, answer = [sys.executable, str(HERE / "gpu_rows.py"), *words], Path(folder) / f"{name}.json"
            row = measured(command, {**os.environ, **environment}, answer, limit)
            if limit < most and row["row_seconds"] == limit:
                print(f"{name}: killed, because {options.minutes:g} minutes are over; rerun to measure it")
                break
            rows[name] = row
            check_losses(rows)
            found["rows"] = rows = {each: rows[each] for each in ROWS if each in rows}
            file.with_suffix(".tmp").write_text(json.dumps(found, indent=1))
            file.with_suffix(".tmp").replace(file)
            (options.out / "bench_gpu.md").write_text(table(machine, rows))
            shown = {key: value for key, value in row.items() if key not in ("log", "results")}
            print(f"{name}: {_shown(shown)}", flush=True)
            shutil.rmtree(cache, ignore_errors=True)
    print(f"\n{table(machine, rows)}", end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="folder of the results; build/gpu")
    parser.add_argument("--minutes", type=float, default=9.0, help="kill the row that takes longer; default: 9")
    parser.add_argument("--rows", help="measure only these, separated by commas, also if they are there")
    parser.add_argument("--nanogpt", metavar="DIR", default="", help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--tokens", type=Path, help="a token set of GPT-2's vocabulary; default: random tokens")
    parser.add_argument("--dry-run", action="store_true", help="all rows at toy size, on the CPU")
    parser.add_argument("--carried", type=Path, default=ROOT / "build" / "carried", help="default: build/carried")
    parser.add_argument("--pack", action="store_true", help="fill the folder --carried, and measure nothing")
    parser.add_argument("--python", default="3.12", help="the other machine's, for --pack; default: %(default)s")
    options = parser.parse_args()
    if options.pack:
        pack(options.carried, options.python, options.nanogpt, options.tokens)
    else:
        measure(options)


if __name__ == "__main__":
    main()
