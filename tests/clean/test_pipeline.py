"""Pages to corpus: every document is kept or dropped with its reason, the same way every time."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dedup_sets import document, write_set
from elsewhere import only_tasks_read
from set_contents import contents, rows, write_jsonl
from warc_files import article, site, write_pages

from webtext.base.errors import DryRun, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.clean.decontaminate.evaluation import evaluation_sets
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import (
    CleanSettings,
    clean_pages,
    count_rule_yields,
    dedup_documents,
    filter_documents,
    read_documents,
)
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.steps import Batch, Cleaning, Step, Verdict

GERMAN = (
    "Der alte Hafen der Stadt wurde aus Granit gebaut, und am Abend gehen die Leute dort noch immer spazieren. " * 9
)
SHORT = "This page says very little, but it says it in English."


def planted(folder: Path) -> PartSet:
    """Two parts: a page to keep, a copy with less karma, a near copy, a German page, a short one; another to keep."""
    near = article(1, 60).replace("harbour", "haven", 1)
    return write_pages(
        folder,
        [
            [
                site("copy", article(1, 60), karma=3),
                site("german", GERMAN),
                site("short", SHORT),
                site("kept", article(1, 60), karma=90),
            ],
            [site("near", near, karma=4), site("also", article(4, 50))],
        ],
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Cleaning:
    """The planted pages, cleaned with the default settings; tests don't change it."""
    folder = tmp_path_factory.mktemp("built")
    return clean_pages([planted(folder / "pages").folder.url], str(folder / "build"), CleanSettings(), run)


def test_each_planted_page_has_the_expected_outcome_and_reason(built: Cleaning) -> None:
    result = built
    assert [row["url"] for row in rows(result.corpus)] == ["http://kept.example/", "http://also.example/"]
    kept = {row["url"]: row["id"] for row in rows(result.documents)}["http://kept.example/"]
    why = {row["url"]: row for row in rows(result.dropped)}
    assert {url: row["reason"] for url, row in why.items()} == {
        "http://copy.example/": "exact_duplicate",
        "http://german.example/": "other_language",
        "http://short.example/": "too_few_words",
        "http://near.example/": "near_duplicate",
    }
    short, near = why["http://short.example/"], why["http://near.example/"]
    assert (short["stage"], short["value"], short["threshold"], short["text_start"]) == ("filter", 11, 100, SHORT)
    assert (near["stage"], near["threshold"], near["duplicate_of"]) == ("dedup", 0.8, kept)
    assert 0.8 <= near["value"] < 1
    assert len(near["text_start"]) == 200
    assert result.counts.to_json() == {
        "records_in": 6,
        "kept": 2,
        "dropped": {"exact_duplicate": 1, "near_duplicate": 1, "other_language": 1, "too_few_words": 1},
        "failed": {},
    }
    assert result.signals is not None
    assert [row["id"] for row in rows(result.signals)] == [row["id"] for row in rows(result.documents)]


def test_a_document_that_the_rules_drop_takes_no_other_one_with_it(tmp_path: Path, run: Run) -> None:
    """The copy with the most karma is in a language that is dropped: its twin is kept."""
    text = article(1, 60)
    pages = write_pages(tmp_path / "pages", [[site(i, text, karma=i)] for i in (1, 2)])
    settings = CleanSettings(rules=RuleSettings(rule=("too_few_words=none",)))
    assert clean_pages([pages.folder.url], str(tmp_path / "a"), settings, run).corpus.records == 1
    nobody = CleanSettings(language=LanguageSettings(language=("de",)))
    assert clean_pages([pages.folder.url], str(tmp_path / "b"), nobody, run).counts.dropped == {"other_language": 2}


def test_one_worker_and_two_give_the_same_bytes_and_a_second_run_does_nothing(
    tmp_path: Path, run: Run, alone: Run
) -> None:
    pages = planted(tmp_path / "pages").folder.url
    for name, each in (("one", alone), ("two", run)):
        clean_pages([pages], str(tmp_path / name), CleanSettings(), each)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "two").rglob("*")}
    dry = Run(run.engine, run.console, dry_run=True)
    clean_pages([pages], str(tmp_path / "two"), CleanSettings(), dry)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "two").rglob("*")} == times


