"""Dedup's part sets: results that don't depend on ranges, components by either way, giant components, resuming."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dedup_sets import by_id, corpus, document, edited, in_process, index_of, prose, write_set
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.console import Console
from webtext.base.errors import InputError, RunFailed
from webtext.base.parts import exchange
from webtext.base.parts.exchange import RangeWriter, read_range
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Parts, Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine, WorkerLimits
from webtext.clean.dedup import candidates, components, copies, settle
from webtext.clean.dedup.components import EDGES, MEMBERS, find_components
from webtext.clean.dedup.documents import ComparedPart, Work
from webtext.clean.dedup.find import find_duplicates
from webtext.clean.dedup.settings import DedupSettings


@pytest.fixture(autouse=True, scope="module")
def unsynced():
    """Most runs here are in this process, and nothing of them has to survive it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


SMALL = (
    (copies, "TEXTS_PER_RANGE", 20),
    (candidates, "KEYS_PER_RANGE", 500),
    (candidates, "PAIRS_AT_A_TIME", 5),
    (candidates, "EDGES_PER_RANGE", 30),
    (components, "EDGES_PER_RANGE", 30),
    (settle, "MEMBERS_PER_BUCKET", 4),
    (exchange, "RUN_BYTES", 3000),
)


def many_kinds(template: int = 0) -> list[dict]:
    documents = []
    for family in range(60):
        words = prose(family, 60)
        documents += [document(f"{family}-{i}", edited(words, *range(i))) for i in range(family % 4)]
        documents += [document(f"{family}-copy", edited(words), split="validation")] * (family % 5 == 0)
    documents += [document(f"equal {i}", "always the same", karma=i % 7) for i in range(200)]
    documents += [document(f"wordless {i}", "—" * (i % 2 + 1)) for i in range(5)]
    common = " ".join(prose(99, 200))
    return documents + [document(f"page {i}", f"{common} number {i}") for i in range(template)]


@pytest.mark.parametrize("joined_edges", [components.JOINED_EDGES, 20])
@pytest.mark.parametrize("template", [0, pytest.param(150, marks=pytest.mark.slow)])
def test_results_depend_neither_on_ranges_nor_on_runs_nor_on_how_components_are_joined(
    tmp_path, monkeypatch, template, joined_edges
):
    """Ranges of tens of rows instead of many thousands give the same rows and the same counts."""
    given = write_set(tmp_path / "given", many_kinds(template), 3)
    whole = find_duplicates(given, DedupSettings(), Folder(tmp_path / "whole"), in_process())
    for module, name, value in (*SMALL, (components, "JOINED_EDGES", joined_edges)):
        monkeypatch.setattr(module, name, value)
    parts = find_duplicates(given, DedupSettings(), Folder(tmp_path / "parts"), in_process())
    assert len(by_id(given, whole)) > 50
    assert by_id(given, parts) == by_id(given, whole)
    assert parts.clusters == whole.clusters
    assert parts.clusters.counted["largest_component"] == (150 if template else 3)


def test_the_set_of_rows_has_the_same_bytes_for_any_workers_and_ranges(tmp_path, run, monkeypatch):
    given = write_set(tmp_path / "given", corpus(3), 3)
    two = find_duplicates(given, DedupSettings(), Folder(tmp_path / "two"), run)
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
    one = find_duplicates(given, DedupSettings(), Folder(tmp_path / "one"), in_process())
    rows = [PartSet.open(str(tmp_path / name / "duplicates")) for name in ("one", "two")]
    assert [part.sha256 for part in rows[0].parts] == [part.sha256 for part in rows[1].parts]
    assert one.clusters == two.clusters


def test_an_index_is_compared_in_any_number_of_ranges(tmp_path, monkeypatch):
    documents, run = corpus(5), in_process()
    old = write_set(tmp_path / "old", documents[::3], 2)
    new = write_set(tmp_path / "new", [row for i, row in enumerate(documents) if i % 3], 3)
    chosen = DedupSettings(index=(index_of(old, tmp_path / "index", DedupSettings(), run).folder.url,))
    whole = find_duplicates(new, chosen, Folder(tmp_path / "whole"), run)
    for module, name, value in (*SMALL, (components, "JOINED_EDGES", 10)):
        monkeypatch.setattr(module, name, value)
    parts = find_duplicates(new, chosen, Folder(tmp_path / "parts"), run)
    assert whole.clusters.of_index > 5
    assert parts.clusters == whole.clusters
    assert by_id(new, parts) == by_id(new, whole)


