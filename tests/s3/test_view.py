"""The viewer of a build in a store finds what it finds in the same build on a disk."""

from __future__ import annotations

from pathlib import Path

from object_store import ObjectStore

from webtext.app.view.search import Query, Search
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SCHEMAS
from webtext.base.parts.stage import SetWriter


def write(root: str) -> None:
    blank = {"text_digest": "", "split": "train", "link_ids": [], "posts": []}
    for kind in ("documents", "corpus"):
        parts = []
        writer = SetWriter(f"{root}/{kind}", kind, Recipe(stage="test", code_version=1, settings={}))
        for index in range(2):
            with writer.part(index, key=str(index)) as part:
                names = dict.fromkeys(SCHEMAS[kind].names)
                rows = [
                    names | blank | {"id": f"{index}{n}", "text": f"Page {n}", "domain": f"d{n}", "karma": n + index}
                    for n in range(3)
                ]
                part.counts.keep(3)
                part.write(rows)
                parts.append(part.publish())
        writer.seal(parts)


def test_a_build_in_a_store_is_searched_like_one_on_a_disk(store: ObjectStore, place: str, tmp_path: Path) -> None:
    found = []
    for root in (str(tmp_path), place):
        write(root)
        search = Search(root)
        queries = [Query(), Query(domain="d1"), Query(text="PAGE 2", set="corpus"), Query(min_karma="3")]
        found.append([[row["id"] for row in search.rows(query)] for query in queries])
    assert found[0] == found[1] == [["12", "02", "11", "01", "10", "00"], ["11", "01"], ["02", "12"], ["12"]]
