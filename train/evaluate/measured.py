"""Loading a model that is measured or sampled, with its tokenizer and the records of its training."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint.checkpoint import Checkpoint, checkpoint_of, model_of
from webtext.train.checkpoint.model_copy import local_model
from webtext.train.distributed import World, join_world
from webtext.train.evaluate.published import published
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.huggingface import own_tokenizer
from webtext.train.model.precision import compute_dtype
from webtext.train.settings import EvalSettings

OF_THE_MACHINE = ("seconds", "mfu_ratio", "memory_bytes")  # not in a card: two runs of one recipe have the same one
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


@dataclass(frozen=True, slots=True)
class Judge:
    """A model on its device, with everything that a measurement needs."""

    model: GPT2
    tokenizer: Any
    settings: EvalSettings
    world: World
    run: Run


@dataclass(frozen=True, slots=True)
class Measured:
    """A model, on the CPU until it is moved, and the tokenizer to use with it, if there is one.

    `facts` are a checkpoint's records of its run, of other folders only the hash of the tokenizer in them, if there is one.
    `card` is the README.md of a checkpoint's export.
    """

    path: str
    model: GPT2
    tokenizer: Any
    facts: Mapping[str, Any]
    card: str | None = None

    def text_tokenizer(self) -> Any:
        """Return the tokenizer. Raises ConfigError if there is none, or no end-of-text, which opens each text."""
        if self.tokenizer is None:
            raise ConfigError(f"'{self.path}' contains no tokenizer.json", "add --tokenizer FILE")
        if self.tokenizer.eot_id is None:
            raise ConfigError("the tokenizer has no '<|endoftext|>'", "name the tokenizer of the model's training")
        return self.tokenizer

    def on(self, device: torch.device, dtype: str) -> GPT2:
        """Return the model, or a copy of it, that computes on `device` in `dtype`, a setting.

        'auto' is float32 if the model was trained in it, and otherwise the dtype that the device multiplies fastest.
        """
        if dtype == "auto" and self.facts.get("dtype") == "float32":
            dtype = "float32"
        chosen = compute_dtype(dtype, device, self.model.config.n_embd)
        model = self.model if chosen == torch.float32 else copy.deepcopy(self.model)
        return model.to(device, chosen)

    def answer(self, model: GPT2, task: str, data: str) -> dict[str, Any]:
        """Return the facts that a result of `model`, which is on its device, depends on, and the paper's results."""
        answer = {"model": self.path, "step": self.facts.get("step"), "task": task, "data": data}
        answer |= {"context": model.config.context, "dtype": dtype_name(model)}
        answer |= {"vocab_size": self.tokenizer.vocab_size, "tokenizer_hash": self.tokenizer.hash}
        return answer | published(task)

    def check_fits(self, vocab_size: int, tokenizer_hash: str, data: str) -> None:
        """Raise InputError for tokens of another tokenizer or vocabulary; only a model's own tokenizer may have fewer ids."""
        remedy = "name the tokens, or the tokenizer, that the model was trained with"
        n, trained_with = self.model.config.vocab_size, self.facts.get("tokenizer_hash")
        may_be_padded = trained_with is not None and "step" not in self.facts
        if n < vocab_size or (n > vocab_size and not may_be_padded):
            raise InputError(f"'{self.path}' has a vocabulary of {n:,}, '{data}' one of {vocab_size:,}", remedy)
        if trained_with not in (None, tokenizer_hash):
            raise InputError(f"'{self.path}' was trained with another tokenizer than the one of '{data}'", remedy)

    @contextlib.contextmanager
    def judge(self, settings: EvalSettings, run: Run) -> Iterator[Judge]:
        """Put the model on the device of each process of the run.

        Raises MachineError in all of them if one found another checkpoint in the folder than process 0.
        """
        with join_world() as world:
            found = world.gather((self.facts.get("step"), self.facts.get("files")))
            for rank, each in enumerate(found):
                if each != found[0]:
                    raise MachineError(
                        f"rank {rank} reads step {each[0]} of '{self.path}', and rank 0 step {found[0][0]}",
                        "name one checkpoint folder, or rerun when all hosts see the newest one",
                    )
            yield Judge(self.on(world.device, settings.dtype), self.tokenizer, settings, world, run)


def load_measured(path: str, tokenizer: Any = None, warn: Callable[[str], object] = warnings.warn) -> Measured:
    """Load the model at `path`: a training folder, a checkpoint, or a Hugging Face folder of a GPT-2.

    `tokenizer` is a file or a tokenizer, by default the one in the folder. Raises InputError if it isn't the model's.
    """
    found = checkpoint_of(path, warn)
    own = own_tokenizer(local_model(path)) if found is None else None
    of_export = {"tokenizer_hash": own.hash} if own else {}
    chosen = Tokenizer.load(tokenizer) if isinstance(tokenizer, str) else tokenizer or own
    facts, card = (run_facts(found), model_card(found)) if found else (of_export, None)
    measured = Measured(path, model_of(found, path), chosen, facts, card)
    if chosen is not None:
        given = tokenizer if isinstance(tokenizer, str) else f"{path}/tokenizer.json"
        measured.check_fits(chosen.vocab_size, chosen.hash, given)
    return measured


def run_facts(found: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint's records of its run."""
    state = found.run_state()
    settings = state["recipe"]["settings"]
    try:
        facts = {"tokenizer_hash": settings["tokenizer"], "documents": settings["documents"]}
        return facts | {"step": state["step"], "files": state["files"], "dtype": state["environment"]["dtype"]}
    except KeyError as error:
        what = f"'{found.path}' has no {error}, so another version of webtext wrote it"
        raise InputError(what, "use that version; its 'train export' writes a folder that all read") from None


def model_card(checkpoint: Checkpoint) -> str:
    """Return the model card of a checkpoint: what the model was trained on, from what, and how."""
    state = checkpoint.run_state()
    result = {name: value for name, value in state["result"].items() if name not in OF_THE_MACHINE}
    facts = state["recipe"]["settings"] | {"step": checkpoint.step, "result": result}
    facts |= {"environment": state["environment"]}
    return CARD.format(n=checkpoint.config.n_parameters, facts=json.dumps(facts, indent=1))


def dtype_name(model: GPT2) -> str:
    """Return the name of the dtype in which the model computes."""
    return str(model.dtype).removeprefix("torch.")
