"""Charset detection: how many files of chardet's corpus are decoded correctly, compared with charset-normalizer.

    python tests/bench/bench_charset.py [DATA]

Reads DATA/crawl/charset/chardet_tests.tar.gz (DATA defaults to WEBTEXT_TEST_DATA). The folder's name is the true
charset; files that it can't decode are left out. A result is right if the text is identical, apart from a byte order
mark.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

from arguments import data_folder
from charset_normalizer import from_bytes
from resources import cpu_seconds

from webtext.clean.extract.charset import Undecodable, codec_of, decode


def named_codec(folder: str) -> str | None:
    """The codec in a folder's name: a label of the web, or one of Python's names."""
    with contextlib.suppress(LookupError):
        return codec_of(folder) or codecs.lookup(folder).name
    return None


def bodies(archive_path: Path) -> list[tuple[bytes, str]]:
    """Body and true text of each file that its folder's charset decodes."""
    given = []
    with tarfile.open(archive_path) as archive:
        for member in archive:
            file, folders = archive.extractfile(member), Path(member.name).parts
            codec = named_codec(re.sub(r"-[a-z]{5,}$", "", folders[1])) if len(folders) == 3 else None
            if file is None or codec is None:  # "iso-8859-2-hungarian" is iso-8859-2
                continue
            body = file.read()
            try:
                given.append((body, body.decode(codec).removeprefix("\ufeff")))
            except UnicodeDecodeError:
                continue
    return given


def ours(body: bytes) -> str:
    try:
        return decode(body)
    except Undecodable:
        return ""


def charset_normalizer(body: bytes) -> str:
    return str(from_bytes(body).best() or "")


def main(folder: Path) -> None:
    given = bodies(folder / "crawl" / "charset" / "chardet_tests.tar.gz")
    rows: dict[str, Callable[[bytes], str]] = {"webtext": ours, "charset-normalizer": charset_normalizer}
    first = 0.0
    for name, read in rows.items():
        texts: list[str] = []
        seconds = cpu_seconds(lambda read=read, texts=texts: texts.extend(read(body) for body, _ in given))
        right = sum(found.removeprefix("\ufeff") == text for found, (_, text) in zip(texts, given, strict=True))
        first = first or seconds
        print(
            f"{name:20} {right} of {len(given)} files right, {len(given) / seconds:6,.0f} files per CPU second, "
            f"webtext {seconds / first:.1f} times as fast"
        )


if __name__ == "__main__":
    main(data_folder(__doc__))
