"""Verbs: where a setting's value comes from, which options a verb has, and what its function receives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from webtext.base import command
from webtext.base.command import need_out, verb
from webtext.base.config import setting
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Parts, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    min_karma: int = setting(3, "keep posts with at least this score")
    delay: float = setting(1.5, "seconds between requests")
    before: str | None = setting("2018", "cutoff")
    max_bytes: int | None = setting(None, "upper bound")
    host: tuple[str, ...] = setting((), "hosts")
    threads: int | None = setting(None, "threads  [default: one per core]")
    obey: bool = setting(True, "obey robots.txt")

    def __post_init__(self) -> None:
        if self.min_karma < 0:
            raise ConfigError(f"min_karma is {self.min_karma}", "it must not be below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    rows: int = setting(5, "rows of a band")
    seed: int = setting(1, "seed of the permutations", flag=False)


EXAMPLES = """\b
Examples:
  webtext links a
  webtext links b \\
      --out c
  webtext links d
"""
Call = Callable[..., Result]


@pytest.fixture
def seen() -> dict[str, Any]:
    return {}


@pytest.fixture
def call(seen: dict[str, Any]) -> Call:
    """Runs `webtext ARGUMENTS` over four verbs that record what they receive."""
    group = click.Group("webtext")

    @verb(group, "links", settings=Settings, section="crawl.links", workers=True, epilog=EXAMPLES)
    @click.argument("inputs", nargs=-1)
    @click.option("--out")
    def links(run: Run, settings: Settings, inputs: tuple[str, ...], out: str | None) -> None:
        """Collect.

        More about it.
        """
        seen.update(run=run, settings=settings, inputs=inputs, out=out, workers=run.engine.workers)
        run.console.say("talk")
        run.console.result({"kept": 1}, "kept 1")

    @verb(group, "clean", settings={"clean.rules": Settings, "clean.dedup": Other})
    def clean(run: Run, settings: dict[str, Any]) -> None:
        """Clean texts by rules that are longer than a list usually shows."""
        seen.update(settings=settings)

    @verb(group, "build", config_argument=True)
    def build(run: Run, config_path: str, overrides: tuple[str, ...]) -> None:
        seen.update(config_path=config_path, overrides=overrides)

    @verb(group, "show")
    def show(run: Run) -> None:
        seen.update(mode=run.console.mode)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(group, list(arguments))

    return invoke


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "build.toml"
    path.write_text('[crawl.links]\nmin_karma = 10\ndelay = 10\nbefore = "2010"\nhost = ["ten"]\nobey = false\n')
    return str(path)


def test_a_flag_overrides_set_which_overrides_the_file_which_overrides_the_default(
    call: Call, seen: dict[str, Any], config: str
) -> None:
    def value_after(*arguments: str) -> int:
        assert call("links", *arguments).exit_code == 0
        return int(seen["settings"].min_karma)

    override, flag = ("--set", "crawl.links.min_karma=20"), ("--min-karma", "30")
    assert value_after() == 3
    assert value_after("--config", config) == 10
    assert value_after("--config", config, *override) == 20
    assert value_after("--config", config, *override, *flag) == 30
    assert value_after(*flag, *override) == 30  # in any order
    assert seen["settings"].delay == 1.5  # the default of a setting that nobody named


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--delay", "2"], "delay", 2.0),
        (["--set", "crawl.links.delay=2"], "delay", 2.0),
        (["--before", "2012"], "before", "2012"),
        (["--before", "none"], "before", None),
        (["--set", "crawl.links.before=none"], "before", None),
        (["--max-bytes", "7"], "max_bytes", 7),
        (["--set", "crawl.links.max_bytes=7", "--max-bytes", "none"], "max_bytes", None),
        (["--set", "crawl.links.max_bytes=7"], "max_bytes", 7),
        (["--set", "crawl.links.max_bytes=none"], "max_bytes", None),
        (["--host", "a", "--host", "b"], "host", ("a", "b")),
        (["--set", 'crawl.links.host=["a", "b"]'], "host", ("a", "b")),
        (["--no-obey"], "obey", False),
        (["--set", "crawl.links.obey=false", "--obey"], "obey", True),
        (["--config", "CONFIG", "--obey"], "obey", True),
        (["--config", "CONFIG", "--host", "flag"], "host", ("flag",)),
        (["--config", "CONFIG"], "host", ("ten",)),
    ],
)
def test_every_type_of_setting_is_an_option(
    call: Call, seen: dict[str, Any], config: str, arguments: list[str], field: str, value: object
) -> None:
    answer = call("links", *(config if argument == "CONFIG" else argument for argument in arguments))
    assert answer.exit_code == 0, answer.output
    assert getattr(seen["settings"], field) == value


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--set", "crawl.lnks.min_karma=3"], ConfigError, "no section 'crawl.lnks'\ndid you mean 'crawl.links'?"),
        (["--set", "crawl.links.min_karm=3"], ConfigError, "unknown key 'min_karm' in [crawl.links]"),
        (["--set", "crawl.links.min_karma=many"], ConfigError, "min_karma = 'many': expected a whole number"),
        (["--set", "min_karma=3"], ConfigError, "no section ''"),
        (["--min-karma", "-1"], ConfigError, "min_karma is -1"),
        (["--config", "/no/such.toml"], InputError, "no config file '/no/such.toml'"),
    ],
)
def test_a_wrong_setting_is_an_error_before_the_verb_runs(
    call: Call, seen: dict[str, Any], arguments: list[str], error: type[Exception], message: str
) -> None:
    answer = call("links", *arguments)
    assert isinstance(answer.exception, error)
    assert message in str(answer.exception)
    assert seen == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--min-karma", "many"],
        ["--max-bytes", "many"],
        ["--min-karma", "none"],
        ["--no-such"],
        ["--workers", "0"],
        ["--engine", "slurm"],
        ["--parts", "2"],
        ["--parts", "0/2"],
        ["--parts", "3/2"],
        ["--parts", "1/1000000"],
        ["--parts", "²/3"],
        ["--obey", "--host"],
    ],
)
def test_a_wrong_option_is_a_usage_error(call: Call, seen: dict[str, Any], arguments: list[str]) -> None:
    assert call("links", *arguments).exit_code == 2
    assert seen == {}


def test_an_address_is_for_a_cluster_alone(call: Call, seen: dict[str, Any]) -> None:
    answer = call("links", "--address", "10.0.0.1:6379")
    assert isinstance(answer.exception, ConfigError)
    assert (str(answer.exception), seen) == ("--address 10.0.0.1:6379 is for Ray's clusters\nadd --engine ray", {})


def test_the_local_engine_does_not_import_ray() -> None:
    code = "import sys; from webtext.base.run import Run; Run.quiet().engine.map; print('ray' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_this_process_uses_no_more_threads_than_it_has_cores() -> None:
    assert Run.quiet(10_000).threads == len(os.sched_getaffinity(0))
    assert Run.quiet(1).threads == 1


def test_a_verb_of_several_sections_gets_each(call: Call, seen: dict[str, Any]) -> None:
    assert call("clean", "--set", "clean.dedup.rows=7", "--min-karma", "9").exit_code == 0
    assert seen["settings"]["clean.rules"].min_karma == 9
    assert seen["settings"]["clean.dedup"] == Other(rows=7)


@pytest.mark.parametrize("arguments", [["--config", "build.toml"], ["--set", "crawl.links.min_karma=4"]])
def test_a_verb_without_settings_has_no_option_for_them(call: Call, seen: dict[str, Any], arguments: list[str]) -> None:
    answer = call("show", *arguments)
    assert (answer.exit_code, seen) == (2, {})
    assert f"No such option '{arguments[0]}'" in answer.stderr
    assert call("show", "--quiet").exit_code == 0
    assert seen == {"mode": "quiet"}


def test_a_verb_over_a_whole_config_gets_it_as_it_is(call: Call, seen: dict[str, Any]) -> None:
    assert call("build", "build.toml", "--set", "train.steps=3", "--set", "shards.x=y").exit_code == 0
    assert seen == {"config_path": "build.toml", "overrides": ("train.steps=3", "shards.x=y")}
    assert call("build").exit_code == 2


def test_own_arguments_and_the_run_reach_the_function(call: Call, seen: dict[str, Any]) -> None:
    assert call("links", "a", "b", "--out", "c", "--workers", "3", "--dry-run").exit_code == 0
    assert (seen["inputs"], seen["out"], seen["workers"], seen["run"].dry_run) == (("a", "b"), "c", 3, True)
    assert call("links").exit_code == 0
    assert (seen["run"].dry_run, seen["workers"]) == (False, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("given", [["--parts", "2/8"], ["--parts=2/8"]])
def test_the_parts_of_one_of_many_runs_reach_the_function(call: Call, seen: dict[str, Any], given: list[str]) -> None:
    assert call("links", "a b", *given, "--out", "c").exit_code == 0
    assert seen["run"].parts == Parts(2, 8, "webtext links 'a b' --out c")
    assert call("links").exit_code == 0
    assert seen["run"].parts is None


@pytest.mark.parametrize(
    ("flags", "out", "err"),
    [
        ([], "kept 1\n", "talk\n"),
        (["--json"], '{"kept": 1}\n', ""),
        (["--quiet"], "", ""),
        (["--json", "--quiet"], "", ""),
    ],
)
def test_the_mode_decides_what_is_shown(call: Call, flags: list[str], out: str, err: str) -> None:
    answer = call("links", *flags)
    assert (answer.stdout, answer.stderr) == (out, err)


def test_the_help_lists_each_setting_with_its_default(call: Call) -> None:
    text = " ".join(call("links", "--help").output.split())
    for line in (
        "--min-karma N keep posts with at least this score [default: 3]",
        "--max-bytes N|none upper bound --host TEXT hosts --threads",
        "--[no-]obey obey robots.txt [default: true]",
        "--threads N|none threads [default: one per core]",
        "--set SECTION.KEY=VALUE",
        "--config FILE",
    ):
        assert line in text


def test_many_options_are_listed_in_groups(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Settings [" not in call("clean", "--help").output
    monkeypatch.setattr(command, "MAX_UNGROUPED", 3)
    titles = re.findall(r"^(\S.*):$", call("clean", "--help").output, re.MULTILINE)
    assert titles == ["Settings [clean.rules]", "Settings [clean.dedup]", "Common options"]
    assert re.search(r"^Options:\n  --out TEXT$", call("links", "--help").output, re.MULTILINE)


def test_the_short_help_has_the_sentence_two_examples_and_ten_options(call: Call) -> None:
    text = call("links", "-h").output
    assert text.startswith("Usage: webtext links [OPTIONS] [INPUTS]...\n\n  Collect.\n\nExamples:\n")
    assert re.findall(r"^  webtext.*(?:\n    .*)?$", text, re.MULTILINE) == [
        "  webtext links a",
        "  webtext links b \\\n      --out c",
    ]
    assert re.findall(r"^  (--[\w\[\]-]+)", text, re.MULTILINE) == [
        *("--out", "--min-karma", "--delay", "--before", "--max-bytes", "--host", "--threads", "--[no-]obey"),
        *("--config", "--set"),
    ]
    assert text.endswith("\nAll options: webtext links --help\n")
    short = call("show", "-h").output
    assert "--dry-run" in short
    assert "All options" not in short


def test_the_long_help_has_its_examples_before_its_options(call: Call) -> None:
    text = call("links", "--help").output
    assert text.index("webtext links d") < text.index("--min-karma") < text.index("--dry-run")


def test_a_list_of_verbs_shows_whole_sentences(call: Call) -> None:
    assert "clean  Clean texts by rules that are longer than a list usually shows.\n" in call("--help").output


def test_a_setting_without_a_flag_is_set_by_the_file_or_set_and_the_help_names_it(
    call: Call, seen: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.toml").write_text("[clean.dedup]\nseed = 2\n")
    for arguments, seed in (([], 1), (["--config", f"{tmp_path}/a.toml"], 2), (["--set", "clean.dedup.seed=3"], 3)):
        assert call("clean", *arguments).exit_code == 0
        assert seen["settings"]["clean.dedup"].seed == seed
    answer = call("clean", "--seed", "3")
    assert (answer.exit_code, "No such option '--seed'" in answer.stderr) == (2, True)
    text = call("clean", "--help").output
    assert text.endswith("\nBy --config and --set alone: [clean.dedup] seed\n")
    assert "--set alone" not in call("links", "--help").output


def test_only_a_verb_that_makes_parts_has_options_for_workers(call: Call) -> None:
    assert "--workers" in call("links", "--help").output
    assert "--workers" not in call("clean", "--help").output
    assert call("clean", "--workers", "2").exit_code == 2


def test_a_missing_out_is_an_error_that_says_what_to_add() -> None:
    assert need_out("x") == "x"
    for nothing in (None, ""):
        with pytest.raises(ConfigError, match="no --out given\nname the folder to write: --out DIR"):
            need_out(nothing)


def test_the_answer_under_json_parses(call: Call) -> None:
    assert json.loads(call("links", "--json").stdout) == {"kept": 1}
