"""A vocabulary as an object of other libraries: transformers' tokenizer and tiktoken's encoding."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from webtext.base.errors import InputError, MachineError
from webtext.tokenizer.findings import about_ranks
from webtext.tokenizer.formats import ranks, tokenizer_json
from webtext.tokenizer.patterns.named import REGEXES
from webtext.tokenizer.vocabulary import EOT, Vocabulary

if TYPE_CHECKING:
    import tiktoken

logger = logging.getLogger(__name__)


def huggingface_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast`; <|endoftext|> begins and ends texts, as in GPT-2."""
    try:
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast
    except ModuleNotFoundError as error:
        raise _missing(error.name, "transformers") from None
    ends = dict.fromkeys(("bos_token", "eos_token"), EOT) if EOT in vocabulary.special_tokens else {}
    for remark in about_ranks(vocabulary):
        logger.warning("tokenizers: %s", remark)
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=Tokenizer.from_str(tokenizer_json.dump(vocabulary).decode()),
        clean_up_tokenization_spaces=False,
        **ends,
    )


def tiktoken_encoding(vocabulary: Vocabulary) -> tiktoken.Encoding:
    """Return a `tiktoken.Encoding`. InputError unless the pattern is a named one and merging by rank gives the ids."""
    try:
        import tiktoken
    except ModuleNotFoundError as error:
        raise _missing(error.name, "tiktoken") from None
    if vocabulary.pattern not in REGEXES:
        raise InputError(
            "tiktoken's expressions differ from those of this tokenizer's own pattern", "use to_huggingface()"
        )
    ranks.check(vocabulary, "tiktoken")
    return tiktoken.Encoding(
        vocabulary.pattern,
        pat_str=REGEXES[vocabulary.pattern],
        mergeable_ranks={token: id_ for id_, token in enumerate(vocabulary.tokens) if token},
        special_tokens=dict(vocabulary.special_tokens),
    )


def _missing(name: str | None, package: str) -> MachineError:
    return MachineError(f"the package '{name}' is not installed", f"install it with: pip install {package}")
