"""What callers pass that is neither a text nor an id: values are checked where they come in, with an error that names them."""

from __future__ import annotations

import os
from typing import Any

from webtext.base.errors import ConfigError

MAX_INT = 2**63 - 1
"""The largest integer that the C++ cores take."""


def shown(value: object) -> str:
    """A value of the wrong type, for a message: what it is, and its type."""
    return "None" if value is None else " ".join(f"{value!r:.40} ({type(value).__name__})".split())


def checked_int(name: str, value: Any, least: int, most: int, expected: str) -> int:
    """The value as an int; ConfigError unless it is an integer (of any library, but not a bool) from `least` to `most`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} is {shown(value)}", f"expected an integer: {expected}")
    if not least <= value.__index__() <= most:
        raise ConfigError(f"{name} is {value}", f"expected {expected}")
    return int(value.__index__())


def checked_path(path: Any) -> str:
    """The path as a str; ConfigError for what is not a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ConfigError(f"the path is {shown(path)}", "expected a str or a pathlib.Path: a file, folder or URL")
    return os.fspath(path)
