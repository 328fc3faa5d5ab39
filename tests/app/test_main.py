"""The command line: a quick help, errors that help, exit codes that mean something."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from webtext.app.main import STAGES, cli, run


def webtext(
    *arguments: str, code: str = "from webtext.app.main import main; main()"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)


def test_help_lists_every_command_and_imports_no_stage() -> None:
    code = """
import sys
from webtext.app.main import run
run(["--help"])
heavy = {"numpy", "pyarrow", "torch", "aiohttp", "rich", "fsspec", "regex", "lxml"} & set(sys.modules)
stages = [name for name in sys.modules if name.startswith("webtext.") and name.split(".")[1] not in ("base", "app")]
print("LOADED", heavy, stages)
"""
    answer = webtext(code=code)
    assert answer.stdout.endswith("LOADED set() []\n")
    for name in STAGES:
        assert f"\n  {name} " in answer.stdout


def test_every_verb_has_an_example_and_says_what_it_reads_and_writes(capsys: pytest.CaptureFixture[str]) -> None:
    for stage in STAGES:
        command = cli.get_command(click.Context(cli), stage)
        assert command is not None
        verbs = sorted(command.commands) if isinstance(command, click.Group) else [""]
        for verb in verbs:
            words = [stage, verb] if verb else [stage]
            assert run([*words, "--help"]) == 0
            said = capsys.readouterr().out
            for needed in (f"webtext {' '.join(words)}", "Reads:", "Writes:"):
                assert needed in said.partition("\n\n")[2], (words, needed)


def test_the_help_of_a_verb_loads_nothing_heavy() -> None:
    verbs = [["crawl", "links"], ["crawl", "fetch"], ["clean", "run"], ["tokenizer", "train"], ["shards", "pack"]]
    code = f"""
import sys
from webtext.app.main import run
for verb in {[*verbs, ["train", "run"], ["build"], ["demo"]]!r}:
    assert run([*verb, "--help"]) == 0, verb
    print("LOADED", verb, {{"pyarrow", "torch", "aiohttp", "lxml", "ray"}} & set(sys.modules))