def exchanged(folder: Path, pairs: np.ndarray, n_ranges: int) -> PartSet:
    writer = SetWriter(str(folder), "exchange", Recipe(stage="test", code_version=1, settings={}))
    with writer.part(0, key="") as part:
        with RangeWriter(part, EDGES, n_ranges) as ranges:
            ranges.add(pairs[0] % np.uint64(n_ranges), pa.table(list(pairs), schema=EDGES))
        return writer.seal([part.publish()])


def joined(
    folder: Path, pairs: list[tuple[int, int]], of_copies: list[tuple[int, int]] = ()
) -> dict[int, tuple[int, bool]]:
    """document -> (root, near), as find_components has it; document n is row n of the only source."""
    edges = exchanged(folder / "edges", np.array(pairs, np.uint64).reshape(-1, 2).T, 3)
    # copies are by source, of which there is one
    copied = exchanged(folder / "copies", np.array(of_copies, np.uint64).reshape(-1, 2).T, 1)
    source = ComparedPart(None, None, 0, 0)
    made = find_components(Work(Folder(folder / "work"), [source], DedupSettings(), in_process()), edges, copied)
    rows = [row for batch in read_range(made, 0, MEMBERS) for row in batch.to_pylist()]
    found = {row["document"]: (row["root"], row["near"]) for row in rows}
    assert len({tuple(row.values()) for row in rows}) == len(found)  # it may repeat a row, but not change one
    return found


def by_search(pairs: list[tuple[int, int]], of_copies: list[tuple[int, int]]) -> dict[int, tuple[int, bool]]:
    near: dict[int, set[int]] = {}
    for left, right in [*pairs, *of_copies]:
        near.setdefault(left, set()).add(right)
        near.setdefault(right, set()).add(left)
    copied, found = {document for document, _ in of_copies}, {}
    for start in near:
        component, waiting = set(), [start]
        while waiting:
            node = waiting.pop()
            if node not in component:
                component.add(node)
                waiting += near[node]
        texts = component - copied
        found[start] = (min(texts), len(texts) > 1)
    return found


GRAPHS = {
    "chain": [(i, i + 1) for i in range(200)],
    "chain in a bad order": [(i, (i * 7 + 7) % 211) for i in range(0, 203, 7)] + [(i, i + 1) for i in range(0, 200, 3)],
    "star": [(150, i) for i in range(150)],
    "stars in a chain": [(20 * i + j, 20 * i) for i in range(10) for j in range(1, 20)]
    + [(20 * i + 19, 20 * i + 39) for i in range(9)],
    "clique": list(itertools.combinations(range(24), 2)),
    "one giant and many pairs": [(i // 2, i) for i in range(1, 300)]
    + [(1000 + 2 * i, 1001 + 2 * i) for i in range(50)],
    "ring": [(i, (i + 1) % 128) for i in range(128)],
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("joined_edges", [1 << 20, 0])
def test_components_of_the_worst_graphs_are_found_by_either_way(graph, joined_edges, tmp_path, monkeypatch):
    monkeypatch.setattr(components, "JOINED_EDGES", joined_edges)
    monkeypatch.setattr(components, "EDGES_PER_RANGE", 40)
    copied = [(2000 + i, left) for i, (left, _) in enumerate(GRAPHS[graph][::9])] + [(3000, 2999), (3001, 2999)]
    assert joined(tmp_path, GRAPHS[graph], copied) == by_search(GRAPHS[graph], copied)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(13, 25)), max_size=20))
def test_components_of_any_graph_are_found_by_either_way(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("graph")
    for way, joined_edges in (("joined", 1000), ("stars", -1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(components, "JOINED_EDGES", joined_edges)
            patch.setattr(components, "EDGES_PER_RANGE", 5)
            assert joined(folder / way, pairs) == by_search(pairs, [])


def test_rounds_of_stars_grow_with_the_logarithm_of_a_chain(tmp_path, monkeypatch):
    monkeypatch.setattr(components, "JOINED_EDGES", 0)
    source = random.Random(1)
    names = source.sample(range(10**6), 1000)
    joined(tmp_path, list(itertools.pairwise(names)))
    n_rounds = len(list((tmp_path / "work").glob("stars-*")))
    assert n_rounds <= 4 * math.log2(1000)


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8])
def test_a_pair_at_the_threshold_fails_the_check_of_sketches_less_than_once_in_a_hundred_thousand(threshold):
    """Bits of equal values agree, and of different ones half of them: (1 + J) / 2. A bit more would lose too many."""
    p = (1 + threshold) / 2
    least = candidates.min_agreement(p)
    chances = [math.comb(128, bits) * p**bits * (1 - p) ** (128 - bits) for bits in range(129)]
    assert sum(chances[:least]) < 1e-5 < sum(chances[: least + 3])


def test_sketches_of_signatures_agree_in_the_bits_of_equal_values():
    source = np.random.default_rng(1)
    left = source.integers(0, 256, (2000, 128), np.uint8)
    right = np.where(source.random((2000, 128)) < 0.8, left, source.integers(0, 256, (2000, 128), np.uint8))
    words = [candidates.sketches(each).view(np.uint64) for each in (left, right)]
    common = 128 - np.bitwise_count(words[0] ^ words[1]).sum(axis=1)
    assert abs(common.mean() - 0.9 * 128) < 0.5
    assert (common >= candidates.min_agreement(0.9)).all()


class Stopping:
    """An engine that works in process, and damages or ends at a stage."""

    workers = 1

    def __init__(self, name: str, act) -> None:
        self._name, self._act, self._run = name, act, in_process()

    def map(self, function, tasks, **options):
        folders = [folder for task in tasks if function.__name__ == "_make_part" for folder, _ in task[1].values()]
        if any(Path(folder.url).name == self._name for folder in folders):
            self._act()
        return self._run.engine.map(function, tasks, **options)


def slow_but(values, quick):
    """Parameters, of which all are slow but those with a quick one of these first."""
    given = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*each, marks=[] if each[0] in quick else [pytest.mark.slow]) for each in given]


