"""Building block of every stage's `command.py`: registers a verb with the common options, runs it, and prints its help."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from webtext.base.errors import ConfigError, DryRun, Interrupted, missing_extra
from webtext.base.options import Defaults, SettingsOptions
from webtext.base.storage import Folder

if typing.TYPE_CHECKING:
    from webtext.base.console import Console
    from webtext.base.run import Engine


class KOfN(click.ParamType[Any]):
    """K/N: the K-th of every N parts, for several runs of one command that divide its parts."""

    name = "K/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from webtext.base.run import Parts

        numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value, re.ASCII)
        number, of = map(int, numbers.groups()) if numbers else (0, 0)
        if not 1 <= number <= of:
            self.fail(f"{value!r} is not K/N with K from 1 to N, e.g. 2/8", param, ctx)
        return Parts(number, of, re.sub(r" --parts[ =]\S+", "", ctx.meta[GIVEN] if ctx else ""))


DEFAULT_MEMORY_MIB = 2048
GIVEN = "webtext.given"  # key of a click context's `meta`: the command as it was given
CONFIG_OPTION = click.option("--config", "config_path", metavar="FILE", help="TOML file of settings.")
SET_OPTION = click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Set one setting; repeatable."
)
WORKER_OPTIONS = [
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", help="This machine, or a Ray cluster."
    ),
    click.option("--address", metavar="HOST:PORT", help="Ray cluster.  [default: this machine's]"),
    click.option("--workers", metavar="N", type=click.IntRange(1), help="Worker processes.  [default: one per core]"),
    click.option(
        "--worker-memory",
        metavar="MIB",
        type=click.IntRange(128),
        default=DEFAULT_MEMORY_MIB,
        show_default=True,
        help="Memory of each worker.",
    ),
]
PARTS_OPTION = click.option("--parts", "of_parts", type=KOfN(), help="Make the K-th of every N parts only.")
OUTPUT_OPTIONS = [
    click.option("--json", "as_json", is_flag=True, help="Print JSON: the result, and progress on stderr."),
    click.option("--quiet", is_flag=True, help="Print errors and warnings only."),
    click.option("--dry-run", is_flag=True, help="Print the plan; write nothing."),
]
_HELP = ("help", "_click_default_help")  # names that versions of click give the option --help
MAX_UNGROUPED = 15  # a longer list of options is printed in groups
MAX_SHORT = 10  # options in the help of -h


def verb(
    group: click.Group,
    name: str,
    *,
    settings: type | Mapping[str, type] | None = None,
    section: str = "",
    also_read: Mapping[str, type] | None = None,
    config_argument: bool = False,
    workers: bool = False,
    resumes: bool | None = None,
    replaces: bool = True,
    defaults: Defaults = lambda given, arguments: {},
    **kwargs: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Register a function as `webtext STAGE NAME`.

    The function receives `run: Run`, `settings`, and its own click parameters, whose decorators go below this one.
    If `settings` is a class, the function receives an instance of it; if it is a mapping section -> class, a dict
    section -> instance, to which `also_read` adds sections (see `SettingsOptions`). With `config_argument` the verb
    works on an entire config file: CONFIG is its argument, and the function receives `config_path` and `overrides`
    unresolved. Without settings it has neither --config nor --set.
    With `workers` the verb has options for the engine; verbs that make parts need it. `resumes` (default: `workers`)
    states whether the same command resumes an interrupted run; only then does it have --parts. For `replaces` see `Run`.
    """
    classes = {} if settings is None else settings if isinstance(settings, Mapping) else {section: settings}
    of_settings = SettingsOptions(classes=classes, also_read=also_read or {}, defaults=defaults)

    def register(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def callback(*, config_path: str | None = None, overrides: tuple[str, ...] = (), **arguments: Any) -> Any:
            if config_argument:
                arguments |= {"config_path": config_path, "overrides": overrides}
            elif classes:
                found = of_settings.resolve(config_path, overrides, arguments)
                arguments["settings"] = found if isinstance(settings, Mapping) else found[section]
            return _run(function, replaces, **arguments)

        command = click.command(name, cls=Verb, **kwargs)(callback)
        command.resumes = workers if resumes is None else resumes
        command.without_flag = of_settings.without_flag()
        for title, option in of_settings.parameters():
            command.params.append(option)
            command.titles[str(option.name)] = title
        n_own = len(command.params)
        config = click.argument("config_path", metavar="CONFIG") if config_argument else CONFIG_OPTION
        common = (config, SET_OPTION) if config_argument or classes or also_read else ()
        of_workers = [*WORKER_OPTIONS, *[PARTS_OPTION] * command.resumes] * workers
        for decorate in (*common, *of_workers, *OUTPUT_OPTIONS):
            decorate(command)
        names = [*(str(each.name) for each in command.params[n_own:]), *_HELP]
        command.titles |= dict.fromkeys(names, "Common options")
        group.add_command(command)
        return command

    return register


def _run(
    function: Callable[..., Any],
    replaces: bool,
    *,
    as_json: bool,
    quiet: bool,
    dry_run: bool,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    worker_memory: int = DEFAULT_MEMORY_MIB,
    of_parts: Any = None,
    **arguments: Any,
) -> Any:
    """Call a verb's function with the run that the common options describe."""
    from webtext.base.console import Console
    from webtext.base.run import Run

    console = Console("quiet" if quiet else "json" if as_json else "human")
    try:
        with _engine(engine, address, workers, worker_memory << 20, console) as made:
            return function(run=Run(made, console, dry_run, of_parts, replaces), **arguments)
    except DryRun:
        console.result({"plan": [*console.said]}, "")
        raise


def _engine(kind: str, address: str | None, workers: int | None, memory_bytes: int, console: Console) -> Engine:
    from webtext.base.workers.local_engine import LocalEngine, WorkerLimits

    limits, quiet = WorkerLimits(memory_bytes=memory_bytes), console.mode != "human"
    if kind == "ray":
        try:
            from webtext.base.workers.ray_engine import RayEngine
        except ImportError:
            raise missing_extra("ray", "ray") from None
        return RayEngine(address, workers, limits, quiet=quiet, warn=console.warn)
    if address:
        raise ConfigError(f"--address {address} is for Ray's clusters", "add --engine ray")
    return LocalEngine(workers=workers, limits=limits, quiet=quiet)


class Verb(click.Command):
    """A verb. Its help shows examples first, and many options in groups: its own, each section's, the common ones."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.titles: dict[str, str] = {}  # name of an option -> title of its group
        self.without_flag: list[str] = []  # section.key of settings that have no option
        self.resumes = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and note what was given; with -h, print the short help instead."""
        ctx.meta[GIVEN] = f"{ctx.command_path} {shlex.join(args)}"
        if "-h" in args:
            click.echo(self.short_help_page(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Show all options; with -h, the main ones."
        return option

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; Ctrl-C raises Interrupted, which says whether the same command resumes it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = "what is finished is kept; rerun the same command to resume"
            lost = f"'{ctx.command_path}' can't resume: the same command starts again"
            raise Interrupted("interrupted", kept if self.resumes else lost) from None

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the whole first paragraph for the list of verbs, which click would cut."""
        return " ".join((self.help or "").partition("\n\n")[0].split())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_epilog(ctx, formatter)
        self.format_options(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = self._records(ctx)
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, record in records.items():
            title = self.titles.get(name, "Options") if len(records) > MAX_UNGROUPED else "Options"
            groups.setdefault(title, []).append(record)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if self.without_flag:
            sections = itertools.groupby(self.without_flag, lambda name: name.rpartition(".")[0])
            lists = (
                f"[{section}] {', '.join(name.rpartition('.')[2] for name in names)}" for section, names in sections
            )
            formatter.write_paragraph()
            formatter.write_text(f"By --config and --set alone: {'; '.join(lists)}")

    def short_help_page(self, ctx: click.Context) -> str:
        """Return the help of -h: the sentence, two examples and the first options, the verb's own before its settings."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.get_short_help_str())
        examples = _EXAMPLE.findall(f"{self.help}\n{self.epilog}")
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in examples[:2]))
        records = [*self._records(ctx).values()]
        with formatter.section("Options"):
            formatter.write_dl(records[:MAX_SHORT])
        if len(records) > MAX_SHORT:
            formatter.write_paragraph()
            formatter.write_text(f"All options: {ctx.command_path} --help")
        return formatter.getvalue().rstrip("\n")

    def _records(self, ctx: click.Context) -> dict[str, tuple[str, str]]:
        """Return name -> (flags, help) of the options; `--a / --no-a` is `--[no-]a`."""
        rows = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx) if isinstance(each, click.Option)}
        return {str(name): (_NO.sub(r"--[no-]\1", record[0]), record[1]) for name, record in rows.items() if record}


_NO = re.compile(r"--(\S+) / --no-\1")
_EXAMPLE = re.compile(r"^ *(webtext (?:.*\\\n)*.*)", re.MULTILINE)


def need_out(out: str | None, marks: Sequence[str] = (), *, on_disk: bool = False) -> str:
    """Return the --out folder; raises ConfigError if the option is missing, InputError if it has to be `on_disk`.

    With `marks`, InputError for a folder of other things: see `Folder.check_output`. Part sets are checked when they
    are written.
    """
    if not out:
        raise ConfigError("no --out given", "name the folder to write: --out DIR")
    if on_disk:
        Folder(out).local_path()
    if marks:
        Folder(out).check_output(marks)
    return out
