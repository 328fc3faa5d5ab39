"""The scanners that read 64 bytes at once cut like the regular expression, wherever a rule applies in a block."""

from __future__ import annotations

import pytest

from webtext.tokenizer import _bpe
from webtext.tokenizer.patterns.named import REGEXES, cut

from .conftest import native_pieces
from .fuzz import random_bytes, random_texts, texts_at_batch_edges

every_pattern = pytest.mark.parametrize("pattern", sorted(REGEXES))

BLOCK = 64
BEFORE = "he, x1 "  # the first block begins with the text, so the length of what precedes a rule is its place
RULES = [
    *("'s", "'ll", "'LL", "'lL", "'re", "'Ve", "'d", "'sx", "'sX", "'ſ", "a's's", "a's's's", "a'sb's", "a''s", " 's"),
    *("a'", "a'\u0301", "’s", "don’t", "1's", "中's", "!'s", "'s'", "'s\u0301b", "A'LLb", "A'lLb", "\u0301's"),
    *("!a", "!!a", " !a", "\t!a", "’a", "“a", "’’a", " ’a", "!\u0301a", "!!\u0301a", "\u3000a", "\xa0a", "\n\u0301a"),
    *("1234567", "12345678 9", "1²３４5", "①②③④⑤", "a1b", " 12", "²", "1,234"),
    *("  a", "   1", " \t!", "\xa0\xa0a", " \u3000a", "\u3000\u3000", "\x85 ", "a \xa0"),
    *("\n\u3000\u3000a", "\xa0 \xa0"),
    *("\n", "\n\n  ", "\n  \n", "\n  \n  a", " \n \n b", "\r\n\r\n", "\n \r\t\n\n \tx", "\v\n\fa"),
    *("a\n \n", "\n    if"),
    *("!\n", "!\n\n a", "!\n  \n a", "!\r\n!", "!/\n/a", "!\n/a", "!\n//!", ";\n\n/\n", " !\n a"),
    *("/\n\n", "!\n\u3000a"),
    *("aB", "aBcD", "HTMLParser", "ABc", "éÉ", "жЖж", "中B", "中Bc", "A中B", "A中Bc", "aʰB", "ʰʰA ", "ǅa"),
    *("aǅ", "中\u0301A"),
    *("中文字", "हिन्दी", "\u0301a", "a\u0301\u0301", "\ufeffa", "😀a", "😀😀a", "𝒳a", "\x00a"),
    *("ab" * 40, "é" * 40, "9" * 70),
    *(" " * 70, "\n" * 70, "!" * 70, "\u3000" * 30, "a\n" + " " * 70 + "b", "a\n" + " " * 70 + "\n", "aB" * 40),
]


@every_pattern
def test_every_rule_holds_at_every_place_of_a_block(pattern: str) -> None:
    """Compared with the scanner of single characters, which is compared with the expression at some places."""
    for text_after in ("", " x"):
        for rule in RULES:
            for place in range(BLOCK + 1):
                data = ((BEFORE * BLOCK)[:place] + rule + text_after).encode()
                *better, expected = (native_pieces(data, pattern, simd=simd) for simd in _bpe.SIMD_LEVELS)
                assert all(pieces == expected for pieces in better), (place, data)
                if place % 32 == 0:
                    assert expected == [piece.encode() for piece in cut(pattern, data.decode())]


@every_pattern
def test_all_instruction_sets_cut_alike(pattern: str) -> None:
    texts = [
        *random_bytes(3000, seed=7),
        *(text.encode() for text in [*random_texts(6000, 8), *texts_at_batch_edges()]),
    ]
    for data in [*texts, b"".join(texts)]:
        expected = _bpe.piece_ends(data, pattern, simd="scalar").tobytes()
        for simd in _bpe.SIMD_LEVELS[:-1]:
            assert _bpe.piece_ends(data, pattern, simd=simd).tobytes() == expected, (simd, data[:500])


def test_only_instruction_sets_of_this_machine_are_accepted() -> None:
    assert _bpe.SIMD_LEVELS[-1] == "scalar"
    with pytest.raises(ValueError, match="no instruction set sse2 here; expected one of SIMD_LEVELS"):
        _bpe.piece_ends(b"", simd="sse2")
