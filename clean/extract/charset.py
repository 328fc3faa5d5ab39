"""Bytes to text as browsers do it, with a guess where the page says nothing or something untrue.

Order: byte order mark; valid UTF-8 with a character beyond ASCII (bytes in any other encoding are hardly ever valid UTF-8,
while servers often declare the wrong one); the HTTP header; the `<meta>` tag; then detection, then windows-1252.
Labels mean what the WHATWG Encoding Standard says: "iso-8859-1" and "ascii" are windows-1252, "gb2312" is gb18030.
"""

from __future__ import annotations

import codecs
import re

META_BYTES = 4096  # the standard looks at 1,024 bytes; pages put long comments and scripts before the tag
DETECTION_BYTES = 16_384
MAX_REPLACED_RATIO = 0.1  # above this share of characters that decode to nothing, the body is no text

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,512}?(?:charset|encoding)\s*=\s*["']?\s*([\w:.()-]{2,40})""", re.IGNORECASE
)
_PARAMETER = re.compile(r"""charset\s*=\s*["']?\s*([\w:.()-]{2,40})""", re.IGNORECASE)

# Label -> Python's codec, where the standard differs from Python's own alias (https://encoding.spec.whatwg.org/#names-and-labels).
_WHATWG = {
    "windows-1252": "ascii us-ascii iso-8859-1 iso8859-1 iso_8859-1 latin1 latin-1 l1 ansi_x3.4-1968 cp819 x-cp1252",
    "windows-1254": "iso-8859-9 iso8859-9 iso_8859-9 latin5 l5 x-cp1254",
    "windows-874": "iso-8859-11 iso8859-11 tis-620 dos-874",
    "gb18030": "gb2312 gbk gb_2312 gb_2312-80 x-gbk chinese csgb2312 iso-ir-58",
    "big5-hkscs": "big5 big5-hkscs cn-big5 x-x-big5 csbig5",
    "cp949": "euc-kr euc_kr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949",
    "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji ms932 windows-31j csshiftjis",
    "euc_jp": "x-euc-jp",
    "mac-roman": "macintosh x-mac-roman mac",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "utf-16-le": "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2 csunicode",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-8": "utf8 unicode-1-1-utf-8 x-unicode20utf8",
}
_CODECS = {label: codec for codec, labels in _WHATWG.items() for label in labels.split()}
_PYTHON_NAMES = {"windows-874": "cp874"}


class Undecodable(ValueError):
    """The body is no text in any encoding that was tried."""


def decode(body: bytes, content_type: str = "") -> str:
    """The body as text, without byte order mark; Undecodable when too much of it is no character.

    >>> decode("naïve".encode("latin-1"), "text/html; charset=ISO-8859-1")
    'naïve'
    """
    for bom, codec in _BOMS:
        if body.startswith(bom):
            return _checked(body[len(bom) :].decode(codec, "replace"))
    declared = [codec for codec in (_header_codec(content_type), _meta_codec(body)) if codec]
    if body.isascii() and not any(codec.startswith(("utf-16", "iso2022", "hz")) for codec in declared):
        return body.decode("ascii")
    for codec in ["utf-8", *declared] if not body.isascii() else declared:
        try:
            return body.decode(codec)
        except UnicodeDecodeError:
            continue
    for codec in declared:  # a few bad bytes in a page that says what it is
        text = body.decode(codec, "replace")
        if text.count("\ufffd") <= 0.01 * len(text):
            return text
    return _checked(body.decode(_detected(body), "replace"))


def codec_of(label: str) -> str | None:
    """Python's codec for a WHATWG label; None for an unknown one.

    >>> codec_of(" Latin1 ")
    'windows-1252'
    """
    name = label.strip().lower()
    name = _CODECS.get(name, name)
    name = _PYTHON_NAMES.get(name, name)
    try:
        return name if codecs.lookup(name)._is_text_encoding else None
    except LookupError:
        return None


def _header_codec(content_type: str) -> str | None:
    match = _PARAMETER.search(content_type)
    return codec_of(match[1]) if match else None


def _meta_codec(body: bytes) -> str | None:
    match = _META.search(body[:META_BYTES])
    codec = codec_of(match[1].decode("ascii", "replace")) if match else None
    return (
        "utf-8" if codec and codec.startswith("utf-16") else codec
    )  # bytes in which the tag can be read are not UTF-16


def _detected(body: bytes) -> str:
    from charset_normalizer import from_bytes

    # Markup is ASCII in nearly every encoding and drowns what tells them apart: look at the bytes beyond it.
    sample = re.sub(rb"<[^<>]*>", b" ", body)
    beyond_ascii = re.search(rb"[\x80-\xff]", sample)
    start = max(0, beyond_ascii.start() - 256) if beyond_ascii else 0
    best = from_bytes(sample[start : start + DETECTION_BYTES]).best()
    codec = codec_of(best.encoding) if best is not None else None
    return codec or "windows-1252"


def _checked(text: str) -> str:
    replaced = text.count("\ufffd")
    if replaced > MAX_REPLACED_RATIO * len(text):
        raise Undecodable(f"{replaced:,} of {len(text):,} characters are none")
    return text