def test_another_threshold_decides_again_and_leaves_documents_and_signals_alone(tmp_path: Path, run: Run) -> None:
    pages, out = planted(tmp_path / "pages").folder.url, tmp_path / "build"
    clean_pages([pages], str(out), CleanSettings(), run)
    before = contents(out)
    lenient = CleanSettings(rules=RuleSettings(rule=("too_few_words=5",)))
    result = clean_pages([pages], str(out), lenient, run)
    assert "http://short.example/" in {row["url"] for row in rows(result.corpus)}
    after = contents(out)
    unchanged = {name for name in before if before[name] == after.get(name)}
    assert {name for name in before if name.startswith(("documents/", "signals/"))} <= unchanged
    assert contents(out) != before
    clean_pages([pages], str(out), CleanSettings(), run)
    assert contents(out) == before


def test_a_dry_run_of_filter_counts_what_each_rule_drops_and_reads_no_text_where_signals_are(
    tmp_path: Path, run: Run, clean: Callable[..., str]
) -> None:
    result = clean_pages([planted(tmp_path / "pages").folder.url], str(tmp_path / "build"), CleanSettings(), run)
    documents = result.documents.folder.url
    before = contents(tmp_path)
    answers = []
    for take_texts_away in (False, True):
        if take_texts_away:
            for part in (tmp_path / "build" / "documents").glob("*.parquet"):
                part.write_bytes(bytes(part.stat().st_size))  # of the same size, but not Parquet
        answers.append(json.loads(clean("filter", documents, "--dry-run", "--json", "--rule", "too_few_words=20")))
    assert answers[0] == answers[1]
    assert (answers[0]["documents"], answers[0]["kept"]) == (6, 4)
    drops = {rule["rule"]: rule["dropped_alone"] for rule in answers[0]["rules"]}
    assert (drops["other_language"], drops["too_few_words"]) == (1, 1)
    assert set(contents(tmp_path)) == set(before)


