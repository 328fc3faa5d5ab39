"""Checks for arguments other than texts and ids; their errors name the argument and its value."""

from __future__ import annotations

import os
from typing import Any

from webtext.base.errors import ConfigError

MAX_INT = 2**63 - 1
"""The largest integer that the C++ cores take."""


def shown(value: object) -> str:
    """Format a value of the wrong type for an error message: the value and its type."""
    return "None" if value is None else " ".join(f"{value!r:.40} ({type(value).__name__})".split())


def checked_int(name: str, value: Any, least: int, most: int, expected: str) -> int:
    """Return the value as an int. ConfigError unless it is an integer (of any library; no bool) in [least, most]."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} is {shown(value)}", f"expected an integer: {expected}")
    if not least <= value.__index__() <= most:
        raise ConfigError(f"{name} is {value}", f"expected {expected}")
    return int(value.__index__())


def checked_path(path: Any) -> str:
    """Return the path as a str. Raises ConfigError if it isn't a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ConfigError(f"the path is {shown(path)}", "expected a str or a pathlib.Path: a file, folder or URL")
    return os.fspath(path)
