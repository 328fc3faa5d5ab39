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
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from webtext.base.errors import MAX_SHOWN, ConfigError, InputError, WebtextError, did_you_mean, noted, raise_all, shown

Settings = TypeVar("Settings")

SECTIONS = (
    "build", "crawl.links", "crawl.api", "crawl.fetch", "clean.extract",
    "clean.remove", "clean.votes", "clean.language", "clean.rules", "clean.dedup", "clean.decontaminate", "clean.card",
    "tokenizer", "shards", "shards.files", "train", "train.shape", "train.data", "train.optimizer",
    "train.schedule", "train.machine", "train.monitor", "train.checkpoint", "train.eval", "train.sample",
    "train.compare", "train.sweep", "train.scale",
)  # fmt: skip
"""All sections of a config file. Every verb accepts all of them, because the verbs share one file."""

MAX_BYTES = 1 << 20
MAX_DOTS = 100  # in one key: tomllib takes memory by the square of their number
# strings and comments
_NOT_KEYS = re.compile(r'''""".*?"""|\'{3}.*?\'{3}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*''', re.DOTALL)


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
    config: dict[str, Any] = {} if path is None else _parsed(_text_of(path), f"'{path}'")
    for override in overrides:
        key, separator, value = override.partition("=")
        *sections, name = key.strip().split(".")
        if not separator or not sections or not all((*sections, name)):
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


def _text_of(path: str) -> str:
    place = Path(path)
    try:
        if not place.is_file() and (place.exists() or place.is_symlink()) and not place.is_dir():
            raise ConfigError(f"the config file '{path}' is a device or a pipe", "name a TOML file")
        with open(place, "rb") as file:
            found = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"no config file '{path}'", "check the path") from None
    except OSError as error:
        raise InputError(f"the config file '{path}' cannot be read: {error.strerror}", "name a TOML file") from None
    if len(found) > MAX_BYTES:
        raise ConfigError(f"'{path}' has more than {MAX_BYTES:,} bytes", "name a TOML file of settings")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}", "save it as UTF-8") from None


def _parsed(text: str, name: str) -> dict[str, Any]:
    """Parse TOML, of which untrusted text takes little time and memory; a ConfigError has its `name`."""
    hint = "fix that line; the README shows a complete file"
    if any(part.count(".") > MAX_DOTS for part in re.split("[=,\n]", _NOT_KEYS.sub("", text))):
        raise ConfigError(f"{name} has a key with more than {MAX_DOTS} dots", hint)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply", "no setting is a list of lists") from None
    except ValueError as error:  # TOMLDecodeError, and whole numbers of more than 4,300 digits
        raise ConfigError(f"{name} is not valid TOML: {str(error)[:200]}", hint) from None


def read_sections(
    config: Mapping[str, Any],
    classes: Callable[[], Mapping[str, type]],
    adding: Callable[[str, dict[str, Any]], Mapping[str, Any]] = lambda section, values: values,
    errors: list[WebtextError] | None = None,
) -> dict[str, Any]:
    """Return section -> settings, for the sections of `classes()`, which may import much.

    `adding` adds values from elsewhere to those of a section. All errors in keys and values are raised
    together, unless the caller has `errors`, to which they are added: wrong values are then their defaults.
    """
    found: list[WebtextError] = [] if errors is None else errors
    for section in _sections(config, found):
        if section not in SECTIONS:
            with noted(found):
                raise ConfigError(f"unknown section [{section[:MAX_SHOWN]}]", did_you_mean(section, SECTIONS))
    made: dict[str, Any] = {}
    for section, cls in classes().items():
        values = section_of(config, section, cls, found)
        with noted(found):
            values = dict(adding(section, values))
        made[section] = _checked(cls, values, section, found)
    if errors is None or None in made.values():
        raise_all(found)
    return made


