"""GPT-2 folders of Hugging Face transformers: read and written with safetensors only, never pickle.

There the linear layers are 'Conv1D' (weights transposed, [in, out]) and query, key and value are one fused `c_attn`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.checkpoint import write_tensors
from webtext.train.model import GPT2
from webtext.train.shape import GPT2Config

WEIGHTS = "model.safetensors"
_NORMS = {"ln_1": "attention_norm", "ln_2": "feed_forward_norm"}
_LINEARS = {
    "attn.c_proj": "attention.projection",
    "mlp.c_fc": "feed_forward.expand",
    "mlp.c_proj": "feed_forward.contract",
}
_FUSED = ("attention.query", "attention.key", "attention.value")
# What the architecture fixes: a folder that says otherwise is another model.
_FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}


def read_huggingface(folder: str | os.PathLike[str]) -> GPT2:
    """The model of a Hugging Face GPT-2 folder, in float32."""
    place = Folder(folder)
    config = _read_config(place)
    if not place.exists(WEIGHTS):
        hint = f"convert the weights to one '{WEIGHTS}' first: pickled or split weights are not read"
        raise InputError(f"no file '{place.location(WEIGHTS)}'", hint)
    try:
        theirs = load_file(place.local_path(WEIGHTS))
    except SafetensorError as error:
        raise InputError(
            f"'{place.location(WEIGHTS)}' is no whole safetensors file ({error})", "copy it again"
        ) from None
    theirs = {name.removeprefix("transformer."): tensor.float() for name, tensor in theirs.items()}
    with torch.device("meta"):
        model = GPT2(config)
    try:
        model.load_state_dict(_from_theirs(theirs, config), assign=True)
    except (KeyError, RuntimeError) as error:
        line = str(error).strip().splitlines()[-1].strip()
        raise InputError(f"the tensors in '{place.url}' do not fit its config.json ({line})") from None
    return model.requires_grad_(True)


def write_huggingface(model: GPT2, folder: str | os.PathLike[str], tokenizer: Any = None) -> None:
    """Write `model` (and `tokenizer`, a `webtext.tokenizer.Tokenizer`); config.json appears last."""
    place = Folder(folder)
    with place.scratch(WEIGHTS) as path:
        write_tensors(path, _to_theirs(model))
    eot_id = model.config.vocab_size - 1
    if tokenizer is not None:
        eot_id = tokenizer.eot_id
        place.local_path().mkdir(parents=True, exist_ok=True)
        tokenizer.save(place.local_path("tokenizer.json"))
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.context}
        ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
        _write_json(place, "tokenizer_config.json", {**names, **ends})
    _write_json(place, "config.json", _their_config(model.config, eot_id))


def _read_config(place: Folder) -> GPT2Config:
    location = place.location("config.json")
    raw = place.read_object("config.json", "copy the folder again")
    for name, value in _FIXED.items():
        if raw.get(name, value) != value:
            raise InputError(f"'{location}' says {name} = {raw[name]!r}", f"a GPT-2 has {value!r}")
    if raw.get("n_inner") not in (None, 4 * raw.get("n_embd", 0)):
        raise InputError(f"'{location}' says n_inner = {raw['n_inner']}", "a GPT-2 has 4 n_embd, or null")
    try:
        sizes = {name: int(raw[name]) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
        return GPT2Config(**sizes, context=int(raw["n_positions"]), dropout=float(raw.get("resid_pdrop", 0.0)))
    except KeyError as error:
        raise InputError(f"'{location}' has no {error}", "is this a GPT-2 folder?") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"'{location}' is damaged: {error}", "copy the folder again") from None


def _their_config(config: GPT2Config, eot_id: int) -> dict[str, Any]:
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout)
    sizes = {name: getattr(config, name) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
    context = {"n_positions": config.context, "n_ctx": config.context}
    ends = {"bos_token_id": eot_id, "eos_token_id": eot_id}
    more = {"architectures": ["GPT2LMHeadModel"], "initializer_range": 0.02, "torch_dtype": "float32"}
    return {**_FIXED, **sizes, **context, **dropout, **ends, **more}


def _from_theirs(theirs: dict[str, Tensor], config: GPT2Config) -> dict[str, Tensor]:
    embedding_vc = theirs["wte.weight"]
    padding = torch.zeros(config.padded_vocab_size - config.vocab_size, config.n_embd)
    ours = {
        "token_embedding.weight": torch.cat([embedding_vc, padding]),
        "position_embedding.weight": theirs["wpe.weight"],
    }
    for kind in ("weight", "bias"):
        ours[f"final_norm.{kind}"] = theirs[f"ln_f.{kind}"]
        for i in range(config.n_layer):
            for their_name, our_name in _NORMS.items():
                ours[f"blocks.{i}.{our_name}.{kind}"] = theirs[f"h.{i}.{their_name}.{kind}"]
            for their_name, our_name in _LINEARS.items():
                ours[f"blocks.{i}.{our_name}.{kind}"] = theirs[f"h.{i}.{their_name}.{kind}"].t().contiguous()
            fused = theirs[f"h.{i}.attn.c_attn.{kind}"]
            for our_name, part in zip(_FUSED, fused.chunk(3, dim=-1), strict=True):
                ours[f"blocks.{i}.{our_name}.{kind}"] = part.t().contiguous()
    return ours


def _to_theirs(model: GPT2) -> dict[str, Tensor]:
    ours = {name: tensor.detach().to("cpu", torch.float32) for name, tensor in model.state_dict().items()}
    theirs = {
        "wte.weight": ours["token_embedding.weight"][: model.config.vocab_size].contiguous(),
        "wpe.weight": ours["position_embedding.weight"],
    }
    for kind in ("weight", "bias"):
        theirs[f"ln_f.{kind}"] = ours[f"final_norm.{kind}"]
        for i in range(model.config.n_layer):
            for their_name, our_name in _NORMS.items():
                theirs[f"h.{i}.{their_name}.{kind}"] = ours[f"blocks.{i}.{our_name}.{kind}"]
            for their_name, our_name in _LINEARS.items():
                theirs[f"h.{i}.{their_name}.{kind}"] = ours[f"blocks.{i}.{our_name}.{kind}"].t().contiguous()
            parts = [ours[f"blocks.{i}.{our_name}.{kind}"].t() for our_name in _FUSED]
            theirs[f"h.{i}.attn.c_attn.{kind}"] = torch.cat(parts, dim=-1).contiguous()
    return {f"transformer.{name}": tensor for name, tensor in theirs.items()}


def _write_json(place: Folder, name: str, value: dict[str, Any]) -> None:
    place.write_bytes(name, (json.dumps(value, indent=2) + "\n").encode())
