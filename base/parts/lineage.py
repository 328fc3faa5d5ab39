"""Staleness: finds part sets whose parents' records have changed since the sets were made.

A set's parts name their parents' parts by digest (`Source`). Its `run.json` has the parents' locations relative to the
set, so that a build can be moved as a whole. A parent that is missing or not sealed is ignored. A URL in `run.json` is
opened only if it is in a store that the user named; otherwise a set could make its readers connect to any host.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.parts.partset import MANIFEST, PartSet, read_run
from webtext.base.storage import Folder

PARENTS = "parents"
TOKENS_STAGE = "shards.pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A stale set: `parts` parts of its parent have changed since the set was made."""

    set: str
    stage: str
    parent: str
    parts: int

    def __str__(self) -> str:
        changed = f"{self.parts:,} part{'s' if self.parts > 1 else ''} of '{self.parent}' changed since it was made"
        models = ", and so is each model that was trained on it" if self.stage == TOKENS_STAGE else ""
        return f"'{self.set}' is stale{models}: {changed}; rerun '{self.stage.replace('.', ' ')}' to renew it"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def stale(opened: PartSet) -> list[Stale]:
    """Return one `Stale` for each kind of parent that has changed since the set was made."""
    parents = list(parents_of(opened))
    found = []
    for kind in dict.fromkeys(parent.kind for parent in parents):
        mine = [parent for parent in parents if parent.kind == kind]
        made_of = {(s.part, s.record_digest) for part in opened.parts for s in part.sources if s.set == kind}
        known = sum(parent["kind"] == kind for parent in opened.manifest[PARENTS])
        if made_of and len(mine) == known:
            now = {(part.name, part.record_digest) for parent in mine for part in parent.parts}
            changed = len({name for name, _ in now ^ made_of})
            if changed:
                place = ", ".join(parent.folder.url for parent in mine)
                found.append(Stale(set=opened.folder.url, stage=opened.recipe["stage"], parent=place, parts=changed))
    return found


def parents_of(opened: PartSet, *named: Folder) -> Iterator[PartSet]:
    """Yield the set's parents in their current state; parents that were moved or deleted are skipped.

    A parent at a URL is opened only if the set itself, or a folder that the user `named`, is in the same store.
    """
    stores = [_store(folder.url) for folder in (opened.folder, *named) if not folder.is_local]
    places = read_run(opened.folder).get(PARENTS)
    for place in places if isinstance(places, list) else []:
        is_url = "://" in str(place)
        if is_url and _store(place) not in stores:
            continue
        url = place if is_url or not opened.folder.is_local else _join(opened.folder, str(place))
        try:
            yield PartSet.open(url, checks_sizes=False)
        except (InputError, ValueError):  # ValueError: a NUL in the path
            continue


def stale_neighbours(opened: PartSet) -> list[Stale]:
    """Return the stale sets in the same parent folder that were made from an earlier state of this one."""
    if not opened.folder.is_local:
        return []
    here = os.path.realpath(opened.folder.local_path())
    found = []
    for name in sorted(os.listdir(os.path.dirname(here))):
        beside = Folder(os.path.join(os.path.dirname(opened.folder.url) or ".", name))
        if not beside.exists(MANIFEST):
            continue
        try:
            found += [each for each in stale(PartSet.open(beside.url)) if os.path.realpath(each.parent) == here]
        except InputError:
            continue  # its own readers report what is wrong with it
    return found


def warn_if_stale(opened: PartSet, console: Console) -> None:
    """Print a warning for each parent that has changed since the set was made."""
    for each in stale(opened):
        console.warn(str(each))


def places_of(parents: Sequence[Any], folder: Folder) -> list[str]:
    """Return the parent part sets' locations relative to the folder, as stored in `run.json`."""
    return [_seen_from(folder, parent.folder) for parent in parents if isinstance(parent, PartSet)]


def _store(url: str) -> list[str]:
    return url.split("/", 3)[:3]


def _seen_from(here: Folder, there: Folder) -> str:
    if not there.is_local:
        return there.url
    path = os.path.realpath(there.local_path())
    return os.path.relpath(path, os.path.realpath(here.local_path())) if here.is_local else path


def _join(folder: Folder, place: str) -> str:
    return os.path.normpath(os.path.join(folder.url, place))
