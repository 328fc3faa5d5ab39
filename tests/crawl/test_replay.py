"""Pages from the user's WARC files."""

from __future__ import annotations

import base64
import gzip
import hashlib
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from warc_exchanges import page, record, revisit_record

from webtext.base.errors import InputError, MachineError
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.crawl.archives import replay as warc_replay
from webtext.crawl.fetch.robots.robots_txt import TDM_PATH

PROFILE_1_1 = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"


def write(path: Path, *records: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(records))


def test_records_are_copied_byte_for_byte(replay: Any, web: Any, tmp_path: Path) -> None:
    chunked, odd = web.url("/chunked"), web.url("/odd")
    blocks = {
        chunked: page(b"6\r\n<html>\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
        odd: b"HTTP/1.0 200 fine\nContent-Type:text/html\nX-Folded: a\n b\n\n<html>odd</html>",
    }
    records = (record(url, block, "2010-01-01T00:00:00Z") for url, block in blocks.items())
    rows = replay([chunked, odd], *records)
    assert {(row["outcome"], row["source"], row["requests"]) for row in rows.values()} == {("fetched", "warc", 0)}
    for url, row in rows.items():
        member = (tmp_path / "pages" / row["warc_file"]).read_bytes()[row["warc_offset"] :][: row["warc_length"]]
        assert gzip.decompress(member).split(b"\r\n\r\n", 1)[1] == blocks[url] + b"\r\n\r\n"
    found = {response.url: response for response in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz")}
    assert found[chunked].body(1000) == b"<html>"
    assert found[odd].warc_headers.get("WARC-Source-URI") == "<urn:x:1>"
    assert found[odd].date == "2010-01-01T00:00:00Z"


def test_the_nearest_undamaged_page_is_taken_and_redirects_are_followed(replay: Any, web: Any, tmp_path: Path) -> None:
    moved, end, hurt, gone = (web.url(path) for path in ("/moved", "/end", "/hurt", "/gone"))
    wrong = {"WARC-Payload-Digest": "sha1:" + "A" * 32}
    records = [
        record(moved, page(b"", b"Location: /end", status=b"301 Moved")),
        record(end, page(b"<html>late</html>"), "2009-01-01T00:00:00Z"),
        record(end, page(b"<html>near</html>"), "2002-01-01T00:00:00Z"),
        record(end, page(b"", status=b"500 Oops")),
        record(hurt, page(b"<html>hurt</html>"), **wrong),
        record(hurt, page(b"<html>whole</html>"), "2003-01-01T00:00:00Z"),
    ]
    (tmp_path / "old").mkdir()
    (tmp_path / "old/a.warc.gz").write_bytes(b"".join(records[:3]))
    (tmp_path / "old/b.warc.gz").write_bytes(b"".join(records[3:]))
    rows = replay([moved, hurt, gone], tmp_path / "old")
    assert (rows[moved]["outcome"], rows[moved]["final_url"], rows[moved]["redirects"]) == ("fetched", end, [moved])
    assert rows[moved]["captured"] == 1009843200
    assert rows[hurt]["captured"] == 1041379200
    assert (rows[gone]["outcome"], rows[gone]["reason"]) == ("failed", "not_archived")


@pytest.mark.parametrize(
    "fields", [{"WARC-Truncated": "length"}, {"WARC-Segment-Number": "1", "WARC-Payload-Digest": "sha1:" + "A" * 32}]
)
def test_a_truncated_capture_comes_last_and_its_copy_says_so(
    fields: dict[str, str], replay: Any, web: Any, tmp_path: Path
) -> None:
    """The first of a response's segments is one, with a digest of the entire body. Only it is a capture."""
    both, cut = web.url("/both"), web.url("/cut")
    records = [record(url, page(b"<html>" + url.encode()), **fields) for url in (both, cut)]
    records += [record(cut, b"the rest", **{"WARC-Type": "continuation", "WARC-Segment-Number": "2"})]
    rows = replay([both, cut], *records, record(both, page(b"<html>all"), "2009-01-01T00:00:00Z"))
    assert [rows[url]["captured"] for url in (both, cut)] == [1_230_768_000, 978_307_200]
    found = {each.url: each for each in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz")}
    assert [found[url].warc_headers.get("WARC-Truncated") for url in (both, cut)] == ["", "length"]


SAME = b"<html>the same words</html>"
DIGEST = base64.b32encode(hashlib.sha1(SAME).digest()).decode()
FIRST, AGAIN = "1985-01-01T00:00:00Z", "1975-01-01T00:00:00Z"  # the second is nearer to the vote


@pytest.mark.parametrize("chunked", [False, True])
def test_other_crawlers_revisits_are_pages_wherever_the_original_is(
    replay: Any, chunked: bool, web: Any, tmp_path: Path
) -> None:
    """The original may be of another URL or of the same one: the page had the same text at that time."""
    one, other = web.url("/one"), web.url("/other")
    block = page(b"1b\r\n" + SAME + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked") if chunked else page(SAME)
    write(
        tmp_path / "first/a.warc.gz", record(one, block, FIRST), record(one, page(b"<html>new"), "1986-01-01T00:00:00Z")
    )
    write(
        tmp_path / "second/b.warc.gz",
        revisit_record(other, AGAIN, one, FIRST, DIGEST),
        revisit_record(one, AGAIN, one, FIRST, DIGEST, WARC_Profile=PROFILE_1_1),
    )
    rows = replay([one, other], tmp_path / "first", tmp_path / "second")
    assert {row["captured"] for row in rows.values()} == {157766400}
    for found in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz"):
        assert (found.body(1000), found.http_headers.get("X-Seen")) == (SAME, "again")


@pytest.mark.parametrize(
    "doubt",
    [
        {"digest": "A" * 32},
        {"digest": ""},
        {"original_date": "1985-01-01T00:00:01Z"},
        {"of": ""},
        {"WARC_Profile": "http://netpreserve.org/warc/1.1/revisit/server-not-modified"},
        {"WARC_Profile": ""},
        {"Content_Length": "0"},
        {"WARC_Block_Digest": "sha1:" + "A" * 32},
    ],
    ids=lambda doubt: " ".join(map("=".join, doubt.items())),
)
def test_an_ambiguous_revisit_is_skipped(replay: Any, doubt: dict[str, str], web: Any) -> None:
    one, other = web.url("/one"), web.url("/other")
    revisit = {"date": AGAIN, "of": one, "original_date": FIRST, "digest": DIGEST} | doubt
    records = [record(one, page(SAME), FIRST), *(revisit_record(url, **revisit) for url in (one, other))]
    rows = replay([one, other], *records)
    assert (rows[one]["outcome"], rows[one]["captured"]) == ("fetched", 473385600), "the next best"
    assert rows[other]["reason"] in ("not_archived", "archive_damaged")


def test_an_arc_file_is_an_error_that_says_how_to_convert_it(replay: Any, web: Any, tmp_path: Path) -> None:
    block = b"HTTP/1.1 200 OK\r\n\r\n<html>old"
    line = f"{web.url('/one')} 127.0.0.1 20050102030405 text/html {len(block)}\n".encode()
    (tmp_path / "a.arc").write_bytes(b"filedesc://a.arc 0.0.0.0 20050102030405 text/plain 0\n\n" + line + block)
    with pytest.raises(InputError, match=r"a\.arc' is an ARC file.*\nconvert it first"):
        replay([web.url("/one")], tmp_path / "a.arc")


def test_revisits_of_revisits_end(replay: Any, web: Any) -> None:
    one, other = web.url("/one"), web.url("/other")
    data = [revisit_record(one, FIRST, other, AGAIN, DIGEST), revisit_record(other, AGAIN, one, FIRST, DIGEST)]
    rows = replay([one, other], *data)
    assert {row["reason"] for row in rows.values()} == {"not_archived"}


def test_a_redirect_to_another_spelling_of_itself_is_followed_once(replay: Any, web: Any) -> None:
    url = web.url("/a")
    [row] = replay([url], record(url, page(b"", b"Location: /a/", status=b"301 Moved"), FIRST)).values()
    assert (row["reason"], row["redirects"]) == ("not_archived", [url])


@pytest.mark.parametrize("given", ["", "<>", "<no uri>", "<urn:x:\x1b[2J>", "<urn:x:a> b", "<urn:x:a>\u00e9"])
def test_a_record_whose_id_is_not_a_uri_is_damaged(given: str, replay: Any, web: Any) -> None:
    url = web.url("/a")
    [row] = replay([url], record(url, page(), **{"WARC-Record-ID": given})).values()
    assert (row["outcome"], row["cause"]) == ("failed", "the record has no valid WARC-Record-ID")


def test_a_crawl_delay_does_not_apply_to_archived_pages_but_opt_outs_do(
    replay: Any, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site is asked for its two files only, at the longest delay that is obeyed."""
    for module in ("fetch.hosts", "fetch.robots.check"):
        monkeypatch.setattr(f"webtext.crawl.{module}.MAX_CRAWL_DELAY", 0.2)
    web.page("/robots.txt", "User-agent: *\nCrawl-delay: 9\nDisallow: /closed\n")
    web.page(TDM_PATH, '[{"location": "/reserved", "tdm-reservation": 1}]', "Content-Type: application/json")
    urls = [web.url("/a"), web.url("/closed"), web.url("/reserved")]
    records = [record(url, page(b"<html>" + url.encode())) for url in urls]
    rows = replay(urls, *records)
    assert [rows[url]["reason"] for url in urls] == [None, "robots_disallowed", "tdm_reserved"]
    web.page("/a", "busy", status="503 Busy")
    rows = replay(urls[:1], *records, out="later", sources=("web", "warc"))
    assert (rows[urls[0]]["source"], rows[urls[0]]["cause"]) == ("warc", "web: crawl_delay_too_long")


def test_the_evidence_of_an_opt_out_says_where_it_stood_and_when(replay: Any, web: Any) -> None:
    started = int(time.time())
    web.page("/robots.txt", "User-agent: *\nDisallow: /closed\n")
    web.page(TDM_PATH, '[{"location": "/reserved", "tdm-reservation": 1}]', "Content-Type: application/json")
    marked = page(b'<meta name="robots" content="noai">', b"X-Robots-Tag: noai")
    urls = [web.url(path) for path in ("/closed", "/reserved", "/marked")]
    records = [record(url, marked, "2010-01-01T00:00:00Z") for url in urls]
    off = {"obey_robots": False, "obey_tdm_reservation": True, "obey_noai": False}
    rows = replay(urls, *records, **off)
    closed, reserved, page_itself = (rows[url]["opt_out_evidence"] for url in urls)
    for found, rule, file in (
        (closed, "robots_disallowed", "/robots.txt"),
        (reserved, "tdm_reserved", "/.well-known/tdmrep.json"),
    ):
        assert (found[0]["rule"], found[0]["source"]) == (rule, web.url(file))
        assert started <= found[0]["noticed"] <= time.time()
    assert rows[urls[1]]["reason"] == "tdm_reserved"
    assert page_itself == [
        {"rule": "noai_header", "source": f"header of {urls[2]}", "noticed": 1_262_304_000},
        {"rule": "noai_meta", "source": f"meta tag of {urls[2]}", "noticed": 1_262_304_000},
    ]
    for row in rows.values():
        assert [each["rule"] for each in row["opt_out_evidence"]] == row["opt_outs"]


def test_opt_outs_in_archived_pages_are_obeyed(replay: Any, web: Any) -> None:
    """Also in a body that is stored chunked and compressed."""
    body = gzip.compress(b'<html><head><meta name="robots" content="noai"></head><body>')
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    codings = b"Content-Encoding: gzip", b"Content-Encoding: identity", b"Transfer-Encoding: chunked", b"", b""
    head = b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Type: text/html", *codings])
    url = web.url("/a")
    [row] = replay([url], record(url, head + chunks)).values()
    assert (row["outcome"], row["reason"], row["opt_outs"]) == ("refused", "noai_meta", ["noai_meta"])
    [row] = replay([url], record(url, head + chunks), out="all", obey_noai=False).values()
    assert (row["outcome"], row["opt_outs"]) == ("fetched", ["noai_meta"])


def test_a_link_to_an_excluded_site_is_refused_before_the_site_is_asked(replay: Any, web: Any, tmp_path: Path) -> None:
    url, blocklist = web.url("/a"), tmp_path / "blocked.txt"
    blocklist.write_text("127.0.0.1\n")
    [row] = replay([url], record(url, page()), domain_blocklist=(str(blocklist),)).values()
    assert (row["reason"], web.requests) == ("excluded_domain", [])


def test_the_type_of_an_archived_page_is_found_behind_chunks_and_all_its_codings(replay: Any, web: Any) -> None:
    url, pdf = web.url("/a"), gzip.compress(b"%PDF-1.7")
    codings = (b"Transfer-Encoding: chunked", b"Content-Encoding: identity", b"Content-Encoding: gzip")
    [row] = replay([url], record(url, page(b"%x\r\n%s\r\n0\r\n\r\n" % (len(pdf), pdf), *codings))).values()
    assert (row["reason"], row["cause"]) == ("not_text", "begins as application/pdf")


def test_a_set_of_ours_can_be_replayed_with_all_its_pages(
    replay: Any, crawl: Any, bodies: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    """Two pages of one body: the second is a revisit record."""
    links = make_links([web.page("/a", "<html>same</html>"), web.page("/b", "<html>same</html>")])
    crawl(links, "first")
    n_asked = len(web.paths())
    rows = replay(links, tmp_path / "first", out="second")
    assert {row["source"] for row in rows.values()} == {"warc"}
    assert bodies("second") == bodies("first")
    assert len(web.paths()) == n_asked


@pytest.mark.usefixtures("names")  # which knows none
def test_a_gone_site_is_taken_only_with_the_setting(replay: Any) -> None:
    url, contact = "http://gone.example/", "https://example.org/"
    [row] = replay([url], record(url, page()), contact=contact).values()
    assert row["reason"] == "dns_failed"
    [row] = replay([url], record(url, page()), out="more", contact=contact, take_gone_sites=True).values()
    assert row["outcome"] == "fetched"


@pytest.mark.usefixtures("names")
def test_the_archived_robots_txt_of_a_gone_site_is_obeyed(replay: Any) -> None:
    """It is stored chunked and compressed; a site whose archived robots.txt moved or is missing allows everything."""
    rules = gzip.compress(b"User-agent: GPTBot\nDisallow: /closed")
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(rules), rules)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    urls = [f"http://{host}.example/{path}" for host in ("gone", "moved", "bare") for path in ("closed", "open")]
    records = [record(url, page(b"<html>" + url.encode())) for url in urls]
    records.append(record("http://gone.example/robots.txt", head + chunks, "2000-01-01T00:00:00Z"))
    records.append(record("http://moved.example/robots.txt", page(b"", b"Location: /", status=b"301 Moved")))
    settings = {"contact": "https://example.org/", "take_gone_sites": True}
    rows = replay(urls, *records, **settings)
    assert [rows[url]["reason"] for url in urls] == ["robots_disallowed_ai_training", *[None] * 5]
    source = "http://gone.example/robots.txt in warc"
    [notice] = rows[urls[0]]["opt_out_evidence"]
    assert notice == {"rule": "robots_disallowed_ai_training", "source": source, "noticed": 946_684_800}
    rows = replay(urls, *records, out="more", obey_ai_robots=False, **settings)
    assert rows[urls[0]]["opt_outs"] == ["robots_disallowed_ai_training"]
    assert {(row["outcome"], row["requests"]) for row in rows.values()} == {("fetched", 0)}


NO_ROBOTS = {"obey_robots": False, "obey_ai_robots": False, "obey_content_signal": False, "obey_noindex": False}


def test_real_archives_are_replayed_and_every_run_gives_the_same_pages(
    replay: Any, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_up(_: Any, host: str) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.Names.look_up", look_up)
    names = ["fastwarc_warcfile.warc.gz", "fastwarc_warcfile.warc.lz4", "warcio_example.warc", "warcio_example.warc.gz"]
    for name in names:
        shutil.copy(shared_data / "crawl/warc" / name, tmp_path / name)
        folder = Folder(tmp_path)
        found = {r.url: r for r in read_responses(folder, name) if r.status == 200 and "html" in r.content_type}
        settings = NO_ROBOTS | {"contact": "https://a.example/", "allow_address": ("127.0.0.0/8",), "max_bytes": 10**7}
        runs = [replay(list(found), tmp_path / name, out=f"{name}-{run}", **settings) for run in range(3)]
        for number, rows in enumerate(runs):
            assert {url: row["reason"] for url, row in rows.items()} == dict.fromkeys(found)
            pages = Folder(tmp_path / f"{name}-{number}")
            kept = {r.url: r for r in read_responses(pages, "part-00000.warc.gz")}
            assert {url: r.body(10**7) for url, r in kept.items()} == {url: r.body(10**7) for url, r in found.items()}
            for row in rows.values():
                del row["warc_offset"], row["warc_length"]  # a record states when it was made
        assert runs[0] == runs[1] == runs[2]


def test_records_that_share_a_gzip_member_are_an_error_that_says_how_to_convert_them(replay: Any, web: Any) -> None:
    one, other = web.url("/one"), web.url("/other")
    with pytest.raises(InputError, match="warcio recompress"):
        replay([one], gzip.compress(b"".join(gzip.decompress(record(url, page())) for url in (one, other))))


def test_errors_name_files_that_cannot_be_replayed(replay: Any, shared_data: Path, web: Any) -> None:
    for inputs, message in {
        "nothing.warc.gz": "'nothing.warc.gz' does not exist",
        str(shared_data / "crawl/warc/warcio_example.arc.gz"): "is an ARC file",
        str(shared_data / "crawl/warc/warcio_example-wrong-chunks.warc.gz"): "warcio recompress",
    }.items():
        with pytest.raises(InputError, match=message):
            replay([web.url("/a")], inputs)


def test_an_index_that_fills_the_disk_is_an_error_that_says_so(replay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_replay, "_TABLE", f"PRAGMA max_page_count = 2; {warc_replay._TABLE}")
    urls = [f"http://a.example/{number}" for number in range(100)]
    with pytest.raises(MachineError, match="no space left while writing"):
        replay(urls[:1], *(record(url, page()) for url in urls), contact="test@example.org")
