"""Starts a crawl with the parts that the crawl of a smaller sample has fetched, so that no page is requested again.

A crawl of all links would write the same rows for the sample's links (`fetch_pages`), so its parts fit unchanged.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from typing import Any

from webtext.base.parts.partset import ENTRIES, PartSet, entry_name
from webtext.base.parts.partwriter import SetWriter, part_key
from webtext.base.parts.recipe import Recipe
from webtext.base.storage import Folder


def take_over(sample: PartSet, out: str, recipe: Recipe, links: PartSet) -> bool:
    """Put the parts of the sample's pages set into the folder `out`, sealed as an incomplete crawl.

    Returns False and does nothing if `out` is not empty, if one of the two is remote, or if the sample was fetched
    under other settings. Files are hard-linked if the disk allows it, else copied. A kill leaves complete parts.
    """
    folder = Folder(out)
    if not (folder.is_local and sample.folder.is_local) or not _same_settings(sample.recipe, recipe.to_json()):
        return False
    if folder.exists("") and os.listdir(folder.local_path()):
        return False
    writer = SetWriter(out, "pages", recipe, [links])
    parts = []
    with folder.held():
        for part in sample.parts:
            for name in (part.name, *(attachment.name for attachment in part.attachments)):
                with folder.scratch(name) as path:
                    _link(sample.folder.local_path(name), path)
            mine = dataclasses.replace(part, key=part_key(recipe, (), f"{part.generation}.{part.index}"))
            data = json.dumps(mine.to_json(), indent=1, sort_keys=True) + "\n"
            folder.child(ENTRIES).write_bytes(entry_name(part.index), data.encode())
            parts.append(mine)
        writer.seal(parts, complete=False, reproducible=False)
    return True


def _same_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two recipes are equal except for the sample of the links."""
    of_any_share = [{**each, "settings": {**each["settings"], "sample": None}} for each in (one, other)]
    return of_any_share[0] == of_any_share[1]


def _link(source: os.PathLike[str], target: os.PathLike[str]) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk, or on a disk without hard links
        shutil.copyfile(source, target)
