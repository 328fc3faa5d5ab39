"""What the documents promise of files that vouch for others, at every moment: see docs/formats.md.

A name that isn't a temporary one is a complete file. An entry, a manifest and a checkpoint's state.json exist only while
the files that they list have the bytes that they state. A run may rely on that without reading the files, if they have
the stated sizes, also where a set is being replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

_known: dict[bytes, str] = {}


def broken_promises(files: Mapping[str, bytes], *, fresh: bool) -> list[str]:
    """Return what is wrong with a folder (path -> bytes).

    If a set is being replaced (not `fresh`), new files may have other sizes than what vouches for the old ones states.
    """
    found = [f"'{folder}' has no state.json" for folder in _checkpoints(files) if f"{folder}/state.json" not in files]
    for path, data in files.items():
        name = PurePath(path)
        if name.suffix != ".json" or name.name.startswith(".") or "/.step-" in path or "_open/" in path:
            continue
        try:
            value = json.loads(data)
        except ValueError:
            found.append(f"'{path}' is not JSON: {data[:40]!r}")
            continue
        for listed, wanted, n_bytes in _listed(name, value) if isinstance(value, dict) else ():
            if not fresh and len(files.get(listed, b"")) != n_bytes:
                continue
            if listed not in files:
                found.append(f"'{path}' lists '{listed}', which is missing")
            elif _sha256(files[listed]) != wanted:
                found.append(f"'{path}' lists '{listed}' with other bytes")
    return found


def _checkpoints(files: Mapping[str, bytes]) -> set[PurePath]:
    return {PurePath(path).parent for path in files if PurePath(path).parent.name.startswith("step-")}


def _listed(path: PurePath, value: dict[str, Any]) -> Iterator[tuple[str, str, int | None]]:
    """Yield the files that a file lists, each with its SHA-256 and, if stated, its size."""
    if path.parent.name == "_parts":
        yield from _of_part(path.parents[1], value)
    elif path.name == "manifest.json":
        for part in value["parts"]:
            yield from _of_part(path.parent, part)
    elif path.name.endswith(".manifest.json"):
        yield str(path.parent / value["file"]["name"]), value["file"]["sha256"], None
    elif path.name == "state.json":
        yield from ((str(path.parent / name), sha256, None) for name, sha256 in value["files"].items())


def _of_part(folder: PurePath, part: dict[str, Any]) -> Iterator[tuple[str, str, int | None]]:
    for file in (part, *part["attachments"]):
        yield str(folder / file["name"]), file["sha256"], file["bytes"]


def _sha256(data: bytes) -> str:
    if data not in _known:
        _known[data] = hashlib.sha256(data).hexdigest()
    return _known[data]
