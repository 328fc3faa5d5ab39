"""Settings: one frozen dataclass per component, one TOML file for all stages, unknown keys are errors.

A component's settings are defined next to it, as `@dataclass(frozen=True, slots=True, kw_only=True)` with fields made
by `setting`. Its section of the file is named after its verb, e.g. `[crawl.links]`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from webtext.base.errors import ConfigError, InputError, did_you_mean

Settings = TypeVar("Settings")

SECTIONS = (
    "build", "build.prices", "crawl.links", "crawl.api", "crawl.fetch", "crawl.plan", "crawl.refresh", "clean.extract",
    "clean.remove", "clean.votes", "clean.language", "clean.rules", "clean.dedup", "clean.decontaminate", "clean.card",
    "tokenizer", "tokenizer.count", "shards", "train", "train.eval", "train.sample", "train.plan", "train.compare",
    "train.sweep", "train.scale",
)  # fmt: skip
"""All sections of a config file. Every verb accepts all of them, because the verbs share one file."""


def setting(
    default: Any, help: str, *, in_recipe: bool = True, flag: str | None = None, group: str | None = None
) -> Any:
    """Return a dataclass field with its default and its help text.

    `in_recipe=False` marks a setting that can't change a record: delays, worker counts, how often to report. `flag` is
    the option's name if it differs from the field's: `--from`, for example, can't be a field. `group` is the title of
    the group of options that begins with this one in a long help.
    """
    metadata = {"help": help, "in_recipe": in_recipe, "flag": flag, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


def recipe_settings(settings: Any) -> dict[str, Any]:
    """Return the settings that can change a record, as plain JSON values."""
    return {
        field.name: _plain(getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if field.metadata.get("in_recipe", True)
    }


def all_settings(settings: Any) -> dict[str, Any]:
    """Return all settings as plain JSON values."""
    return {field.name: _plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def load_config(path: str | None, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read the TOML file, if there is one, and apply the `section.key=value` overrides to it.

    An override's value is parsed as TOML if it is valid TOML (`3`, `true`, `["a", "b"]`); otherwise it is a string.
    """
    config: dict[str, Any] = {}
    if path is not None:
        try:
            config = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"no config file '{path}'", "check the path") from None
        except OSError as error:
            raise InputError(f"the config file '{path}' cannot be read: {error.strerror}", "name a TOML file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"'{path}' is not valid TOML: {error}", "fix that line; the README shows a complete file"
            ) from None
    for override in overrides:
        key, separator, value = override.partition("=")
        *sections, name = key.strip().split(".")
        if not separator or not sections or not name:
            raise ConfigError(
                f"--set {override!r} is not of the form section.key=value", "e.g. --set crawl.links.min_karma=5"
            )
        table = config
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--set {override!r}: '{section}' is a value, not a section")
        table[name] = _toml_value(value.strip())
    return config


def check_sections(config: Mapping[str, Any], known: Mapping[str, type]) -> None:
    """Raise ConfigError for a section or key that no component has; the error names the nearest known one."""
    check_section_names(config)
    for section, value in _sections(config, set(known)):
        from_table(known[section], value, section)


def check_section_names(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a section that no component has; the error names the nearest known one."""
    names = set(SECTIONS)
    for section, _ in _sections(config, names):
        if section not in names:
            raise ConfigError(f"unknown section [{section}]", did_you_mean(section, names))


def section_of(config: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the values of [section] without its subsections; empty if the config doesn't have the section."""
    table: Any = config
    for name in section.split(".") if section else ():
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"[{section}] is a value, not a section")
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def from_table(cls: type[Settings], table: Mapping[str, Any], section: str) -> Settings:
    """Build settings from a mapping; a ConfigError names the section, key, value and what was expected.

    >>> @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    ... class Example:
    ...     min_karma: int = setting(3, "keep posts with at least this score")
    >>> from_table(Example, {"min_karma": 5}, "crawl.links")
    Example(min_karma=5)
    """
    values = {key: setting_value(cls, key, value, section) for key, value in table.items()}
    return cls(**values)


