"""From a deleted post to a removed document: `clean run` reads what `crawl refresh` writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "crawl"), str(HERE.parent / "clean")]  # the local APIs; pages of the tests

from local_apis import CLIENT_ID, SECRET, LocalApis, post  # noqa: E402
from warc_files import article, page, write_pages  # noqa: E402

from webtext.base.parts.partset import PartSet  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.clean.pipeline import CleanSettings, clean_pages  # noqa: E402
from webtext.clean.settings import RemovalSettings  # noqa: E402
from webtext.crawl.apis.refresh import refresh_links  # noqa: E402
from webtext.crawl.apis.settings import RefreshSettings  # noqa: E402
from webtext.crawl.links.collect import collect_links  # noqa: E402
from webtext.crawl.links.settings import LinkSettings  # noqa: E402


def rows(records: PartSet) -> list[dict[str, Any]]:
    return [row for part in records.parts for row in records.table(part).to_pylist()]


def test_documents_without_any_post_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three links loses its only post, one loses one of two, one falls below 3: only the first is removed."""
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_SECRET", SECRET)
    posts = [post(1), post(2), post(3, url="https://site2.example.org/"), post(4)]
    (tmp_path / "RS_2015-12").write_text("\n".join(map(json.dumps, posts)))
    links = collect_links([str(tmp_path / "RS_2015-12")], str(tmp_path / "links"), LinkSettings(), Run.quiet())
    urls = [row["url"] for row in rows(links)]
    pages = write_pages(tmp_path / "pages", [[{"url": u, "body": page(article(i, 60))} for i, u in enumerate(urls)]])
    apis = LocalApis()
    try:
        apis.posts = {"t3_p2": posts[1], "t3_p4": post(4, score=1)}
        out = str(tmp_path / "refreshed")
        result = refresh_links(links.folder.url, out, RefreshSettings(), apis.settings(), Run.quiet())
    finally:
        apis.close()
    settings = CleanSettings(remove=RemovalSettings(remove=(result.removals.folder.url,)))
    cleaned = clean_pages([pages.folder.url], str(tmp_path / "build"), settings, Run.quiet())
    assert [(row["url"], row["reason"]) for row in rows(cleaned.dropped)] == [
        ("https://site1.example.org/", "removed_by_user")
    ]
    assert sorted(row["url"] for row in rows(cleaned.corpus)) == [
        "https://site2.example.org/",
        "https://site4.example.org/",
    ]
