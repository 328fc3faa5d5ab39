"""Find what is stale in a build, that is, was made from inputs that have changed since: sets by the digests of their parts,
tokenizer and model by the hashes of corpus and tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from webtext.app.chain import Layout
from webtext.app.inspect.lookup import open_if_there
from webtext.base.parts.lineage import stale
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import STATE, list_checkpoints

MANIFEST = "tokenizer.manifest.json"
SETS = ("pages", "documents", "signals", "corpus", "dropped", "tokens")


def stale_in(layout: Layout) -> list[str]:
    """Return one sentence per stale set, tokenizer or model, in build order; empty when nothing is stale."""
    sets = [open_if_there(getattr(layout, name), name) for name in SETS]
    said = [str(each) for opened in sets if opened is not None for each in stale(opened)]
    return [*said, *filter(None, (_tokenizer(layout), _model(layout)))]


def model_recipe(layout: Layout) -> dict[str, Any]:
    """Return the recipe of the model's last checkpoint; empty when there is none, or when the folder is remote."""
    checkpoints = list_checkpoints(Path(layout.model)) if Folder(layout.model).is_local else []
    if not checkpoints:
        return {}
    recipe: dict[str, Any] = Folder(checkpoints[-1]).read_object(STATE).get("recipe", {})
    return recipe


def _tokenizer(layout: Layout) -> str | None:
    """Yield a sentence when the tokenizer was trained on another corpus, as in builds that grow."""
    corpus, folder = open_if_there(layout.corpus, "corpus"), Folder(layout.root).child("tokenizer")
    made = folder.read_object(MANIFEST, "train it again") if folder.exists(MANIFEST) else {}
    if corpus is None or not made or {"set": "corpus", "hash": corpus.hash} in made.get("parents", ()):
        return None
    kept = "is kept; retrain_tokenizer = true in [build] trains it again"
    return f"'{layout.tokenizer}' was trained on an earlier corpus and {kept}"


def _model(layout: Layout) -> str | None:
    """Yield a sentence when the model was trained on other tokens."""
    tokens, recipe = open_if_there(layout.tokens, "tokens"), model_recipe(layout)
    if tokens is None or not recipe or tokens.hash in recipe.get("settings", {}).get("tokens", ()):
        return None
    remedy = "train again, in another folder"
    return f"'{layout.model}' is stale: it was trained on other tokens than those in '{layout.tokens}'; {remedy}"
