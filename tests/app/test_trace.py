"""Where each link of a small build ended, and why: forth by URL, back by document."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.app.inspect.trace import Tracer, find_cluster, find_rows
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet

HOST = "http://{}.example/".format


@pytest.mark.parametrize(
    ("name", "stage", "reason"),
    [
        ("kept", "corpus", None),
        ("held", "corpus", None),
        ("copy", "dropped", "exact_duplicate"),
        ("short", "dropped", "too_few_words"),
        ("forbidden", "pages", "robots_disallowed"),
        ("moved", "pages", "redirects_to_link"),
        ("deep", "documents", "too_deep"),
        ("empty", "documents", "empty_text"),
        ("nobody-voted", "links", "not_a_link"),
    ],
)
def test_a_url_ends_at_the_first_stage_that_did_not_hand_it_on(
    written_build: Path, name: str, stage: str, reason: str | None
) -> None:
    trace = Tracer(str(written_build)).trace(HOST(name))
    assert (trace.stage, trace.reason) == (stage, reason)


def test_many_urls_are_answered_as_each_alone(written_build: Path) -> None:
    tracer = Tracer(str(written_build))
    urls = [HOST(name) for name in ("held", "copy", "deep", "kept", "nobody-voted")]
    together = tracer.trace_all(urls)
    assert list(together) == urls
    assert together == {url: tracer.trace(url) for url in urls}
    assert tracer.trace_all([]) == {}


def test_a_document_leads_back_to_every_link_and_post_and_forth_to_its_tokens(written_build: Path) -> None:
    tracer = Tracer(str(written_build))
    kept = tracer.trace(HOST("kept"))
    assert kept.document is not None
    back = tracer.trace_document(kept.document["id"])
    assert back == kept
    assert {link["url"] for link in kept.links} == {HOST("kept"), HOST("moved")}
    assert [post["post_id"] for link in kept.links for post in link["posts"]] == ["p-kept", "p-moved"]
    assert kept.page is not None
    assert kept.page["warc_offset"] == 10
    assert [(row["shard"], row["start"]) for row in kept.tokens] == [("train-00000.tok", 0)]
    assert "text" not in kept.document
    assert len(kept.document["text_start"]) == 200


def test_a_link_that_was_redirected_shows_the_document_it_led_to(written_build: Path) -> None:
    moved = Tracer(str(written_build)).trace(HOST("moved"))
    assert moved.document is not None
    assert moved.document["url"].startswith(HOST("kept"))


@pytest.mark.parametrize("given", ["0" * 32, "\udcff", "http://kept.example/\udcff"])
def test_an_unknown_id_is_none_or_not_a_link_even_if_it_is_not_utf8(written_build: Path, given: str) -> None:
    found = Tracer(str(written_build)).find(given)
    assert found is None or found.reason == "not_a_link"


def test_a_build_under_way_says_how_far_it_is(written_build: Path, only_links: Path, tmp_path: Path) -> None:
    assert Tracer(str(only_links)).trace(HOST("kept")).reason == "not_fetched_yet"
    for name in ("links", "pages", "documents"):
        build = tmp_path / name
        for done in ("links", "pages", "documents")[: 1 + ("links", "pages", "documents").index(name)]:
            shutil.copytree(written_build / done, build / done)
    reasons = [Tracer(str(tmp_path / name)).trace(HOST("kept")).reason for name in ("links", "pages", "documents")]
    assert reasons == ["not_fetched_yet", "not_extracted_yet", "not_judged_yet"]


def test_a_build_that_began_with_somebodys_pages_traces_by_document(written_build: Path, tmp_path: Path) -> None:
    for name in ("documents", "corpus", "dropped", "tokens"):
        shutil.copytree(written_build / name, tmp_path / name)
    tracer = Tracer(str(tmp_path))
    row = next(find_rows(PartSet.open(str(tmp_path / "documents")), "url", [HOST("held")]))
    trace = tracer.trace_document(row["id"])
    assert trace is not None
    assert (trace.url, trace.stage, trace.link, trace.links) == (HOST("held"), "corpus", None, [])
    assert trace.tokens


def test_a_cluster_is_found_from_either_side(written_build: Path) -> None:
    tracer = Tracer(str(written_build))
    kept, copy = (tracer.trace(HOST(name)).document for name in ("kept", "copy"))
    assert kept is not None
    assert copy is not None
    for row in (kept, copy):
        cluster = find_cluster(str(written_build), row["id"])
        assert cluster is not None
        assert cluster.kept["id"] == kept["id"]
        assert [dropped["id"] for dropped in cluster.dropped] == [copy["id"]]
    held = tracer.trace(HOST("held")).document
    assert held is not None
    assert find_cluster(str(written_build), held["id"]) is None


def test_a_duplicate_of_an_earlier_build_is_shown_beside_the_document_that_stays_there(tmp_path: Path) -> None:
    from webtext.base.run import Run
    from webtext.clean.dedup.settings import DedupSettings
    from webtext.clean.pipeline import dedup_documents

    run = Run.quiet(1)
    for month, dedup in (
        ("october", DedupSettings(keep_index=str(tmp_path / "october" / "index"))),
        ("november", DedupSettings(index=(str(tmp_path / "october" / "index"),))),
    ):
        (tmp_path / f"{month}.jsonl").write_text(f'{{"id": "{month} 1", "text": "The very same words."}}\n')
        dedup_documents([str(tmp_path / f"{month}.jsonl")], str(tmp_path / month), dedup, run)
    run.engine.close()
    trace = Tracer(str(tmp_path / "november")).trace_document("november 1")
    assert trace is not None
    assert trace.twin is not None
    assert trace.twin["text_start"] == "The very same words."
    cluster = find_cluster(str(tmp_path / "november"), "november 1")
    assert cluster is not None
    assert (cluster.kept["id"], [row["id"] for row in cluster.dropped]) == ("october 1", ["november 1"])


@settings(max_examples=40)
@given(names=st.sets(st.sampled_from(["kept", "copy", "short", "held", "moved", "deep", "nobody"])))
def test_rows_found_by_key_are_those_that_a_full_scan_finds(written_build: Path, names: set[str]) -> None:
    wanted = {link_id(HOST(name)) for name in names}
    for kind, key in (("links", "link_id"), ("documents", "link_ids")):
        opened = PartSet.open(str(written_build / kind))
        rows = [row for part in opened.parts for row in opened.table(part).to_pylist()]
        expected = [row["url"] for row in rows if wanted & ({row[key]} if key == "link_id" else set(row[key]))]
        assert [row["url"] for row in find_rows(opened, key, wanted)] == expected


def test_rows_are_found_in_every_row_group_of_a_part(tmp_path: Path) -> None:
    from webtext.base.parts.recipe import Recipe
    from webtext.base.parts.stage import SetWriter

    writer = SetWriter(str(tmp_path / "tokens"), "tokens", Recipe(stage="test", code_version=1, settings={}))
    with writer.part(0, key="") as part:
        part.write(
            [
                {"shard": "s", "start": i, "length": 1, "id": f"{i % 2000:032x}", "source_part": "p", "row": i}
                for i in range(5000)
            ]
        )
        opened = writer.seal([part.publish()])
    found = list(find_rows(opened, "id", {f"{7:032x}", f"{1999:032x}"}))
    assert [row["row"] for row in found] == [7, 1999, 2007, 3999, 4007]
    assert list(find_rows(opened, "id", [])) == []
    assert list(find_rows(None, "id", ["x"])) == []
