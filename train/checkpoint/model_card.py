"""The model card of an exported folder, README.md: what the model was trained on, from what, and how."""

from __future__ import annotations

import json

from webtext.train.checkpoint.checkpoint import find_checkpoint
from webtext.train.checkpoint.model_copy import local_model

_OWN_ROWS = ("tokens", "tokenizer", "from", "n_layer", "n_head", "n_embd", "context", "vocab_size")


def model_card(model: str) -> str | None:
    """Return the card of a checkpoint, or of a training folder's latest one; None for other folders."""
    place = local_model(model)
    if (place / "config.json").is_file():
        return None
    checkpoint = find_checkpoint(place, lambda _: None, verify=False)
    state, config = checkpoint.run_state(), checkpoint.config
    settings, result, where = dict(state["recipe"]["settings"]), state["result"], state["environment"]
    start, given = f"weights drawn from the seed {settings['seed']}", settings.get("from")
    if given is not None:
        step = "" if given["step"] is None else f", step {given['step']:,}"
        files = ", ".join(f"{name} `{digest}`" for name, digest in given["weights"].items())
        start = f"the weights in `{given['folder']}`{step}: {files}"
    rows = {
        "shape": f"{config.n_layer} layers of {config.n_embd}, {config.n_head} heads, context {config.context:,}",
        "started with": start,
        "trained": f"{checkpoint.step:,} steps, {result.get('tokens', 0):,} tokens",
        "token sets": ", ".join(f"`{digest}`" for digest in settings["tokens"]),
        "tokenizer": f"{config.vocab_size:,} ids, `{settings['tokenizer']}`",
        "held-out loss": "not measured" if state.get("validation_loss") is None else f"{state['validation_loss']:.4f}",
        "computed in": f"{where.get('dtype')}, torch {where.get('torch')}",
    }
    others = {name: value for name, value in settings.items() if name not in _OWN_ROWS}
    return "\n".join(
        [
            "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [gpt2]\n---\n",
            f"# A GPT-2 of {config.n_parameters:,} parameters\n",
            "Trained and exported by webtext. Hashes are SHA-256; the loss is in nats per token.\n",
            "| | |\n|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            f"\n## Settings\n\n```json\n{json.dumps(others, indent=1)}\n```\n",
        ]
    )
