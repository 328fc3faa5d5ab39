"""A vocabulary as an object of other libraries, transformers' tokenizer and tiktoken's encoding, and in transformers' words.

What a tokenizer_config.json says, such as the chat template, changes no ids. It is kept in `Vocabulary.extras`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webtext.base.errors import InputError, MachineError
from webtext.tokenizer.formats import ranks, tokenizer_json
from webtext.tokenizer.patterns.named import REGEXES
from webtext.tokenizer.vocabulary import EOT, Vocabulary

if TYPE_CHECKING:
    import tiktoken

logger = logging.getLogger(__name__)

_ENDS = ("bos_token", "eos_token", "unk_token")
_KEPT = (
    *_ENDS,
    *("sep_token", "pad_token", "cls_token", "mask_token"),
    *("model_max_length", "padding_side", "truncation_side", "chat_template"),
)


def config_of(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the arguments of transformers' tokenizer; <|endoftext|> begins and ends texts, as in GPT-2, if none does."""
    config = {"clean_up_tokenization_spaces": False, **vocabulary.extras.get("tokenizer_config", {})}
    if EOT in vocabulary.special_tokens and config.keys().isdisjoint(_ENDS):
        config |= dict.fromkeys(_ENDS, EOT)
    return config


def kept_config(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a tokenizer_config.json that is written again, with tokens by their names."""
    return {
        key: value.get("content") if isinstance(value := found[key], dict) else value for key in _KEPT if key in found
    }


def huggingface_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast`, as it would load the tokenizer's folder."""
    try:
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast
    except ModuleNotFoundError as error:
        raise _missing(error.name, "transformers") from None
    if remark := ranks.about_ranks(vocabulary):
        logger.warning("tokenizers: %s", remark)
    make: Any = PreTrainedTokenizerFast
    tokenizer = Tokenizer.from_str(tokenizer_json.dump(vocabulary).decode())
    return make(tokenizer_object=tokenizer, **config_of(vocabulary))


def tiktoken_encoding(vocabulary: Vocabulary) -> tiktoken.Encoding:
    """Return a `tiktoken.Encoding`. InputError unless it has all rules that give the ids."""
    try:
        import tiktoken
    except ModuleNotFoundError as error:
        raise _missing(error.name, "tiktoken") from None
    if vocabulary.pattern not in REGEXES:
        raise InputError(
            "tiktoken's expressions differ from those of this tokenizer's own pattern", "use to_huggingface()"
        )
    for name, longer in itertools.pairwise(sorted(vocabulary.special_tokens)):
        if longer.startswith(name):
            raise InputError(f"tiktoken may find {name!r} where a text has {longer!r}", "use to_huggingface()")
    ranks.check(vocabulary, "tiktoken")
    return tiktoken.Encoding(
        vocabulary.pattern,
        pat_str=REGEXES[vocabulary.pattern],
        mergeable_ranks={token: id_ for id_, token in enumerate(vocabulary.tokens) if token},
        special_tokens=dict(vocabulary.special_tokens),
    )


def _missing(name: str | None, package: str) -> MachineError:
    return MachineError(f"the package '{name}' is not installed", f"install it with: pip install {package}")
