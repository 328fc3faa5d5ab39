"""The report: its numbers are those of the parts, its page stands alone, and no text from outside is markup."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from jsonschema import Draft202012Validator

from webtext.app.inspect.trace import Tracer
from webtext.app.main import run
from webtext.app.reports.report import ALARM_RATIO, CURVE_POINTS, make_report, write_report
from webtext.app.reports.report_charts import histogram, karma_by_year, loss_curves, sankey
from webtext.app.reports.report_html import marked, report_page
from webtext.app.reports.signals import FACTORS, bounds_of
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import PartSet

from .conftest import write_set

SCRIPT = "<script>alert('&\"')</script>"  # in titles, URLs, texts, causes and the model's sample
CONTROLS = "\0\x1b\u202e\ud800"
VOID = {"meta", "br"}
CHROMIUM = Path("/usr/bin/chromium")
QUIET_BROWSER = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET_BROWSER += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def report(written_build: Path) -> dict[str, Any]:
    return make_report(str(written_build))


@pytest.fixture(scope="module")
def page(report: dict[str, Any]) -> str:
    return report_page(report)


def test_the_funnel_is_that_of_the_manifests(report: dict[str, Any]) -> None:
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert list(stages) == ["links", "pages", "documents", "corpus", "tokens"]
    assert stages["links"]["counts"] == Counts(12, 8, {"too_little_karma": 3}, {"invalid_json": 1}).to_json()
    assert stages["links"]["records"] == 8
    assert stages["documents"]["counts"]["failed"] == {"too_deep": 1}
    for stage in stages.values():
        counts = stage["counts"]
        assert counts["records_in"] == counts["kept"] + sum(counts["dropped"].values()) + sum(counts["failed"].values())


def test_dropped_documents_come_with_value_threshold_and_start(report: dict[str, Any]) -> None:
    reasons = {row["reason"]: row for row in report["dropped"]}
    assert {reason: row["records"] for reason, row in reasons.items()} == {"exact_duplicate": 1, "too_few_words": 1}
    short = reasons["too_few_words"]["samples"][0]
    assert (short["value"], short["threshold"], short["text_start"]) == (5, 100, "Too short <b>to be</b> kept.")


def test_a_cluster_names_the_document_that_stays_and_those_dropped_for_it(report: dict[str, Any]) -> None:
    (cluster,) = report["clusters"]
    assert cluster["dropped"] == 1
    assert cluster["kept"]["url"].startswith("http://kept.example/")
    assert [member["url"].startswith("http://copy.example/") for member in cluster["members"]] == [True]


def test_what_takes_out_more_than_a_fifth_of_the_documents_raises_an_alarm(report: dict[str, Any], page: str) -> None:
    """One of four documents is a duplicate and one is too short: 25 % each; 1 of 6 pages is empty, 1 too deep: 17 %."""
    assert [(a.get("reason", "a cluster"), a["ratio"]) for a in report["alarms"]] == [
        ("exact_duplicate", 0.25),
        ("too_few_words", 0.25),
        ("a cluster", 0.25),
    ]
    assert all(alarm["ratio"] > ALARM_RATIO for alarm in report["alarms"])
    assert page.count('role="alert"') == 3
    assert "25% of what came into corpus" in page


def test_a_domain_that_dedup_emptied_raises_an_alarm_while_the_set_is_the_one_that_it_is_about(
    written_build: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(written_build, tmp_path / "build")
    about = {"dropped": PartSet.open(str(root / "dropped")).hash}
    loss = {"of": "domain", "name": "wiped<b>.example", "compared": 1000, "dropped": 999}
    (root / "losses.json").write_text(json.dumps(about | {"losses": [loss]}))
    alarm = make_report(str(root))["alarms"][-1]
    assert alarm == {"stage": "corpus", "domain": "wiped<b>.example", "records": 999, "ratio": 0.999}
    page = report_page(make_report(str(root)))
    assert "the domain <code>wiped&lt;b&gt;.example</code> lost 999 documents as duplicates, 99.9% of those" in page
    (root / "losses.json").write_text(json.dumps({"dropped": "another", "losses": [loss]}))
    assert "domain" not in make_report(str(root))["alarms"][-1]


def test_failures_corpus_tokens_and_training_are_told(report: dict[str, Any]) -> None:
    assert report["n_failures"] == 2, "one of them has no cause"
    assert sum(sum(stage["counts"]["failed"].values()) for stage in report["stages"]) == 2
    assert "2 records failed, over all stages of the funnel. The causes of 1 are listed:" in report_page(report)
    assert report["failures"][0]["reason"] == "too_deep"
    assert report["corpus"]["splits"] == {"train": 1, "validation": 1}
    assert report["corpus"]["domains"] == [("held.example", 1), ("kept.example", 1)]
    assert {row["characters"] for row in report["corpus"]["samples"]} == {1560, 2640}
    assert report["tokens"] == {
        "tokens": {"train": 2641, "validation": 1561},
        "documents": {"train": 1, "validation": 1},
        "vocab_size": 257,
        "characters_per_token": (1560 + 2640) / (2641 + 1561 - 2),
        "tokens_per_document": 2100,
    }
    assert report["training"]["validation_loss"][0] == (0, 5.6)
    assert report["training"]["evaluation"]["perplexity"] == 40.5


def test_a_long_curve_is_thinned_to_means_and_keeps_its_end(report: dict[str, Any]) -> None:
    curve = report["training"]["training_loss"]
    assert len(curve) <= CURVE_POINTS
    assert curve[-1][0] == 1000
    assert curve[0] == (3, pytest.approx(5.6 - 2 * 2 / 1000))  # the mean of steps 1, 2 and 3


def test_the_histogram_counts_every_document_once_beside_the_threshold(report: dict[str, Any]) -> None:
    """5 words: the first bin (up to 8); 320 and 360 words: the bin up to 461."""
    bins = {bound: (kept, dropped) for bound, kept, dropped in report["lengths"]["bins"] if kept or dropped}
    assert bins == {8: (0, 1), 461: (2, 1)}
    assert report["lengths"]["thresholds"] == [["too_few_words", 100.0]]
    assert report["lengths"]["kept_characters"] == 1560 + 2640
    assert [each["column"] for each in report["histograms"]] == ["language_score"]


def test_each_rules_histogram_counts_known_values_beside_its_thresholds(tmp_path: Path) -> None:
    """Of 1.1 the last bin; an unknown value has none; the second part's dropped documents are its own."""
    shares = [0.0, 0.3, 0.31, 1.1, None]
    rows = [{"id": f"{n:032x}", "duplicate_line_ratio": x or 0, "mean_word_length": x} for n, x in enumerate(shares)]
    write_set(tmp_path / "signals", "signals", [rows[:2], rows[2:]])
    settings = {"rules": {"profile": "minimal", "rule": ["too_many_duplicate_lines=.3", "words_too_long=10"]}}
    write_set(tmp_path / "corpus", "corpus", [[]], settings=settings)
    gone = [{"id": rows[n]["id"], "stage": "filter", "reason": "too_many_duplicate_lines"} for n in (2, 3)]
    write_set(tmp_path / "dropped", "dropped", [[], gone])
    _, long, lines = make_report(str(tmp_path))["histograms"]
    filled = [[bound, kept, dropped] for bound, kept, dropped in lines["bins"] if kept or dropped]
    assert filled == [[0.0, 2, 0], [0.3, 1, 0], [0.325, 0, 1], [1.0, 0, 1]]
    assert long["thresholds"] == [["words_too_long", 10.0]]
    assert lines["thresholds"] == [["too_many_duplicate_lines", 0.3]]
    assert sum(kept + dropped for _, kept, dropped in long["bins"]) == 4
    for column in ("n_words", "n_stop_words", "mean_word_length", "vote_score"):
        assert (bounds_of(column)[1:] > bounds_of(column)[:-1]).all()


