"""The commands and the code of the README and of two guides run, here on the small demo's web."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webtext.app.main import STAGES
from webtext.base.config import options, place
from webtext.train.settings import TrainSettings

ROOT = Path(__file__).resolve().parents[2]
README, REAL_BUILD, PYTHON = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/guides/real-build.md", "docs/guides/python.md")
)
SMALL_MODEL = "--n-layer 1 --n-head 1 --n-embd 32 --context 64 --batch-size 4 --steps 6 --warmup-steps 2"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


def commands(page: str) -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def folder(small_demo: Path, tmp_path: Path) -> Path:
    """A user's folder: a dump that votes for pages of the small web, and texts of their own."""
    shutil.copy(small_demo / "RS_2017-01.zst", tmp_path / "RS_2017-01.zst")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("The dog chased the other dogs.\n" * 50)
    return tmp_path


def smaller(command: list[str], port: int) -> list[str]:
    """The command as it stands, with what makes it end soon and stay on this machine."""
    small = shlex.split(SMALL_MODEL)
    fetch = {"delay": "0.02", "allow_address": f'["127.0.0.0/28:{port}"]'}
    more: dict[tuple[str, ...], list[str]] = {
        ("crawl", "fetch"): ["--delay", fetch["delay"], "--allow-address", f"127.0.0.0/28:{port}"],
        ("tokenizer", "train"): ["--vocab-size", "600"],
        ("train", "run"): small,
    }
    sets = [f"crawl.fetch.{key}={value}" for key, value in fetch.items()] + ["tokenizer.vocab_size=600"]
    for flag, value in zip(small[::2], small[1::2], strict=True):
        name = flag[2:].replace("-", "_")
        sets.append(f"{place('train', options(TrainSettings)[name].subsection)}.{name}={value}")
    whole = [part for item in sets for part in ("--set", item)]
    if command[0] == "torchrun":
        command = ["torchrun", "--nproc-per-node", "2", *command[3:], *small]
        command[command.index("--out") + 1] += "-of-two"
        return [str(Path(sys.executable).parent / "torchrun"), *command[1:]]
    assert command[0] == "webtext", command
    verb = tuple(command[1:3])
    extra = whole if command[1] in ("build", "pretrain") else more.get(verb, [])
    return [sys.executable, "-m", "webtext.app.main", *command[1:], *extra]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [(README, 14), (REAL_BUILD, 16)], ids=["README", "real-build"])
def test_the_commands_of_a_page_run_in_their_order(page: str, least: int, folder: Path, small_web: int) -> None:
    (folder / "build.toml").write_text(blocks(page, "toml")[0])
    ran = []
    for line in commands(page):
        command = shlex.split(line.replace("10%", "60%").replace("10-percent", "60-percent"))  # of few links
        if command[0] == "make":
            assert re.search(rf"^{command[1]}:", (ROOT / "Makefile").read_text(), re.M), line
            continue
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        answer = subprocess.run(
            smaller(command, small_web), cwd=folder, capture_output=True, text=True, timeout=300, env=environment
        )
        assert answer.returncode == 0, f"{line}\n{answer.stderr[-3000:]}"
        if command[1] in ("build", "pretrain"):
            assert re.search(r"^corpus +\d+ of \d+ documents; left out: \d+ \w+", answer.stdout, re.M), answer.stdout
            assert re.search(r"^next +webtext view build", answer.stdout, re.M)
        ran.append(line)
    assert len(ran) >= least
    assert json.loads((folder / "build" / "report.json").read_text())["stages"]
    assert (folder / ("gpt2" if page == README else "build/model/export") / "model.safetensors").is_file()


def test_the_hours_of_the_real_build_follow_from_the_rates_beside_them() -> None:
    """Per million links, of which about eight million posts vote; WebText had 45 million."""
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in REAL_BUILD.splitlines()
        if re.match(r"\| (posts|links|pages|the same|duplicates) ", row)
    ]
    assert len(rows) == 5
    found = {}
    for step, hours, _, source in rows:
        measured = source.partition("): ")[2] or source.partition("the same: ")[2]
        numbers = [float(number.replace(",", "")) for number in re.findall(r"[\d,.]*\d", measured)]
        per_record = {"posts in": numbers[-1] / numbers[0], "ms": numbers[0] / 1000, "per second": 1 / numbers[0]}
        seconds = next(per_record[unit] for unit in per_record if unit in measured)
        found[step] = seconds * (8e6 if "posts" in measured else 1e6) / 3600
        assert float(hours) == pytest.approx(found[step], rel=0.2)
    hours = 45 * found["pages → documents"]
    said = r"([\d.]+) TB of WARC.* and (\d+) core hours.* (\d+) hours on 32"
    disk, core_hours, on_32 = re.findall(said, " ".join(REAL_BUILD.split()))[0]
    assert [float(disk), float(core_hours), float(on_32)] == pytest.approx(
        [45e6 * 62e3 / 1e12, hours, hours / 32], rel=0.05
    )


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The dog chased the other dogs.\nThe cat watched the dogs.\n" * 50)
    for code in blocks(README, "python"):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300)


def test_the_python_guide_opens_a_demo_s_build(small_demo: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").symlink_to(small_demo)
    code = "\n".join(blocks(PYTHON, "python"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages, drops, dropped, *text = done.stdout.split("\n")
    assert "(None, " in pages
    assert "too_few_words" in drops
    assert dropped.startswith("http")
    assert any(re.match(r"\(\d+, [\d.]+\) \(\d+, [\d.]+\)$", line) for line in text), text


@pytest.mark.parametrize("name", STAGES)
def test_every_command_is_in_the_readme(name: str) -> None:
    assert re.search(rf"webtext [^|\n]*\b{name}\b|`{name}`", README)
