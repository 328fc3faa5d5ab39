"""Every command line in the documents names a verb and options that exist, in the order that the parser takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from webtext.app.main import cli

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("[a-z]*/**/*.md")]
    if not {"build", ".venv"} & set(path.relative_to(REPOSITORY).parts)
)  # fmt: skip


def commands(text: str) -> Iterator[str]:
    """Yield the command lines in code, continued lines joined, without comments and descriptions."""
    fenced = False
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        fenced ^= line.startswith("```")
        if (found := re.match(r"( {4})?(webtext [a-z].*)", line)) and (fenced or found[1]):
            yield re.split(r" #|\s{2,}| > | \| ", found[2])[0].strip()


def parse(command: str) -> None:
    """Raise click's error if the command line doesn't fit its verb."""
    words = [word.strip("[]") for word in shlex.split(command)[1:]]
    found: click.Command = cli
    context = click.Context(cli)
    while isinstance(found, click.Group):
        name = words.pop(0) if words else ""
        child = found.get_command(context, name)
        if child is None:
            raise click.UsageError(f"no command {name!r}")
        context, found = click.Context(child, parent=context, info_name=name), child
    found.make_parser(context).parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_command_of_a_page_fits_the_parser(page: Path) -> None:
    for command in commands(page.read_text()):
        try:
            parse(command)
        except (click.UsageError, ValueError) as error:
            pytest.fail(f"`{command}`: {error}")


def test_commands_are_found_and_wrong_ones_fail() -> None:
    text = "    webtext build a.toml --sample 0.1%   of it\n```\nwebtext clean run pages \\\n  --out x # both\n```\nwebtext is\n"
    assert list(commands(text)) == ["webtext build a.toml --sample 0.1%", "webtext clean run pages --out x"]
    assert sum(len(list(commands(page.read_text()))) for page in PAGES) > 60
    for wrong in ("webtext build --no-such", "webtext nothing", "webtext build --sample"):
        with pytest.raises(click.UsageError):
            parse(wrong)
