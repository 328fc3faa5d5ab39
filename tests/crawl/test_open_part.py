"""The open part: whatever is cut off or damaged at its end, no complete row is lost or repeated."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from warc_exchanges import bodies_by_fastwarc, bodies_by_warcio, exchange

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import Part, PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.storage import Folder
from webtext.crawl.pages.open_part import OPEN, OpenPart, recover, remove_open
from webtext.crawl.pages.warc_writer import stored_member

RECIPE = Recipe(stage="test", code_version=1, settings={})
ABOUT = {"software": "test"}
WARC, JOURNAL = "part-00000.warc.gz", "part-00000.journal"
BODIES = [b"a" * 90, None, b"b" * 70_000, b"a" * 90, b"c", None]  # None: a link without a page


def add(part: OpenPart, number: int) -> None:
    body = BODIES[number]
    url = f"http://{number}.example/"
    row = {
        "link_id": link_id(url), "url": url, "final_url": url, "redirects": [], "status": 200, "source": "web",
        "outcome": "failed" if body is None else "fetched", "reason": "http_404" if body is None else None,
        "karma": 3, "split": "train", "requests": 1, "cause": None, "opt_outs": [], "voted": 1,
    }  # fmt: skip
    part.add(row, None if body is None else exchange(body, url=url))


def publish(part: OpenPart, folder: Path) -> Part:
    return part.publish(SetWriter(str(folder), "pages", RECIPE), 1)


def killed(folder: Path) -> Path:
    """Return what a run leaves if it is killed after its last row."""
    part = OpenPart(Folder(folder), 0, ABOUT)
    for number in range(len(BODIES)):
        add(part, number)
    part.close()
    return folder / OPEN


def finish(folder: Path) -> tuple[int, list[str]]:
    """Do what the next run does. Returns how many rows it found, and the URLs of all rows in the end."""
    found = recover(Folder(folder), {})
    remove_open(Folder(folder), but=found and found.index)
    part = OpenPart(Folder(folder), 0, ABOUT, found)
    n_found = part.n_rows
    for number in range(n_found, len(BODIES)):
        add(part, number)
    writer = SetWriter(str(folder), "pages", RECIPE)
    pages = writer.seal([part.publish(writer, 1)])
    pages.verify()
    assert not (folder / OPEN).exists()
    return n_found, [row["url"] for row in pages.table(0).to_pylist()]


EXPECTED = [f"http://{number}.example/" for number in range(len(BODIES))]
SIZES = {JOURNAL: 3000, WARC: 75_000}


@given(
    name=st.sampled_from([WARC, JOURNAL]), at=st.integers(0, 75_000), filler=st.sampled_from([b"", b"\0" * 9, b"[{}"])
)
@example(name=WARC, at=0, filler=b"")
@example(name=JOURNAL, at=0, filler=b"\0" * 9)
@settings(max_examples=60, deadline=None)
def test_a_part_cut_off_anywhere_resumes_without_loss(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: int, filler: bytes
) -> None:
    """Also if one of the two files lost more than the other or ends in garbage, as after a power failure."""
    folder = tmp_path_factory.mktemp("part")
    path = killed(folder) / name
    data = path.read_bytes()
    path.write_bytes(data[: at % len(data)] + filler)
    n_found, urls = finish(folder)
    assert urls == EXPECTED
    assert n_found < len(BODIES)
    expected = [
        body for number, body in enumerate(BODIES) if body is not None and number != 3
    ]  # the fourth is a revisit
    assert bodies_by_warcio(folder / WARC) == bodies_by_fastwarc(folder / WARC) == expected


def test_complete_records_are_kept_byte_for_byte(tmp_path: Path) -> None:
    open_folder = killed(tmp_path)
    data = (open_folder / WARC).read_bytes()
    with open(open_folder / WARC, "ab") as file:
        file.write(b"".join(stored_member(b"WARC/1.1\r\ntorn"))[:20])
    assert finish(tmp_path) == (len(BODIES), EXPECTED)
    assert (tmp_path / WARC).read_bytes() == data


def test_a_flipped_bit_costs_its_record_and_the_later_ones(tmp_path: Path) -> None:
    path = killed(tmp_path) / WARC
    data = bytearray(path.read_bytes())
    data[data.index(b"b" * 70) + 1000] ^= 1
    path.write_bytes(data)
    assert finish(tmp_path) == (2, EXPECTED)


def test_a_record_that_is_all_zeros_is_not_taken_for_padding(tmp_path: Path) -> None:
    """A power cut may lose a write to a page's last record, and keep the file's length and what was written later."""
    path = killed(tmp_path) / WARC
    whole = recover(Folder(tmp_path), {})
    assert whole is not None
    end = whole.entries[2].end
    data = bytearray(path.read_bytes())
    start = data.rindex(b"\x1f\x8b\x08", 0, end)
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    assert finish(tmp_path) == (2, EXPECTED)


def test_a_flipped_bit_in_the_journal_costs_its_row_and_the_later_ones(tmp_path: Path) -> None:
    path = killed(tmp_path) / JOURNAL
    written = path.read_bytes()
    whole = recover(Folder(tmp_path), {})
    assert whole is not None
    for place in range(len(written)):
        flipped = bytearray(written)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        found = recover(Folder(tmp_path), {})
        n_before = written[:place].count(b"\n")
        assert (found.entries if found else ()) == whole.entries[:n_before]


@pytest.mark.parametrize("published", [1, 2])
def test_a_part_killed_during_publication_is_still_open(published: int, tmp_path: Path) -> None:
    """The WARC file, the index and the rows were moved, but the entry was not written: the part does not count yet."""
    open_folder = killed(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "copy")
    found = recover(Folder(tmp_path / "copy"), {})
    publish(OpenPart(Folder(tmp_path / "copy"), 0, ABOUT, found), tmp_path / "copy")
    (open_folder / WARC).rename(tmp_path / WARC)
    if published == 2:
        for name in ("part-00000.cdxj", "part-00000.parquet"):
            shutil.copy(tmp_path / "copy" / name, tmp_path / name)
    assert finish(tmp_path) == (len(BODIES), EXPECTED)


def test_a_part_killed_after_publication_is_closed(tmp_path: Path) -> None:
    open_folder = killed(tmp_path)
    journal = (open_folder / JOURNAL).read_bytes()
    part = publish(OpenPart(Folder(tmp_path), 0, ABOUT, recover(Folder(tmp_path), {})), tmp_path)
    open_folder.mkdir()
    (open_folder / JOURNAL).write_bytes(journal)
    assert recover(Folder(tmp_path), {0: part}) is None
    remove_open(Folder(tmp_path))
    assert not open_folder.exists()


def test_a_part_that_can_t_be_published_remains_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("webtext.base.parts.partwriter.PartWriter.publish", full)
        with pytest.raises(Exception, match="no space left"):
            publish(OpenPart(Folder(tmp_path), 0, ABOUT, recover(Folder(tmp_path), {})), tmp_path)
    assert finish(tmp_path) == (len(BODIES), EXPECTED)


def test_a_set_in_an_object_store_has_no_open_folder() -> None:
    folder = Folder("memory://open-part-test/pages")
    part = OpenPart(folder, 0, ABOUT)
    for number in range(len(BODIES)):
        add(part, number)
    writer = SetWriter(folder.url, "pages", RECIPE)
    writer.seal([part.publish(writer, 1)])
    assert PartSet.open(folder.url, "pages").records == len(BODIES)
    assert recover(folder, {}) is None


@pytest.mark.parametrize("size", [0, 1, 65_534, 65_535, 65_536, 131_070, 131_071, 200_000])
def test_a_stored_member_is_a_gzip_member(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    member = b"".join(stored_member(data[: size // 3], data[size // 3 : size]))
    assert gzip.decompress(member) == data[:size]
    assert gzip.decompress(member + b"".join(stored_member(b"next"))) == data[:size] + b"next"
