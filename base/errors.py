"""All errors that webtext raises on purpose, as one small tree.

    WebtextError              what was wrong, what was expected, what to do next: at most three lines (several
                              wrong settings: a line each)
    ├── ConfigError           a setting or a command line is wrong                     exit code 2
    ├── InputError            a file or a part set breaks its contract                 exit code 3
    │   └── ShardCorrupt      a token shard's content doesn't match its header         exit code 3
    ├── NetworkError          a remote service couldn't be used at all                 exit code 1
    ├── Interrupted           a command was asked to stop                              exit code 130
    ├── RunFailed             some parts failed; the finished ones are kept            exit code 1
    └── MachineError          this machine lacks something: an extra, disk space       exit code 4

Library code raises; only the command line prints and chooses exit codes.
"""

from __future__ import annotations

import contextlib
import difflib
import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any

MOST_ERRORS = 20
MAX_SHOWN, MAX_LABEL = 100, 200  # characters; the time to draw a label grows with their square


class WebtextError(Exception):
    """An error for the user: what was wrong, with its value and place; then what was expected or what to do next.

    >>> str(ConfigError("unknown key 'min_karm' in [crawl.links]", "did you mean 'min_karma'?"))
    "unknown key 'min_karm' in [crawl.links]\\ndid you mean 'min_karma'?"
    """

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        assert 1 <= len(lines) <= 3, "an error is one to three lines"
        self.lines = lines
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[WebtextError], tuple[str, ...]]:
        """Rebuild the error from its lines, not from the joined text: errors are pickled by worker processes."""
        return type(self), self.lines


class ConfigError(WebtextError):
    """A setting or a command line is wrong."""

    exit_code = 2


class InputError(WebtextError):
    """A file or a part set breaks its contract."""

    exit_code = 3


class ShardCorrupt(InputError):
    """A token shard's content doesn't match its header."""


class NetworkError(WebtextError):
    """A remote service couldn't be used at all (a single page that fails is counted with a reason instead)."""


class RunFailed(WebtextError):
    """Some parts failed; the finished ones are kept."""


class Interrupted(WebtextError):
    """A command was asked to stop; the message says what it has kept."""

    exit_code = 130


class MachineError(WebtextError):
    """This machine lacks something: an extra, disk space, memory, a GPU, a free port."""

    exit_code = 4


class DryRun(Exception):
    """Ends a dry run at the first stage that has work to do, because later stages depend on what it would write."""


def missing_extra(package: str, extra: str) -> MachineError:
    """Return the error for a missing optional dependency, with the command that installs it.

    >>> missing_extra("pyarrow", "build").lines[1]
    "in a checkout of webtext, run: pip install '.[build]'"
    """
    return MachineError(
        f"the package '{package}' is not installed", f"in a checkout of webtext, run: pip install '.[{extra}]'"
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or with all known names.

    >>> did_you_mean("min_karm", ["min_karma", "before"])
    "did you mean 'min_karma'?"
    >>> did_you_mean("zzz", ["min_karma", "before"])
    'known: before, min_karma'
    """
    choices = sorted(known)
    nearest = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(choices)}"


@contextlib.contextmanager
def noted(errors: list[WebtextError]) -> Iterator[None]:
    """Append an error of the block to `errors`, so that the next check can run too; raise all of a hopeless number."""
    try:
        yield
    except WebtextError as error:
        errors.append(error)
        if len(errors) == MOST_ERRORS:
            raise_all(errors)


def raise_all(errors: list[WebtextError]) -> None:
    """Raise the errors as one of the first one's type, each on a line with its hints; a single one as it is."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        more = " or more" if len(errors) == MOST_ERRORS else ""
        joined = type(errors[0])(f"{len(errors)} errors{more}:")
        joined.lines += tuple("; ".join(each.lines) for each in errors)  # the only error of more than three lines
        joined.args = ("\n".join(joined.lines),)
        raise joined


def shown(value: object, *, typed: bool = True) -> str:
    """Format a wrong value for an error message: on one line as Python writes it, or its start, and its type."""
    try:
        text = label(" ".join(repr(value).split()), MAX_SHOWN)
    except ValueError:
        text = "a number of thousands of digits"
    return f"{text} ({type(value).__name__})" if typed and value is not None else text


def one_line(text: object, most: int = MAX_LABEL) -> str:
    """Return the start of a library's error on one line."""
    return " ".join(str(text).split())[:most]


def checked_int(name: str, value: Any, least: int, most: int, expected: str) -> int:
    """Return the value as an int. ConfigError unless it is an integer (of any library; no bool) in [least, most]."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} is {shown(value)}", f"expected an integer: {expected}") from None
    if not least <= number <= most:
        raise ConfigError(f"{name} is {value}", f"expected {expected}")
    return number


_CONTROLS = re.compile(  # C0, C1, directions, line ends, halves of pairs and others that no XML may contain, tags
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Escape the control characters of untrusted text, with which it could command a terminal or hide other text."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def label(text: str, most: int = MAX_LABEL) -> str:
    """Return the first `most` characters of untrusted text, `visible`, and how many more there are.

    >>> label("ab\\x1bcdef", 4)
    'ab\\\\x1bc… and 3 more characters'
    """
    rest = f"… and {len(text) - most:,} more characters" if len(text) > most else ""
    return visible(text[:most]) + rest
