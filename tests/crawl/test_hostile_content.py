"""Files labelled as pages, pages with a wrong label, and pages whose sites opt out."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hostile_answers import answer

pytestmark = pytest.mark.usefixtures("wire")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def test_files_of_other_types_are_recognised_by_their_first_bytes(outcomes: Any) -> None:
    rows = outcomes(
        {
            "an image as HTML": answer(PNG),
            "a PDF as HTML": answer(b"%PDF-1.7 ..."),
            "a PDF without type": b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n%PDF-1.7 ...",
            "an image as an image": answer(PNG, "Content-Type: image/png"),
        }
    )
    assert {row["reason"] for row in rows.values()} == {"not_text"}
    assert rows["an image as HTML"]["cause"] == "begins as image/png"
    assert rows["an image as an image"]["cause"] == "Content-Type: image/png"


TEXT = "<html><meta charset=koi8-r>grüße, мир"


def test_pages_without_type_or_with_a_wrong_charset_are_stored_byte_for_byte(outcomes: Any, bodies: Any) -> None:
    pages = {
        "no type": (b"<html>words", None),
        "UTF-7": (TEXT.encode("utf-7"), "utf-7"),
        "UTF-16 without a mark": (TEXT.encode("utf-16-le"), "utf-16"),
        "a charset that is not so": (TEXT.encode(), "iso-8859-1"),
        "a charset that does not exist": (TEXT.encode(), "klingon"),
        "a byte order mark": (b"\xef\xbb\xbf" + TEXT.encode(), None),
    }
    plan: dict[str, Any] = {}
    for name, (body, charset) in pages.items():
        if name == "no type":
            plan[name] = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        else:
            plan[name] = answer(body, f"Content-Type: text/html; charset={charset}" if charset else "X: y")
    rows = outcomes(plan)
    assert {row["reason"] for row in rows.values()} == {None}
    stored = bodies()
    assert {name: stored[row["url"]] for name, row in rows.items()} == {name: body for name, (body, _) in pages.items()}


def test_opt_outs_in_headers_are_obeyed_and_recorded(outcomes: Any) -> None:
    plan = {
        "noindex_header": answer(b"<html>", "X-Robots-Tag: noindex"),
        "noai_header": answer(b"<html>", "X-Robots-Tag: noarchive, noai"),
        "tdm_reserved": answer(b"<html>", "TDM-Reservation: 1", "TDM-Policy: https://example.org/policy.json"),
        "content_signal_no_training": answer(b"<html>", "Content-Signal: search=yes, ai-train=no"),
    }
    rows = outcomes(plan)
    assert {name: row["reason"] for name, row in rows.items()} == {name: name for name in plan}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
    off = dict.fromkeys(("obey_noindex", "obey_noai", "obey_tdm_reservation", "obey_content_signal"), False)
    rows = outcomes(plan, "all", **off)
    assert {row["reason"] for row in rows.values()} == {None}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}


def test_opt_outs_in_meta_tags_are_obeyed_and_recorded_before_a_body_is_written(outcomes: Any, bodies: Any) -> None:
    noai = b'<html><head><meta name="robots" content="noai"></head><body>'
    plan = {
        "noai_meta": answer(noai),
        "noindex_meta": answer(gzip.compress(noai.replace(b"noai", b"noindex")), "Content-Encoding: gzip"),
        "tdm_reserved": answer(b"<html><head><meta content=1 name=tdm-reservation></head><body>"),
    }
    rows = outcomes(plan)
    assert {name: row["reason"] for name, row in rows.items()} == {name: name for name in plan}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
    assert {row["outcome"] for row in rows.values()} == {"refused"}
    assert bodies() == {}
    rows = outcomes(plan, "all", obey_noai=False, obey_noindex=False, obey_tdm_reservation=False)
    assert {row["reason"] for row in rows.values()} == {None}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