def test_words_that_the_kept_document_lacks_are_marked_and_stay_text() -> None:
    assert marked("one <b>two</b> three", "one three") == "one <mark>&lt;b&gt;two&lt;/b&gt; </mark>three"
    assert marked("the same", "the same") == "the same"
    assert marked("all new", "") == "<mark>all new</mark>"


def test_the_funnel_is_drawn_with_every_reason(report: dict[str, Any]) -> None:
    drawn = sankey(report["stages"])
    for told in (
        "links: 12 in",
        "3 dropped by links: too_little_karma",
        "1 failed by documents: too_deep",
        "2 kept by corpus",
    ):
        assert f"<title>{told}</title>" in drawn
    assert sankey([]) == ""
    many = {"records_in": 100, "kept": 0, "dropped": {f"reason_{n}": 10 for n in range(10)}, "failed": {}}
    drawn = sankey([{"name": "links", "counts": many}])
    assert "40 dropped by links: 4 other reasons" in drawn


@pytest.mark.parametrize("build", ["written_build", "only_links"])
def test_every_report_fits_its_schema(build: str, request: pytest.FixtureRequest) -> None:
    schema = json.loads(files("webtext.app.reports").joinpath("report.schema.json").read_text())
    validator = Draft202012Validator(schema)
    report = json.loads(json.dumps(make_report(str(request.getfixturevalue(build)))))
    assert list(validator.iter_errors(report)) == []
    assert set(schema["required"]) == set(report)
    for wrong in ({"n_failures": -1}, {"surprise": 1}, {"stages": [{"name": "links"}]}):
        assert list(validator.iter_errors(report | wrong)), wrong


