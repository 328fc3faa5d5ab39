"""Documents on which a native core crashes, hangs or raises: each costs only itself, in every stage of the build."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "clean")]

from crash_functions import PlantingEngine  # noqa: E402
from set_contents import contents, rows  # noqa: E402
from warc_files import article  # noqa: E402

from webtext.base.console import Console  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.base.workers.local_engine import WorkerLimits  # noqa: E402
from webtext.clean.language import LanguageSettings  # noqa: E402
from webtext.clean.pipeline import CleanSettings, clean_pages  # noqa: E402
from webtext.clean.steps import Cleaning  # noqa: E402

pytestmark = pytest.mark.slow
SETTINGS = CleanSettings(language=LanguageSettings(language=("all",)))


def clean(folder: Path, documents: dict[str, str]) -> Cleaning:
    """Clean the documents (id -> text) in two files; `deaths` in the folder lists what the planted cores did."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": name, "text": text}) for name, text in documents.items()]
    half = len(lines) // 2
    for name, some in (("a", lines[:half]), ("b", lines[half:])):
        (folder / f"{name}.jsonl").write_text("\n".join(some))
    with PlantingEngine(2, WorkerLimits(record_seconds=5)) as engine:
        engine.deaths = folder / "deaths"
        run = Run(engine, Console("quiet"))
        return clean_pages([str(folder / "a.jsonl"), str(folder / "b.jsonl")], str(folder / "build"), SETTINGS, run)


def harmless() -> dict[str, str]:
    """Return forty documents: three are too short, one is a near duplicate, and the others are kept."""
    documents = {f"kept-{i:02d}": article(i, 60) for i in range(36)}
    documents |= {f"short-{i}": f"Only a few words of {i}." for i in range(3)}
    return documents | {"near": article(0, 60).replace("harbour", "haven", 1)}


def test_documents_that_harm_a_core_fail_alone_and_the_others_are_judged_as_without_them(tmp_path: Path) -> None:
    """Five crash, one hangs, one raises; the near duplicate of a document without shingle set is also left without."""
    undisturbed = clean(tmp_path / "undisturbed", harmless())
    harmed = {
        "signals": f"{article(50, 60)} HARM-signals-segfault",
        "signals too": f"{article(51, 60)} HARM-signals-segfault",
        "raises": f"{article(52, 60)} HARM-signals-raise",
        "sign": f"{article(53, 60)} HARM-sign-hang",
        "set": f"{article(54, 60)} HARM-sets-segfault",
        "its twin": f"{article(54, 60)} HARM-sets-segfault.",
        "write": "Too short. HARM-write-segfault",
    }
    result = clean(tmp_path / "harmed", harmed | harmless())
    failed = {failure.id: failure.reason for failure in result.corpus.failures()}
    assert failed == dict.fromkeys(harmed, "killed_worker") | {"raises": "raised"}
    assert result.counts.records_in == 47
    assert result.counts.kept == undisturbed.counts.kept == 36
    assert result.counts.dropped == undisturbed.counts.dropped == {"too_few_words": 3, "near_duplicate": 1}
    assert rows(result.corpus) == [row | {"id": row["id"]} for row in rows(undisturbed.corpus)]
    assert result.signals is not None
    assert [row["id"] for row in rows(result.signals)] == [row["id"] for row in rows(result.documents)]
    assert result.signals.counts.failed == {"killed_worker": 2, "raised": 1}
    assert not result.corpus.manifest["reproducible"]

    n_deaths = len((tmp_path / "harmed" / "deaths").read_text().splitlines())
    before = contents(tmp_path / "harmed" / "build")
    clean(tmp_path / "harmed", harmed | harmless())
    assert contents(tmp_path / "harmed" / "build") == before
    assert len((tmp_path / "harmed" / "deaths").read_text().splitlines()) == n_deaths, "a finished build was made again"


def test_a_core_that_crashes_on_every_text_of_a_batch_costs_each_of_them(tmp_path: Path) -> None:
    documents = {f"crash-{i}": f"{article(i, 60)} HARM-signals-segfault" for i in range(6)}
    result = clean(tmp_path / "build", documents | {"kept": article(9, 60)})
    assert result.counts.to_json()["failed"] == {"killed_worker": 6}
    assert [row["id"] for row in rows(result.corpus)] == ["kept"]


@pytest.mark.parametrize("where", ["sign", "write"])
def test_a_core_that_raises_costs_the_document(where: str, tmp_path: Path) -> None:
    text = f"{article(1, 60)} HARM-sign-raise" if where == "sign" else "Short. HARM-write-raise"
    result = clean(tmp_path / "build", {"raises": text, "kept": article(9, 60)})
    assert result.counts.failed == {"raised": 1}
    assert result.counts.kept == 1
