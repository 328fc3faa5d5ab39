"""Compare the recipes of two builds: settings, versions and code versions of every stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webtext.app.chain import Layout
from webtext.app.inspect.lookup import open_if_there
from webtext.app.inspect.stale import model_recipe
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder

SETS = ("links", "pages", "documents", "signals", "corpus", "tokens")
STAGES = (*SETS[:-1], "tokenizer", "tokens", "model")

TOKENIZER_MANIFEST = "tokenizer.manifest.json"
FOLLOWS = {("tokens", "tokenizer_hash"), ("model", "tokens")}
"""Recipe keys about the stage before, which aren't settings."""

NOT_SET = "not set"
"""Marks the value of a setting that one of the recipes lacks."""


@dataclass(frozen=True, slots=True)
class Built:
    """A build's folder: its sealed sets by name, and the recipe of each finished stage."""

    root: str
    sets: Mapping[str, PartSet]
    recipes: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, root: str) -> Built:
        """Open everything that is sealed in `root`."""
        layout = Layout(root)
        names = (*SETS, "dropped")
        sets = {name: found for name in names if (found := open_if_there(getattr(layout, name), name)) is not None}
        recipes = {name: opened.recipe for name, opened in sets.items() if name in SETS}
        tokenizer = Folder(root).child("tokenizer")
        if tokenizer.exists(TOKENIZER_MANIFEST):
            manifest = tokenizer.read_object(TOKENIZER_MANIFEST, "train the tokenizer again")
            recipes["tokenizer"] = manifest.get("recipe", {})
        model = model_recipe(layout)
        return cls(root, sets, recipes | ({"model": model} if model else {}))

    @property
    def missing(self) -> list[str]:
        """Stages that aren't finished here; a build may start from pages or documents in another folder."""
        first = next((place for place, name in enumerate(STAGES) if name in self.recipes), 0)
        return [name for name in STAGES[first:-1] if name not in self.recipes]


def changed_settings(a: Built, b: Built) -> list[dict[str, Any]]:
    """Return {stage, name, a, b} for each setting, version or code version that differs between two recipes of a stage."""
    return [
        {"stage": stage, "name": name, "a": old, "b": new}
        for stage in STAGES
        if stage in a.recipes and stage in b.recipes
        for name, old, new in _changed(a.recipes[stage], b.recipes[stage])
        if (stage, name) not in FOLLOWS
    ]


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    old, new = dict(_leaves(a)), dict(_leaves(b))
    for name in sorted(old | new):
        if old.get(name, NOT_SET) != new.get(name, NOT_SET):
            yield name, old.get(name, NOT_SET), new.get(name, NOT_SET)


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten a recipe to dotted names, without the prefix `settings.`."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, "" if name == "settings" else f"{name}.")
        else:
            yield name, inner
