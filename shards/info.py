"""Figures about a token set and decoded windows of it, for the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from webtext.shards.format import SPLITS
from webtext.shards.reader import TokenShards
from webtext.shards.sampling.sampler import Sampler
from webtext.shards.trace import trace

if TYPE_CHECKING:
    from webtext.tokenizer import Tokenizer


def describe(folder: str) -> dict[str, Any]:
    """Return the tokenizer, sizes and counts of both splits as plain JSON values; reads only manifests."""
    splits = {split: TokenShards(folder, split) for split in SPLITS}
    train = splits["train"]
    return {
        "tokens": train.hash,
        "tokenizer_hash": train.tokenizer_hash,
        "vocab_size": train.vocab_size,
        "eot_id": train.eot_id,
        "splits": {
            split: {
                "shards": len(shards),
                "documents": shards.n_documents,
                "tokens": shards.n_tokens,
                "bytes": sum(header.file_bytes for header in shards.headers),
            }
            for split, shards in splits.items()
        },
        "counts": train.set.counts.to_json(),
    }


def describe_text(folder: str, found: dict[str, Any]) -> str:
    """Format what `describe` returns as a small table."""
    bytes_per_token = 2 if found["vocab_size"] <= 1 << 16 else 4
    lines = [
        f"{folder}: tokenizer {found['tokenizer_hash'][:12]}…, vocabulary {found['vocab_size']:,}, "
        f"{bytes_per_token} bytes per token",
        f"{'':12}{'shards':>8}{'documents':>14}{'tokens':>18}{'bytes':>18}",
    ]
    lines += [
        f"{split:12}{n['shards']:>8,}{n['documents']:>14,}{n['tokens']:>18,}{n['bytes']:>18,}"
        for split, n in found["splits"].items()
    ]
    return "\n".join(lines)


def empty_split(found: dict[str, Any]) -> str:
    """Return a warning if a split has no document, from the values of `describe`; else an empty string."""
    counts = {split: of["documents"] for split, of in found["splits"].items()}
    missing = next((split for split, n in counts.items() if not n), "")
    return missing and (
        f"no document is in the {missing} split, of {sum(counts.values()):,}\n"
        "  pack more documents; if they are files, also --separator or --validation-ratio may help"
    )


def verify_set(folder: str) -> dict[str, Any]:
    """Check every byte of both splits and return `describe`; raise ShardCorrupt or InputError if something is wrong."""
    for split in SPLITS:
        TokenShards(folder, split).verify()
    return describe(folder)


def sample_windows(
    shards: TokenShards, tokenizer: Tokenizer, *, n: int, context: int, seed: int
) -> list[dict[str, Any]]:
    """Return the first n windows that training with this context and seed sees, decoded, each with its origin.

    Raises InputError if another tokenizer made the tokens.
    """
    shards.check_tokenizer(tokenizer)
    stream = Sampler(shards, context=context, seed=seed).streams[0]
    places = [stream.place(sample) for sample in range(min(n, stream.n_windows))]
    return [_window(shards, tokenizer, position, length - 1) for position, length in places]


def window_at(shards: TokenShards, tokenizer: Tokenizer, shard: str, offset: int, context: int) -> dict[str, Any]:
    """Return the window that starts at `offset` of a shard, decoded; it ends at the end of the shard at the latest."""
    shards.check_tokenizer(tokenizer)
    origin = trace(shards, shard, offset)
    i = shards.names.index(origin.shard)
    length = min(context, shards.headers[i].n_tokens - offset)
    return _window(shards, tokenizer, int(shards.shard_starts[i]) + offset, length)


def _window(shards: TokenShards, tokenizer: Tokenizer, position: int, context: int) -> dict[str, Any]:
    return asdict(trace(shards, *shards.place(position))) | {
        "text": tokenizer.decode(shards.read(position, context).tolist())
    }
