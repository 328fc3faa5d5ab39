"""The options in the guide to many machines exist."""

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