def test_a_moved_rule_drops_what_a_loop_over_the_signals_counts(tmp_path: Path) -> None:
    """300 documents in two parts, two rules; a value that is unknown breaks none."""
    rng = random.Random(1)
    rows = [
        {"id": f"{n:032x}", "n_words": rng.randrange(200), "mean_word_length": rng.choice([None, rng.uniform(1, 9)])}
        for n in range(300)
    ]
    write_set(tmp_path / "signals", "signals", [rows[:100], rows[100:]])
    settings = {"rules": {"profile": "minimal", "rule": ["too_few_words=100", "words_too_long=5.5"]}}
    write_set(tmp_path / "corpus", "corpus", [[]], settings=settings)
    words, lengths = make_report(str(tmp_path))["rules"]
    assert [words[key] for key in ("rule", "column", "bound", "threshold")] == ["too_few_words", "n_words", "min", 100]
    for factor, (threshold, n) in zip(FACTORS, words["moved"], strict=True):
        assert threshold == factor * 100
        assert n == sum(row["n_words"] < threshold for row in rows)
    for factor, (_, n) in zip(FACTORS, lengths["moved"], strict=True):
        assert n == sum((row["mean_word_length"] or 0) > factor * 5.5 for row in rows)
    few, long = ({i for i, row in enumerate(rows) if test(row)} for test in (
        lambda row: row["n_words"] < 100, lambda row: (row["mean_word_length"] or 0) > 5.5,
    ))  # fmt: skip
    assert (words["drops"], words["alone"]) == (len(few), len(few - long))
    assert (lengths["drops"], lengths["alone"]) == (len(long), len(long - few))


def test_a_rule_drops_alone_no_document_that_something_else_drops_too(tmp_path: Path) -> None:
    """Three documents are too short: one only so, one in another language too, and one that a removal list names.

    A fourth one could not be measured: its zeros mean nothing.
    """
    rows = [{"id": f"{n:032x}", "n_words": 5, "mean_word_length": 4.0} for n in range(3)]
    write_set(tmp_path / "signals", "signals", [[*rows, {"id": "f" * 32, "failed": "too_many_bytes"}]])
    write_set(tmp_path / "corpus", "corpus", [[]], settings={"rules": {"profile": "minimal", "rule": []}})
    gone = zip(rows, ("too_few_words", "other_language", "removed_url"), strict=True)
    write_set(tmp_path / "dropped", "dropped", [[{"id": row["id"], "reason": reason} for row, reason in gone]])
    write_set(tmp_path / "documents", "documents", [[{"id": "f" * 32}]])
    assert Tracer(str(tmp_path)).why("f" * 32).rules == []
    report = make_report(str(tmp_path))
    (words,) = report["rules"]
    assert (words["drops"], words["alone"]) == (3, 1)
    assert [each for each in report["lengths"]["bins"] if any(each[1:])] == [[8, 0, 3]]
    assert words["alone"] <= next(row["records"] for row in report["dropped"] if row["reason"] == "too_few_words")


def test_kept_documents_are_counted_by_karma_and_by_the_year_of_their_first_vote(tmp_path: Path) -> None:
    post = {"source": "reddit", "post_id": "a", "subreddit": None, "score": 1, "retrieved": None}
    rows = [
        {"id": f"{n:032x}", "karma": karma, "posts": [post | {"created": second} for second in created]}
        for n, (karma, created) in enumerate(
            [(3, [1_483_228_799, 1_500_000_000]), (4, [1_483_228_800]), (-7, []), (10**12, [-1]), (None, [])]
        )
    ]
    write_set(tmp_path / "corpus", "corpus", [rows])
    report = make_report(str(tmp_path))["corpus"]
    assert report["karma"] == [(0, 1), (3, 2), (200_000, 1)]
    assert report["years"] == [(1970, 1), (2016, 1), (2017, 1)]
    assert report["karma_by_year"] == [[1970, 200_000, 1], [2016, 3, 1], [2017, 3, 1]]
    assert "<title>2016, karma 3 or more: 1</title>" in karma_by_year(report["karma_by_year"])


