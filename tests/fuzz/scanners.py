"""Any text or bytes, cut by the native scanner of each pattern.

- The pieces are those of the pattern's regular expression, in every Unicode version.
- Encoding at once gives the ids of encoding these pieces.

WEBTEXT_SIMD chooses the instructions, as in every process: fuzz this target with avx512, avx2 and scalar.
"""

from __future__ import annotations

import functools
from itertools import accumulate, pairwise

from choices import Choices

from webtext.tokenizer import Vocabulary, _bpe
from webtext.tokenizer.patterns.named import REGEXES, cut
from webtext.tokenizer.text import bytes_of_piece, readable

ALPHABETS = (
    "aZséßſKǅʰª中のЁж한हא𝒳0٣१9Ⅷ²①〇𝟗 \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u3000"
    "_.'’!/\u0301\u0903\u180e\x00\x1c\u200b\u200d\ufeff\u20dd😀\ud7ff\ue000\U0010ffff",
    "'sStTmMdDlLvVrReE \n",
    "  \n\t\r\u3000ab1!/é",
    "abcXYZéЖ中\u0301ʰǅ 's",
)


def check(data: bytes) -> None:
    choices = Choices(data)
    pattern = list(REGEXES)[choices.below(len(REGEXES))]
    version = _bpe.UNICODE_VERSIONS[choices.below(len(_bpe.UNICODE_VERSIONS))]
    style = choices.below(len(ALPHABETS) + 2)
    if style < len(ALPHABETS):
        text = _in_runs(choices, ALPHABETS[style]).encode()
    elif style == len(ALPHABETS):
        text = choices.rest()
    else:
        codes = iter(choices.rest())
        text = "".join(chr(code % 0xD800) for code in (a << 8 | b for a, b in zip(codes, codes, strict=False))).encode()

    pieces = [bytes_of_piece(piece) for piece in cut(pattern, readable(text), version)]
    ends = list(accumulate(map(len, pieces)))
    assert _bpe.piece_ends(text, pattern, version).tolist() == ends
    encoder = _encoder(pattern, version)
    assert encoder.encode(text) == encoder.encode_pieces(text, ends)
    assert encoder.decode(encoder.encode(text)) == text
    places = [0, *(ends[choices.below(len(ends))] for _ in range(2)), len(text)] if ends else [0]
    for begin, end in pairwise(sorted(places)):
        assert encoder.count(text[begin:end]) == len(encoder.encode(text[begin:end]))


def _in_runs(choices: Choices, alphabet: str) -> str:
    """Return a character for each byte; one above 223 repeats the character before it."""
    text = ""
    while choices:
        byte = choices.below(256)
        text += alphabet[byte % len(alphabet)] if byte < 224 else text[-1:] * (byte - 220)
    return text


@functools.cache
def _encoder(pattern: str, version: str) -> _bpe.Bpe:
    """Return an encoder of single bytes and some pairs, among them pairs of which one half is a blank."""
    letters = b" aeilorst's1!\n\xc3\xa9\xe4\xb8\xad\x80"
    tokens = [bytes([byte]) for byte in range(256)] + [bytes([a, b]) for a in set(letters) for b in set(letters)]
    tokens += [b"  " * n for n in range(2, 9)] + [a + b for a in tokens[256:300] for b in tokens[256:300]]
    tokens = list(dict.fromkeys(tokens))
    return Vocabulary(tokens=tokens, merges=None, pattern=pattern, unicode_version=version, whole_pieces=True).native()
