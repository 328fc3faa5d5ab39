"""Vote rules: which documents have enough votes, by the rule of `crawl links`, without a new crawl."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from dedup_sets import document, write_set
from set_contents import contents, rows
from warc_files import article, site, write_pages

from webtext.base.errors import ConfigError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import extract_documents
from webtext.clean.inputs.importing import find_documents, import_documents
from webtext.clean.inputs.unique import unique_posts
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, filter_documents
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.rules.votes import vote_verdicts
from webtext.clean.settings import VoteSettings
from webtext.crawl.links.collect import collect_links
from webtext.crawl.links.settings import LinkSettings

DAY = 86_400
NO_RULES = CleanSettings(
    rules=RuleSettings(profile="minimal", rule=("too_few_words=none",)), language=LanguageSettings(language=("all",))
)


def post(
    name: str, score: int = 10, created: int = DAY, subreddit: str | None = "books", **other: Any
) -> dict[str, Any]:
    row = {"source": "reddit", "post_id": name, "subreddit": subreddit, "score": score, "created": created}
    return row | {"retrieved": None} | other


def three_pages(folder: Path) -> PartSet:
    """Votes of 3, 4 and 5 points, and one page that two links voted for."""
    return write_pages(
        folder,
        [
            [
                site(n, article(n, 60), karma=n, posts=[post(f"p{n}", n)])
                for n in (3, 4, 5)
            ],
            [
                site("two", article(9, 60), karma=2, posts=[post("z", 2), post("a", 1)]),
                {"url": "http://b.example/", "outcome": "linked", "final_url": "http://two.example/", "karma": 2,
                 "posts": [post("b", 2), post("z", 2)]},
            ],
        ],
    )  # fmt: skip


def domains(corpus: PartSet) -> set[str]:
    return {row["url"].removeprefix("http://").partition(".")[0] for row in rows(corpus)}


def test_a_document_has_the_posts_of_all_its_links_each_once_in_order(tmp_path: Path, run: Run) -> None:
    pages = three_pages(tmp_path / "pages").folder.url
    documents = extract_documents([pages], str(tmp_path / "out"), ExtractSettings(), run)
    of = {row["url"]: row["posts"] for row in rows(documents)}
    assert of["http://3.example/"] == [post("p3", 3)]
    assert of["http://two.example/"] == [post("a", 1), post("b", 2), post("z", 2)]


def test_other_votes_decide_again_and_leave_documents_and_signals_alone(tmp_path: Path, run: Run) -> None:
    """A threshold is raised and lowered; each time the corpus equals the bytes of a fresh run."""
    pages = three_pages(tmp_path / "pages").folder.url
    wanted = {None: {"3", "4", "5", "two"}, 5: {"5"}, 4: {"4", "5"}, 2: {"3", "4", "5", "two"}}
    for min_karma, names in wanted.items():
        settings = replace(NO_RULES, votes=VoteSettings(min_karma=min_karma))
        times = {p: p.stat().st_mtime_ns for p in (tmp_path / "build").glob("[ds][oi]*/*") if p.name != "run.json"}
        result = clean_pages([pages], str(tmp_path / "build"), settings, run)
        assert domains(result.corpus) == names
        clean_pages([pages], str(tmp_path / f"fresh {min_karma}"), settings, run)
        assert contents(tmp_path / "build") == contents(tmp_path / f"fresh {min_karma}")
        assert all(p.stat().st_mtime_ns == time for p, time in times.items())
        assert result.counts.records_in == 4 == result.counts.kept + sum(result.counts.dropped.values())


@pytest.mark.parametrize(
    ("settings", "reason", "value", "threshold"),
    [
        (VoteSettings(min_karma=11), "too_little_karma", 10.0, 11.0),
        (VoteSettings(min_karma=16, sum_karma=True), "too_little_karma", 15.0, 16.0),
        (VoteSettings(min_karma=15, sum_karma=True), None, None, None),
        (VoteSettings(before="1970-01-02"), "voted_too_late", DAY, DAY),
        (VoteSettings(before="1970-01-02T00:00:01", min_karma=10), None, None, None),
        (VoteSettings(before="1970-01-02T00:00:01", min_karma=15, sum_karma=True), "too_little_karma", 10.0, 15.0),
        (VoteSettings(communities=("r/Books",), min_karma=6), None, None, None),
        (VoteSettings(communities=("science",), min_karma=6), "too_little_karma", 5.0, 6.0),
        (VoteSettings(communities=("-books", "-Science")), "no_wanted_community", None, None),
        (VoteSettings(communities=("hackernews",)), "no_wanted_community", None, None),
        (VoteSettings(communities=("-hackernews",)), None, None, None),
        (VoteSettings(communities=("books",), before="1970-01-02"), "voted_too_late", DAY, DAY),
    ],
)
def test_each_decision_says_what_was_compared(
    settings: VoteSettings, reason: str | None, value: float | None, threshold: float | None, tmp_path: Path, run: Run
) -> None:
    """Ten points in r/books on 2 January 1970, five in r/science a day later."""
    votes = [post("a", 10, DAY), post("b", 5, 2 * DAY, "science")]
    documents = write_set(tmp_path / "documents", [document("x", "a text") | {"karma": 10, "posts": votes}])
    result = filter_documents(
        [documents.folder.url], str(tmp_path / "out"), NO_RULES.rules, NO_RULES.language, run, votes=settings
    )
    found = [(row["stage"], row["reason"], row["value"], row["threshold"]) for row in rows(result.dropped)]
    assert found == ([("votes", reason, value, threshold)] if reason else [])


@pytest.mark.parametrize(
    ("karma", "settings", "reason"),
    [
        (5, VoteSettings(min_karma=5, before="1970-01-01", communities=("-books",)), None),
        (4, VoteSettings(min_karma=5), "too_little_karma"),
        (None, VoteSettings(min_karma=-100), "too_little_karma"),
        (None, VoteSettings(before="1970-01-01"), None),
        (5, VoteSettings(communities=("books",)), "no_wanted_community"),
    ],
)
def test_a_document_without_posts_is_judged_by_its_karma(
    karma: int | None, settings: VoteSettings, reason: str | None, tmp_path: Path, run: Run
) -> None:
    documents = write_set(tmp_path / "documents", [document("x", "a text") | {"karma": karma}])
    result = filter_documents(
        [documents.folder.url], str(tmp_path / "out"), NO_RULES.rules, NO_RULES.language, run, votes=settings
    )
    assert result.counts.dropped == ({reason: 1} if reason else {})


def test_a_post_without_subreddit_is_in_the_community_of_its_source(tmp_path: Path) -> None:
    votes = [post("1", subreddit=None, source="hackernews")]
    documents = write_set(tmp_path / "documents", [document("x", "a text") | {"posts": votes}])
    for communities, drops in ((("hackernews",), False), (("-HackerNews",), True), (("reddit",), True)):
        (verdict,) = vote_verdicts(next(documents.batches(0)), VoteSettings(communities=communities))
        assert verdict.drops.tolist() == [drops]


@pytest.mark.parametrize("sum_karma", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_rule_equals_that_of_crawl_links(sum_karma: bool, tmp_path: Path, run: Run) -> None:
    """Two hundred links with random posts: collected with the rule, or all collected and then judged by it."""
    chance = random.Random(7)
    posts = [
        {"id": f"{i:x}", "url": f"http://{chance.randrange(200)}.example/", "score": chance.randrange(0, 9),
         "created_utc": DAY * chance.randrange(20), "subreddit": "books", "is_self": False, "over_18": False}
        for i in range(500)
    ]  # fmt: skip
    (tmp_path / "RS_2017-01.jsonl").write_text("".join(json.dumps(each) + "\n" for each in posts))
    rule: dict[str, Any] = {"min_karma": 6, "sum_karma": sum_karma, "before": "1970-01-12"}
    by_links, everything = (
        collect_links([str(tmp_path / "RS_2017-01.jsonl")], str(tmp_path / name), LinkSettings(**settings), run)
        for name, settings in (("strict", rule), ("all", {"min_karma": None, "before": None}))
    )
    links = rows(everything)
    documents = write_set(
        tmp_path / "documents",
        [document(each["url"], each["url"], each["karma"]) | {"posts": unique_posts(each["posts"])} for each in links],
    )
    drops = sum(verdict.drops for verdict in vote_verdicts(next(documents.batches(0)), VoteSettings(**rule))) > 0
    kept = {each["url"] for each, dropped in zip(links, drops.tolist(), strict=True) if not dropped}
    assert kept == {each["url"] for each in rows(by_links)}
    assert 20 < len(kept) < len(links)


def test_posts_of_imported_records_are_kept_where_they_have_the_type(tmp_path: Path, run: Run) -> None:
    good = [post("b"), post("a", retrieved=5), post("b")]
    bad: list[Any] = [3, "posts", [1], [post("a", score=None)], [{"post_id": "a"}], None, {}, [post("a", 2**70)]]
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": "a text", "posts": each}) + "\n" for each in [good, *bad, []]))
    documents = import_documents(find_documents([str(texts)], run), str(tmp_path / "documents"), run)  # type: ignore[arg-type]
    assert [row["posts"] for row in rows(documents)] == [[post("a", retrieved=5), post("b")], *([[]] * 9)]
    again = tmp_path / "again.parquet"
    pq.write_table(documents.table(0), again)
    copied = import_documents(find_documents([str(again)], run), str(tmp_path / "copied"), run)  # type: ignore[arg-type]
    assert rows(copied)[0]["posts"] == [post("a", retrieved=5), post("b")]


def test_votes_that_drop_nothing_are_not_in_the_recipe(tmp_path: Path, run: Run) -> None:
    pages = three_pages(tmp_path / "pages").folder.url
    plain = clean_pages([pages], str(tmp_path / "build"), NO_RULES, run)
    assert "votes" not in plain.corpus.recipe["settings"]
    strict = clean_pages([pages], str(tmp_path / "build"), replace(NO_RULES, votes=VoteSettings(min_karma=3)), run)
    assert strict.corpus.recipe["settings"]["votes"]["min_karma"] == 3


def test_a_document_with_too_few_votes_does_not_drop_its_duplicate(tmp_path: Path, run: Run) -> None:
    """Of two equal texts the one with more karma is kept, unless its votes don't count."""
    pages = write_pages(
        tmp_path / "pages",
        [[
            site("late", article(1, 60), karma=90, posts=[post("a", 90, 9 * DAY)]),
            site("early", article(1, 60), karma=3, posts=[post("b", 3, DAY)]),
        ]],
    )  # fmt: skip
    for votes, kept in ((VoteSettings(), "late"), (VoteSettings(before="1970-01-05"), "early")):
        result = clean_pages([pages.folder.url], str(tmp_path / "build"), replace(NO_RULES, votes=votes), run)
        assert domains(result.corpus) == {kept}


@pytest.mark.parametrize("names", [("",), ("-",), ("--books",), ("r/",), ("books", "-r/Books")])
def test_contradictory_communities_are_errors(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"\[clean.votes\] communities"):
        VoteSettings(communities=names)


def test_the_verbs_have_the_options(tmp_path: Path, clean: Callable[..., str]) -> None:
    pages = three_pages(tmp_path / "pages").folder.url
    options = ["--min-karma", "4", "--communities", "-science", "--language", "all", "--json"]
    for verb, given, out in (("run", pages, "run"), ("filter", str(tmp_path / "run/documents"), "filter")):
        answer = json.loads(clean(verb, given, "--out", str(tmp_path / out), *options))
        assert answer["counts"]["dropped"]["too_little_karma"] == 2
    with pytest.raises(ConfigError, match=r"\[clean.votes\] before = 'soon': not a date or time"):
        clean("filter", str(tmp_path / "run/documents"), "--out", str(tmp_path / "x"), "--before", "soon")
