"""GPT-2 folders of Hugging Face transformers: read and written with safetensors only, never pickle.

In them the linear layers are 'Conv1D' (weights transposed, [in, out]) and query, key and value are one fused `c_attn`.
Weights are in model.safetensors, or in several files that model.safetensors.index.json lists. A folder's tensors are
compared with its config.json by name and shape before anything is allocated.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:  # its native core isn't needed to train
    from webtext.tokenizer import Tokenizer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_LAYERS = (
    # theirs, ours, and both dimensions as multiples of the width: a norm has one
    ("ln_1", ("attention_norm",), (1,)),
    ("ln_2", ("feed_forward_norm",), (1,)),
    ("attn.c_attn", ("attention.query", "attention.key", "attention.value"), (1, 3)),
    ("attn.c_proj", ("attention.projection",), (1, 1)),
    ("mlp.c_fc", ("feed_forward.expand",), (1, 4)),
    ("mlp.c_proj", ("feed_forward.contract",), (4, 1)),
)
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "encoder.json")
_MASKS = (".attn.bias", ".attn.masked_bias")  # buffers of older versions, the same in every model
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# The architecture fixes these values: a folder with others is another model.
_FIXED: dict[str, Any] = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}


class GPT2Folder:
    """A model's shape, and its parameters by name; float16 and bfloat16 weights are widened to float32."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        place = Folder(folder)
        self.config = _read_config(place)
        self.files = _weight_files(place)
        self._place = place.url
        self._found: dict[str, tuple[Any, str]] = {}  # by name without the prefix that some have
        for name in self.files:
            location = place.location(name)
            try:
                file: Any = safe_open(place.local_path(name), framework="pt")
            except SafetensorError as error:
                raise InputError(f"'{location}' is not an intact safetensors file ({error})", "copy it again") from None
            for key in file.keys():  # noqa: SIM118 - not a mapping
                tensor = key.removeprefix("transformer.")
                if tensor in self._found:
                    raise InputError(f"'{location}' contains tensor '{tensor}' twice", "copy the folder again")
                self._found[tensor] = (file, key)
        self._check()
        tensors = _tensors(self.config)
        self._theirs = {own: (name, i, len(ours)) for name, _, ours in tensors for i, own in enumerate(ours)}

    def values(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a parameter of `GPT2` by its name there. Raises InputError if it isn't finite."""
        theirs, i, n = self._theirs[name]
        tensor = self._read(theirs)
        if theirs.startswith("h."):
            tensor = tensor.chunk(n, dim=-1)[i].t().contiguous()
        elif len(tensor) < shape[0]:
            tensor = functional.pad(tensor, (0, 0, 0, shape[0] - len(tensor)))  # the rows of no token
        assert tensor.shape == tuple(shape), name
        return tensor

    def _read(self, name: str) -> Tensor:
        file, key = self._found[name]
        tensor: Tensor = file.get_tensor(key)
        if tensor.dtype not in _FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"tensor '{name}' in '{self._place}' is {kind}", "expected float32, float16 or bfloat16")
        if not torch.isfinite(tensor).all():
            raise InputError(f"tensor '{name}' in '{self._place}' has values that are not finite", "copy it again")
        return tensor.float()

    def _check(self) -> None:
        """Raise InputError if a tensor is missing, has another shape or is not one of a GPT-2; reads only headers."""
        rest = {name: file.get_slice(key).get_shape() for name, (file, key) in self._found.items()}
        rest = {name: shape for name, shape in rest.items() if name != "lm_head.weight" and not name.endswith(_MASKS)}
        wanted = ((name, shape) for name, shape, _ in _tensors(self.config))  # of a damaged config.json, very many
        for name, shape in itertools.chain(wanted, ((name, None) for name in tuple(rest))):
            if shape != (found := rest.pop(name, None)):
                what = f"'{name}' in '{self._place}' is {found or 'missing'}, but its config.json requires {shape or 'none'}"
                raise InputError(f"tensor {what}", "the folder has another model's config.json, or lacks weights")
        if "lm_head.weight" in self._found and not torch.equal(self._read("lm_head.weight"), self._read("wte.weight")):
            raise InputError(
                f"the output layer of '{self._place}' is not its embedding: 'lm_head.weight' differs from 'wte.weight'",
                "a GPT-2 shares the two; a model with two tables is another architecture",
            )


