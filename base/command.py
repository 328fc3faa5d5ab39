"""Building block of every stage's `command.py`: registers a verb with the global options and an option per setting.

A setting's value comes from its default, its section of the TOML file, `--set` and its flag; each overrides the ones
before it.
"""

from __future__ import annotations

import functools
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from webtext.base.config import (
    Option,
    choices,
    load_config,
    options,
    place,
    read_sections,
    subsections,
)
from webtext.base.errors import ConfigError, Interrupted, did_you_mean, missing_extra
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
        command = f"{ctx.command_path} {shlex.join(ctx.meta[GIVEN])}" if ctx else ""
        return Parts(number, of, re.sub(r" --parts[ =]\S+", "", command))


DEFAULT_MEMORY_MIB = 2048
GIVEN = "webtext.given"  # key of a click context's `meta`: the verb's arguments as they were given
CONFIG_OPTION = click.option("--config", "config_path", metavar="FILE", help="TOML file with a section for each stage.")
SET_OPTION = click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting; repeatable."
)
WORKER_OPTIONS = [
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", help="This machine, or a Ray cluster."
    ),
    click.option("--address", metavar="HOST:PORT", help="Ray cluster.  [default: the one that runs on this machine]"),
    click.option("--workers", type=click.IntRange(1), default=None, help="Worker processes.  [default: one per core]"),
    click.option(
        "--worker-memory",
        metavar="MIB",
        type=click.IntRange(128),
        default=DEFAULT_MEMORY_MIB,
        show_default=True,
        help="Memory per worker; a record that needs more is retried alone, then counted as failed.",
    ),
    click.option("--parts", "of_parts", type=KOfN(), help="Make the K-th of every N parts; a run without it seals."),
]
OUTPUT_OPTIONS = [
    click.option(
        "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout, and progress as JSON on stderr."
    ),
    click.option("--quiet", is_flag=True, help="Print errors and warnings only."),
    click.option("--dry-run", is_flag=True, help="Print what the command would do, and write nothing."),
]
_HELP = ("help", "_click_default_help")  # names that versions of click give the option --help
MAX_UNGROUPED = 15  # a longer list of options is printed in groups


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
    defaults: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None,
    **kwargs: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Register a function as `webtext STAGE NAME`.

    The function receives `run: Run`, `settings`, and its own click parameters, whose decorators go below this one.
    If `settings` is a class, the function receives an instance of it; if it is a mapping section -> class, a dict
    section -> instance. `also_read` adds sections of other verbs to that dict. They have no options: their values come
    from the file and `--set`, like those of settings with `flag=False`. With `config_argument` the verb works on an
    entire config file: CONFIG is its argument, and the function receives `config_path` and `overrides` unresolved.
    Without settings it has neither --config nor --set. `defaults` returns further defaults, for settings that nothing
    gives, from the given settings and the arguments.
    Only with `workers` does it have options for the engine, for verbs that make parts. `resumes`, by default as
    `workers`, is whether the same command resumes what was interrupted, as the message says. `replaces` is that of `Run`.
    """
    classes: Mapping[str, type] = {}
    if settings is not None:
        classes = settings if isinstance(settings, Mapping) else {section: settings}
    read = {**classes, **(also_read or {})}

    def register(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def callback(
            *,
            config_path: str | None = None,
            overrides: tuple[str, ...] = (),
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
            from webtext.base.console import Console
            from webtext.base.run import Run

            flags = {name: {key: arguments.pop(key) for key in _with_flag(cls)} for name, cls in classes.items()}
            resolved = (
                {}
                if config_argument
                else resolve(
                    read, config_path, overrides, flags, lambda given: defaults(given, arguments) if defaults else {}
                )
            )
            if classes:
                arguments["settings"] = resolved if isinstance(settings, Mapping) else resolved[section]
            if config_argument:
                arguments |= {"config_path": config_path, "overrides": overrides}
            mode: Any = "quiet" if quiet else "json" if as_json else "human"
            console = Console(mode)
            with _engine(engine, address, workers, worker_memory << 20, console) as made:
                return function(run=Run(made, console, dry_run, of_parts, replaces), **arguments)

        command = click.command(name, cls=_Command, **kwargs)(callback)
        command.resumes = workers if resumes is None else resumes
        for section_name, cls in classes.items():
            title = "Settings"
            for key, option in _with_flag(cls).items():
                _option(option)(command)
                title = option.field.metadata.get("group") or title
                command.titles[key] = f"{title} [{place(section_name, option.subsection)}]"
            others = {key: option for key, option in options(cls).items() if key not in _with_flag(cls)}
            command.without_flag += [f"{place(section_name, each.subsection)}.{key}" for key, each in others.items()]
        n_own = len(command.params)
        config = click.argument("config_path", metavar="CONFIG") if config_argument else CONFIG_OPTION
        of_settings = (config, SET_OPTION) if config_argument or read else ()
        for decorate in (*of_settings, *(WORKER_OPTIONS if workers else ()), *OUTPUT_OPTIONS):
            decorate(command)
        command.titles |= dict.fromkeys(
            [*(str(each.name) for each in command.params[n_own:]), *_HELP], "Common options"
        )
        group.add_command(command)
        return command

    return register


def _engine(kind: str, address: str | None, workers: int | None, memory_bytes: int, console: Console) -> Engine:
    from webtext.base.workers.engine import Limits, LocalEngine

    limits, quiet = Limits(memory_bytes=memory_bytes), console.mode != "human"
    if kind == "ray":
        try:
            from webtext.base.workers.ray_engine import RayEngine
        except ImportError:
            raise missing_extra("ray", "ray") from None
        return RayEngine(address, workers, limits, quiet=quiet, warn=console.warn)
    if address:
        raise ConfigError(f"--address {address} is for Ray's clusters", "add --engine ray")
    return LocalEngine(workers=workers, limits=limits, quiet=quiet)


class _Command(click.Command):
    """A verb whose help prints many options in groups: its own, those of each section of settings, the common ones."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.titles: dict[str, str] = {}  # name of an option -> title of its group
        self.without_flag: list[str] = []  # section.key of settings that have no option
        self.resumes = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and note what was given."""
        ctx.meta[GIVEN] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; Ctrl-C raises Interrupted, which says whether the same command resumes it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = "what is finished is kept; rerun the same command to resume"
            lost = f"'{ctx.command_path}' can't resume: the same command starts again"
            raise Interrupted("interrupted", kept if self.resumes else lost) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        shown = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for option in shown:
            title = self.titles.get(str(option.name), "Options") if len(shown) > MAX_UNGROUPED else "Options"
            if record := option.get_help_record(ctx):
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
        if self.without_flag:
            formatter.write_paragraph()
            formatter.write_text(f"By --set or the file alone: {', '.join(self.without_flag)}")


def resolve(
    classes: Mapping[str, type],
    config_path: str | None,
    overrides: tuple[str, ...],
    flags: Mapping[str, Mapping[str, Any]],
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda given: {},
) -> dict[str, Any]:
    """Return section -> settings, from defaults, file, `--set` and flags; an absent flag is None or an empty tuple.

    `defaults` returns the values of further settings from those that file, `--set` and flags give.
    """
    places = [*classes, *(place(section, name) for section, cls in classes.items() for name in subsections(cls))]
    for override in overrides:
        named = override.partition("=")[0].rpartition(".")[0]
        if named not in places:
            raise ConfigError(f"--set {override}: this verb has no section '{named}'", did_you_mean(named, places))

    def adding(section: str, values: dict[str, Any]) -> dict[str, Any]:
        flagged = {key: value for key, value in flags.get(section, {}).items() if value is not None and value != ()}
        given = values | flagged
        return {**defaults(given), **given}

    return read_sections(load_config(config_path, overrides), lambda: classes, adding)


def _with_flag(cls: type) -> dict[str, Option]:
    return {name: option for name, option in options(cls).items() if option.field.metadata.get("flag") is not False}


def _option(option: Option) -> Callable[[Any], Any]:
    name, default = option.field.name, option.field.default
    type_, words = choices(option.type)
    flag = option.field.metadata.get("flag") or "--" + name.replace("_", "-")
    help_ = str(option.field.metadata.get("help", ""))
    if "[default: " not in help_:  # a help that states what None or () means
        help_ += f"  [default: {_shown(default)}]"
    if type_ is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_)
    if words:
        type_ = _OrWord(type_, words)
    if type_ == tuple[float, ...]:
        return click.option(flag, name, type=_Numbers(), default=None, help=help_)
    if typing.get_origin(type_) is tuple:
        return click.option(flag, name, multiple=True, help=help_)
    return click.option(flag, name, type=type_, default=None, help=help_)


class _Numbers(click.ParamType[Any]):
    """Comma-separated numbers."""

    name = "numbers"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "NUMBER,NUMBER,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return tuple(float(number) for number in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of comma-separated numbers, e.g. 0.7,0.3", param, ctx)


class _OrWord(click.ParamType[Any]):
    """A value of another type, or one of some words, e.g. `none` to turn the setting off; `from_table` converts it."""

    def __init__(self, inner: type, words: tuple[str, ...]) -> None:
        self._inner = click.types.convert_type(inner)
        self._words = words
        self.name = self._inner.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join([self._inner.name.upper(), *self._words])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self._words else self._inner.convert(value, param, ctx)


def _shown(default: Any) -> str:
    if default is None:
        return "off"
    if isinstance(default, tuple):
        return ", ".join(map(str, default)) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


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
