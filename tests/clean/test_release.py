"""A release lists a corpus's documents without their texts, and counts how many of them a rebuild reproduces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from set_contents import rows
from warc_files import article, page, write_pages

from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, dedup_documents
from webtext.clean.release import Comparison, compare_release, write_release
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import DecontaminationSettings

LENIENT = CleanSettings(rules=RuleSettings(rule=("too_few_words=5",)))


def build(folder: Path, run: Run, texts: dict[str, str], settings: CleanSettings | None = None) -> str:
    """A build of pages at http://NAME.example.org/, in two parts."""
    rows = [{"url": f"http://{name}.example.org/", "body": page(text, "The title")} for name, text in texts.items()]
    pages = write_pages(folder / "pages", [rows[:2], rows[2:]])
    clean_pages([pages.folder.url], str(folder / "build"), settings or CleanSettings(), run)
    return str(folder / "build")


def folder_of(released: PartSet) -> str:
    return str(released.folder.local_path().parent)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, run: Run) -> str:
    return build(tmp_path_factory.mktemp("first"), run, {str(i): article(i, 40) for i in range(1, 6)})


@pytest.fixture(scope="module")
def released(first: str, tmp_path_factory: pytest.TempPathFactory, run: Run) -> PartSet:
    return write_release(first, str(tmp_path_factory.mktemp("release") / "out"), run)


def test_a_release_has_every_column_but_the_authors_words(first: str, released: PartSet) -> None:
    corpus = rows(PartSet.open(f"{first}/corpus", "corpus"))
    assert rows(released) == [{k: v for k, v in row.items() if k not in ("text", "title", "author")} for row in corpus]
    assert len(corpus) == released.records == released.counts.kept == 5
    assert set(DOCUMENT.names) - set(rows(released)[0]) == {"text", "title", "author"}


def test_no_file_of_a_release_contains_a_word_of_the_texts(released: PartSet) -> None:
    for path in released.folder.local_path().parent.rglob("*"):
        if path.is_file():
            assert not any(word in path.read_bytes() for word in (b"nobody had seen", b"The title")), path


def test_the_recipe_records_how_documents_and_corpus_were_made(first: str, released: PartSet) -> None:
    made = {name: PartSet.open(f"{first}/{name}", name).recipe for name in ("documents", "corpus")}
    assert released.recipe["settings"] == made


def test_the_same_pages_built_again_elsewhere_match_to_the_last_text(
    released: PartSet, tmp_path: Path, run: Run
) -> None:
    again = build(tmp_path, run, {str(i): article(i, 40) for i in range(1, 6)})
    assert compare_release(folder_of(released), again) == Comparison(
        documents=5, same_text=5, other_text=0, missing=0, new_texts=0, same_recipe=True
    )


def test_a_check_counts_changed_missing_and_new_texts(released: PartSet, tmp_path: Path, run: Run) -> None:
    """1 and 2 are unchanged, 3 has another text, 4 moved to another URL, 5 is missing, 6 is new."""
    texts = {name: article(i, 40) for name, i in (("1", 1), ("2", 2), ("3", 13), ("moved", 4), ("6", 9))}
    found = compare_release(folder_of(released), build(tmp_path, run, texts, LENIENT))
    assert (found.documents, found.same_text, found.other_text, found.missing) == (5, 3, 1, 1)
    assert (found.new_texts, found.same_recipe) == (2, False)


def test_a_release_of_nothing_matches_nothing(released: PartSet, tmp_path: Path, run: Run) -> None:
    empty = build(tmp_path, run, {"1": "Too short to stay in any corpus of English."})
    nothing = write_release(empty, str(tmp_path / "release"), run)
    assert nothing.records == 0
    assert compare_release(folder_of(nothing), empty).documents == 0
    assert compare_release(folder_of(released), empty).missing == 5


def test_documents_without_url_match_by_text_alone(tmp_path: Path, run: Run) -> None:
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": article(number)}))
        dedup_documents([str(tmp_path / f"{name}.jsonl")], str(tmp_path / name), CleanSettings().dedup, run)
    made = write_release(str(tmp_path / "a"), str(tmp_path / "release"), run)
    found = compare_release(folder_of(made), str(tmp_path / "b"))
    assert (found.same_text, found.other_text, found.missing) == (0, 0, 1)


def test_two_workers_write_the_same_bytes_and_a_second_run_nothing(
    first: str, released: PartSet, tmp_path: Path, alone: Run
) -> None:
    other = write_release(first, str(tmp_path / "out"), alone)
    assert other.hash == released.hash
    again = replace(alone, dry_run=True)
    assert write_release(first, str(tmp_path / "out"), again).hash == other.hash
    with pytest.raises(DryRun):
        write_release(first, str(tmp_path / "elsewhere"), again)


