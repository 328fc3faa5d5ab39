"""The alarm of dedup: domains and sources that lost almost all of their documents."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from dedup_sets import document, edited, prose, write_set
from set_contents import contents, write_jsonl

from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.clean.dedup import losses
from webtext.clean.dedup.losses import known_losses
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.pipeline import dedup_documents


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warn of ten documents already; the driver gives the bounds to its workers."""
    monkeypatch.setattr(losses, "ALARM_DOCUMENTS", 10)


def of_domain(domain: str | None, n: int, n_texts: int) -> list[dict[str, Any]]:
    """Documents of a domain, the first of which have texts of their own; the others repeat the last of these."""
    texts = [edited(prose(zlib.crc32(f"{domain} {i}".encode()), 60)) for i in range(n_texts)]
    return [document(f"{domain}-{i}", texts[min(i, n_texts - 1)], karma=n - i) | {"domain": domain} for i in range(n)]


def deduplicated(tmp_path, documents, run, n_parts=3) -> PartSet:
    given = write_set(tmp_path / "given", documents, n_parts)
    return dedup_documents([given.folder.url], str(tmp_path / "out"), DedupSettings(), run).dropped


def test_a_domain_that_lost_almost_everything_is_named_with_its_numbers(tmp_path, run, capsys):
    """Of 40 pages, all parts together, one is left: 39 of 40 is above 90 %. 9 of 10 isn't; 9 documents are too few."""
    documents = [
        *of_domain("wiped.example", 40, 1),
        *of_domain("nearly.example", 10, 1),
        *of_domain("few.example", 9, 1),
    ]
    deduplicated(tmp_path, [*documents, *of_domain("whole.example", 30, 30), *of_domain(None, 50, 1)], run)
    said = capsys.readouterr().err
    assert "dedup dropped 39 of the 40 documents of the domain 'wiped.example'" in said
    assert said.count("warning: dedup") == 1
    (loss,) = known_losses(Folder(tmp_path / "out"))["losses"]
    assert loss == {"of": "domain", "name": "wiped.example", "compared": 40, "dropped": 39}


def test_documents_that_dedup_did_not_compare_do_not_count(tmp_path, clean):
    """Too short texts are dropped by a rule first: 12 of the 13 that were compared, not 12 of 43."""
    rows = of_domain("a.example", 13, 1)
    rows = [row | {"text": " ".join([row["text"]] * 3)} for row in rows]
    short = [document(f"short-{i}", f"word {i}") | {"domain": "a.example"} for i in range(30)]
    given = write_set(tmp_path / "given", [*rows, *short])
    options = ["--rule", "too_few_words=20", "--workers", "1", "--language", "all"]
    clean("run", given.folder.url, "--out", str(tmp_path / "out"), "--profile", "minimal", *options)
    assert known_losses(Folder(tmp_path / "out"))["losses"] == [
        {"of": "domain", "name": "a.example", "compared": 13, "dropped": 12}
    ]


def test_an_imported_file_that_lost_almost_everything_is_named_as_a_source(tmp_path, clean):
    for name, texts in {"same": ["one text"] * 20, "other": [f"another text {i} of many" for i in range(20)]}.items():
        write_jsonl(tmp_path / f"{name}.jsonl", *({"text": text} for text in texts))
    files = [str(tmp_path / f"{name}.jsonl") for name in ("same", "other")]
    clean("dedup", *files, "--out", str(tmp_path / "out"), "--workers", "1")
    (loss,) = known_losses(Folder(tmp_path / "out"))["losses"]
    assert loss == {"of": "source", "name": "same.jsonl", "compared": 20, "dropped": 19}


def test_the_result_does_not_depend_on_the_layout_or_on_the_number_of_tasks(tmp_path, run, alone, monkeypatch):
    documents = [row for i in range(200) for row in of_domain(f"site-{i}.example", 11, 1)][::-1]
    first = deduplicated(tmp_path / "a", documents, run, n_parts=5)
    monkeypatch.setattr(losses, "DOCUMENTS_PER_TASK", 100)
    deduplicated(tmp_path / "b", documents, alone, n_parts=1)
    found = [known_losses(Folder(tmp_path / name / "out"))["losses"] for name in "ab"]
    assert found[0] == found[1]
    assert len(found[0]) == 200
    again = dedup_documents([str(tmp_path / "a" / "given")], str(tmp_path / "c"), DedupSettings(), alone).dropped
    assert contents(again.folder.local_path()) == contents(first.folder.local_path())


def test_a_long_list_is_cut_and_a_second_run_warns_again(tmp_path, run, capsys):
    documents = [row for i in range(8) for row in of_domain(f"site-{i}.example", 11, 1)]
    deduplicated(tmp_path, documents, run)
    said = capsys.readouterr().err
    assert said.count("dropped 10 of the 11") == 5
    assert "3 more domains and sources lost as much" in said
    stamp = (tmp_path / "out" / "losses.json").stat().st_mtime_ns
    deduplicated(tmp_path, documents, run)
    assert capsys.readouterr().err == said
    assert (tmp_path / "out" / "losses.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"dropped": 1}'])
def test_a_damaged_list_is_made_again_and_other_bounds_make_another(tmp_path, run, monkeypatch, damage):
    documents = of_domain("wiped.example", 40, 1)
    deduplicated(tmp_path, documents, run)
    path = tmp_path / "out" / "losses.json"
    expected = path.read_bytes()
    path.write_bytes(damage)
    deduplicated(tmp_path, documents, run)
    assert path.read_bytes() == expected
    monkeypatch.setattr(losses, "ALARM_RATIO", 1.0)
    deduplicated(tmp_path, documents, run)
    assert known_losses(Folder(tmp_path / "out"))["losses"] == []
