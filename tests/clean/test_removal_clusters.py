"""Removal on request drops a document with its mirrors and changes nothing else, not even a file's time."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from set_contents import rows
from warc_files import article, page, site, write_pages

from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.clean.command import group
from webtext.clean.dedup.reference import jaccard, shingle_set
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanResult, CleanSettings, clean_pages, dedup_documents, filter_documents
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import RemovalSettings

WORDS = [
    f"{first}{second}" for first in ("ba", "ko", "mi", "ru", "te", "za") for second in ("lo", "na", "pi", "su", "ve")
]


def listed(folder: Path, *lines: str) -> RemovalSettings:
    """Write a removal list of these lines."""
    path = folder / f"requests-{len(list(folder.glob('requests-*')))}.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return RemovalSettings(remove=(str(path),))


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and bytes, except for files that record when and where a run took place."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "run.json")
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def words(seed: int, n: int = 120) -> list[str]:
    return random.Random(seed).choices(WORDS, k=n)


def with_changes(text: Sequence[str], *places: int) -> list[str]:
    """A changed word is in five shingles: of 116 shingles, one change leaves J = 111/121 = .92, two .84, three .76."""
    return ["changed" if i in places else word for i, word in enumerate(text)]


def deduplicated(folder: Path, run: Run, parts: Sequence[Mapping[str, Any]], *lines: str) -> CleanResult:
    """`clean dedup` of documents: each mapping is one file, id -> text (or a record)."""
    for number, part in enumerate(parts):
        records = [value if isinstance(value, dict) else {"text": " ".join(value)} for value in part.values()]
        records = [
            {"id": name, "karma": 1, "split": "train"} | record for name, record in zip(part, records, strict=True)
        ]
        (folder / f"part-{number}.jsonl").write_text("\n".join(map(json.dumps, records)))
    inputs = [str(folder / f"part-{number}.jsonl") for number in range(len(parts))]
    remove = listed(folder, *lines) if lines else None
    return dedup_documents(inputs, str(folder / "out"), DedupSettings(), run, remove)


def kept(result: CleanResult) -> set[str]:
    documents = {row["id"] for row in rows(result.documents)}
    corpus, dropped = ([row["id"] for row in rows(each)] for each in (result.corpus, result.dropped))
    assert sorted(corpus + dropped) == sorted(documents)
    assert result.counts.records_in == len(corpus) + len(dropped)
    assert result.counts.kept == len(corpus)
    return set(corpus)


def test_mirrors_of_a_page_are_removed_with_it_and_record_the_line(tmp_path: Path, run: Run) -> None:
    """The requested page has less karma than its mirrors: without the list it would be dropped as their duplicate."""
    text = article(1, 60)
    near = text + " And one more sentence is added at the end of this copy."
    sites = {"asked": (3, text), "twin": (90, text), "near": (5, near), "other": (4, article(2, 60))}
    pages = write_pages(tmp_path / "pages", [[site(name, t, karma=k)] for name, (k, t) in sites.items()])
    remove = listed(tmp_path, "# a letter of May", "https://asked.example/", "example.org")
    result = clean_pages([pages.folder.url], str(tmp_path / "build"), CleanSettings(remove=remove), run)
    ids = {row["url"]: row["id"] for row in rows(result.documents)}
    assert [row["url"] for row in rows(result.corpus)] == ["http://other.example/"]
    dropped = {row["url"].split("/")[2].split(".")[0]: row for row in rows(result.dropped)}
    asked, twin, other = dropped["asked"], dropped["twin"], dropped["near"]
    assert {row["request"] for row in dropped.values()} == {"https://asked.example/"}
    assert {(row["stage"], row["text_start"]) for row in dropped.values()} == {("remove", "")}
    assert (asked["reason"], asked["value"], asked["duplicate_of"]) == ("removed_on_request", None, None)
    for row, similarity in ((twin, 1.0), (other, None)):
        assert (row["reason"], row["threshold"]) == ("mirror_of_removed", 0.8)
        assert row["duplicate_of"] in (ids["http://asked.example/"], ids["http://twin.example/"])
        assert 0.8 <= row["value"] <= 1
        assert similarity in (None, row["value"])
    assert result.counts.to_json() == {
        "records_in": 4,
        "kept": 1,
        "dropped": {"removed_on_request": 1, "mirror_of_removed": 2},
        "failed": {},
    }
    assert result.removed is not None
    assert [line.written for line in result.removed.unmatched] == ["example.org"]
    card = (tmp_path / "build" / "corpus" / "README.md").read_text()
    assert "  - removal lists that named documents: 1\n" in card
    assert "| 2 | dropped: `mirror_of_removed` |\n| 1 | dropped: `removed_on_request` |" in card


def test_a_link_that_led_elsewhere_names_the_document_it_led_to(tmp_path: Path, run: Run) -> None:
    page_url, other = "http://page.example/", "http://leads-there.example/"
    pages = write_pages(
        tmp_path / "pages",
        [[{"url": page_url, "body": page(article(1, 60))}, {"url": other, "outcome": "linked", "final_url": page_url}]],
    )
    settings = CleanSettings(remove=listed(tmp_path, other))
    result = clean_pages([pages.folder.url], str(tmp_path / "build"), settings, run)
    assert [(row["url"], row["request"]) for row in rows(result.dropped)] == [(page_url, other)]


def test_a_document_that_a_rule_drops_takes_its_mirror_along(tmp_path: Path, run: Run) -> None:
    """The page that is named is one word too short for the rule, and its mirror is not."""
    text = " ".join(article(1, 20).split()[:199])
    pages = write_pages(
        tmp_path / "pages", [[site(name, t) for name, t in (("asked", text), ("long", f"{text} more"))]]
    )
    rules = RuleSettings(rule=("too_few_words=200",))
    settings = CleanSettings(rules=rules)
    before = clean_pages([pages.folder.url], str(tmp_path / "build"), settings, run)
    assert [row["url"] for row in rows(before.corpus)] == ["http://long.example/"]
    settings = CleanSettings(rules=rules, remove=listed(tmp_path, "asked.example"))
    result = clean_pages([pages.folder.url], str(tmp_path / "build"), settings, run)
    assert result.counts.dropped == {"removed_on_request": 1, "mirror_of_removed": 1}


def test_of_a_chain_goes_what_is_near_the_document_and_what_was_dropped_for_it(tmp_path: Path, run: Run) -> None:
    """a ~ b ~ c, a unlike c: b is dropped for a. Requesting b removes all three, a removes a and b, c only c."""
    text = words(1)
    a, b, c = text, with_changes(text, 20), with_changes(text, 20, 60, 100)
    similarity = {
        pair: jaccard(*(shingle_set(" ".join(each), 5) for each in texts))
        for pair, texts in {"ab": (a, b), "bc": (b, c), "ac": (a, c)}.items()
    }
    assert similarity["ab"] >= 0.8
    assert similarity["bc"] >= 0.8
    assert similarity["ac"] < 0.8
    chain = [{"a": {"text": " ".join(a), "karma": 9}, "b": b}, {"c": c, "d": words(2)}]
    assert kept(deduplicated(tmp_path, run, chain)) == {"a", "c", "d"}
    assert kept(deduplicated(tmp_path, run, chain, "id:b")) == {"d"}
    assert kept(deduplicated(tmp_path, run, chain, "id:a")) == {"c", "d"}
    assert kept(deduplicated(tmp_path, run, chain, "id:c")) == {"a", "d"}


def test_texts_without_words_have_mirrors_too(tmp_path: Path, run: Run) -> None:
    texts = {"a": ["\N{ROCKET}" * 9], "b": ["\N{ROCKET}" * 9], "c": ["\N{SPARKLES}" * 9]}
    assert kept(deduplicated(tmp_path, run, [texts], "id:b")) == {"c"}


def test_only_parts_with_removed_documents_are_written_again(tmp_path: Path, run: Run) -> None:
    """Of four parts the second contains the page, the fourth its mirror; documents, signals and pairs don't change."""
    text = article(1, 60)
    bodies = {name: article(i, 60) for i, name in enumerate(("a", "b", "c", "d"), 2)} | {"asked": text, "mirror": text}
    parts = [["a"], ["b", "asked"], ["c"], ["d", "mirror"]]
    pages = write_pages(tmp_path / "pages", [[site(name, bodies[name]) for name in part] for part in parts])
    out = tmp_path / "build"
    clean_pages([pages.folder.url], str(out), CleanSettings(), run)
    before = state(out)
    settings = CleanSettings(remove=listed(tmp_path, "asked.example"))
    result = clean_pages([pages.folder.url], str(out), settings, run)
    assert result.counts.dropped == {"removed_on_request": 1, "mirror_of_removed": 1}
    after = state(out)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    parts_of = {f"{kind}/{name}" for kind in ("corpus", "dropped") for name in ("manifest.json", "part-00001.parquet",
                "part-00003.parquet", "_parts/00001.json", "_parts/00003.json")}  # fmt: skip
    parts_of |= {"dropped/part-00001.exchange", "dropped/part-00003.exchange"}
    assert changed <= parts_of | {"corpus/README.md", "losses.json"}
    assert {"corpus/manifest.json", "dropped/part-00001.parquet", "dropped/part-00003.parquet"} <= changed
    clean_pages([pages.folder.url], str(out), CleanSettings(), run)
    assert {name: data for name, (_, data) in state(out).items()} == {name: data for name, (_, data) in before.items()}


