"""Native cores that crash, hang or raise on planted documents; patched in the worker before the part function runs."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from webtext.base.workers.attempt import Attempt
from webtext.base.workers.local_engine import LocalEngine, TaskFailure
from webtext.clean import _minhash, _signals, steps


class PlantingEngine(LocalEngine):
    """An engine with patched cores, which do what a document's text says: `HARM-where-how`."""

    deaths: Path

    def map(self, function: Callable[..., Any], tasks: Sequence[Any], **options: Any) -> list[TaskFailure]:
        return super().map(functools.partial(planted, function, str(self.deaths)), tasks, **options)


def planted(function: Callable[..., Any], deaths: str, attempt: Attempt, task: Any) -> Any:
    """Patch the cores once, then do the task; runs in the worker."""
    if not hasattr(_signals, "planted"):
        _signals.planted = True  # type: ignore[attr-defined]
        for module, name, where in (
            (_signals, "measure", "signals"),
            (_minhash, "sign", "sign"),
            (_minhash, "shingle_sets", "sets"),
            (steps, "_decisions", "write"),
        ):
            setattr(module, name, functools.partial(harmful, getattr(module, name), where, deaths))
    return function(attempt, task)


def harmful(core: Callable[..., Any], where: str, deaths: str, texts: Any, *more: Any) -> Any:
    """Call the core, unless a text contains harm for it."""
    if where == "write":
        data = "\n".join(texts["text"].to_pylist()).encode()
    else:
        offsets = more[0]
        data = bytes(memoryview(texts)[offsets[0] : offsets[-1]])
    for how, harm in (("segfault", lambda: ctypes.string_at(0)), ("hang", lambda: time.sleep(600)), ("raise", fail)):
        if f"HARM-{where}-{how}".encode() in data:
            with open(deaths, "a") as file:
                file.write(f"{where} {how}\n")
            harm()
    return core(texts, *more)


def fail() -> None:
    raise ValueError("a text this core cannot take")
