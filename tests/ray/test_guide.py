"""The guide to many machines: its options exist, and its estimates are what they are said to be multiplied from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from ray.scripts.scripts import cli as ray

from webtext.clean.command import group

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "many-machines.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(webtext clean run|ray start|ray get-auth-token)((?:[^`#\n]|\\\n)*)", GUIDE)


@pytest.mark.parametrize(("command", "arguments"), sorted(set(COMMANDS)))
def test_every_option_in_the_guide_exists(command: str, arguments: str) -> None:
    program, verb = (group, "run") if command.startswith("webtext") else (ray, command.split()[1])
    help_ = CliRunner().invoke(program, [verb, "--help"]).output
    for option in re.findall(r"--[a-z-]+", arguments):
        assert re.search(rf"{option}\b", help_), option


def test_every_estimate_is_the_product_that_it_names() -> None:
    unit = {"M": 1e6, "TB": 1e12, "GB": 1e9, "MB": 1e6, "KB": 1e3, "ms": 1e-3, "": 1.0}
    products = re.findall(r"([\d,.]+) (M|GB) ([×÷]) ([\d,.]+) ?(MB|KB|ms|)(?: per second)? = ([\d,.]+)( TB)?", GUIDE)
    assert len(products) == 13
    for first, unit_of_first, sign, second, unit_of_second, result, bytes_ in products:
        left, right = number(first) * unit[unit_of_first], number(second) * unit[unit_of_second]
        found = left * right if sign == "×" else left / right
        found /= 1e12 if bytes_ else 3600
        assert found == pytest.approx(number(result), rel=0.15 if number(result) < 1 else 0.02), (first, second)


def number(text: str) -> float:
    return float(text.replace(",", ""))