@pytest.mark.usefixtures("clean")
def test_lines_that_name_nothing_change_nothing_and_are_reported(tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1, 60))]])
    arguments = ["run", pages.folder.url, "--out", str(tmp_path / "build"), "--json"]
    CliRunner().invoke(group, arguments, catch_exceptions=False)
    before = state(tmp_path / "build")
    lines = tmp_path / "lines.txt"
    lines.write_text("example.org\n# nobody\nhttps://a.example/other\n")
    done = CliRunner().invoke(group, [*arguments, "--remove", str(lines)], catch_exceptions=False)
    assert json.loads(done.stdout)["removal"] == {
        "lines": 2,
        "unmatched": [
            {"list": str(lines), "number": 1, "written": "example.org"},
            {"list": str(lines), "number": 3, "written": "https://a.example/other"},
        ],
        "removed_on_request": 0,
        "mirror_of_removed": 0,
    }
    assert f"2 of 2 lines of removal lists name no document here:\n  '{lines}' line 1: 'example.org'" in done.stderr
    assert state(tmp_path / "build") == before


def test_votes_and_requests_can_be_combined(tmp_path: Path, run: Run) -> None:
    """Three pairs: the best copy lost its votes, was requested, or both. Only in the first is the other copy kept."""
    sites = {f"{pair}{karma}": (pair, karma) for pair in ("votes", "asked", "both") for karma in (3, 90)}
    texts = {"votes": article(1, 60), "asked": article(2, 60), "both": article(3, 60)}
    pages = write_pages(
        tmp_path / "pages",
        [[site(name, texts[pair], karma=karma)]
         for name, (pair, karma) in sites.items()],
    )  # fmt: skip
    writer = SetWriter(str(tmp_path / "removals"), "removals", Recipe(stage="test", code_version=1, settings={}))
    urls = ["http://votes90.example/", "http://both90.example/"]
    with writer.part(0, key="k") as part:
        part.write([{"link_id": link_id(url), "url": url, "posts": [], "posts_left": 0} for url in urls])
        published = part.publish()
    votes = writer.seal([published])
    given = listed(tmp_path, "asked90.example", "both90.example").remove
    settings = CleanSettings(remove=RemovalSettings(remove=(votes.folder.url, *given)))
    result = clean_pages([pages.folder.url], str(tmp_path / "build"), settings, run)
    assert [row["url"] for row in rows(result.corpus)] == ["http://votes3.example/"]
    reasons = {row["url"].split("/")[2].removesuffix(".example"): row["reason"] for row in rows(result.dropped)}
    assert reasons == {
        "votes90": "removed_by_user",
        "asked90": "removed_on_request",
        "asked3": "mirror_of_removed",
        "both90": "removed_on_request",
        "both3": "mirror_of_removed",
    }
    kinds = [parent["kind"] for parent in result.corpus.manifest["parents"]]
    assert kinds == ["documents", "signals", "removals", "removal_list"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_corpus_is_the_earlier_one_without_entire_clusters(tmp_path: Path, run: Run, seed: int) -> None:
    """40 texts in three files, many of them chains of changed copies, some held out; a third are requested."""
    chance = random.Random(seed)
    texts = {str(i): words(i) for i in range(12)}
    while len(texts) < 40:
        source = texts[chance.choice(list(texts))]
        texts[str(len(texts))] = with_changes(source, *chance.sample(range(120), chance.choice([0, 1, 2, 3])))
    records = {
        name: {
            "text": " ".join(text),
            "karma": chance.randrange(4),
            "split": chance.choice(["train"] * 4 + ["validation"]),
        }
        for name, text in texts.items()
    }
    parts = [{name: records[name] for name in list(records)[start::3]} for start in range(3)]
    before = deduplicated(tmp_path, run, parts)
    stayed = kept(before)
    duplicate_of = {row["id"]: row["duplicate_of"] for row in rows(before.dropped)}
    asked = set(chance.sample(list(texts), 6))
    result = deduplicated(tmp_path, run, parts, *(f"id:{name}" for name in asked))
    sets = {name: shingle_set(" ".join(text), 5) for name, text in texts.items()}
    near = {name for name in stayed if any(jaccard(sets[name], sets[other]) >= 0.8 for other in asked)}
    assert kept(result) == stayed - near
    gone = {row["id"]: row for row in rows(result.dropped) if row["stage"] == "remove"}
    dropped_for_them = {name for name, other in duplicate_of.items() if other in near | asked}
    assert gone.keys() == asked | near | dropped_for_them
    for name, row in gone.items():
        assert (row["reason"] == "removed_on_request") == (name in asked)
        if name not in asked and row["duplicate_of"] != duplicate_of.get(name):  # dedup may name one joined by a chain
            assert row["value"] == jaccard(sets[name], sets[row["duplicate_of"]]) >= 0.8


def test_workers_and_the_order_of_parts_do_not_change_what_is_removed(tmp_path: Path, run: Run, alone: Run) -> None:
    text = words(1)
    parts = [{"a": text, "b": with_changes(text, 9)}, {"c": with_changes(text, 90)}, {"d": words(2)}]
    answers = []
    for number, (each, order) in enumerate([(alone, 1), (run, 1), (run, -1)]):
        (tmp_path / str(number)).mkdir()
        result = deduplicated(tmp_path / str(number), each, parts[::order], "id:b", "id:c")
        answers.append((sorted(map(str, rows(result.dropped))), kept(result)))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][1] == {"d"}


