from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.charset import Undecodable, codec_of, decode

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5


@pytest.mark.parametrize(
    ("label", "byte", "character"),
    [("iso-8859-1", 0x93, "\u201c"), ("ascii", 0x80, "€"), ("iso-8859-9", 0xF0, "ğ"), ("tis-620", 0xA1, "ก")],
)
def test_labels_mean_what_the_encoding_standard_says(label: str, byte: int, character: str) -> None:
    assert bytes([byte]).decode(str(codec_of(label))) == character


@given(st.text())
def test_utf_8_is_read_whatever_the_header_claims(text: str) -> None:
    assert decode(text.encode(), "text/html; charset=utf-8") == text.removeprefix("\ufeff")
    if not text.isascii():
        assert decode(text.encode(), "text/html; charset=windows-1251") == text.removeprefix("\ufeff")


def test_the_byte_order_mark_goes_before_the_header_and_the_header_before_the_meta_tag() -> None:
    assert decode("ы".encode("utf-16"), "text/html; charset=koi8-r") == "ы"
    page = '<meta charset="koi8-r">' + RUSSIAN
    assert decode(page.encode("windows-1251"), "text/html; charset=windows-1251") == page
    assert decode(page.encode("koi8-r"), "text/html") == page


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (RUSSIAN, "windows-1251 koi8-r iso-8859-5 ibm866 x-mac-cyrillic"),
        ("Το πρωί το λιμάνι ήταν ήσυχο.", "windows-1253 iso-8859-7"),
        ("كان الميناء هادئا في الصباح وغادر قارب واحد.", "windows-1256 iso-8859-6"),
        ("ตอนเช้าท่าเรือเงียบ มีเรือออกไปเพียงลำเดียว", "windows-874 tis-620"),
        ("朝の港は静かで、船が一隻だけ出ていった。", "shift_jis euc-jp iso-2022-jp"),
        ("아침 항구는 조용했고 배 한 척만 떠났다.", "euc-kr"),
        ("清晨，港口只有一条船。", "gb2312 gb18030"),
        ("清晨，港口只有一條船。", "big5"),
    ],
)
def test_pages_are_decoded_by_what_they_declare(text: str, labels: str) -> None:
    for label in labels.split():
        for page in (f'<meta charset="{label}"><p>{text}', f'<?xml version="1.0" encoding="{label}"?><p>{text}</p>'):
            assert decode(page.encode(str(codec_of(label)))) == page


@pytest.mark.parametrize(
    ("text", "codecs"),
    [
        (RUSSIAN, "cp1251 koi8-r cp866 iso8859-5"),
        ("Été à la plage, le garçon est déjà là où il naît. " * 8, "cp1252 utf-16-le"),
        ("Ontem à noite não havia ninguém na estação, e o avião já tinha partido. " * 8, "cp1252"),
        ("Eilen illalla asemalla ei ollut ketään, ja lentokone oli jo lähtenyt pois. " * 8, "cp1252"),
        (
            "Wczoraj wieczorem na stacji nie było nikogo, a samolot już odleciał, więc wróciłem. " * 8,
            "iso8859-2 cp1250",
        ),
        ("아침 항구는 조용했고 배 한 척만 떠났다. " * 8, "cp949"),
        ("朝の港は静かで、船が一隻だけ出ていった。" * 8, "cp932 euc-jp"),
    ],
)
def test_the_charset_of_a_page_without_a_declaration_is_detected(text: str, codecs: str) -> None:
    page = f"<p class=intro>{text}</p>"
    assert [decode(page.encode(codec)) == page for codec in codecs.split()] == [True] * len(codecs.split())


def test_an_unknown_label_is_ignored() -> None:
    assert codec_of("no-such-charset") is None
    assert codec_of("rot13") is None
    assert decode("naïve".encode(), "text/html; charset=no-such-charset") == "naïve"


@pytest.mark.parametrize("label", ["punycode", "idna", "utf-7", "unicode_escape", "raw_unicode_escape", "cp437", "hz"])
def test_codecs_that_only_python_has_are_unknown_labels(label: str, linear_time: None) -> None:
    """Punycode took 12.5 s for 300 KB, in time quadratic in the length."""
    assert codec_of(label) is None
    body = b"<p>" + b"abc-" * 100_000 + b"z" * 3_000_000
    assert decode(body, f"text/html; charset={label}") == body.decode()
    assert decode(f'<meta charset="{label}">'.encode() + body).endswith("z")
    xml = f'<?xml version="1.0" encoding="{label}"?>'.encode() + "é".encode("latin-1") + body
    assert decode(xml).endswith("z")


LABELS = """x-mac-cyrillic=mac-cyrillic csISO88598I=iso8859-8 unicode-1-1-utf-8=utf-8 ks_c_5601-1987=cp949 X-SJIS=cp932
big5=big5-hkscs chinese=gb18030 iso-10646-ucs-2=utf-16-le koi=koi8-r 866=cp866 latin-1= = replacement= iso-2022-kr="""


@pytest.mark.parametrize("pair", LABELS.split())
def test_labels_are_those_of_the_standard_and_no_others(pair: str) -> None:
    label, codec = pair.split("=")
    assert codec_of(label) == (codec or None)


def test_japanese_in_seven_bits_is_decoded() -> None:
    page = "<p>日本語のページです。</p>"
    assert decode(page.encode("iso2022_jp"), "text/html; charset=ISO-2022-JP") == page


def test_a_few_bad_bytes_cost_only_themselves() -> None:
    body = ("é" * 500).encode() + b"\xff" + b"." * 500
    assert decode(body, "text/html; charset=utf-8") == "é" * 500 + "\ufffd" + "." * 500


def test_bytes_that_are_not_text_are_rejected() -> None:
    with pytest.raises(Undecodable):
        decode(b"\xfe\xff" + b"\xd8\x00" * 1000)


def test_real_pages_of_many_charsets_are_decoded_by_what_they_declare(shared_data: Path) -> None:
    """chardet's corpus: the folder names the charset. XML and HTML files mostly declare it themselves."""
    right = total = 0
    with tarfile.open(shared_data / "crawl" / "charset" / "chardet_tests.tar.gz") as archive:
        for member in archive:
            path = Path(member.name)
            if not member.isfile() or len(path.parts) != 3 or path.suffix not in (".xml", ".html"):
                continue
            codec = codec_of(re.sub(r"-[a-z]{5,}$", "", path.parts[1]))  # "iso-8859-2-hungarian"
            body = archive.extractfile(member).read()  # type: ignore[union-attr]
            try:
                wanted = body.decode(codec) if codec else None
            except UnicodeDecodeError:
                wanted = None
            if wanted is not None:
                total += 1
                right += decode(body) == wanted.removeprefix("\ufeff")
    assert total > 200
    assert right / total > 0.9
