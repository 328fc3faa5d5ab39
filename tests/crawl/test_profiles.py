"""The profiles in complete runs: golden lists of a real month, the sum of karma, and users' blocklists."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from dump_files import by_url, dump

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.crawl.links.settings import PROFILES

GOLDEN_URLS = "48db0c814a18bd1feaf407ed1d7ab8650f506b43710f3c61d5eadc5ae289c00f"
GOLDEN_RECORDS = "11070225dcf1bd411b515890aa7d9df4794ab9f18db866759e855e214897a3f2"


@pytest.mark.parametrize("profile", PROFILES)
def test_the_links_of_june_2005_do_not_change(collect: Any, profile: str, shared_data: Path) -> None:
    """SHA-256 of the 83 URLs, sorted, one per line. In that month no URL was posted twice and no post was over 18."""
    dump_file = str(shared_data / "crawl/reddit/RS_v2_2005-06.xz")
    links = collect(dump_file, out=".", profile=profile)
    urls = sorted(by_url(links))
    assert len(urls) == 83
    assert hashlib.sha256("".join(f"{url}\n" for url in urls).encode()).hexdigest() == GOLDEN_URLS
    assert links.parts[0].record_digest == GOLDEN_RECORDS


@pytest.mark.parametrize(
    ("profile", "golden", "n_links", "dropped"),
    [
        (
            "webtext",
            "dc4a8eec01a84fa1b5ea8ad528e19dd579f24175bd943c02822b25e7d0874c27",
            2725,
            {"self_post": 141, "over_18": 2},
        ),
        ("openwebtext", "dc4a8eec01a84fa1b5ea8ad528e19dd579f24175bd943c02822b25e7d0874c27", 2725, {"over_18": 2}),
        ("openwebtext2", "b6bbb672507bc4477f1c281585a2ea90c1589d098ddfa3e1bfe11973fba160f1", 2727, {"self_post": 141}),
    ],
)
def test_the_links_of_3000_posts_of_2013_do_not_change(
    collect: Any, profile: str, golden: str, n_links: int, dropped: dict[str, int], shared_data: Path, tmp_path: Path
) -> None:
    """The self posts that `openwebtext` does not check all link back to Reddit."""
    with open(tmp_path / "RS_2013", "w") as file:
        for path in (shared_data / "crawl/reddit").glob("top25_*.csv"):
            for row in csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")):
                post = {name: row[name] for name in ("id", "url", "created_utc")} | {"score": int(row["score"])}
                post |= {name: row[name] == "True" for name in ("is_self", "over_18")}
                file.write(json.dumps(post) + "\n")
    links = collect(tmp_path / "RS_2013", out="links", profile=profile)
    urls = sorted(by_url(links))
    assert len(urls) == n_links
    assert hashlib.sha256("".join(f"{url}\n" for url in urls).encode()).hexdigest() == golden
    n_back = 22 if "self_post" in dropped else 22 + 141
    assert links.counts.to_json()["dropped"] == dropped | {"links_back": n_back, "media": 76, "wikipedia": 16}


def test_openwebtext2_adds_up_the_scores_of_a_link(collect: Any, tmp_path: Path) -> None:
    path = dump(
        tmp_path / "RS_x",
        {"url": "http://a.com/?utm_source=x", "score": 1},
        {"url": "http://a.com/#b", "score": 1},
        {"url": "http://a.com/", "score": 1},
        {"url": "http://b.com/", "score": 9},
        {"url": "http://b.com/", "score": -7},
        {"url": "http://c.com/", "score": 2},
        {"url": "http://d.com/", "score": None},
    )
    links = collect(path, profile="openwebtext2")
    rows = by_url(links)
    assert {url: (row["karma"], row["karma_sum"], len(row["posts"])) for url, row in rows.items()} == {
        "http://a.com/": (1, 3, 3)
    }
    assert links.counts.balanced
    expected = {"records_in": 7, "kept": 3, "dropped": {"null_score": 1, "too_little_karma_sum": 3}, "failed": {}}
    assert links.counts.to_json() == expected


def test_a_sum_counts_each_post_once_in_its_latest_reading(collect: Any, tmp_path: Path) -> None:
    """Two readings of one post are 2 + 2; the later one alone is 2."""
    one = dump(tmp_path / "RS_1", {"id": "x", "score": 2, "retrieved_on": 1})
    two = dump(tmp_path / "RS_2", {"id": "x", "score": 2, "retrieved_on": 2})
    links = collect(one, two, sum_karma=True)
    assert links.records == 0
    assert links.counts.to_json()["dropped"] == {"duplicate_post": 1, "too_little_karma_sum": 1}


def test_a_sum_beyond_64_bits_becomes_the_largest_number(collect: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", {"score": 2**63 - 1}, {"score": 2**63 - 1})
    links = collect(path)
    assert by_url(links)["http://example.com/a"]["karma_sum"] == 2**63 - 1


def test_tracking_parameters_do_not_make_a_second_link(collect: Any, tmp_path: Path) -> None:
    raw = ("http://a.com/p?id=1&utm_source=twitter", "http://a.com/p?id=1&fbclid=x", "http://a.com/p?id=1#c")
    links = collect(dump(tmp_path / "RS_x", *({"url": url} for url in raw)))
    (row,) = by_url(links).values()
    assert (row["url"], row["url_raw"], len(row["posts"])) == ("http://a.com/p?id=1", raw[0], 3)


def test_a_manifest_records_the_blocklists(links_verb: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = dump(tmp_path / "RS_x", {"subreddit": "Bad"}, {"url": "http://a.spam.example/"}, {})
    (tmp_path / "s").write_text("# name: my subreddits\n# licence: CC0\nr/bad\n")
    (tmp_path / "d").write_text("spam.example\n")
    blocklists = ("--subreddit-blocklist", tmp_path / "s", "--domain-blocklist", tmp_path / "d")
    assert links_verb(path, "--quiet", *blocklists) == 0
    links = PartSet.open(str(tmp_path / "links"), "links")
    assert links.counts.to_json()["dropped"] == {"blocked_domain": 1, "blocked_subreddit": 1}
    about = links.recipe["settings"]["subreddit_blocklists"]
    sha256 = hashlib.sha256((tmp_path / "s").read_bytes()).hexdigest()
    assert about == [{"name": "my subreddits", "licence": "CC0", "sha256": sha256, "entries": 1}]
    assert str(tmp_path) not in json.dumps(links.recipe)
    (tmp_path / "d").write_text("other.example\n")
    assert links_verb(path, "--quiet", *blocklists) == 3  # another list is another recipe
    assert "was made with other settings: domain_blocklists" in capfd.readouterr().err
    shutil.rmtree(tmp_path / "links")
    assert links_verb(path, "--quiet", *blocklists) == 0
    assert PartSet.open(str(tmp_path / "links"), "links").counts.to_json()["dropped"] == {"blocked_subreddit": 1}
    (tmp_path / "d").write_text("http://other.example/\n")
    assert links_verb(path, "--quiet", *blocklists) == 3
    assert "line 1: 'http://other.example/' is not a domain" in capfd.readouterr().err


def test_a_list_that_changes_while_dumps_are_read_ends_the_run(
    collect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dump(tmp_path / "RS_x", {})
    blocked = tmp_path / "d"
    blocked.write_text("spam.example\n")
    from webtext.crawl.links import collect as module

    def changed(*arguments: Any) -> Any:
        blocked.write_text("other.example\n")
        return real(*arguments)

    real = module.spill_files
    monkeypatch.setattr(module, "spill_files", changed)
    with pytest.raises(InputError, match="blocklist was changed"):
        collect(path, domain_blocklist=(str(blocked),))
