"""Everything webtext raises on purpose, as one small tree.

    WebtextError              what was wrong, what was expected, what to do next: at most three lines
    ├── ConfigError           a setting or a command line is wrong                     exit code 2
    ├── InputError            a file or a part set breaks its contract                 exit code 3
    │   └── ShardCorrupt      a token shard does not hold what its header says         exit code 3
    ├── NetworkError          a remote service could not be used at all                exit code 1
    ├── Interrupted           a run was asked to end, and saved what it had            exit code 130
    ├── RunFailed             some parts failed; the others are done and stay          exit code 1
    └── EnvironmentError_     this machine lacks something: an extra, disk space       exit code 1

Library code raises; only the command line prints and chooses exit codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WebtextError(Exception):
    """An error for the user: what was wrong with its value and place, then what was expected or what to do next.

    >>> str(ConfigError("unknown key 'min_karm' in [crawl.links]", "did you mean 'min_karma'?"))
    "unknown key 'min_karm' in [crawl.links]\\ndid you mean 'min_karma'?"
    """

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        assert 1 <= len(lines) <= 3, "an error is one to three lines"
        self.lines = lines
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[WebtextError], tuple[str, ...]]:
        """Errors travel from worker processes: rebuild from the lines, not from the joined text."""
        return type(self), self.lines


class ConfigError(WebtextError):
    """A setting or a command line is wrong."""

    exit_code = 2


class InputError(WebtextError):
    """A file or a part set breaks its contract."""

    exit_code = 3


class ShardCorrupt(InputError):
    """A token shard does not hold what its header says."""


class NetworkError(WebtextError):
    """A remote service could not be used at all (one page that fails is a counted reason instead)."""


class RunFailed(WebtextError):
    """Some parts failed; the others are done and stay."""


class Interrupted(WebtextError):
    """A run was asked to end, and saved what it had: the same command goes on."""

    exit_code = 130


class EnvironmentError_(WebtextError):
    """This machine lacks something: an extra, disk space, memory."""


class DryRun(Exception):
    """Ends a dry run at the first stage that has work to do: what follows depends on what it would write."""


def missing_extra(package: str, extra: str) -> EnvironmentError_:
    """The error for an absent optional dependency, with the line that installs it.

    >>> missing_extra("pyarrow", "build").lines[1]
    "install it with: pip install 'webtext[build]'"
    """
    return EnvironmentError_(
        f"the package '{package}' is not installed", f"install it with: pip install 'webtext[{extra}]'"
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, or lists what is known.

    >>> did_you_mean("min_karm", ["min_karma", "before"])
    "did you mean 'min_karma'?"
    >>> did_you_mean("zzz", ["min_karma", "before"])
    'known: before, min_karma'
    """
    choices = sorted(known)
    nearest = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(choices)}"
