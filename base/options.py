"""The options of settings classes on the command line, and the settings that options, `--set` and the file give.

A setting's value comes from its default, its section of the TOML file, `--set` and its flag; each overrides the ones
before it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from webtext.base.config import Option, choices, load_config, options, place, read_sections, subsections
from webtext.base.errors import ConfigError, did_you_mean

Defaults = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
"""Returns further defaults, for settings that nothing gives, from the given settings and the verb's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOptions:
    """The options of a verb's settings: section -> class.

    Sections in `also_read` belong to other verbs and have no options. Like settings with `flag=False`, they take their
    values from the file and `--set`.
    """

    classes: Mapping[str, type]
    also_read: Mapping[str, type] = field(default_factory=dict)
    defaults: Defaults = lambda given, arguments: {}

    def parameters(self) -> list[tuple[str, click.Option]]:
        """Return each option with the title of its group."""
        found = []
        for section, cls in self.classes.items():
            title = "Settings"
            for option in _with_flag(cls).values():
                title = option.field.metadata.get("group") or title
                found.append((f"{title} [{place(section, option.subsection)}]", _parameter(option)))
        return found

    def without_flag(self) -> list[str]:
        """Return section.key of the settings that have no option."""
        return [
            f"{place(section, option.subsection)}.{key}"
            for section, cls in self.classes.items()
            for key, option in options(cls).items()
            if key not in _with_flag(cls)
        ]

    def resolve(self, config_path: str | None, overrides: tuple[str, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        """Return section -> settings, and take the values of their options out of `arguments`.

        An absent flag is None or an empty tuple.
        """
        read = {**self.classes, **self.also_read}
        flags = {section: {key: arguments.pop(key) for key in _with_flag(cls)} for section, cls in self.classes.items()}
        places = [*read, *(place(section, name) for section, cls in read.items() for name in subsections(cls))]
        for override in overrides:
            named = override.partition("=")[0].rpartition(".")[0]
            if named not in places:
                raise ConfigError(f"--set {override}: this verb has no section '{named}'", did_you_mean(named, places))

        def adding(section: str, values: dict[str, Any]) -> dict[str, Any]:
            flagged = {key: value for key, value in flags.get(section, {}).items() if value is not None and value != ()}
            given = values | flagged
            return {**self.defaults(given, arguments), **given}

        return read_sections(load_config(config_path, overrides), lambda: read, adding)


def _with_flag(cls: type) -> dict[str, Option]:
    return {name: option for name, option in options(cls).items() if option.field.metadata.get("flag") is not False}


def _parameter(option: Option) -> click.Option:
    name, metadata = option.field.name, option.field.metadata
    type_, words = choices(option.type)
    flag = metadata.get("flag") or "--" + name.replace("_", "-")
    help_ = metadata["help"]
    if (default := _shown(option.field.default)) and "[default: " not in help_:
        help_ += f"  [default: {default}]"
    if type_ is bool:
        return click.Option([f"{flag}/--no-{flag[2:]}", name], default=None, help=help_)
    if typing.get_origin(type_) is tuple and type_ != tuple[float, ...]:
        return click.Option([flag, name], multiple=True, help=help_)
    inner = _Numbers() if type_ == tuple[float, ...] else _OrWord(type_, words) if words else type_
    metavar = "N,N,..." if type_ == tuple[float, ...] else "|".join(["TEXT" if type_ is str else "N", *words])
    return click.Option([flag, name], type=inner, metavar=metavar, default=None, help=help_)


class _Numbers(click.ParamType[Any]):
    """Comma-separated numbers."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return tuple(float(number) for number in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of comma-separated numbers, e.g. 0.7,0.3", param, ctx)


class _OrWord(click.ParamType[Any]):
    """A value of another type, or one of some words, e.g. `none` for no limit; `from_table` converts it."""

    def __init__(self, inner: type, words: tuple[str, ...]) -> None:
        self._inner = click.types.convert_type(inner)
        self._words = words
        self.name = self._inner.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self._words else self._inner.convert(value, param, ctx)


def _shown(default: Any) -> str:
    """Return a default as the help shows it; empty for nothing: None, False and ()."""
    if default is None or isinstance(default, bool):
        return "true" if default else ""
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