def write_huggingface(
    model: Any,  # a GPT2, whose module imports this one
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    card: str | None = None,
) -> None:
    """Write a folder that transformers' GPT2LMHeadModel loads with equal logits, config.json last.

    With tokenizer.json, and with `card` as README.md, if they are given. ConfigError if a weight is too large for `dtype`.
    """
    config, ours = model.config, model.state_dict()
    kind = str(dtype).removeprefix("torch.")
    for name, tensor in ours.items():
        if (largest := tensor.abs().max().item()) > torch.finfo(dtype).max:
            limit = f"{torch.finfo(dtype).max:,.0f} is the largest {kind}"
            raise ConfigError(f"a weight of '{name}' is ±{largest:,.0f}; {limit}", "export with --dtype bfloat16")
    place = Folder(folder)
    place.remove("config.json")
    tensors = {}
    for name, shape, own in _tensors(config):
        parts = [ours[each].t() if name.startswith("h.") else ours[each][: shape[0]] for each in own]
        tensors[f"transformer.{name}"] = torch.cat(parts, dim=-1).cpu().to(dtype)
    with place.scratch(WEIGHTS) as path:
        write_tensors(path, tensors)
    place.remove(INDEX)
    eot_id = config.vocab_size - 1 if tokenizer is None else tokenizer.eot_id
    if tokenizer is not None:
        tokenizer.save(place.url, model_max_length=config.context)
    if card is not None:
        place.write_bytes("README.md", card.encode())
    theirs = _FIXED | {"architectures": ["GPT2LMHeadModel"], "initializer_range": 0.02, "torch_dtype": kind}
    theirs |= dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)  # the default of transformers is 0.1
    theirs |= {name: getattr(config, name) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
    theirs |= {"n_positions": config.context, "n_ctx": config.context, "bos_token_id": eot_id, "eos_token_id": eot_id}
    place.write_object("config.json", theirs)


def own_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a folder; None if it has none."""
    from webtext.tokenizer import Tokenizer

    return Tokenizer.load(folder) if any((folder / name).is_file() for name in _TOKENIZER_FILES) else None


def _weight_files(place: Folder) -> list[str]:
    """Return the names of the files of weights. InputError if there is none, or if weights are pickled."""
    if place.exists(WEIGHTS):
        return [WEIGHTS]
    if not place.exists(INDEX):
        hint = "pickled weights are not read: save them with transformers' save_pretrained"
        raise InputError(f"no file '{place.location(WEIGHTS)}'", hint)
    location, names = place.location(INDEX), place.read_object(INDEX, "copy the folder again").get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise InputError(f"'{location}' has no weight_map of file names", "copy the folder again")
    files = sorted(set(names.values()))
    for name in files:
        if os.path.basename(name) != name or not name.endswith(".safetensors"):
            raise InputError(f"'{location}' lists '{name}'", "expected safetensors files in the same folder")
        if not place.exists(name):
            raise InputError(f"no file '{place.location(name)}', which '{location}' lists", "copy the folder again")
    return files


def _read_config(place: Folder) -> GPT2Config:
    location = place.location("config.json")
    raw = place.read_object("config.json", "copy the folder again")
    for name, value in _FIXED.items():
        if raw.get(name, value) != value:
            raise InputError(
                f"'{location}' says {name} = {raw[name]!r}", f"a GPT-2 has {value!r}; lm-eval measures other models"
            )
    try:
        sizes = {name: int(raw[name]) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
        if raw.get("n_inner") not in (None, 4 * sizes["n_embd"]):
            raise InputError(f"'{location}' says n_inner = {raw['n_inner']}", "a GPT-2 has 4 n_embd, or null")
        return GPT2Config(**sizes, context=int(raw["n_positions"]))
    except KeyError as error:
        raise InputError(f"'{location}' has no {error}", "is this a GPT-2 folder?") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"'{location}' is damaged: {error}", "copy the folder again") from None
    except ConfigError as error:
        raise InputError(f"'{location}': {error.lines[0]}", *error.lines[1:]) from None


def _tensors(config: GPT2Config) -> Iterator[tuple[str, list[int], list[str]]]:
    """Yield each tensor of a folder: its name and shape, and the parameters of `GPT2` that it consists of."""
    width = config.n_embd
    yield "wte.weight", [config.vocab_size, width], ["token_embedding.weight"]
    yield "wpe.weight", [config.context, width], ["position_embedding.weight"]
    for i in range(config.n_layer):
        for theirs, ours, sizes in _LAYERS:
            shape = [n * width for n in sizes]
            for kind, of_kind in (("weight", shape), ("bias", shape[-1:])):
                yield f"h.{i}.{theirs}.{kind}", of_kind, [f"blocks.{i}.{each}.{kind}" for each in ours]
    yield from ((f"ln_f.{kind}", [width], [f"final_norm.{kind}"]) for kind in ("weight", "bias"))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file. System errors, such as no space left, are raised as OSError."""
    path.touch()
    mode = path.stat().st_mode  # safetensors leaves a file that only its owner may read
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error), str(path)) from None
