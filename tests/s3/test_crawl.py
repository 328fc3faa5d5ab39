"""A crawl into a store that spoils answers, and the documents of its pages: the same as on a disk, times aside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from object_store import ObjectStore

from webtext.app.main import run
from webtext.base.parts.partset import PartSet

from .conftest import spoiled

sys.path.insert(0, str(Path(__file__).parents[1] / "crawl"))

from local_web import LocalWeb  # noqa: E402

PARAGRAPHS = "".join(
    f"<p>Paragraph {i} tells a story that is long enough to be kept by the rules.</p>" for i in range(9)
)


@pytest.mark.slow
def test_a_crawl_gives_in_a_spoiled_store_the_documents_that_it_gives_on_a_disk(
    store: ObjectStore, place: str, tmp_path: Path
) -> None:
    """Two parts, the second of them after new links; a rerun asks for no page again."""
    web = LocalWeb()
    found = []
    for out in (str(tmp_path / "here"), place):
        store.spoil = spoiled(11, 0.05)
        for n in (6, 9):
            pages = [
                web.page(f"/{i}", f"<h1>Page {i} of the web</h1><article>{PARAGRAPHS}</article>") for i in range(n)
            ]
            (tmp_path / "list.txt").write_text("".join(f"{page}\n" for page in pages))
            for command in (
                f"crawl links {tmp_path}/list.txt --out {out}/links --default-score 5 --default-created 2015-06-01",
                f"crawl fetch {out}/links --out {out}/pages --delay 0 --allow-address 127.0.0.0/8:{web.port}"
                " --contact a@example.org",
                f"clean extract {out}/pages --out {out}/documents",
            ):
                assert run(command.split()) == 0, command
        store.clear()
        documents = PartSet.open(f"{out}/documents", "documents")
        rows = [row for part in range(len(documents.parts)) for row in documents.table(part).to_pylist()]
        found.append(sorted((row["url"], row["text"], row["karma"], row["link_ids"]) for row in rows))
        assert len(web.paths()) == 9 * len(found)
    web.close()
    assert len(found[0]) == 9
    assert found[0] == found[1]
