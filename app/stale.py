"""What of a build was made from something that has changed since: sets by their parts' digests, tokenizer and model by the
hashes of corpus and tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from webtext.app.chain import Layout
from webtext.app.lookup import open_if_there
from webtext.base.lineage import stale
from webtext.base.storage import Folder
from webtext.train.checkpoint import STATE, list_checkpoints

MANIFEST = "tokenizer.manifest.json"
SETS = ("pages", "documents", "signals", "corpus", "dropped", "tokens")


def stale_in(layout: Layout) -> list[str]:
    """A sentence for each, in the order in which they were made; none where all is as it should be."""
    sets = [open_if_there(getattr(layout, name), name) for name in SETS]
    said = [str(each) for opened in sets if opened is not None for each in stale(opened)]
    return [*said, *filter(None, (_tokenizer(layout), _model(layout)))]


def model_recipe(layout: Layout) -> dict[str, Any]:
    """The recipe of the model's last checkpoint; empty where there is none, or where the folder is remote."""
    checkpoints = list_checkpoints(Path(layout.model)) if Folder(layout.model).is_local else []
    if not checkpoints:
        return {}
    recipe: dict[str, Any] = Folder(checkpoints[-1]).read_object(STATE).get("recipe", {})
    return recipe


def _tokenizer(layout: Layout) -> str | None:
    """Of a tokenizer that was trained on another corpus than the one that is here now, as those of builds that grow are."""
    corpus, folder = open_if_there(layout.corpus, "corpus"), Folder(layout.root).child("tokenizer")
    made = folder.read_object(MANIFEST, "train it again") if folder.exists(MANIFEST) else {}
    if corpus is None or not made or {"set": "corpus", "hash": corpus.hash} in made.get("parents", ()):
        return None
    kept = "is kept; retrain_tokenizer = true in [build] trains it again"
    return f"'{layout.tokenizer}' was trained on an earlier corpus and {kept}"


def _model(layout: Layout) -> str | None:
    """Of a model that was trained on other tokens than those that lie here now."""
    tokens, recipe = open_if_there(layout.tokens, "tokens"), model_recipe(layout)
    if tokens is None or not recipe or tokens.hash in recipe.get("settings", {}).get("tokens", ()):
        return None
    return f"'{layout.model}' is stale: it was trained on other tokens than those in '{layout.tokens}'; train anew, elsewhere"