def _checked(
    cls: type[Settings], values: Mapping[str, Any], section: str, errors: list[WebtextError]
) -> Settings | None:
    """Return settings; note the errors of their values, each without the wrong values before it. None if that isn't enough."""
    left: dict[str, Any] | None = dict(values)
    while left is not None:
        with noted(errors):
            return from_table(cls, left, section)
        is_first = len(left) == len(values)
        others = ({key: value for key, value in left.items() if key != each} for each in left)
        left = next((those for those in others if _error(cls, those, section) != errors[-1].lines), None)
        if left is None and not is_first:
            errors.pop()  # no value that is left causes it: it follows from one that has an error already
    return None


def _error(cls: type, values: Mapping[str, Any], section: str) -> tuple[str, ...]:
    try:
        from_table(cls, values, section)
    except WebtextError as error:
        return error.lines
    return ()


def section_of(config: Mapping[str, Any], section: str, cls: type[Any], errors: list[WebtextError]) -> dict[str, Any]:
    """Return the values of [section] and of the subsections of `cls`; empty if the config doesn't have them.

    An unknown key is left out, with an error in `errors`; if it belongs to another subsection, the error names that.
    """
    known, values = options(cls), dict[str, Any]()
    for subsection in ("", *subsections(cls)):
        table, where = config, place(section, subsection)
        for name in filter(None, where.split(".")):
            table = table.get(name, {})
            table = table if isinstance(table, Mapping) else {}  # a key of the section around it, which is unknown
        for key in [key for key, value in table.items() if not isinstance(value, dict)]:
            with noted(errors):
                if key not in known:
                    raise _unknown_key(key, where, known)
                values[key] = table[key]
                if known[key].subsection != subsection:
                    right = place(section, known[key].subsection)
                    raise ConfigError(f"'{key}' is in [{where}]", f"it belongs to [{right}]; --set {right}.{key}=VALUE")
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
    return ConfigError(f"unknown key {shown(key, typed=False)} in [{section}]", did_you_mean(key, known))


def choices(type_: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the type of a setting's values and the words it also accepts: `none` if it may be None, and Literals.

    >>> choices(int | None), choices(int | typing.Literal["auto"])
    ((<class 'int'>, ('none',)), (<class 'int'>, ('auto',)))
    """
    if typing.get_origin(type_) not in (types.UnionType, typing.Union):
        return type_, ()
    plain, words = list[Any](), list[str]()
    for choice in typing.get_args(type_):
        if choice is type(None):
            words.append("none")
        elif typing.get_origin(choice) is typing.Literal:
            words += typing.get_args(choice)
        else:
            plain.append(choice)
    return plain[0], tuple(words)


def _sections(config: Mapping[str, Any], errors: list[WebtextError], prefix: str = "") -> Iterator[str]:
    """Yield the names of sections, at most three levels of them; a key outside any is an error in `errors`."""
    is_deepest = prefix.count(".") >= 2
    for key, value in config.items():
        name = f"{prefix}{key}"
        with noted(errors):
            if not prefix and not isinstance(value, dict):
                hint = f"known sections: {', '.join(sorted(SECTIONS))}"
                raise ConfigError(f"{shown(key, typed=False)} is outside any section", hint)
        if isinstance(value, dict):
            if is_deepest or name in SECTIONS or not value or not all(isinstance(v, dict) for v in value.values()):
                yield name
            if not is_deepest:
                yield from _sections(value, errors, f"{name}.")


def _converted(value: Any, type_: Any, place: str) -> Any:
    type_, words = choices(type_)
    wrong = f"{place} = {shown(value, typed=False)}: expected"
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
            raise ConfigError(f"{wrong} a list of {kind}")
        return tuple(_converted(item, item_type, f"{place}[{i}]") for i, item in enumerate(value))
    if type_ is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        raise ConfigError(f"{wrong} {' or '.join([names[type_], *map(repr, words)])}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{wrong} {' or '.join(['a finite number', *map(repr, words)])}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{wrong} a whole number of at most 64 bits")
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
        return _parsed(f"value = {text}", "the value")["value"]
    except ConfigError:
        return text
