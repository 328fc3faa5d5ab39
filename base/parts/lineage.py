"""The part sets that a set was made from.

A set's parts name their parents' parts by digest (`Source`). Its `run.json` has the parents' locations relative to the
set, so that a build can be moved as a whole. A parent that is missing or not sealed is ignored. A URL in `run.json` is
opened only if it is in a store that the user named; otherwise a set could make its readers connect to any host.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, read_run
from webtext.base.storage import Folder

PARENTS = "parents"


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
