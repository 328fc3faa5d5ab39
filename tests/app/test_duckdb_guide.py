"""The guide to DuckDB: its queries run, and find what the build has."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from .conftest import IDS, URLS, decision, document, write_set

GUIDE = Path(__file__).parents[2] / "docs/guides/duckdb.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def shown(written_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, ...]]]:
    """What each query of the guide gives, on a build and one before it in which another document was kept."""
    shutil.copytree(written_build, tmp_path / "build")
    french = document("kept") | {"text": "French for 'voted', en français", "karma": 90}
    corpus = tmp_path / "build/corpus"
    shutil.rmtree(corpus)
    shutil.rmtree(tmp_path / "build/dropped")
    posts = [{"source": "reddit", "post_id": "a", "subreddit": "test", "score": 9, "created": 1, "retrieved": None}]
    held = document("held") | {"text": "the words that people voted for", "split": "train", "posts": posts}
    write_set(corpus, "corpus", [[french], [held]])
    write_set(tmp_path / "build/dropped", "dropped", [[decision("short", "filter", "too_few_words", 5, 100)]])
    write_set(tmp_path / "before/corpus", "corpus", [[french, document("short")]])
    monkeypatch.chdir(tmp_path)
    found: list[list[tuple[Any, ...]]] = []

    class Recorded:
        def sql(self, query: str) -> Recorded:
            return self.execute(query, [])

        def execute(self, query: str, values: list[Any]) -> Recorded:
            found.append(duckdb.execute(query, values).fetchall())
            return self

        def show(self) -> None: ...

        df = show

    for block in BLOCKS:
        exec(block.replace("import duckdb\n", ""), {"duckdb": Recorded()})
    return found


def test_every_query_finds_what_is_there(shown: list[list[tuple[Any, ...]]]) -> None:
    reasons, domains, french, passages, changed = shown
    assert reasons == [("filter", "too_few_words", 1)]
    assert domains == [("short.example", 1)]
    assert french == [(90, 1, 2)]
    assert [row[:3] for row in passages] == [(IDS["held"], URLS["held"], 12)]
    assert passages[0][3:7] == ("reddit", "a", "test", 9)
    assert sorted(changed) == [(URLS["held"], "gained", None), (URLS["short"], "lost", "too_few_words")]