def test_a_dry_run_of_filter_measures_documents_that_have_no_signals(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": article(1)}) + "\n" + json.dumps({"text": SHORT}))
    imported = dedup_documents([str(tmp_path / "a.jsonl")], str(tmp_path / "out"), DedupSettings(), run).documents
    dry = Run(run.engine, run.console, dry_run=True)
    yields = count_rule_yields([imported.folder.url], None, RuleSettings(), LanguageSettings(), dry)
    assert (yields.documents, yields.kept, yields.rules["too_few_words"].only) == (2, 1, 1)
    assert not (tmp_path / "out" / "signals").exists()
    with pytest.raises(DryRun):
        count_rule_yields([str(tmp_path / "a.jsonl")], None, RuleSettings(), LanguageSettings(), dry)


def test_yields_are_counted_elsewhere_from_signals_or_texts_and_the_driver_reads_no_part(
    tmp_path: Path, run: Run, elsewhere: Run
) -> None:
    for name, texts in {"a": [article(1), SHORT], "b": [article(2), SHORT, article(3)]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    documents = read_documents([str(tmp_path / "*.jsonl")], str(tmp_path / "out"), run).folder.url
    rules = RuleSettings()
    with only_tasks_read():
        measured = count_rule_yields([documents], None, rules, LanguageSettings(), elsewhere)
    filter_documents([documents], str(tmp_path / "out"), rules, LanguageSettings(), run)
    with only_tasks_read():
        read = count_rule_yields([documents], None, rules, LanguageSettings(), elsewhere)
    assert read.to_json() == measured.to_json()
    assert (measured.documents, measured.kept, measured.rules["too_few_words"].alone) == (5, 3, 2)


@pytest.mark.slow
def test_pages_become_a_corpus_elsewhere_and_the_driver_reads_no_part(tmp_path: Path, run: Run, elsewhere: Run) -> None:
    """Every step of `clean run`, with duplicates and an evaluation set."""
    texts = [article(number, 60) for number in range(5)]
    texts += [texts[0] + " One more sentence.", SHORT, texts[2]]
    pages = write_pages(tmp_path / "pages", [[site(i, text) for i, text in enumerate(texts)][n::3] for n in range(3)])
    evaluation = write_jsonl(tmp_path / "e.jsonl", {"text": texts[1][:300]})
    settings = CleanSettings(decontaminate=DecontaminationSettings(against=(evaluation,)))
    known = evaluation_sets([evaluation])
    with only_tasks_read(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("webtext.clean.decontaminate.comparison.evaluation_sets", lambda _: known)
        clean_pages([pages.folder.url], str(tmp_path / "there"), settings, elsewhere)
    result = clean_pages([pages.folder.url], str(tmp_path / "here"), settings, run)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert (result.counts.kept, sorted(result.counts.dropped.values())) == (5, [1, 1, 1])


def test_files_of_records_are_filtered_and_every_bad_line_is_counted(tmp_path: Path, run: Run) -> None:
    good = {"id": "mine", "url": "http://a.example/", "text": article(1) + "  \r\n", "split": "validation", "karma": 5}
    lines = [
        good,
        {"text": article(2)},
        {"id": "mine", "text": article(3)},
        {"text": SHORT},
        {"text": " "},
        {"url": "x"},
        [1],
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n\nthis is no JSON\n"
    (tmp_path / "a.jsonl").write_text(text)
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": article(5)}))
    result = filter_documents(
        [str(tmp_path / "*.jsonl*")], str(tmp_path / "out"), RuleSettings(), LanguageSettings(), run
    )
    assert result.documents.counts.to_json() == {
        "records_in": 9,
        "kept": 4,
        "dropped": {"empty_text": 1},
        "failed": {"no_text": 1, "not_json": 2, "repeated_id": 1},
    }
    assert result.counts.dropped == {"too_few_words": 1}
    first = rows(result.corpus)[0]
    assert (first["id"], first["url"], first["split"], first["karma"]) == ("mine", good["url"], "validation", 5)
    assert (first["text"], first["link_ids"]) == (article(1), [])
    assert len({row["id"] for row in rows(result.documents)}) == 4


def test_parquet_files_are_deduplicated_and_ids_do_not_depend_on_their_order(tmp_path: Path, run: Run) -> None:
    for name, texts in (("a", [article(1, 60), article(2, 60)]), ("b", [article(1, 60)])):
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
    inputs = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    result = dedup_documents(inputs, str(tmp_path / "out"), CleanSettings().dedup, run)
    assert (result.corpus.records, result.counts.dropped) == (2, {"exact_duplicate": 1})
    swapped = dedup_documents(inputs[::-1], str(tmp_path / "swapped"), CleanSettings().dedup, run)
    assert {row["id"] for row in rows(swapped.corpus)} == {row["id"] for row in rows(result.corpus)}


def test_a_corpus_is_not_filtered_onto_itself_and_nothing_is_touched(built: Cleaning, run: Run) -> None:
    out = built.corpus.folder.local_path().parent
    before = contents(out)
    with pytest.raises(InputError, match="written by 'clean.run', which 'clean.filter' would replace"):
        filter_documents([f"{out}/corpus"], str(out), RuleSettings(), LanguageSettings(), run)
    assert contents(out) == before


def test_a_corpus_that_another_stage_wrote_is_not_replaced(built: Cleaning, tmp_path: Path, run: Run) -> None:
    """Nor are documents imported beside it. The verb that wrote it may replace it with other settings."""
    documents, out = [built.documents.folder.url], str(tmp_path / "filtered")
    first = filter_documents(documents, out, RuleSettings(), LanguageSettings(), run)
    manifest = Path(out, "corpus", "manifest.json").read_bytes()
    message = r"corpus' contains corpus written by 'clean.filter', which 'clean.dedup' would replace\nchoose another"
    (tmp_path / "texts.jsonl").write_text('{"text": "Another text."}')
    for given in (documents, [str(tmp_path / "texts.jsonl")]):
        with pytest.raises(InputError, match=message):
            dedup_documents(given, out, DedupSettings(), run)
    with pytest.raises(InputError, match="'clean.filter', which 'clean.run' would replace"):
        clean_pages(given, out, CleanSettings(), run)
    assert Path(out, "corpus", "manifest.json").read_bytes() == manifest
    assert not any(Path(out, name).exists() for name in ("_dedup", "documents"))
    again = filter_documents(documents, out, RuleSettings(rule=("too_few_words=10",)), LanguageSettings(), run)
    assert again.corpus.records == first.corpus.records + 1


def test_files_without_texts_are_rejected(tmp_path: Path, run: Run) -> None:
    pq.write_table(pa.table({"words": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"not Parquet")
    (tmp_path / "c.jsonl").touch()
    for name, message in (
        ("a.parquet", "no column 'text'"),
        ("b.parquet", "kept 0 of 1 record .*: 1 is 'damaged_stream'"),
        ("c.jsonl", "the input contains none"),
    ):
        with pytest.raises(InputError, match=message):
            dedup_documents([str(tmp_path / name)], str(tmp_path / f"out {name}"), CleanSettings().dedup, run)


def test_an_altered_documents_part_is_rejected(built: Cleaning, tmp_path: Path, run: Run) -> None:
    documents = shutil.copytree(built.documents.folder.local_path(), tmp_path / "documents")
    path = documents / "part-00001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="part-00001.parquet' was altered"):
        dedup_documents([str(documents)], str(tmp_path / "out"), CleanSettings().dedup, run)


def test_no_documents_produce_sealed_empty_sets(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[{"url": "http://a.example/", "outcome": "failed"}]])
    result = clean_pages([pages.folder.url], str(tmp_path / "build"), CleanSettings(), run)
    assert (result.corpus.records, result.dropped.records) == (0, 0)


def test_a_dry_run_writes_nothing(tmp_path: Path, run: Run) -> None:
    pages = planted(tmp_path / "pages").folder.url
    with pytest.raises(DryRun):
        clean_pages([pages], str(tmp_path / "build"), CleanSettings(), Run(run.engine, run.console, dry_run=True))
    assert not (tmp_path / "build").exists()


def test_the_verb_answers_with_both_funnels_as_json_on_stdout(tmp_path: Path, clean: Callable[..., str]) -> None:
    pages = planted(tmp_path / "pages").folder.url
    out = str(tmp_path / "build")
    answer = json.loads(clean("run", pages, "--out", out, "--json", "--workers", "1", "--rule", "too_few_words=5"))
    assert answer["pages"]["kept"] == 6
    assert (answer["documents"], answer["counts"]["kept"]) == (3, 3)
    assert answer["counts"]["dropped"]["near_duplicate"] == 1


def test_values_that_no_column_can_store_are_dropped_alone(tmp_path: Path, run: Run) -> None:
    rows = [
        '{"text": "one", "date": -9223372036854775809}',
        '{"text": "two", "title": "t \\ud800", "url": "http://x/\\ud800", "id": "\\ud800"}',
        '{"text": "three", "id": {"a": 1}, "date": NaN}',
        '{"text": ' + "[" * 100_000 + "}",
        '{"text": "five", "karma": 100000000000000000000}',
        '{"text": "six", "karma": true}',
    ]
    (tmp_path / "odd.jsonl").write_text("\n".join(rows))
    result = dedup_documents([str(tmp_path / "odd.jsonl")], str(tmp_path / "out"), DedupSettings(), run)
    counts = result.documents.counts
    assert (counts.records_in, counts.kept, counts.failed) == (6, 3, {"not_json": 1, "karma_not_integer": 2})
    for row in result.corpus.table(0).to_pylist():
        assert (row["karma"], row["date"], row["title"], row["url"]) == (None, None, None, None)
        assert len(row["id"]) == 32


def test_a_task_does_not_grow_with_the_number_of_parts(
    tmp_path: Path, alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If every task had the part sets and digests of all parts, memory would grow with the square of their number."""
    settings = CleanSettings(language=LanguageSettings(language=("all",)))
    weights: list[dict[str, int]] = []  # by function, the size of its largest task
    map_ = alone.engine.map

    def weighing(function: Any, tasks: Any, **options: Any) -> Any:
        name = (tasks[0][0] if function.__name__ == "_make_part" else function).__qualname__ if tasks else ""
        weights[-1][name] = max([len(pickle.dumps(task)) for task in tasks] + [weights[-1].get(name, 0)])
        return map_(function, tasks, **options)

    monkeypatch.setattr(alone.engine, "map", weighing)
    for n_parts in (2, 12):
        documents = [document(f"{i:03d}", article(i // 2, 60) + " again" * (i % 2)) for i in range(12)]
        opened = write_set(tmp_path / f"{n_parts}" / "documents", documents, n_parts)
        weights.append({})
        clean_pages([opened.folder.url], str(tmp_path / f"{n_parts}" / "out"), settings, alone)
    few, many = weights
    assert {"_measure_part", "_sign_part", "_members_of_source", "_join_all", "_write_part"} <= set(few) & set(many)
    assert all(many[name] <= few[name] + 64 for name in few), (few, many)


class Refuses(Step):
    def __init__(self, *rows: int) -> None:
        self.rows, self.saw = rows, list[bool]()

    def judge(self, batch: Batch) -> list[Verdict]:
        self.saw = batch.kept.tolist()
        return [Verdict(f"in {self.rows}", np.isin(np.arange(3), self.rows))]


def test_the_first_step_that_refuses_a_document_is_the_reason_and_later_ones_see_that_it_is_lost() -> None:
    steps = [Refuses(1), Refuses(0, 1), Refuses()]
    found = Batch(pa.table({"id": ["a", "b", "c"]})).judged(steps).refused(failed=False)
    assert [(row, each.reason) for row, each in found] == [(0, "in (0, 1)"), (1, "in (1,)")]
    assert [step.saw for step in steps] == [[True] * 3, [True, False, True], [False, False, True]]
