"""Settings: one frozen dataclass per component, one TOML file for all stages, unknown keys are errors.

A component's settings are defined next to it, as `@dataclass(frozen=True, slots=True, kw_only=True)` with fields made
by `setting`. Its section of the file is named after its verb, e.g. `[crawl.links]`. A field that is such a dataclass
itself is a subsection: `[train.optimizer]` in `[train]`. Names are unique in a section with its subsections, and flat on
the command line and in recipes, so a setting can move to another subsection without a new option or recipe.
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
    "build", "crawl.links", "crawl.api", "crawl.fetch", "clean.extract",
    "clean.remove", "clean.votes", "clean.language", "clean.rules", "clean.dedup", "clean.decontaminate", "clean.card",
    "tokenizer", "shards", "shards.files", "train", "train.shape", "train.data", "train.optimizer",
    "train.schedule", "train.machine", "train.monitor", "train.checkpoint", "train.eval", "train.sample",
    "train.compare", "train.sweep", "train.scale",
)  # fmt: skip
"""All sections of a config file. Every verb accepts all of them, because the verbs share one file."""


def setting(
    default: Any,
    help: str,
    *,
    in_recipe: bool = True,
    flag: str | typing.Literal[False] | None = None,
    group: str | None = None,
) -> Any:
    """Return a dataclass field with its default and its help text.

    `in_recipe=False` marks a setting that can't change a record: delays, worker counts, how often to report. `flag` is
    the option's name if it differs from the field's: `--from`, for example, can't be a field. `flag=False` gives no
    option: only the file and `--set` set it. `group` is the title of the group of options that begins with this one in
    a long help.
    """
    metadata = {"help": help, "in_recipe": in_recipe, "flag": flag, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One setting: its field, its type, and the subsection that has it, empty for the section itself."""

    field: dataclasses.Field[Any]
    type: Any
    subsection: str = ""

    def value(self, settings: Any) -> Any:
        """Return the value of this setting in `settings`, as a plain JSON value."""
        value = getattr(getattr(settings, self.subsection) if self.subsection else settings, self.field.name)
        return list(value) if isinstance(value, tuple) else value


def options(cls: Any) -> Mapping[str, Option]:
    """Return the settings of a class and its subsections by name, in their order."""
    inner = subsections(cls)
    hints = typing.get_type_hints(cls)
    found = [Option(field, hints[field.name]) for field in dataclasses.fields(cls) if field.name not in inner]
    for name, type_ in inner.items():
        found += [dataclasses.replace(option, subsection=name) for option in options(type_).values()]
    named = {option.field.name: option for option in found}
    assert len(named) == len(found), f"{cls.__name__} has two settings of one name"
    return named


def subsections(cls: Any) -> Mapping[str, Any]:
    """Return name -> class of the fields that are settings dataclasses themselves."""
    return {name: type_ for name, type_ in typing.get_type_hints(cls).items() if dataclasses.is_dataclass(type_)}


def recipe_settings(settings: Any) -> dict[str, Any]:
    """Return the settings that can change a record by name, as plain JSON values."""
    known = options(type(settings)).items()
    return {name: option.value(settings) for name, option in known if option.field.metadata.get("in_recipe", True)}


def all_settings(settings: Any) -> dict[str, Any]:
    """Return all settings by name, as plain JSON values."""
    return {name: option.value(settings) for name, option in options(type(settings)).items()}


def changed(settings: Settings, **values: Any) -> Settings:
    """Return `settings` with other values for some names, whichever subsections have them."""
    return from_table(type(settings), all_settings(settings) | values, "settings")


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
    """Raise ConfigError for a section that no component has, or a bad key or value in a `known` one."""
    for section in _sections(config):
        if section not in SECTIONS:
            raise ConfigError(f"unknown section [{section}]", did_you_mean(section, SECTIONS))
    for section, cls in known.items():
        if values := section_of(config, section, cls):
            from_table(cls, values, section)


def section_of(config: Mapping[str, Any], section: str, cls: type[Any]) -> dict[str, Any]:
    """Return the values of [section] and of the subsections of `cls`; empty if the config doesn't have them.

    ConfigError for an unknown key; if it belongs to another subsection, the error names that.
    """
    known, values = options(cls), {}
    for subsection in ("", *subsections(cls)):
        table, where = config, place(section, subsection)
        for name in filter(None, where.split(".")):
            table = table.get(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"[{where}] is a value, not a section")
        for key, value in table.items():
            if isinstance(value, dict):
                continue
            if key not in known:
                raise _unknown_key(key, where, known)
            if known[key].subsection != subsection:
                right = place(section, known[key].subsection)
                raise ConfigError(f"'{key}' is in [{where}]", f"it belongs to [{right}]; --set {right}.{key}=VALUE")
            values[key] = value
    return values


def from_table(cls: type[Settings], table: Mapping[str, Any], section: str) -> Settings:
    """Build settings from their values by name; a ConfigError names the section, key, value and what was expected.

    >>> @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    ... class Example:
    ...     min_karma: int = setting(3, "keep posts with at least this score")
    >>> from_table(Example, {"min_karma": 5}, "crawl.links")
    Example(min_karma=5)
    """
    known, inner = options(cls), subsections(cls)
    values: dict[str, dict[str, Any]] = {name: {} for name in ("", *inner)}
    for key, value in table.items():
        converted = setting_value(known, key, value, section)
        values[known[key].subsection][key] = converted
    return cls(**values.pop(""), **{name: inner[name](**of) for name, of in values.items()})


def setting_value(known: Mapping[str, Option], key: str, value: Any, section: str) -> Any:
    """Convert the value of one of the `known` settings to its type; raises ConfigError like `from_table`.

    The checks of the class itself (`__post_init__`) are not run.
    """
    if key not in known:
        raise _unknown_key(key, section, known)
    return _converted(value, known[key].type, f"[{place(section, known[key].subsection)}] {key}")


def place(section: str, subsection: str) -> str:
    """Return the name of a subsection in a file; each of the two may be empty."""
    return ".".join(filter(None, (section, subsection)))


def _unknown_key(key: str, section: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"unknown key '{key}' in [{section}]", did_you_mean(key, known))


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


def _sections(config: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if not isinstance(value, dict):
            if not prefix:
                raise ConfigError(f"'{key}' is outside any section", f"known sections: {', '.join(sorted(SECTIONS))}")
            continue
        if name in SECTIONS or not value or not all(isinstance(v, dict) for v in value.values()):
            yield name
        yield from _sections(value, f"{name}.")


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
