"""Summary of a tokenizer: size, pattern, Unicode version, merge rule, special tokens and oddities."""

from __future__ import annotations

from typing import Any

from webtext.tokenizer.findings import remarks, unreachable, unused_ids
from webtext.tokenizer.show.visible import shown_bytes
from webtext.tokenizer.vocabulary import Vocabulary

N_LONGEST = 10
_N_SPECIAL = 12
_N_ON_A_TAG = 4
_MAX_SHOWN = 60


def overview(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return all properties as plain values; takes about as long as loading the tokenizer."""
    ids = sorted(range(len(vocabulary.tokens)), key=lambda id_: (-len(vocabulary.tokens[id_]), id_))
    return {
        "vocab_size": vocabulary.size,
        "n_text_tokens": sum(map(bool, vocabulary.tokens)),
        "n_unused_ids": len(unused_ids(vocabulary)),
        "pattern": vocabulary.pattern,
        "unicode_version": vocabulary.unicode_version,
        "rules": "ranks" if vocabulary.merges is None else "merges",
        "n_merges": len(vocabulary.merges if vocabulary.merges is not None else vocabulary.merges_by_rank()),
        "whole_pieces": vocabulary.whole_pieces,
        "special_tokens": dict(vocabulary.special_tokens),
        "unreachable": unreachable(vocabulary),
        "longest": [
            {"id": id_, "bytes": vocabulary.tokens[id_].hex(), "text": shown_bytes(vocabulary.tokens[id_])}
            for id_ in ids[:N_LONGEST]
        ],
        "remarks": remarks(vocabulary),
        "hash": vocabulary.hash(),
    }


def facts(vocabulary: Vocabulary, digest: str) -> dict[str, str]:
    """Return the main properties as strings that are safe to print, for `repr` and HTML; `digest` is its hash."""
    specials = sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
    named = ", ".join(f"{safe(name)} {id_}" for name, id_ in specials[:_N_ON_A_TAG])
    more = f" and {len(specials) - _N_ON_A_TAG:,} more" if len(specials) > _N_ON_A_TAG else ""
    return {
        "size": f"{vocabulary.size:,}",
        "pattern": safe(vocabulary.pattern),
        "Unicode": vocabulary.unicode_version,
        "special tokens": (named + more) or "none",
        "hash": digest,
    }


def overview_text(found: dict[str, Any]) -> str:
    """Format the result of `overview` as text."""
    rules = {"ranks": "any two tokens that join to a token, smallest id first", "merges": "a list, earliest first"}
    whole = "; a piece that is a token isn't merged" if found["whole_pieces"] else ""
    specials = sorted(found["special_tokens"].items(), key=lambda item: item[1])
    rows = [
        ("size", f"{found['vocab_size']:,} ids: {found['n_text_tokens']:,} tokens of text, {len(specials):,} special"),
        ("pattern", safe(found["pattern"])),
        ("Unicode", found["unicode_version"]),
        ("merges", f"{found['n_merges']:,}, {rules[found['rules']]}{whole}"),
        *(("special", f"{id_} {safe(name)}") for name, id_ in specials[:_N_SPECIAL]),
        *([("", f"and {len(specials) - _N_SPECIAL:,} more")] if len(specials) > _N_SPECIAL else []),
        ("unreachable", f"{len(found['unreachable']):,} tokens"),
        *(
            ("longest", f"{token['id']} {_cut(token['text'])} ({len(token['bytes']) // 2} bytes)")
            for token in found["longest"]
        ),
        *(("remark", remark) for remark in found["remarks"]),
        ("hash", found["hash"]),
    ]
    shown, last = [], None
    for label, value in rows:
        shown.append(f"{label if label != last else '':<12}{value}")
        last = label
    return "\n".join(shown)


def safe(text: str) -> str:
    """Escape a name or a pattern for one line of output, but keep spaces."""
    return shown_bytes(text.encode()).replace("␣", " ").replace("\\\\", "\\")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