def test_a_folder_without_a_corpus_is_named(tmp_path: Path, released: PartSet, run: Run) -> None:
    with pytest.raises(InputError, match="the part set '.*corpus' doesn't exist"):
        write_release(str(tmp_path), str(tmp_path / "out"), run)
    with pytest.raises(InputError, match="contains release, not corpus"):
        PartSet.open(released.folder.url, "corpus")


def test_a_release_is_written_neither_over_another_nor_into_a_build(
    first: str, released: PartSet, tmp_path: Path, run: Run
) -> None:
    other = build(tmp_path, run, {"1": article(1, 40)}, LENIENT)
    for out, message in ((folder_of(released), "was made with other settings"), (first, "is both input and output")):
        files = {path: path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
        with pytest.raises(InputError, match=message):
            write_release(first if out == first else other, out, replace(run, replaces=False))
        assert {path: path.read_bytes() for path in Path(out).rglob("*") if path.is_file()} == files


def test_the_verb_writes_or_checks_and_rejects_both_at_once(
    first: str, tmp_path: Path, clean: Callable[..., str]
) -> None:
    out = str(tmp_path / "release")
    clean("release", first, "--out", out, "--workers", "1")
    assert json.loads(clean("release", first, "--check", out, "--json")) | {"build": "", "release": ""} == {
        **{"build": "", "release": "", "documents": 5, "same_text": 5, "other_text": 0, "missing": 0, "new_texts": 0},
        "same_recipe": True,
    }
    assert clean("release", first, "--check", out).splitlines()[1].split() == ["same_text", "5"]
    with pytest.raises(ConfigError, match="--out and --check"):
        clean("release", first, "--check", out, "--out", "x")


def test_the_links_are_those_of_the_build_plus_links_made_from_documents(tmp_path: Path, run: Run) -> None:
    """Three of five links lead to the corpus, one by a redirect; one document came from a WARC, one has no URL."""
    texts = {name: article(i, 40) for i, name in enumerate(("a", "b", "short", "lone"))} | {"short": "Too few words."}
    warc = [{"url": f"http://{name}.example.org/", "body": page(text)} for name, text in texts.items()]
    moved = {"url": "http://moved.example.org/", "outcome": "linked", "final_url": warc[0]["url"]}
    pages = write_pages(tmp_path / "pages", [[*warc[:3], moved], warc[3:]])
    clean_pages([pages.folder.url], str(tmp_path / "build"), CleanSettings(), run)
    urls = [row["url"] for row in warc[:3]] + [moved["url"], "http://never-fetched.example.org/"]
    writer = SetWriter(str(tmp_path / "build/links"), "links", Recipe(stage="t", code_version=1, settings={"x": 1}))
    post = {"source": "reddit", "post_id": "p", "score": 9, "created": 7, "subreddit": "s", "retrieved": None}
    with writer.part(0, key="k") as part:
        part.write(
            [{"link_id": link_id(u), "url": u, "url_raw": u, "domain": "example.org", "karma": 9, "karma_sum": 9,
              "first_created": 7, "posts": [post], "split": "train"} for u in urls]
        )  # fmt: skip
        links = writer.seal([part.publish()])
    write_release(str(tmp_path / "build"), str(tmp_path / "out"), run)
    released = PartSet.open(str(tmp_path / "out" / "links"), "links")
    assert released.recipe["settings"] == {"x": 1}
    known = {row["url"]: row for row in rows(links)}
    found = {row["url"]: row for row in rows(released)}
    assert found.keys() == {urls[0], urls[1], moved["url"], warc[3]["url"]}
    lone = found.pop(str(warc[3]["url"]))
    assert all(row == known[url] for url, row in found.items())
    assert (lone["link_id"], lone["karma"], lone["first_created"], lone["posts"]) == (
        link_id(lone["url"]), 3, 1496318400, [],
    )  # fmt: skip


def test_the_settings_are_a_config_file_that_clean_run_takes_with_the_evaluation_sets(
    tmp_path: Path, run: Run, clean: Callable[..., str]
) -> None:
    settings = CleanSettings(
        rules=RuleSettings(profile="minimal", rule=("too_few_words=5",)),
        language=LanguageSettings(language=("all",)),
        dedup=DedupSettings(threshold=0.7, bands=30, rows=4),
        extract=ExtractSettings(markdown=True, scrub=True),
        decontaminate=DecontaminationSettings(against=(against := str(tmp_path / "set.jsonl"),), drop=True),
    )
    Path(against).write_text(json.dumps({"text": article(1, 40)}))
    made = build(tmp_path, run, {str(i): article(i, 40) for i in range(1, 4)}, settings)
    write_release(made, str(tmp_path / "out"), run)
    pages, again, config = (str(tmp_path / name) for name in ("pages", "again", "out/recipe.toml"))
    clean("run", pages, "--out", again, "--workers", "1", "--config", config, "--against", against)
    found = compare_release(str(tmp_path / "out"), again)
    assert (found.same_text, found.same_recipe) == (found.documents, True)
    clean_pages([pages], again, CleanSettings(), run)
    assert not compare_release(str(tmp_path / "out"), again).same_recipe
