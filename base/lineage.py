"""Whether a set is stale: made from another as it was once, while that one has other records now.

A set's parts name the parents' parts they were made from by digest (`Source`), and its `run.json` says where the parents
lay, as seen from the set, so that a build can be moved as a whole. What lies there no more, or is not sealed, tells nothing.
A URL in a file is never opened, unless it leads to a store that the user named: else a set could make its readers ask any host.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.partset import MANIFEST, RUN, PartSet
from webtext.base.storage import Folder

PARENTS = "parents"
TOKENS_STAGE = "shards.pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A set of which `parts` parts of its parent, as it is now, are not those it was made from."""

    set: str
    stage: str
    parent: str
    parts: int

    def __str__(self) -> str:
        changed = f"{self.parts:,} part{'s' if self.parts > 1 else ''} of '{self.parent}' changed since it was made"
        models = ", and so is each model that was trained on it" if self.stage == TOKENS_STAGE else ""
        return f"'{self.set}' is stale{models}: {changed}; the same command renews it ({self.stage.replace('.', ' ')})"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def stale(opened: PartSet) -> list[Stale]:
    """What the set was made from that has changed since: one for each kind of parent."""
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
    """The sets that it was made from, as they are now, where they still lie where they lay.

    A parent at a URL is opened only where the set itself, or a folder that the user `named`, lies in the same store.
    """
    stores = [_store(folder.url) for folder in (opened.folder, *named) if not folder.is_local]
    try:
        places = opened.folder.read_object(RUN).get(PARENTS, []) if opened.folder.exists(RUN) else []
    except InputError:
        return
    for place in places if isinstance(places, list) else []:
        is_url = "://" in str(place)
        if is_url and _store(place) not in stores:
            continue
        url = place if is_url or not opened.folder.is_local else _join(opened.folder, str(place))
        try:
            yield PartSet.open(url)
        except (InputError, ValueError):  # ValueError: a NUL in the path
            continue


def stale_neighbours(opened: PartSet) -> list[Stale]:
    """The sets beside this one, in the folder where it lies, that were made from it as it was once."""
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
            continue  # its own readers say what is wrong with it
    return found


def warn_if_stale(opened: PartSet, console: Console) -> None:
    """Tell who is about to use the set."""
    for each in stale(opened):
        console.warn(str(each))


def places_of(parents: Sequence[Any], folder: Folder) -> list[str]:
    """Where the part sets among the parents lie, as seen from the folder: what `run.json` says."""
    return [_seen_from(folder, parent.folder) for parent in parents if isinstance(parent, PartSet)]


def _store(url: str) -> list[str]:
    """Scheme and bucket of a URL."""
    return url.split("/", 3)[:3]


def _seen_from(here: Folder, there: Folder) -> str:
    if not there.is_local:
        return there.url
    path = os.path.realpath(there.local_path())
    return os.path.relpath(path, os.path.realpath(here.local_path())) if here.is_local else path


def _join(folder: Folder, place: str) -> str:
    return os.path.normpath(os.path.join(folder.url, place))
