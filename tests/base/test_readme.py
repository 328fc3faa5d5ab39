"""The example stage in base/README.md runs unchanged, and the table names every file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORTS = """
from webtext.base.workers.attempt import Failed
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.parts.stage import PartContext, PartTask, run_parts, SetWriter
"""
USE = """
if __name__ == "__main__":
    import example

    writer = SetWriter("texts", "documents", Recipe(stage="test", code_version=1, settings={}))
    row = {"id": "a", "link_ids": [], "posts": [], "text": "quiet", "text_digest": "", "split": "train"}
    with writer.part(0, key="") as part:
        part.write([row])
        texts = writer.seal([part.publish()])
    made = example.shout(texts, "out", Run.quiet())
    print(made.table(0).to_pylist()[0]["text"], made.counts.kept)
"""


def test_the_example_stage_runs(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", (REPOSITORY / "base/README.md").read_text(), re.DOTALL))
    (tmp_path / "example.py").write_text(IMPORTS + code + USE)
    answer = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.stdout == "QUIET 1\n", answer.stderr


@pytest.mark.parametrize("folder", ["base", "app", "crawl"])
def test_the_table_names_every_file(folder: str) -> None:
    """A room with a page of its own names its files there."""
    for path in (REPOSITORY / folder).rglob("*.py"):
        page = next(parent / "README.md" for parent in path.parents if (parent / "README.md").is_file())
        if path.name != "__init__.py":
            assert f"`{path.relative_to(page.parent)}`" in page.read_text()
