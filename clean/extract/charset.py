"""Decode bytes to text like a browser; detect the encoding if the page declares none or a wrong one.

The order is: byte order mark; valid UTF-8 with a non-ASCII character (text in another encoding is hardly ever valid
UTF-8, while servers often declare a wrong encoding); the HTTP header; the `<meta>` tag; detection; windows-1252.
Labels have the meaning of the WHATWG Encoding Standard: "iso-8859-1" and "ascii" are windows-1252, "gb2312" is gb18030.
"""

from __future__ import annotations

import codecs
import re

from webtext.base.inputs.encodings import detected

META_BYTES = 4096  # the standard looks at 1,024 bytes; pages put long comments and scripts before the tag
MAX_REPLACED_RATIO = 0.1  # above this share of undecodable characters, the body is not text

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,512}?(?:charset|encoding)\s*=\s*["']?\s*([\w:.()-]{2,40})""", re.IGNORECASE
)
_PARAMETER = re.compile(r"""charset\s*=\s*["']?\s*([\w:.()-]{2,40})""", re.IGNORECASE)

# Python's codec -> the codec that covers everything in the standard's encoding of this label, if it differs.
_WIDER = {
    "cp1252": "windows-1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5-hkscs",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "iso8859-11": "cp874",
}
_NOT_MAPPED = {"x-mac-cyrillic": "mac-cyrillic", "x-mac-ukrainian": "mac-cyrillic"}  # missing in resiliparse


class Undecodable(ValueError):
    """The body is not text in any encoding that was tried."""


def decode(body: bytes, content_type: str = "") -> str:
    """Decode a body to text, without a byte order mark; raises Undecodable if too many characters are invalid.

    >>> decode("naïve".encode("latin-1"), "text/html; charset=ISO-8859-1")
    'naïve'
    """
    for bom, codec in _BOMS:
        if body.startswith(bom):
            return _checked(body[len(bom) :].decode(codec, "replace"))
    header = _PARAMETER.search(content_type)
    declared = [codec for codec in (header and codec_of(header[1]), _meta_codec(body)) if codec]
    if body.isascii() and not any(codec.startswith(("utf-16", "iso2022")) for codec in declared):
        return body.decode("ascii")
    for codec in ["utf-8", *declared] if not body.isascii() else declared:
        try:
            return body.decode(codec)
        except UnicodeDecodeError:
            continue
    for codec in declared:  # a few bad bytes don't disprove the declared encoding
        text = body.decode(codec, "replace")
        if text.count("\ufffd") <= 0.01 * len(text):
            return text
    return _checked(body.decode(_detected(body), "replace"))


def codec_of(label: str) -> str | None:
    """Return Python's codec for a WHATWG label, else None, because some of Python's codecs take quadratic time.

    >>> codec_of(" Latin1 "), codec_of("punycode")
    ('windows-1252', None)
    """
    from resiliparse.parse.encoding import map_encoding_to_html5

    name = label.strip().lower()
    codec = map_encoding_to_html5(name, fallback_utf8=False) or _NOT_MAPPED.get(name)
    return _WIDER.get(codec, codec) if codec else None


def _meta_codec(body: bytes) -> str | None:
    match = _META.search(body[:META_BYTES])
    codec = codec_of(match[1].decode("ascii", "replace")) if match else None
    return "utf-8" if codec and codec.startswith("utf-16") else codec  # in UTF-16 the tag wouldn't have been found


def _detected(body: bytes) -> str:
    if 20 * body.count(0) > len(body):
        return "utf-16-le" if body[1::2].count(0) > body[::2].count(0) else "utf-16-be"
    return detected(re.sub(rb"<[^<>]*>", b" ", body))  # markup is ASCII in nearly every encoding


def _checked(text: str) -> str:
    replaced = text.count("\ufffd")
    if replaced > MAX_REPLACED_RATIO * len(text):
        raise Undecodable(f"{replaced:,} of {len(text):,} characters are none")
    return text
