"""Any causal language model that transformers loads, as a `LanguageModel`, and its tokenizer: a folder, or a .gguf file.

Only local files are read. Weights are safetensors or GGUF, and neither code nor pickles of a folder are loaded. GGUF's
quantized weights are converted to float32. Logits are those of transformers in float32, over the complete vocabulary of
the model: if it is padded, a prediction of an id that no token has is a wrong one.

Shape suffixes as in `gpt2.py`; k are positions whose logits are needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional

from webtext.base.errors import InputError, missing_extra
from webtext.base.storage import Folder
from webtext.tokenizer import Tokenizer
from webtext.train.model.huggingface import weight_files
from webtext.train.model.language_model import Places

GGUF = ".gguf"
EXTRA = "transformers"
LOGITS_AT_ONCE = 2**27
"""Half a GiB: of a model with a large vocabulary, few rows of a batch or a part of one row at a time."""
_CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "context_length")
_TOKENIZER_FILES = ("tokenizer", "vocab", "encoder.json", "spiece", "sentencepiece")
_EOT = "<|endoftext|>"


class PretrainedModel:
    """A model of transformers. InputError if its folder is damaged or has a model that isn't causal."""

    def __init__(self, path: str) -> None:
        transformers, where = _transformers(), _where(path)
        with _named(path, "model"):
            config = transformers.AutoConfig.from_pretrained(**where)
        self.context = _context(config, path)
        if not path.endswith(GGUF):
            _check_sizes(transformers, config, path)
        with _named(path, "model"):
            how = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
            self._model, found = transformers.AutoModelForCausalLM.from_pretrained(**where, **how)
        if missing := sorted({*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])}):
            raise InputError(f"'{path}' has no tensor '{missing[0]}', which its config requires", "copy it again")
        self._model.eval().requires_grad_(False)
        decoder = config.get_text_config(decoder=True)
        self.vocab_size = int(decoder.vocab_size)
        self.shape = (self._model.num_parameters(), decoder.num_hidden_layers, decoder.hidden_size)
        ends = self._model.generation_config.eos_token_id
        self.end_ids = frozenset([ends] if isinstance(ends, int) else ends or ())
        accepted = inspect.signature(self._model.forward).parameters
        self._keeps = "logits_to_keep" in accepted
        self._cache = transformers.DynamicCache
        plain = (transformers.cache_utils.DynamicLayer, transformers.cache_utils.DynamicSlidingWindowLayer)
        self._caches = "past_key_values" in accepted and all(type(one) in plain for one in self._new_past().layers)
        self._check_values(path)

    @property
    def device(self) -> torch.device:
        """See `LanguageModel`, as for the other methods."""
        device: torch.device = self._model.device
        return device

    def to(self, device: torch.device) -> Self:  # noqa: D102
        self._model.to(device)
        return self

    def empty_cache(self, n_texts: int) -> _Cache:  # noqa: D102
        return _Cache()

    @torch.no_grad()
    def log_likelihood(self, tokens_bt: Tensor, /, *, last: int) -> Tensor:  # noqa: D102
        n_rows = max(1, LOGITS_AT_ONCE // (last * self.vocab_size))
        return torch.cat([self._log_likelihood(rows_bt, last) for rows_bt in torch.split(tokens_bt, n_rows)])

    def _log_likelihood(self, tokens_bt: Tensor, last: int) -> Tensor:
        n = min(last, max(1, LOGITS_AT_ONCE // self.vocab_size))
        cache = _Cache() if n < last else None
        scores, first = [], tokens_bt.shape[1] - 1 - last
        for start in range(first, first + last, n):
            end = min(start + n, first + last)
            inputs_bt = tokens_bt[:, start if start > first else 0 : end]
            positions_k = torch.arange(inputs_bt.shape[1] - (end - start), inputs_bt.shape[1])
            logits_nv = self._logits(inputs_bt, cache, positions_k).flatten(0, 1)
            losses_n = functional.cross_entropy(
                logits_nv, tokens_bt[:, start + 1 : end + 1].flatten(), reduction="none"
            )
            scores.append(-losses_n.view(len(tokens_bt), -1))
        return torch.cat(scores, 1)

    @torch.no_grad()
    def next_logits(self, tokens_bt: Tensor, cache: _Cache | None = None, places: Places | None = None) -> Tensor:  # noqa: D102
        if places is None:
            return self._logits(tokens_bt, cache, torch.tensor([tokens_bt.shape[1] - 1]))[:, 0]
        positions_k, which_n = torch.unique(places[1], return_inverse=True)
        return self._logits(tokens_bt, cache, positions_k)[places[0], which_n]

    def _logits(self, tokens_bt: Tensor, cache: _Cache | None, positions_k: Tensor) -> Tensor:
        """Return the logits after some positions of the new tokens, [b, k, v]."""
        how: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            n_seen, tokens_bt = cache.add(tokens_bt)
            if self._caches:
                cache.past = self._new_past() if cache.past is None else cache.past
                tokens_bt, how = tokens_bt[:, n_seen:], {"use_cache": True, "past_key_values": cache.past}
            else:  # such a model reads the complete texts again
                positions_k = positions_k + n_seen
        positions_k = positions_k.to(tokens_bt.device)
        if self._keeps:
            how["logits_to_keep"] = positions_k
        logits_btv: Tensor = self._model(input_ids=tokens_bt, **how).logits.float()
        return logits_btv if self._keeps else logits_btv[:, positions_k]

    def _new_past(self) -> Any:
        return self._cache(config=self._model.config)

    @torch.no_grad()
    def _check_values(self, path: str) -> None:
        for name, tensor in self._model.named_parameters():
            if not torch.isfinite(tensor).all():
                raise InputError(f"tensor '{name}' in '{path}' has values that are not finite", "copy it again")
        logits_btv = self._model(input_ids=torch.tensor([[0, 1], [0, 2]])).logits
        if not torch.allclose(logits_btv[0, 0], logits_btv[1, 0], rtol=1e-3, atol=1e-3):
            raise InputError(f"'{path}' is not causal: a token's logits depend on later tokens", "name a causal model")


class _Cache:
    """The tokens read so far, [b, t], and their keys and values if the model keeps them."""

    def __init__(self) -> None:
        self.past: Any = None
        self._seen_bt: Tensor | None = None

    def add(self, tokens_bt: Tensor) -> tuple[int, Tensor]:
        """Return the number of earlier tokens, and all tokens. One row read so far becomes that of all new rows."""
        if self._seen_bt is None:
            self._seen_bt = tokens_bt
            return 0, tokens_bt
        n, n_seen = len(tokens_bt), self._seen_bt.shape[1]
        if len(self._seen_bt) < n:
            self._seen_bt = self._seen_bt.expand(n, -1)
            if self.past is not None:
                self.past.batch_repeat_interleave(n)
        self._seen_bt = torch.cat([self._seen_bt, tokens_bt], 1)
        return n_seen, self._seen_bt


class PretrainedTokenizer:
    """A tokenizer of transformers, with as much of `webtext.tokenizer.Tokenizer` as measuring and sampling need.

    `eot_id`, which precedes each text, is that of <|endoftext|>, or else the token that begins a text (bos) or ends one
    (eos); InputError if there is none of them. Names of special tokens inside a text are encoded as text.
    """

    def __init__(self, path: str) -> None:
        with _named(path, "tokenizer"):
            self._tokenizer = _transformers().AutoTokenizer.from_pretrained(**_where(path))
            ids = self._tokenizer.get_vocab()
            state = self._tokenizer.backend_tokenizer.to_str().encode()
        self.vocab_size = max(ids.values()) + 1
        self.hash = hashlib.sha256(state).hexdigest()
        known = (ids.get(_EOT), self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        self.eot_id: int | None = next((id_ for id_ in known if id_ is not None), None)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return found

    def encode_numpy(self, text: str | bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the ids of a text, str or UTF-8, as an array."""
        return np.array(self.encode(text.decode() if isinstance(text, bytes) else text), np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text

    def decode_stream(self) -> _DecodeStream:
        """Return a decoder for ids that arrive one by one."""
        return _DecodeStream(self)


class _DecodeStream:
    """Decodes an id together with those since the last but one complete piece, because blanks depend on them."""

    def __init__(self, tokenizer: PretrainedTokenizer) -> None:
        self._tokenizer, self._ids, self._n_done = tokenizer, list[int](), 0

    def push(self, token: int) -> str:
        self._ids.append(token)
        piece = self._rest()
        if not piece or piece.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self._ids, self._n_done = self._ids[self._n_done :], len(self._ids) - self._n_done
        return piece

    def finish(self) -> str:
        return self._rest()

    def _rest(self) -> str:
        done = self._tokenizer.decode(self._ids[: self._n_done])
        return self._tokenizer.decode(self._ids)[len(done) :]


def own_tokenizer(place: Path) -> Any:
    """Return the tokenizer of a Hugging Face folder or a .gguf file; None if the folder has none.

    It is ours if that supports it and it has an end-of-text, else that of transformers.
    """
    if place.suffix != GGUF:
        if not any(path.name.startswith(_TOKENIZER_FILES) for path in place.iterdir()):
            return None
        with contextlib.suppress(InputError):  # transformers may support it
            ours = Tokenizer.load(place)
            if ours.eot_id is not None:
                return ours
    return PretrainedTokenizer(str(place))


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        raise missing_extra("transformers", EXTRA) from None
    return transformers


def _where(path: str) -> dict[str, Any]:
    """Return the arguments that name a folder or a .gguf file to transformers."""
    where = {"local_files_only": True, "trust_remote_code": False}
    if not path.endswith(GGUF):
        return {"pretrained_model_name_or_path": path, **where}
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, EXTRA)
    if not Path(path).is_file():
        raise InputError(f"no file '{path}'", "check the path")
    folder, name = os.path.split(os.path.abspath(path))
    return {"pretrained_model_name_or_path": folder, "gguf_file": name, **where}


@contextlib.contextmanager
def _named(path: str, what: str) -> Iterator[None]:
    """Turn whatever transformers raises for a damaged file into an InputError that names it; silence its progress."""
    logging = _transformers().utils.logging
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"transformers can't load the {what} in '{path}': {type(error).__name__}: {first:.200}",
            "expected config.json and model.safetensors of a causal model, or a .gguf file",
        ) from None
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


def _context(config: Any, path: str) -> int:
    text = config.get_text_config(decoder=True)
    found = [value for name in _CONTEXTS if isinstance(value := getattr(text, name, None), int) and value > 0]
    if not found:
        raise InputError(f"the config of '{path}' states no context", f"expected one of {', '.join(_CONTEXTS)}")
    return found[0]


def _check_sizes(transformers: Any, config: Any, path: str) -> None:
    """Raise InputError for a config that requires more weights than there are, before they are allocated."""
    place = Folder(path)
    if getattr(config, "quantization_config", None):
        raise InputError(
            f"'{path}' has quantized weights", "name the folder in float32, float16 or bfloat16, or a .gguf"
        )
    sizes = []
    for name in weight_files(place):
        try:
            with safe_open(place.local_path(name), framework="pt") as file:
                sizes += [math.prod(file.get_slice(key).get_shape()) for key in file.keys()]  # noqa: SIM118
        except SafetensorError as error:
            location = place.location(name)
            raise InputError(f"'{location}' is not an intact safetensors file ({error})", "copy it again") from None
    n_layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", 0)
    n = math.inf
    if isinstance(n_layers, int) and n_layers <= len(sizes):
        with _named(path, "model"), torch.device("meta"):
            n = sum(tensor.numel() for tensor in transformers.AutoModelForCausalLM.from_config(config).parameters())
    if n > sum(sizes):
        raise InputError(f"'{path}' has {sum(sizes):,} weights, fewer than its config.json requires", "copy it again")