STAGES = ("texts", "copies", "bands", "edges", "components", "members", "settled", "duplicates")


@pytest.mark.parametrize("stage", slow_but(STAGES, ["texts", "edges", "duplicates"]))
def test_a_run_that_ended_at_any_stage_is_resumed_there(stage, tmp_path):
    given, work = write_set(tmp_path / "given", corpus(2), 2), Folder(tmp_path / "work")

    def ends():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_duplicates(given, DedupSettings(), work, Run(Stopping(stage, ends), Console("quiet")))
    before = STAGES[: STAGES.index(stage)]
    if before:
        engine = Stopping(before[-1], lambda: pytest.fail(f"{before[-1]} was made"))
        find_duplicates(given, DedupSettings(), work, Run(engine, Console("quiet")))
    whole = find_duplicates(given, DedupSettings(), Folder(tmp_path / "whole"), in_process())
    assert by_id(given, find_duplicates(given, DedupSettings(), work, in_process())) == by_id(given, whole)


@pytest.mark.parametrize(("damaged", "stage"), slow_but(itertools.pairwise(STAGES[:-1]), ["texts", "members"]))
def test_an_exchange_that_changes_between_two_stages_is_an_error_and_is_made_again_once_removed(
    damaged, stage, tmp_path
):
    given, work = write_set(tmp_path / "given", corpus(2), 2), Folder(tmp_path / "work")

    def flips():
        path = work.child(damaged).local_path("part-00000.exchange")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    with pytest.raises(InputError, match=r"part-00000.exchange' was altered.*\nremove that file, then rerun"):
        find_duplicates(given, DedupSettings(), work, Run(Stopping(stage, flips), Console("quiet")))
    work.child(damaged).remove("part-00000.exchange")
    whole = find_duplicates(given, DedupSettings(), Folder(tmp_path / "whole"), in_process())
    assert by_id(given, find_duplicates(given, DedupSettings(), work, in_process())) == by_id(given, whole)


def test_runs_of_some_parts_and_of_all_give_the_same(tmp_path):
    given, work = write_set(tmp_path / "given", corpus(2), 2), Folder(tmp_path / "work")
    for number in (1, 2):
        with pytest.raises(RunFailed):
            find_duplicates(given, DedupSettings(), work, dataclasses.replace(in_process(), parts=Parts(number, 2)))
    found = find_duplicates(given, DedupSettings(), work, in_process())
    assert {path.name for path in work.local_path().iterdir()} == {"signatures", "duplicates", "duplicates.json"}
    assert by_id(given, found) == by_id(
        given, find_duplicates(given, DedupSettings(), Folder(tmp_path / "whole"), in_process())
    )


@pytest.mark.slow
def test_a_giant_component_is_settled_within_a_workers_memory(tmp_path):
    """50,000 pages of one template, 1,500 shingles each: 600 MB of shingles, in a worker of 250 MiB."""
    words = " ".join(prose(8, 1500))
    documents = [document(f"{i:05}", f"{words} page number {i}") for i in range(50_000)]
    given = write_set(tmp_path / "given", documents, 20)
    del documents
    with LocalEngine(workers=2, limits=WorkerLimits(memory_bytes=250 << 20)) as engine:
        found = find_duplicates(given, DedupSettings(), Folder(tmp_path / "work"), Run(engine, Console("quiet")))
    assert found.clusters.largest == [("00000", 50_000)]
    assert found.clusters.counted["largest_component"] == 50_000
    assert found.clusters.counted["verified"] == 49_999