"""
    answer = webtext(code=code)
    assert answer.stdout.count("LOADED") == 8, answer.stderr
    assert answer.stdout.count("set()") == 8, answer.stdout


def test_no_arguments_show_the_help() -> None:
    answer = webtext()
    assert answer.returncode == 0
    assert "Commands:" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["crwal"], 2, "error: unknown command 'crwal'\n  did you mean 'crawl'?\n"),
        (["crawl", "lnks"], 2, "No such command 'lnks'"),
        (["crawl", "links", "--no-such"], 2, "No such option '--no-such'"),
        (["crawl", "links", "x", "--min-karma", "many", "--out", "y"], 2, "'many' is not a valid integer"),
        (["crawl", "links", "/no/such/dump", "--out", "y"], 3, "/no/such/dump"),
        (["crawl", "links", "x", "--set", "crawl.lnks.min_karma=3", "--out", "y"], 2, "did you mean 'crawl.links'?"),
        (["crawl", "links", "x"], 2, "no --out given"),
        (["train", "run", "x", "--lr", "1e-3"], 2, "Did you mean '--learning-rate'?"),
        (["train", "run", "x", "--weight-decay", "0"], 2, "Did you mean '--set train.optimizer.weight_decay=VALUE'?"),
        (["train", "run", "x", "--step", "9"], 2, "'--steps'"),
        (["build", "/no/such/build.toml"], 3, "no config file '/no/such/build.toml'"),
        (["report", "/no/such/build"], 3, "there is no build in '/no/such/build'"),
        (["inspect", "set", "/no/such/set"], 3, "the part set '/no/such/set' doesn't exist"),
    ],
)
def test_an_error_is_short_and_names_the_thing(
    arguments: list[str], exit_code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == exit_code
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) <= 3
    assert "Traceback" not in captured.err
    assert captured.out == ""


CONTACT = '[crawl.fetch]\ncontact = "me@example.org"\n'


def test_an_unknown_key_of_the_config_is_an_error_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "build.toml"
    config.write_text(f'[build]\nlinks = ["x"]\nout = "{tmp_path}/build"\n[crawl.links]\nmin_karm = 3\n{CONTACT}')
    assert run(["build", str(config)]) == 2
    assert "unknown key 'min_karm' in [crawl.links]\n  did you mean 'min_karma'?" in capsys.readouterr().err
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [("pyarrow", "build", ["clean", "run", "x"]), ("ray", "ray", ["clean", "run", "x", "--engine", "ray"])],
)
def test_a_missing_package_names_the_extra_to_install(package: str, extra: str, arguments: list[str]) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
from webtext.app.main import main
main()
"""
    answer = webtext(*arguments, code=code)
    assert answer.returncode == 4
    assert f"pip install '.[{extra}]'" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_json_stands_alone_on_stdout(tmp_path: Path) -> None:
    dump = tmp_path / "RS_2017-01"
    dump.write_text(
        '{"id": "a", "url": "http://example.com/", "score": 5, "created_utc": 1483228800, "is_self": false}\n'
    )
    answer = webtext("crawl", "links", str(dump), "--out", str(tmp_path / "links"), "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["links"] == 1
    assert {json.loads(line)["event"] for line in answer.stderr.splitlines()} <= {"progress", "end"}
    shown = webtext("inspect", "set", str(tmp_path / "links"), "--json")
    assert json.loads(shown.stdout)["counts"]["kept"] == 1


def test_an_error_nobody_foresaw_is_short_and_can_show_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_(folder: str) -> str:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("webtext.app.reports.report.write_report", break_)
    assert run(["report", "x"]) == 1
    assert capsys.readouterr().err == (
        "error: unexpected ZeroDivisionError: a b\n  to see where, for a bug report: WEBTEXT_TRACEBACK=1 webtext ...\n"
    )
    monkeypatch.setenv("WEBTEXT_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(["report", "x"])


def test_what_the_system_says_of_a_file_is_a_short_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crawl", "fetch", "x" * 300, "--out", "y"]) == 4
    assert capsys.readouterr().err.startswith("error: File name too long: 'xxx")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_silence_and_no_error(closed: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two two")
    line = (
        f"{sys.executable} -m webtext.app.main tokenizer train text.txt --vocab-size 257 --out t.json --json {closed}"
    )
    answer = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0
    assert {json.loads(said)["event"] for said in answer.stderr.splitlines()} <= {"progress", "end"}
    assert json.loads((tmp_path / "t.json").read_text())["model"]["type"] == "BPE"


def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two two " * 100_000)
    webtext = f"{sys.executable} -m webtext.app.main tokenizer"
    line = (
        f"{webtext} train text.txt --vocab-size 257 --out t.json && {webtext} encode text.txt --tokenizer t.json | true"
    )
    answer = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_dump_that_gives_no_link_is_said_even_when_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "RS_2017-01"
    post = {"id": "a", "url": "http://127.0.0.1:9/", "score": 1, "created_utc": 1_483_228_800, "is_self": False}
    dump.write_text(json.dumps(post) + "\n")
    assert run(["crawl", "links", str(dump), "--out", str(tmp_path / "links"), "--quiet"]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"error: kept 0 of 1 record in '{tmp_path}/links': 1 is 'too_little_karma'")
    assert "--min-karma" in error


def test_the_verbs_that_make_or_check_parts_or_use_threads_have_options_for_workers() -> None:
    found = set()
    for name in STAGES:
        command = cli.get_command(click.Context(cli), name)
        verbs = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        found |= {f"{name} {verb}".strip() for verb, each in verbs if any(p.name == "workers" for p in each.params)}
    assert found == {
        *(f"clean {verb}" for verb in ("run", "extract", "filter", "dedup", "decontaminate", "release")),
        *("crawl links", "shards pack", "shards convert", "build", "pretrain", "demo"),
        "inspect set",
        *(f"tokenizer {verb}" for verb in ("train", "encode")),
    }


def test_a_verb_has_25_options_at_most() -> None:
    """With --config, --set and the other common ones; the rest is set by the file and `--set`."""
    assert {name: n for name, n in n_options(cli, "webtext") if n > 25} == {}


@pytest.mark.parametrize("stage", [[], ["crawl"], ["clean"], ["tokenizer"], ["shards"], ["train"], ["inspect"]])
def test_each_verb_of_a_list_has_one_line_of_80_columns(stage: list[str]) -> None:
    listed = webtext(*stage, "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(listed) >= 2
    for line in listed:
        assert line[2] != " ", "a second line"
        assert line == line.rstrip(".") + "."


def n_options(command: click.Command, name: str) -> Iterator[tuple[str, int]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            if (child := command.get_command(context, each)) is not None:
                yield from n_options(child, f"{name} {each}")
    else:
        yield name, sum(isinstance(each, click.Option) for each in command.params)
