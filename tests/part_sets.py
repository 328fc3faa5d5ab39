"""Documents, and sealed part sets of any rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter


def document(identifier: str, text: str, split: str = "train") -> dict[str, Any]:
    row = {"id": identifier, "link_ids": [], "posts": [], "text": text}
    return row | {"text_digest": text_digest(text), "split": split}


def made_set(folder: Path, kind: str, parts: Sequence[Sequence[Mapping[str, Any]]]) -> PartSet:
    """Write a sealed part set with these rows in its parts."""
    writer = SetWriter(str(folder), kind, Recipe(stage="test", code_version=1, settings={}))
    made = []
    for index, rows in enumerate(parts):
        with writer.part(index, key=f"part {index}") as part:
            part.write(rows)
            part.counts.keep(len(rows))
            made.append(part.publish())
    return writer.seal(made)
