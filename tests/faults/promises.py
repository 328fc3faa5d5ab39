"""What the documents promise of files that vouch for others, at every moment: see docs/formats.md.

A name that isn't a temporary one is a complete file. An entry, a manifest and a checkpoint's state.json exist only while
the files that they list have the bytes that they state. A run may rely on that without reading the files, and so may a
reader. A run doesn't read the files of a part that have the versions in run.json: they have the bytes that its entry
states, also where a set is being replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

_known: dict[bytes, str] = {}
_KEPT = ("_dedup/signatures/", "_dedup/duplicates/", "_dedup/duplicates.json")


def is_scratch(path: str) -> bool:
    """Whether a file is of a set that its run removes in the end: it isn't synced, and nothing in it is promised."""
    return path.startswith("_dedup/") and not path.startswith(_KEPT)


def broken_promises(files: Mapping[str, bytes], *, fresh: bool) -> list[str]:
    """Return what is wrong with a folder (path -> bytes).

    If a set is being replaced (not `fresh`), removing what vouched for the old files isn't synced, so a power cut may
    bring it back beside new files. Then only the JSON is checked, and what run.json vouches for: readers compare the bytes.
    """
    found = [f"'{folder}' has no state.json" for folder in _checkpoints(files) if f"{folder}/state.json" not in files]
    for path, data in files.items():
        name = PurePath(path)
        if name.suffix != ".json" or name.name.startswith(".") or "/.step-" in path or "_open/" in path:
            continue
        if name.name == "run.json":
            found += _wrongly_vouched(name.parent, _parsed(data).get("versions", {}), files)
        if is_scratch(path):
            continue
        try:
            value = json.loads(data)
        except ValueError:
            found.append(f"'{path}' is not JSON: {data[:40]!r}")
            continue
        for listed, wanted in _listed(name, value) if fresh and isinstance(value, dict) else ():
            if listed not in files:
                found.append(f"'{path}' lists '{listed}', which is missing")
            elif _sha256(files[listed]) != wanted:
                found.append(f"'{path}' lists '{listed}' with other bytes")
    return found


def _checkpoints(files: Mapping[str, bytes]) -> set[PurePath]:
    return {PurePath(path).parent for path in files if PurePath(path).parent.name.startswith("step-")}


def _listed(path: PurePath, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the files that a file lists, each with its SHA-256."""
    if path.parent.name == "_parts":
        yield from _of_part(path.parents[1], value)
    elif path.name == "manifest.json":
        for part in value["parts"]:
            yield from _of_part(path.parent, part)
    elif path.name.endswith(".manifest.json"):
        yield str(path.parent / value["file"]["name"]), value["file"]["sha256"]
    elif path.name == "state.json":
        yield from ((str(path.parent / name), sha256) for name, sha256 in value["files"].items())


def _wrongly_vouched(folder: PurePath, versions: Mapping[str, str], files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the parts that a run takes for unchanged, by their versions, although their entry states other bytes.

    The manifest has the entry, too. A run takes it from there if run.json has the version of the entry's file.
    """

    def same(path: str) -> bool:
        version = str(getattr(files.get(path), "time_ns", None))
        return versions.get(str(PurePath(path).relative_to(folder))) == version

    entries = {path: data for path, data in files.items() if PurePath(path).match(f"{folder}/_parts/[0-9]*.json")}
    sealed = _parsed(files.get(f"{folder}/manifest.json", b"")).get("parts", ())
    known = [part for part in sealed if same(f"{folder}/_parts/{part['name'][5:10]}.json")]
    for part in [*known, *filter(None, map(_parsed, entries.values()))]:
        listed = dict(_of_part(folder, part))
        if all(map(same, listed)):
            for path in (path for path, wanted in listed.items() if _sha256(files[path]) != wanted):
                yield f"'{folder}/run.json' has the version of '{path}', which has other bytes than its entry states"


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(data))
    except ValueError:
        return {}


def _of_part(folder: PurePath, part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for file in (part, *part["attachments"]):
        yield str(folder / file["name"]), file["sha256"]


def _sha256(data: bytes) -> str:
    if data not in _known:
        _known[data] = hashlib.sha256(data).hexdigest()
    return _known[data]