def setting_value(cls: type[Any], key: str, value: Any, section: str) -> Any:
    """Convert the value of one setting to the field's type; raises ConfigError like `from_table`.

    The checks of the class itself (`__post_init__`) are not run.
    """
    types_ = field_types(cls)
    if key not in types_:
        raise ConfigError(f"unknown key '{key}' in [{section}]", did_you_mean(key, types_))
    return _converted(value, types_[key], f"[{section}] {key}")


def field_types(cls: type[Any]) -> dict[str, Any]:
    """Return field name -> resolved type of a settings class."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def choices(type_: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the type of a setting's values and the words it also accepts: `none` if it may be None, and Literals.

    >>> choices(int | None), choices(int | typing.Literal["auto"])
    ((<class 'int'>, ('none',)), (<class 'int'>, ('auto',)))
    """
    if typing.get_origin(type_) not in (types.UnionType, typing.Union):
        return type_, ()
    plain: list[Any] = []
    words: list[str] = []
    for choice in typing.get_args(type_):
        if choice is type(None):
            words.append("none")
        elif typing.get_origin(choice) is typing.Literal:
            words += typing.get_args(choice)
        else:
            plain.append(choice)
    return plain[0], tuple(words)


def _sections(config: Mapping[str, Any], names: set[str], prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if not isinstance(value, dict):
            if not prefix:
                raise ConfigError(f"'{key}' is outside any section", f"known sections: {', '.join(sorted(names))}")
            continue
        inner = {k: v for k, v in value.items() if not isinstance(v, dict)}
        if inner or name in names or not any(isinstance(v, dict) for v in value.values()):
            yield name, inner
        yield from _sections(value, names, f"{name}.")


def _converted(value: Any, type_: Any, place: str) -> Any:
    type_, words = choices(type_)
    if "none" in words and (value is None or value == "none"):
        return None
    if isinstance(value, date) and type_ is str:
        value = value.isoformat()  # a TOML date or time for a setting such as `before`
    if isinstance(value, str) and value in words:
        return value
    if typing.get_origin(type_) is tuple:
        item_type = typing.get_args(type_)[0]
        if not isinstance(value, (list, tuple)):
            kind = {str: "strings", float: "numbers"}[item_type]
            raise ConfigError(f"{place} = {value!r}: expected a list of {kind}")
        return tuple(_converted(item, item_type, place) for item in value)
    if type_ is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return float(value)
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        raise ConfigError(f"{place} = {value!r}: expected {' or '.join([names[type_], *map(repr, words)])}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place} = {value!r}: expected a finite number", "use 'none' for no limit")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{place} = {value!r}: expected a whole number of at most 64 bits")
    return value


@functools.cache
def timestamp(moment: str, name: str) -> int:
    """Convert an ISO 8601 date or time, the value of setting `name`, to UTC seconds; without a zone it is UTC.

    Raises ConfigError if it is neither a date nor a time.

    >>> timestamp("2018-01-01T00:00:00Z", "before"), timestamp("2018-01-01", "before")
    (1514764800, 1514764800)
    """
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        raise ConfigError(f"{name} = {moment!r}: not a date or time", "write it as 2018-01-01T00:00:00Z") from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())


def several_values(text: str) -> list[Any]:
    """Split a comma-separated list; each value is parsed as TOML if it is valid TOML, otherwise it is a string.

    >>> several_values("1e-3,2e-3"), several_values("adamw, muon"), several_values("[1, 2],[3, 4]")
    ([0.001, 0.002], ['adamw', 'muon'], [[1, 2], [3, 4]])
    """
    values = _toml_value(f"[{text}]")
    return values if isinstance(values, list) else [_toml_value(value.strip()) for value in text.split(",")]


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
