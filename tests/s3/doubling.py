"""A stage for the tests of this folder, which processes of their own run as well."""

from __future__ import annotations

import sys
from pathlib import Path

from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartTask, run_parts
from webtext.base.run import Run

sys.path.append(str(Path(__file__).parents[1] / "base"))

import stage_functions  # noqa: E402


def double(url: str, n_parts: int, run: Run) -> PartSet:
    tasks = [PartTask(index=i, sources=(), payload={"numbers": [*range(i, i + 10)]}) for i in range(n_parts)]
    made = run_parts(
        stage_functions.double,
        tasks,
        recipe=Recipe(stage="test.double", code_version=1, settings={}),
        outputs={"kept": (f"{url}/kept", "dropped"), "dropped": (f"{url}/dropped", "dropped")},
        parents=[],
        run=run,
    )
    return made["kept"]
