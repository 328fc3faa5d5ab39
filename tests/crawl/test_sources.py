"""Which source reads a file, and all of them together: one set of links, one funnel."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from dump_files import by_url, counts_of, post, rows_of

from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.hugging_face import Reference, _revision, pin_revision
from webtext.crawl.links.settings import SOURCES, LinkSettings
from webtext.crawl.links.sources.inputs import (
    HARVEST,
    HUGGING_FACE,
    PATTERNS,
    LinkFile,
    find_files,
    link_source,
    source_by_name,
)
from webtext.crawl.links.sources.lists import Defaults, HuggingFaceColumn

URL = "http://example.com/a"


# --- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("submissions", "RS_2017-12.zst RS_v2_2005-06.xz books_submissions.zst r_books_posts.jsonl"),
        ("submissions", "RS_2011-01.bz2.deduped.txt"),
        ("csv", "top.csv Top.CSV.GZ top.tsv.gz"),
        ("jsonl", "links.jsonl.zst links.ndjson links.json"),
        ("parquet", "links.parquet"),
        ("urls", "urls.txt.xz"),
        ("harvest", "00001.end.harvest.jsonl.zst"),
        (None, "RC_2017-12.bz2 README links.zst"),
    ],
)
def test_the_source_is_chosen_by_name(source: str | None, names: str) -> None:
    assert {source_by_name(name) for name in names.split()} == {source}


def test_every_source_has_names_and_is_a_value_of_the_option() -> None:
    assert set(PATTERNS) == {*SOURCES, HARVEST}
    for source in SOURCES:
        assert LinkSettings(source=source).source == source
    with pytest.raises(ConfigError, match="did you mean 'submissions'"):
        LinkSettings(source="submission")


def test_a_name_that_matches_no_source_needs_the_option(tmp_path: Path) -> None:
    (tmp_path / "links").write_text(URL)
    with pytest.raises(InputError) as error:
        find_files([str(tmp_path / "links")])
    assert "links' matches no source" in str(error.value)
    assert "--source (submissions: RS_* " in str(error.value)
    assert find_files([str(tmp_path / "links")], "urls") == [LinkFile(str(tmp_path), "links", "urls")]


def test_a_folder_adds_its_tree_s_files_of_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "2017" / "01").mkdir(parents=True)
    for name in ("RS_1.xz", "2017/01/RS_2.zst", "a.txt", "README"):
        (tmp_path / name).write_bytes(b"x")

    def names(source: str | None) -> list[str]:
        return [file.name for file in find_files([str(tmp_path)], source)]

    assert names(None) == names("submissions") == ["2017/01/RS_2.zst", "RS_1.xz"]
    assert "1 without suffix" in capsys.readouterr().err
    assert names("urls") == ["a.txt"]
    with pytest.raises(InputError, match=r"contains no \*.csv, \*.tsv file; it contains 1 .zst, "):
        names("csv")


def test_lists_can_be_at_urls() -> None:
    with fsspec.open("memory://lists/top.csv.gz", "wb") as file:
        file.write(gzip.compress(f"url,score\n{URL},5\n".encode()))
    with fsspec.open("memory://lists/top.parquet", "wb") as file:
        pq.write_table(pa.table({"url": [URL], "score": [6]}), file)
    for found in find_files(["memory://lists/top.*"]):
        with found.open() as opened:
            source = link_source(found, LinkSettings())
            ((_, record),) = source.records(opened)
        (post,) = source.parse(record)
        assert (post.url, post.score) == (URL, 6 if found.source == "parquet" else 5)


def test_a_files_content_must_match_its_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": [URL]}), tmp_path / "links.txt")
    (tmp_path / "urls.parquet").write_text(URL)
    (tmp_path / "links.csv").write_text(f"link\n{URL}\n")
    for name, said in {
        "links.txt": "is Parquet, but would be read as urls",
        "urls.parquet": "is not Parquet",
        "links.csv": "has no column 'url': its columns are link",
    }.items():
        with pytest.raises(InputError) as error:
            find_files([str(tmp_path / name)])
        assert said in str(error.value)
    assert find_files([str(tmp_path / "links.txt")], "parquet")


# --- all together ----------------------------------------------------------------------------------------------------


def test_votes_of_all_sources_meet_in_one_link(collect: Any, tmp_path: Path) -> None:
    (tmp_path / "RS_1.xz").write_bytes(lzma.compress(json.dumps(post("s1", URL)).encode()))
    (tmp_path / "RS_2.bz2").write_bytes(bz2.compress(json.dumps(post("s2", f"{URL}#top", score=7)).encode()))
    (tmp_path / "top.csv.gz").write_bytes(gzip.compress(f"url,score,created\n{URL},4,2014-01-01\n".encode()))
    (tmp_path / "more.jsonl.zst").write_bytes(
        zstandard.compress(json.dumps({"url": URL, "score": 5, "created": 8}).encode())
    )
    (tmp_path / "urls.txt").write_text(f"# mine\n{URL}\n")
    pq.write_table(pa.table({"url": [URL], "score": [6], "created": [9]}), tmp_path / "links.parquet")
    links = collect(*tmp_path.iterdir(), out="out", default_score=3, default_created="2013-01-01")
    (first,) = rows_of(links)
    assert [(post["source"], post["post_id"], post["score"]) for post in first["posts"]] == [
        ("list", "more.jsonl.zst:0", 5),
        ("list", "links.parquet:0", 6),
        ("list", "urls.txt:7", 3),
        ("list", "top.csv.gz:18", 4),
        ("reddit", "s1", 10),
        ("reddit", "s2", 7),
    ]
    assert (first["url"], first["karma"]) == (URL, 10)
    assert counts_of(links) == {"records_in": 6, "kept": 6, "dropped": {}, "failed": {}}
    assert [(source.set, source.part) for source in links.parts[0].sources] == [
        *(("submissions", "RS_1.xz"), ("submissions", "RS_2.bz2"), ("parquet", "links.parquet")),
        *(("jsonl", "more.jsonl.zst"), ("csv", "top.csv.gz"), ("urls", "urls.txt")),
    ]


def test_lists_of_one_name_in_two_folders_have_different_posts(collect: Any, tmp_path: Path) -> None:
    """Before, two posts at the same position were one, and the other was counted as `duplicate_post`."""
    for year in ("2016", "2017"):
        (tmp_path / year).mkdir()
        (tmp_path / year / "top.csv").write_text(f"url,score,created\n{URL},4,2014-01-01\n")
    links = collect(*(tmp_path / each / "top.csv" for each in ("2016", "2017", "2016/../2017")), out="out")
    assert [post["post_id"] for post in rows_of(links)[0]["posts"]] == ["2016/top.csv:18", "2017/top.csv:18"]
    assert [source.part for source in links.parts[0].sources] == ["2016/top.csv", "2017/top.csv"]


def test_plain_urls_need_a_score_and_a_time(
    collect: Any, links_verb: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "urls.txt").write_text(f"{URL}\nhttp://b.com/\n")
    assert links_verb(tmp_path / "urls.txt") == 3
    error = capfd.readouterr().err
    assert "has no column 'score', 'created': its columns are url" in error
    assert "--default-score" in error
    (tmp_path / "links.jsonl").write_text(json.dumps({"link": URL, "score": 5, "created": 1}))
    assert links_verb(tmp_path / "links.jsonl") == 3
    assert "has no column 'url': its columns are link, score, created\n" in capfd.readouterr().err
    with pytest.raises(InputError, match="has no column 'created'"):
        collect(tmp_path / "urls.txt", default_score=3)
    links = collect(tmp_path / "urls.txt", default_score=3, default_created="2017-06-01T00:00:00Z")
    assert [(row["karma"], row["first_created"]) for row in rows_of(links)] == [(3, 1496275200)] * 2
    with pytest.raises(ConfigError, match="default_created = 'soon'"):
        LinkSettings(default_created="soon")


def test_a_file_read_by_another_source_is_read_again(collect: Any, tmp_path: Path) -> None:
    (tmp_path / "RS_1").write_text(json.dumps(post("1", URL, created=7)))
    first = collect(tmp_path / "RS_1", out="out")
    assert rows_of(first)[0]["posts"][0]["source"] == "reddit"
    again = collect(tmp_path / "RS_1", out="out", source="jsonl")
    assert rows_of(again)[0]["posts"][0]["source"] == "list"


# --- datasets --------------------------------------------------------------------------------------------------------


def dataset(folder: Path) -> Path:
    (folder / "data").mkdir(parents=True)
    train = {"link": [URL, "http://b.com/?x&amp;y", None], "score": [5, None, 9], "created": [7, 8, 9]}
    pq.write_table(pa.table(train), folder / "data/train-00000.parquet")
    pq.write_table(
        pa.table({"link": ["http://c.com/"], "score": [4], "created": [5]}), folder / "data/test-00000.parquet"
    )
    return folder


def test_a_references_parts() -> None:
    assert Reference.parse("huggingface:me/links:url") == Reference("me/links", None, "url")
    whole = "huggingface:me/links:2017:url@0c1d"
    assert str(Reference.parse(whole)) == whole
    for bad in ("", "me/links", "a:b:c:d", ":url", "a::url"):
        with pytest.raises(ConfigError, match=r"write huggingface:NAME\[:CONFIG\]:COLUMN"):
            Reference.parse(f"huggingface:{bad}")


def test_a_datasets_column_gives_the_links_of_all_splits_in_any_folder(collect: Any, tmp_path: Path) -> None:
    name = f"huggingface:{dataset(tmp_path / 'set')}:link"
    links = collect(name, out="out", default_score=3)
    assert counts_of(links) == {"records_in": 4, "kept": 3, "dropped": {"null_url": 1}, "failed": {}}
    first_posts = {url: row["posts"][0] for url, row in by_url(links).items()}
    expected = {URL: (5, 7), "http://b.com/?x&y": (3, 8), "http://c.com/": (4, 5)}
    assert {url: (post["score"], post["created"]) for url, post in first_posts.items()} == expected
    (source,) = links.parts[0].sources
    assert source.set == HUGGING_FACE
    assert source.part == str(pin_revision(name))
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "set").rename(tmp_path / "elsewhere/set")
    again = collect(f"huggingface:{moved}:link", out="again", default_score=3)
    assert again.hash == links.hash


def test_a_dataset_of_json_lines_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    lines = [json.dumps({"url": f"http://a.com/{i}", "score": i}) for i in range(3)]
    (tmp_path / "set/train.jsonl").write_text("\n".join(lines))
    (file,) = find_files([f"huggingface:{tmp_path / 'set'}:url"])
    with file.open() as opened:
        rows = list(HuggingFaceColumn(Defaults(), file.folder).records(opened))
    assert rows == [(i, (i, {"url": f"http://a.com/{i}", "score": i})) for i in range(3)]


def test_a_row_of_a_dataset_that_is_not_utf8_fails_alone(collect: Any, tmp_path: Path) -> None:
    raw = pa.array([b"http://a.com/", b"http://b.com/\xe9", b"http://c.com/"], pa.binary())
    urls = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"url": urls, "score": [5, 5, 5], "created": [1, 2, 3]}), tmp_path / "set/train.parquet")
    links = collect(f"huggingface:{tmp_path / 'set'}:url", out="out")
    assert counts_of(links) == {"records_in": 3, "kept": 2, "dropped": {}, "failed": {"not_utf8": 1}}


def test_the_datasets_library_is_imported_only_for_a_dataset() -> None:
    code = (
        "import sys, webtext.crawl.links.collect; print({'datasets', 'pandas', 'huggingface_hub'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_local_dataset_is_pinned_by_its_content(tmp_path: Path) -> None:
    first, second = dataset(tmp_path / "one/set"), dataset(tmp_path / "two/set")
    revision = pin_revision(f"huggingface:{first}:link").revision
    assert pin_revision(f"huggingface:{second}:link").revision == revision
    pq.write_table(pa.table({"link": [URL]}), second / "data/train-00000.parquet")
    assert pin_revision(f"huggingface:{second}:link").revision != revision


def test_a_dataset_on_the_hub_is_pinned_to_its_commit() -> None:
    commit = 20 * "0c"
    reference = Reference("me/links", None, "url")
    assert _revision(reference, [f"hf://datasets/me/links@{commit}/data/train-00000.parquet"]) == commit
    with pytest.raises(InputError, match="the commit of .* is unknown"):
        _revision(reference, ["https://example.org/links.csv"])


def test_a_dataset_without_the_column_or_the_configuration_is_named(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "set")
    with pytest.raises(InputError, match="has no column 'url': its columns are link, score, created"):
        find_files([f"huggingface:{folder}:url"])
    with pytest.raises(InputError, match="cannot be opened.*'2017' not found"):
        find_files([f"huggingface:{folder}:2017:link"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="cannot be opened"):
        find_files([f"huggingface:{tmp_path / 'empty'}:url"])
