"""The dataset card reports what the manifests contain, and untrusted text in it takes no effect."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import duckdb
import polars
import pytest
import yaml
from dedup_sets import in_process
from elsewhere import only_tasks_read
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from set_contents import rows
from warc_files import article, page, write_pages, write_warc

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe, with_check, without_check
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.web.opt_outs import PAGE_OPT_OUTS
from webtext.clean.card import facts as card_facts
from webtext.clean.card.facts import Facts, card_text, escaped, gather_facts, records_digest
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import CardSettings
from webtext.clean.steps import Cleaning

HERE = in_process()
Build = tuple[PartSet, Cleaning]
NEVER_FETCHED = {"url": "http://gone.example.org/", "outcome": "failed"}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Build:
    """Two parts of pages: four that are kept (one held out), a copy, a short one and one that was never fetched."""
    folder = tmp_path_factory.mktemp("card")
    pages = write_pages(
        folder / "pages",
        [
            [
                {"url": "http://one.example.org/", "body": page(article(1, 60)), "karma": 9},
                {"url": "http://copy.example.net/", "body": page(article(1, 60))},
                {"url": "http://short.example.org/", "body": page("Only a few words, in English, stand here.")},
                NEVER_FETCHED,
            ],
            [
                {"url": "http://two.example.org/", "body": page(article(2, 50)), "split": "validation"},
                {"url": "http://three.example.org/", "body": page(article(3, 40))},
                {"url": "http://four.example.com/", "body": page(article(4, 40))},
            ],
        ],
    )
    return pages, clean_pages([pages.folder.url], str(folder / "build"), CleanSettings(), run)


def card_of(result: Cleaning) -> str:
    return result.corpus.folder.read_bytes("README.md").decode()


def head_of(card: str) -> dict[str, Any]:
    _, head, _ = card.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(head)
    return found


def section(card: str, title: str) -> str:
    return card.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str) -> dict[str, str]:
    """Return first cell -> second cell of all tables in the text, without markup."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("*`") for cell in row] for row in rows]
    return {row[0]: row[1] for row in cells if not row[0].startswith("---")}


def test_the_head_is_yaml_as_hugging_face_has_it(build: Build) -> None:
    assert head_of(card_of(build[1])) == {
        "pretty_name": "webtext corpus",
        "language": ["en"],
        "size_categories": ["n<1K"],
        "task_categories": ["text-generation"],
        "task_ids": ["language-modeling"],
        "configs": [{"config_name": "default", "data_files": [{"split": "corpus", "path": "part-*.parquet"}]}],
    }


def test_the_funnel_shows_the_manifests_counts_and_adds_up(build: Build) -> None:
    _, result = build
    funnel = section(card_of(result), "Funnel")
    for title, counts in (("pages → documents", result.documents.counts), ("documents → corpus", result.counts)):
        part = funnel.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]
        rows = [[cell.strip(" *") for cell in line.split("|")[1:3]] for line in part.splitlines() if line[:1] == "|"]
        found = {outcome: int(n) for n, outcome in rows[2:]}
        total = found.pop("total")
        assert total == counts.records_in == sum(found.values())
        assert found.pop("kept") == counts.kept
        assert found == {f"dropped: `{reason}`": n for reason, n in counts.dropped.items()}
    assert result.counts.dropped == {"exact_duplicate": 1, "too_few_words": 1}


def test_sizes_languages_and_domains_are_those_of_the_corpus(build: Build) -> None:
    _, result = build
    documents = rows(result.corpus)
    card = card_of(result)
    for split in ("train", "validation"):
        some = [row for row in documents if row["split"] == split]
        line = f"| {split} | {len(some):,} | {sum(len(row['text']) for row in some):,} |"
        assert line in section(card, "Sizes")
    assert f"| total | 4 | {sum(len(row['text']) for row in documents):,} |" in section(card, "Sizes")
    assert f"{sum(part.bytes for part in result.corpus.parts):,} bytes" in section(card, "Sizes")
    assert table(section(card, "Languages")) == {"language": "documents", "en": "4", "not known": "0"}
    domains = Counter(row["domain"] for row in documents)
    assert table(section(card, "Top domains")) == {"domain": "documents"} | {k: str(n) for k, n in domains.items()}
    assert list(table(section(card, "Top domains")))[1] == "example.org"
    assert "captured from 2017-06-01 to 2017-06-01" in section(card, "Sources")
    assert table(section(card, "Sources"))["web"] == "6"
    assert records_digest(result.corpus) in section(card, "Digests")


def test_the_recipe_names_each_rule_with_its_threshold_and_the_settings_of_dedup(
    build: Build, tmp_path: Path, run: Run
) -> None:
    pages, result = build
    recipe = section(card_of(result), "Recipe")
    assert "`too_few_words`: `n_words` below 100\n" in recipe
    assert "language: en, with a probability of at least 0.65" in recipe
    assert "at least 0.8 over 5 consecutive words" in recipe
    assert "128 permutations in 25 bands of 5" in recipe
    assert "extractor" in recipe
    settings = CleanSettings(
        rules=RuleSettings(profile="fineweb", rule=("too_few_words=7",)),
        language=LanguageSettings(language=("all",)),
        dedup=DedupSettings(threshold=0.9),
    )
    other = section(card_of(clean_pages([pages.folder.url], str(tmp_path / "b"), settings, run)), "Recipe")
    assert "profile `fineweb`, changed" in other
    for reason, threshold in settings.rules.thresholds().items():
        assert re.search(rf"`{reason}`: `\w+` (above|below) {threshold:,g}\n", other), reason
    assert "all languages are kept" in other
    assert "at least 0.9 over" in other


def fetched_with(build: Build, folder: Path, settings: dict[str, Any], opt_outs: dict[int, list[str]]) -> Facts:
    """The facts of the build if a crawl with these settings had recorded these opt-outs, by the page's number."""
    pages, result = build
    fetched = rows(pages)
    for number, found in opt_outs.items():
        fetched[number]["opt_outs"] = found
    writer = SetWriter(str(folder / "pages"), "pages", Recipe(stage="crawl.fetch", code_version=1, settings=settings))
    part = writer.part(0, key="test")
    part.write(fetched)
    part.counts.drop("robots_disallowed_ai_training", 7)
    facts = gather_facts([pages], result.documents, result.signals or pages, result.corpus, HERE)
    facts.pages = [writer.seal([part.publish()])]
    facts.captures = card_facts.count_captures(facts.pages, HERE)
    return facts


def test_an_opt_out_that_a_setting_turned_off_is_listed_with_its_pages(build: Build, tmp_path: Path) -> None:
    pages, result = build
    outs = section(card_of(result), "Opt-outs")
    assert outs.count("- Not known: ") == 2  # these pages have no crawl, so no robots.txt
    assert outs.count("- Obeyed: ") == len(PAGE_OPT_OUTS)  # by extraction
    settings = {"obey_robots": False, "obey_ai_robots": True, "obey_noai": True, "contact": "me@example.org"}
    found = dict.fromkeys((0, 1, 3), ["robots_disallowed"])  # 3 was not fetched
    card = card_text(fetched_with(build, tmp_path, settings, found), CardSettings())
    outs = section(card, "Opt-outs")
    skipped = "robots.txt names an AI-training crawler and disallows the path for it; 7 such pages were skipped."
    assert f"- Obeyed: {skipped}" in outs
    meaning = "robots.txt disallows the path for 'webtext' or for all crawlers"
    assert f"**Not obeyed** (`obey_robots = false`): {meaning}; 2 such pages were fetched anyway." in outs
    assert "me@example.org" not in card


def test_pages_of_gone_sites_are_named_with_the_settings_that_took_them(build: Build, tmp_path: Path) -> None:
    settings = {"take_gone_sites": True, "gone_runs": 3, "gone_days": 30.0}
    assert "take_gone_sites" not in card_of(build[1])
    facts = fetched_with(build, tmp_path, settings, {0: ["robots_unreachable"]})
    outs = section(card_text(facts, CardSettings()), "Opt-outs")
    asked = "**Not asked** (`take_gone_sites = true`): sites whose host name no longer exists, or that answered in"
    assert asked in outs
    assert "in none of 3 or more runs over 30 days (1 pages)" in outs


def test_an_opt_out_that_extraction_overrules_is_named(tmp_path: Path, run: Run) -> None:
    tag = b'<meta name="robots" content="noai">'
    write_warc(
        tmp_path / "a.warc.gz", [("http://a.example.org/", page(article(1, 40)).replace(b"<title>", tag + b"<title>"))]
    )
    settings = CleanSettings(extract=ExtractSettings(obey_noai=False))
    card = card_of(clean_pages([str(tmp_path / "a.warc.gz")], str(tmp_path / "build"), settings, run))
    outs = section(card, "Opt-outs")
    assert "**Not obeyed** (`obey_noai = false`): meta tag 'robots' with 'noai'" in outs
    assert "- Obeyed: meta tag 'robots' with 'noindex' (or 'none')." in outs


def test_datasets_duckdb_and_polars_read_the_corpus_as_the_card_says(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = build
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(result.corpus.folder.local_path().parent)
    code = section(card_of(result), "How to load it").split("```python\n", 1)[1].split("```", 1)[0]
    seen: dict[str, Any] = {}
    for line in code.splitlines():
        exec(line, seen)  # the card's own lines, one by one
        name, _, expression = line.partition(" = ")
        if name == "everything":
            assert len(seen[name]) == 4
            assert seen[name].column_names == DOCUMENT.names
        elif "datasets" in expression or "polars" in expression:
            assert len(seen[name]) == 3
        elif "duckdb" in expression:
            assert len(seen[name].fetchall()) == 3
    assert seen.keys() >= {"datasets", "duckdb", "polars", "train"}
    plain = datasets.load_dataset(
        "parquet", data_files="corpus/part-*.parquet", split="train", cache_dir=str(tmp_path / "c")
    )
    assert sorted(plain["id"]) == sorted(polars.read_parquet("corpus/part-*.parquet")["id"].to_list())
    assert duckdb.sql("SELECT count(*) FROM 'corpus/part-*.parquet'").fetchall() == [(4,)]


def test_equal_builds_have_equal_cards_without_local_paths(build: Build, tmp_path: Path, run: Run) -> None:
    pages, out = [build[0].folder.url], str(tmp_path / "elsewhere")
    again = clean_pages(pages, out, CleanSettings(), run)
    assert card_of(again) == card_of(build[1])
    assert str(tmp_path.parent) not in card_of(again)
    path = again.corpus.folder.local_path() / "README.md"
    before = path.stat().st_mtime_ns
    clean_pages(pages, out, CleanSettings(), run)
    assert path.stat().st_mtime_ns == before
    path.unlink()
    clean_pages(pages, out, CleanSettings(), dataclasses.replace(run, dry_run=True))
    assert not path.exists()


def test_a_corpus_of_nothing_has_a_card_that_says_so(tmp_path: Path, run: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[NEVER_FETCHED]])
    card = card_of(clean_pages([pages.folder.url], str(tmp_path / "build"), CleanSettings(), run))
    assert head_of(card)["size_categories"] == ["n<1K"]
    assert "language" not in head_of(card)
    assert "| total | 0 | 0 |" in card
    assert "captured at times that are not known" in card


def test_warc_files_of_others_are_counted_and_nothing_is_claimed_about_their_crawlers(tmp_path: Path, run: Run) -> None:
    for name in ("a", "b"):
        write_warc(tmp_path / f"{name}.warc.gz", [(f"http://{name}.example.org/", page(article(ord(name), 40)))])
    card = card_of(clean_pages([str(tmp_path / "*.warc.gz")], str(tmp_path / "build"), CleanSettings(), run))
    assert "made from pages in WARC files" in card
    assert "- Not known: what robots.txt said to the crawlers of the 2 WARC files." in section(card, "Opt-outs")
    assert "links → pages" not in card


def with_domains(build: Build, *domains: tuple[str, int]) -> Facts:
    pages, result = build
    facts = gather_facts([pages], result.documents, result.signals or pages, result.corpus, HERE)
    facts.domains = list(domains)
    return facts


HOSTILE = [
    "<script>alert(1)</script>",
    "a|b|c",
    "[click](http://evil.example/)",
    "`code` and ``more``",
    "![x](http://evil.example/x.png)",
    "line\nbreak\r\n## Heading",
    "\u202eright to left\x00\x1b[31m",
    "https://evil.example/ www.evil.example me@evil.example",
    "&lt;b&gt;",
    "x" * 5000,
    "",
]


@pytest.mark.parametrize("domain", HOSTILE)
def test_a_hostile_domain_is_shown_and_does_nothing(build: Build, domain: str) -> None:
    name = domain if domain.isprintable() and 0 < len(domain) <= 200 else "a name"
    card = card_text(with_domains(build, (domain, 7), ("example.org", 3)), CardSettings(name=name))
    assert head_of(card)["pretty_name"] == name
    top = section(card, "Top domains")
    html = MarkdownIt("gfm-like", {"linkify": False}).render(top)
    assert set(re.findall(r"<(/?\w+)", html)) <= {
        *("p", "/p", "table", "/table", "thead", "/thead", "tbody", "/tbody", "tr", "/tr", "th", "/th", "td", "/td"),
        *("code", "/code"),
    }
    assert html.count("<tr>") == 3
    assert len(top) < 1000
    assert not re.search(r"www\.|https?:|\x1b|\x00|\u202e", top)


@given(st.text(max_size=60))
def test_escaped_words_come_out_of_markdown_as_they_went_in(text: str) -> None:
    """Markdown may change blanks at the ends and in a row; all other characters are kept, and nothing becomes a tag."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    tokens = MarkdownIt("commonmark").parseInline("x" + escaped(text) + "x")[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "".join(token.content for token in tokens) == f"x{shown}x"


def test_norwegian_is_a_language_and_not_false(build: Build) -> None:
    facts = with_domains(build)
    facts.languages = Counter({"no": 2, "de": 1, "{evil: yes}": 1})
    assert head_of(card_text(facts, CardSettings()))["language"] == ["de", "no"]


def test_domains_are_counted_exactly_in_shares_of_bounded_memory(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, result = build
    before = with_domains(build, ("", 0)).n_domains
    monkeypatch.setattr(card_facts, "DOCUMENTS_A_SHARE", 1)
    facts = gather_facts([pages], result.documents, result.signals or pages, result.corpus, HERE)
    assert (facts.n_domains, facts.domains) == (before, [("example.org", 3), ("example.com", 1)])


def test_facts_are_counted_elsewhere_and_the_driver_reads_no_part(build: Build, elsewhere: Run) -> None:
    pages, result = build
    with only_tasks_read():
        facts = gather_facts([pages], result.documents, result.signals or pages, result.corpus, elsewhere)
    assert facts == gather_facts([pages], result.documents, result.signals or pages, result.corpus, HERE)
    assert facts.captures.captured.first is not None


def test_the_publishers_settings_appear_on_the_card(build: Build) -> None:
    said = CardSettings(name='A "corpus": mine', license="odc-by", contact="remove@example.org")
    card = card_text(with_domains(build), said)
    assert head_of(card)["pretty_name"] == 'A "corpus": mine'
    assert head_of(card)["license"] == "odc-by"
    assert r"write to remove\@example\.org" in section(card, "Removal")
    with pytest.raises(ConfigError, match="clean.card.license is 'a.nb'"):
        CardSettings(license="a\nb")


def test_the_card_reports_records_that_killed_a_worker_but_not_for_a_crawl(build: Build) -> None:
    facts = with_domains(build)
    said = "**Not reproducible**"
    facts.pages = [PartSet(facts.pages[0].folder, altered(facts.pages[0]))]
    assert said not in card_text(facts, CardSettings())
    facts.documents = PartSet(facts.documents.folder, altered(facts.documents))
    assert said in card_text(facts, CardSettings())


def altered(opened: PartSet) -> bytes:
    return json.dumps(with_check(without_check(opened.manifest) | {"reproducible": False})).encode()


def test_pages_that_the_documents_were_not_made_from_are_rejected(build: Build, tmp_path: Path) -> None:
    other = write_pages(tmp_path / "pages", [[NEVER_FETCHED]])
    with pytest.raises(InputError, match="the pages sets changed"):
        gather_facts([other], build[1].documents, build[1].signals or other, build[1].corpus, HERE)


def test_the_verb_takes_the_publishers_words(build: Build, tmp_path: Path, clean: Callable[..., str]) -> None:
    arguments = ["run", build[0].folder.url, "--out", str(tmp_path / "b"), "--workers", "1", "--set"]
    clean(*arguments, "clean.card.license='odc-by'")
    assert head_of((tmp_path / "b" / "corpus" / "README.md").read_text())["license"] == "odc-by"
