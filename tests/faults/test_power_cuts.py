"""Power cuts, failing calls and flipped bytes at every kind of output: a rerun gives the same bytes or a clear error.

`make drills` runs many more of these (`drills.py`), and on runs that take longer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from disk import FIXED, everything, sampled  # noqa: E402
from drills import Drills, drill, named  # noqa: E402
from stage import Stage  # noqa: E402
from stories import STORIES  # noqa: E402

DrillsOf = Callable[[str], Drills]
QUICK = ("stage", "stage again", "tokenizer", "pack", "train", "links", "crawl")


@pytest.fixture(scope="module")
def drills_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrillsOf]:
    """Return the drills of a story: its recorded run is made on first use."""
    scratch, made = tmp_path_factory.mktemp("drills"), dict[str, Drills]()
    stage = Stage(scratch / "stage")

    def drills(name: str) -> Drills:
        if name not in made:
            made[name] = Drills(stage, STORIES[name], scratch)
        return made[name]

    yield drills
    stage.close()


@pytest.mark.parametrize("story", QUICK)
def test_a_finished_run_loses_nothing_in_a_power_cut(story: str, drills_of: DrillsOf) -> None:
    drills = drills_of(story)
    drills.durable()
    assert drills.summary.wrong == []


@pytest.mark.parametrize("story", QUICK)
def test_at_every_moment_a_file_that_vouches_for_others_is_right(story: str, drills_of: DrillsOf) -> None:
    drills = drills_of(story)
    drills.promises(drills.disk.moments(), {**FIXED, "everything": everything, "sample": sampled(0)})
    assert drills.summary.wrong == []


@pytest.mark.parametrize("story", QUICK)
def test_a_run_resumes_from_what_a_power_cut_leaves(story: str, drills_of: DrillsOf) -> None:
    drills = drills_of(story)
    drills.power_cuts(drills.moments(3, seed=3), {**FIXED, "sample": sampled(2)})
    assert drills.summary.wrong == []


def test_a_run_resumes_after_calls_that_fail_and_workers_that_die(drills_of: DrillsOf) -> None:
    drills = drills_of("stage")
    for name in ("failing calls", "short writes", "killed run", "killed worker", "locked folder"):
        named(n_cuts=0, n_faults=9, n_decays=0, seed=4)[name](drills)
    assert drills.summary.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_a_run_resumes_after_every_kind_of_fault(story: str, drills_of: DrillsOf) -> None:
    """About thirty faults for each run, those of the promises not counted."""
    found = drill(drills_of(story), n_cuts=4, n_faults=9, n_decays=3, seed=1)
    assert found.wrong == []