def test_a_sample_tells_its_path_and_clusters_are_counted_by_size(report: dict[str, Any], page: str) -> None:
    (copy,) = next(row["samples"] for row in report["dropped"] if row["reason"] == "exact_duplicate")
    assert "ended in dropped: exact_duplicate" in copy["trace"]
    assert "its path" in page
    assert report["cluster_sizes"] == [(2, 1)]


def test_the_domains_that_lost_most_are_named(tmp_path: Path) -> None:
    urls = ["http://a.example.com/", "http://c.Example.com?/x", "http://example.org/", None, "not a URL"]
    rows = [{"id": f"{n:032x}", "url": url, "stage": "filter", "reason": "too_few_words"} for n, url in enumerate(urls)]
    write_set(tmp_path / "corpus", "corpus", [[]])
    write_set(tmp_path / "dropped", "dropped", [rows])
    assert make_report(str(tmp_path))["dropped_domains"] == [("example.com", 2), ("unknown", 2), ("example.org", 1)]


def test_rules_of_another_version_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path / "documents", "documents", [[{"id": "a" * 32}]])
    write_set(tmp_path / "signals", "signals", [[{"id": "a" * 32}]])
    settings = {"rules": {"profile": "minimal", "rule": ["too_purple=1"]}}
    write_set(tmp_path / "corpus", "corpus", [[]], settings=settings)
    assert make_report(str(tmp_path))["rules"] == []
    assert run(["inspect", "doc", str(tmp_path), "a" * 32, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == []


class _Page(HTMLParser):
    """Collects what a page could fetch or run, and checks that its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(page: str) -> _Page:
    found = _Page()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def test_the_page_stands_alone(page: str) -> None:
    found = parsed(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use"} & found.tags
    names = {name for name, _ in found.attributes}
    assert all(value.startswith("#") for name, value in found.attributes if name == "href")
    assert not {"src", "xlink:href", "srcset", "action", "data", "background"} & names
    assert not [name for name in names if name.startswith("on")]
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert "@import" not in style
    assert "url(" not in page


def test_every_text_from_outside_is_shown_as_it_is_and_is_no_markup(page: str) -> None:
    assert "<script" not in page
    text = "".join(parsed(page).texts)
    for place in (
        f"The model says {SCRIPT}",
        f"http://kept.example/?q={SCRIPT}",
        f"Title {SCRIPT}",
        f"{SCRIPT} and the words",
        f"100,000 levels {SCRIPT}",
        "Too short <b>to be</b> kept.",
    ):
        assert place in text


def test_hostile_names_are_escaped_wherever_a_report_holds_text(report: dict[str, Any]) -> None:
    """Every string of the report made hostile, keys of counts too: nothing becomes markup, whatever it came from."""

    def hostile(value: Any) -> Any:
        if isinstance(value, str):
            return f"{value}{SCRIPT}{CONTROLS}"
        if isinstance(value, (list, tuple)):
            return [hostile(item) for item in value]
        if isinstance(value, dict):
            return {key: hostile(item) for key, item in value.items()}
        return value

    stages = [
        stage
        | {
            "counts": {
                key: {f"{reason}{SCRIPT}": n for reason, n in value.items()} if isinstance(value, dict) else value
                for key, value in stage["counts"].items()
            },
            "recipe": {"settings": {SCRIPT: SCRIPT}, "versions": {SCRIPT: SCRIPT}},
        }
        for stage in report["stages"]
    ]
    rest = {key: hostile(value) for key, value in report.items() if key not in ("stages", "tokens", "alarms")}
    alarms = [hostile(alarm) for alarm in report["alarms"]]
    page = report_page(rest | {"stages": stages, "tokens": report["tokens"], "alarms": alarms})
    assert "<script" not in page
    assert not set(CONTROLS) & set(page)
    parsed(page)


def test_reasons_of_any_characters_and_length_are_drawn_visible_and_short(tmp_path: Path) -> None:
    """On NUL or ESC the charts' library aborts the process; a label of 300,000 characters took 100 s."""
    hostile = "\0\x1b\x85\u202e\u2028\ufeff\uffff\U000e0041"
    lost = dict.fromkeys([*hostile, "x" * 300_000, "x" * 300_001], 1)
    counts = Counts(50, 50 - len(lost), dict(list(lost.items())[:5]), dict(list(lost.items())[5:]))
    write_set(tmp_path / "links", "links", [[]], counts=counts, settings={hostile: [hostile, "y" * 300_000]})
    assert run(["report", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert not set(hostile) & set(page)
    assert page.count("\\x1b") >= 2
    assert len(page) < 100_000
    drawn = json.loads((tmp_path / "report.json").read_text())["stages"][0]["counts"]
    assert drawn["dropped"] | drawn["failed"] == lost


def test_the_time_cpu_and_memory_of_each_stage_are_shown(written_build: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(written_build / "links", build / "links")
    about = json.loads((build / "links" / "run.json").read_text())
    (build / "links" / "run.json").write_text(json.dumps(about | {"cpu_seconds": 83.0, "peak_bytes": 123_000_000}))
    found = report_page(make_report(str(build)))
    for shown in ("1.5 s", "1 min 23 s", "123 MB"):
        assert f'<td class="n">{shown}</td>' in found


def test_measures_of_the_paper_are_beside_its_values(written_build: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(written_build / "links", build / "links")
    (build / "model").mkdir()
    ours = [
        {"measure": "perplexity", "unit": unit, "units": 9, "value": value}
        for unit, value in (("word", 412.5), ("token", 9.0))
    ]
    answers = {
        "ptb": {"task": "ptb", "results": ours, "paper": {"perplexity": {"117M": 65.85}}},
        "1bw": {"task": "1bw", "results": [{**ours[0], "value": None}], "paper": {"perplexity": {"117M": 75.2}}},
        "text": {"task": "text", "results": ours},
    }
    for task, answer in answers.items():
        (build / "model" / f"evaluation-{task}.json").write_text(json.dumps(answer))
    report = make_report(str(build))
    assert report["paper"] == [{"task": "ptb", "measure": "perplexity", "paper": {"117M": 65.85}, "ours": 412.5}]
    assert '<td class="n"><b>412.5</b></td><td class="n">65.85</td>' in report_page(report)


@pytest.mark.parametrize("change", [{"results": 5}, {"results": [{}]}, {"task": None}, {"paper": {"perplexity": 7}}])
def test_damaged_results_of_the_paper_are_named(change: Any, only_links: Path, tmp_path: Path) -> None:
    build = shutil.copytree(only_links, tmp_path / "build")
    (build / "model").mkdir()
    answer = {"task": "ptb", "results": [{"measure": "perplexity", "value": 1.5}], "paper": {"perplexity": {"117M": 2}}}
    (build / "model" / "evaluation-ptb.json").write_text(json.dumps(answer | change))
    with pytest.raises(InputError, match=r"evaluation-ptb\.json' is damaged: .* - at `\$\.(results|task|paper)"):
        make_report(str(build))


@pytest.mark.parametrize("value", ['"x"', "1e400", "[]", "NaN", "-Infinity", "{}", "9" * 400, "9" * 5_000])
@pytest.mark.parametrize(
    ("name", "form", "field"),
    [
        ("links/run.json", '{{"seconds": {}}}', "seconds"),
        ("links/run.json", '{{"peak_bytes": {}}}', "peak_bytes"),
        ("model/evaluation.json", '{{"perplexity": {}}}', "perplexity"),
        ("model/evaluation-ptb.json", '{{"task": "ptb", "results": [{{"measure": "", "value": {}}}]}}', "value"),
        ("model/metrics.jsonl", '{{"step": {}, "loss": 3.5}}\n', "step"),
        ("model/metrics.jsonl", '{{"step": 1, "grad_norm": {}}}\n', "grad_norm"),
    ],
)
def test_a_number_that_is_none_is_named_with_its_file_and_field(
    name: str, form: str, field: str, value: str, only_links: Path, tmp_path: Path
) -> None:
    build = shutil.copytree(only_links, tmp_path / "build")
    (build / "model").mkdir()
    (build / "model" / "metrics.jsonl").write_text("")
    (build / name).write_text(form.format(value))
    with pytest.raises(InputError, match=rf"{name}(:1)?' is damaged: .*{field}\b"):
        make_report(str(build))


def test_values_that_an_evaluation_lacks_are_left_out(only_links: Path, tmp_path: Path) -> None:
    build = shutil.copytree(only_links, tmp_path / "build")
    (build / "model").mkdir()
    (build / "model" / "metrics.jsonl").write_text('{"step": 1, "loss": null}\n{"step": 2, "loss": 1e308}\n')
    (build / "model" / "evaluation.json").write_text('{"perplexity": null, "sample": "A cat."}')
    assert run(["report", str(build), "--quiet"]) == 0
    assert "A cat." in (build / "report.html").read_text()


def test_people_read_what_the_perplexity_is_of(page: str) -> None:
    assert "Held-out perplexity per token, lower is better: <b>40.50</b>" in page


def test_the_command_writes_page_and_json_which_agree(
    written_build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    assert run(["report", str(build), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert Path(written["report"]).read_text() == report_page(json.loads((build / "report.json").read_text()))
    first = (build / "report.html").read_bytes()
    assert run(["report", str(build), "--quiet"]) == 0
    assert (build / "report.html").read_bytes() == first


def test_a_build_that_went_no_further_than_its_links_has_a_report(only_links: Path) -> None:
    report = make_report(str(only_links))
    assert [stage["name"] for stage in report["stages"]] == ["links"]
    assert (report["corpus"], report["lengths"], report["tokens"], report["training"]) == (None, None, None, None)
    page = report_page(report)
    parsed(page)
    assert "too_little_karma" in page
    assert "Training" not in page
    assert "The corpus" not in page


def test_a_training_under_way_is_drawn_as_far_as_it_is(written_build: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(written_build / "links", build / "links")
    (build / "model").mkdir()
    (build / "model" / "metrics.jsonl").write_text('{"step": 0, "validation_loss": 5.0}\n{"step": 1, "lo')
    report = make_report(str(build))
    assert report["training"] == {"training_loss": [], "validation_loss": [(0, 5.0)], "curves": {}, "evaluation": None}
    assert "too few steps for a curve" in report_page(report)


def test_drawings_hold_for_one_value_and_for_none() -> None:
    assert "<svg" in loss_curves([(1, 4.0), (2, 4.0)], [])
    assert "<svg" in loss_curves([(0, 0.0)], [(0, 0.0)])
    words = {"column": "n_words", "thresholds": [("too_few_words", 0.0)]}
    assert histogram(words | {"bins": [[8, 0, 0], [12, 0, 0]]}) == ""
    assert histogram(words | {"bins": [[8, 1, 0], [12, 0, 0]]}).count("<title>") == 2  # a broad and a narrow drawing


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"needs chromium at '{CHROMIUM}'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET_BROWSER)
        yield launched
        launched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_page_and_asks_nobody_for_anything(
    browser: Any, written_build: Path, tmp_path: Path, scheme: str
) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    address = Path(write_report(str(build))).as_uri()
    shown = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    complaints: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("console", lambda message: complaints.append(message.text))
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("dialog", lambda dialog: complaints.append(dialog.message))
    shown.goto(address)
    for summary in shown.query_selector_all("summary"):
        summary.click()
    assert asked == [address]
    assert complaints == []
    charts = shown.locator("svg.broad")
    assert charts.count() == 6  # the funnel, losses, three other curves, words
    for i in range(charts.count()):
        box = charts.nth(i).bounding_box()
        assert box is not None
        assert box["width"] > 500
        assert charts.nth(i).locator("[stroke^='var(--'], [fill^='var(--']").count() > 5, "a chart without marks"
    assert shown.locator("svg.broad >> text=too_few_words: 100").is_visible()
    assert shown.locator("article pre", has_text="Too short").is_visible()
    for width in (1000, 380):  # nothing sticks out sideways, on a phone neither
        shown.set_viewport_size({"width": width, "height": 800})
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        found = Axe().run(shown, options={"runOnly": ["wcag2a", "wcag2aa"]})
        assert [each["id"] for each in found.response["violations"] if each["impact"] in ("serious", "critical")] == []
    visible = [each for each in shown.locator("svg").all() if each.is_visible()]
    assert [each.get_attribute("class") for each in visible] == ["narrow"] * 5  # all but the funnel, which has its bars
    shown.emulate_media(media="print")
    printed = shown.locator("svg.narrow").first.bounding_box()
    assert printed is not None
    assert printed["width"] <= 380, "a chart is cut off on paper"
    shown.close()


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluation.json"])
@pytest.mark.parametrize("data", [b"[1]\n", b'{"step": 1,\n', b"\xff\n"])
def test_a_damaged_record_of_the_training_is_named(name: str, data: bytes, written_build: Path, tmp_path: Path) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    (build / "model" / name).write_bytes(data)
    with pytest.raises(InputError, match=name):
        make_report(str(build))
