"""The model card of an exported folder, README.md: what the model was trained on, from what, and how."""

from __future__ import annotations

import json

from webtext.train.checkpoint.checkpoint import find_checkpoint
from webtext.train.checkpoint.model_copy import local_model

OF_THE_MACHINE = ("seconds", "mfu_ratio", "memory_bytes")  # left out: two runs of one recipe have the same card
CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [gpt2]
---

# A GPT-2 of {n:,} parameters

Trained and exported by webtext. Hashes are SHA-256; losses are in nats per token.

```json
{facts}
```
"""


def model_card(model: str) -> str | None:
    """Return the card of a checkpoint, or of a training folder's latest one; None for other folders."""
    place = local_model(model)
    if (place / "config.json").is_file():
        return None
    checkpoint = find_checkpoint(place, lambda _: None, verify=False)
    state = checkpoint.run_state()
    result = {name: value for name, value in state["result"].items() if name not in OF_THE_MACHINE}
    facts = state["recipe"]["settings"] | {
        "step": checkpoint.step,
        "result": result,
        "environment": state["environment"],
    }
    return CARD.format(n=checkpoint.config.n_parameters, facts=json.dumps(facts, indent=1))