def test_a_text_removed_in_an_earlier_build_does_not_return_in_a_later_one(tmp_path: Path, run: Run) -> None:
    """The later crawl found only a mirror of the page, and a page near a mirror that was removed with it."""
    text = words(1)
    old = {"asked": text, "mirror": with_changes(text, 9), "other": words(2)}
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    assert kept(deduplicated(tmp_path / "old", run, [old, {"more": words(7)}], "id:asked")) == {"other", "more"}
    new = {"a": with_changes(text, 60), "b": with_changes(text, 9, 30, 90), "c": words(2), "d": words(4), "e": words(3)}
    parts = [{"a": new["a"], "b": new["b"]}, {"c": new["c"], "d": new["d"], "e": with_changes(new["d"], 9)}]
    before = deduplicated(tmp_path / "new", run, parts)
    assert kept(before) == {"a", "b", "c", "d"}
    inputs = [str(tmp_path / "new" / f"part-{number}.jsonl") for number in range(2)]
    out, earlier = str(tmp_path / "new" / "out"), str(tmp_path / "old" / "out" / "dropped")
    result = dedup_documents(inputs, out, DedupSettings(), run, RemovalSettings(remove=(earlier,)))
    assert kept(result) == {"c", "d"}
    gone = {row["id"]: row for row in rows(result.dropped) if row["stage"] == "remove"}
    assert {(row["reason"], row["request"]) for row in gone.values()} == {("mirror_of_removed", "id:asked")}
    assert (gone["a"]["duplicate_of"], gone["b"]["duplicate_of"]) == ("asked", "mirror")
    assert {"kind": "dropped", "hash": PartSet.open(earlier).hash} in result.corpus.manifest["parents"]

    # A build without such texts does not change, and a list whose texts are missing is rejected.
    (tmp_path / "third").mkdir()
    third = deduplicated(tmp_path / "third", run, [{"x": words(5)}])
    inputs = [str(tmp_path / "third" / "part-0.jsonl")]
    again = dedup_documents(
        inputs, str(tmp_path / "third/out"), DedupSettings(), run, RemovalSettings(remove=(earlier,))
    )
    assert again.corpus.hash == third.corpus.hash
    (tmp_path / "old/out/documents").rename(tmp_path / "away")
    with pytest.raises(InputError, match="are not at their recorded location, and their texts are needed"):
        dedup_documents(inputs, str(tmp_path / "third/out"), DedupSettings(), run, RemovalSettings(remove=(earlier,)))


def test_filter_alone_rejects_requests_and_a_dry_run_changes_nothing(tmp_path: Path, run: Run) -> None:
    result = deduplicated(tmp_path, run, [{"a": words(1), "b": words(2)}])
    documents, before = result.documents.folder.url, state(tmp_path)
    remove = listed(tmp_path, "id:a")
    with pytest.raises(ConfigError, match="clean filter doesn't find duplicates"):
        filter_documents([documents], str(tmp_path / "f"), RuleSettings(), LanguageSettings(), run, remove)
    dry = Run(run.engine, run.console, dry_run=True)
    with pytest.raises(DryRun):
        dedup_documents([documents], str(tmp_path / "out"), DedupSettings(), dry, remove)
    after = state(tmp_path)
    assert {name: after[name] for name in before} == before
