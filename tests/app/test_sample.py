"""`webtext build --sample`: a slice of the demo's web is built, and compared with the whole build."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from webtext.app.chain import BuildLayout, smaller_sample
from webtext.app.config import BuildConfig
from webtext.app.inspect.trace import Tracer
from webtext.app.main import run
from webtext.app.reports.report import make_report
from webtext.app.reports.report_html import report_page
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.sample import Sample
from webtext.crawl.fetch.run import fetch_pages
from webtext.crawl.fetch.settings import FetchSettings

from .conftest import write_links, write_set


def identifiers(folder: str, kind: str, name: str) -> set[str]:
    opened = PartSet.open(folder, kind)
    return {each for part in opened.parts for each in opened.table(part, [name])[name].to_pylist()}


@pytest.fixture(scope="module")
def sampled(small_demo: Path, small_web: int, tmp_path_factory: pytest.TempPathFactory) -> BuildLayout:
    """A sample of 60 % of the small demo, whose links are collected already."""
    out = tmp_path_factory.mktemp("sampled") / "build"
    shutil.copytree(small_demo / "build/links", out / "links")
    settings = ["--set", f"build.out={out}", "--set", "crawl.fetch.delay=0.02", "--workers", "1", "--quiet"]
    assert run(["build", str(small_demo / "build.toml"), "--sample", "60%", *settings]) == 0
    return BuildLayout(f"{out}-sample-60-percent", str(out))


def test_the_pages_of_a_sample_are_those_of_its_links_and_nested(
    sampled: BuildLayout, small_demo: Path, tmp_path: Path
) -> None:
    fetch = BuildConfig.read(str(small_demo / "build.toml"), ["crawl.fetch.delay=0.02"])["crawl.fetch"]
    fetch_pages(sampled.links, str(tmp_path / "pages"), fetch, Run.quiet(), Sample(10.0))
    small = identifiers(str(tmp_path / "pages"), "pages", "link_id")
    large = identifiers(sampled.pages, "pages", "link_id")
    links = identifiers(sampled.links, "links", "link_id")
    assert large == {each for each in links if Sample(60.0).holds(each)}
    assert small == {each for each in links if Sample(10.0).holds(each)}
    assert small < large < links


def test_the_rows_are_those_that_the_whole_crawl_gives(sampled: BuildLayout, small_demo: Path) -> None:
    """A link that redirects to a link outside the sample is that link's page, as it is in the whole build."""

    def outcomes(folder: str) -> dict[str, tuple[str, str | None, str | None]]:
        opened = PartSet.open(folder, "pages")
        names = ["link_id", "outcome", "reason", "final_url"]
        rows = [row for part in opened.parts for row in opened.table(part, names).to_pylist()]
        return {row["link_id"]: (row["outcome"], row["reason"], row["final_url"]) for row in rows}

    whole = outcomes(str(small_demo / "build/pages"))
    assert outcomes(sampled.pages).items() <= whole.items()


def test_the_whole_crawl_takes_over_what_the_sample_fetched(
    sampled: BuildLayout, small_demo: Path, tmp_path: Path
) -> None:
    """Its rows and files stand as they are, and the others are fetched: together those of all links."""
    fetch = BuildConfig.read(str(small_demo / "build.toml"), ["crawl.fetch.delay=0.02"])["crawl.fetch"]
    out, sample = str(tmp_path / "pages"), PartSet.open(sampled.pages)
    whole = fetch_pages(sampled.links, out, fetch, Run.quiet(), smaller=sample)
    assert whole is not None
    whole.verify()
    assert whole.complete
    assert [part.sha256 for part in whole.parts[: len(sample.parts)]] == [part.sha256 for part in sample.parts]
    assert whole.records == PartSet.open(sampled.links).records
    assert whole.counts.to_json() == PartSet.open(str(small_demo / "build/pages")).counts.to_json()
    assert "sample" not in whole.recipe["settings"]
    other = dataclasses.replace(fetch, retries=fetch.retries + 1)
    with pytest.raises(InputError, match="started with other settings"):
        fetch_pages(sampled.links, out, other, Run.quiet(), smaller=sample)


def test_the_largest_smaller_sample_beside_a_build_is_taken_over(tmp_path: Path) -> None:
    for percent in ("0.1", "5", "20", "x"):
        write_set(tmp_path / f"b[1]-sample-{percent}-percent" / "pages", "pages", [[]])
    text = f'links = ["a"]\nout = "{tmp_path}/b[1]"\n'
    for sample, taken in (("", "20"), ('sample = "6%"\n', "5"), ('sample = "0.09%"\n', None)):
        found = smaller_sample(config(tmp_path, f"[build]\n{text}{sample}"))
        assert found is None if taken is None else found is not None and f"-{taken}-percent" in found.folder.url
    write_set(tmp_path / "b[1]" / "pages", "pages", [[]])
    (tmp_path / "b[1]-sample-20-percent/pages/manifest.json").write_text("damaged")
    assert smaller_sample(config(tmp_path, f"[build]\n{text}")) is None


def test_a_sample_says_that_it_is_one(sampled: BuildLayout) -> None:
    assert PartSet.open(sampled.pages).recipe["settings"]["sample"] == "60%"
    assert "a sample of 60% of the links" in report_page(make_report(sampled.root))
    assert "**a sample**: 60% of the links" in Path(sampled.corpus, "README.md").read_text()
    assert json.loads(Path(sampled.root, "config.json").read_text())["build"]["sample"] == "60%"


def test_its_folder_is_taken_for_no_whole_build(
    sampled: BuildLayout, small_demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch = ["crawl", "fetch", sampled.links, "--out", sampled.pages, "--config", str(small_demo / "build.toml")]
    assert run([*fetch, "--set", "crawl.fetch.delay=0.02"]) == 3
    assert "sample was '60%', is None" in capsys.readouterr().err


def test_its_documents_lead_back_to_their_posts(sampled: BuildLayout) -> None:
    identifier = min(identifiers(sampled.corpus, "corpus", "id"))
    found = Tracer(sampled.root).find(identifier)
    assert found is not None
    assert found.link is not None
    assert found.link["posts"]


def test_a_second_run_finds_everything_done(
    sampled: BuildLayout, small_demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--sample", "60%", "--set", f"build.out={sampled.whole}", "--set", "crawl.fetch.delay=0.02"]
    assert run(["build", str(small_demo / "build.toml"), *arguments, "--dry-run"]) == 0
    assert "are done" in capsys.readouterr().err


@pytest.mark.slow
def test_pretraining_a_sample_trains_in_its_folder(
    sampled: BuildLayout, small_demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", f"build.out={sampled.whole}", "--set", "crawl.fetch.delay=0.02", "--workers", "1"]
    assert run(["pretrain", str(small_demo / "build.toml"), "--sample", "60%", *settings]) == 0
    said = capsys.readouterr().out
    assert "bits per byte" in said
    assert f"webtext view {sampled.root}" in said
    assert Path(sampled.export).is_dir()


def test_a_sample_that_keeps_no_link_says_how_many_it_would_need(tmp_path: Path) -> None:
    write_links(tmp_path / "build")
    settings = FetchSettings(contact="nobody@example.org")
    with pytest.raises(InputError, match=r"keeps none of the 8 links") as raised:
        fetch_pages(str(tmp_path / "build/links"), str(tmp_path / "pages"), settings, Run.quiet(), Sample(0.1))
    assert "about one in 1,000; 0.221% is the smallest that keeps one" in str(raised.value)
    assert not (tmp_path / "pages").exists()


def config(tmp_path: Path, text: str) -> BuildConfig:
    path = tmp_path / "build.toml"
    path.write_text(text)
    return BuildConfig.read(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('links = ["a"]\nsample = "0.1"', "a percent sign is missing"),
        ('links = ["a"]\nsample = 0.1', "expected a string"),
        ('pages = ["a"]\nsample = "1%"', "only links can be sampled"),
        ('links = ["a"]\n[build.prices]\nhour = 1', r"unknown section \[build.prices\]"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(tmp_path, f"[build]\n{text}\n")


def test_the_folder_says_what_it_is(tmp_path: Path) -> None:
    assert BuildLayout.of(
        config(tmp_path, '[build]\nlinks = ["a"]\nout = "b/"\nsample = "0.000010%"\n')["build"]
    ) == BuildLayout("b-sample-0.00001-percent", "b/")


@pytest.mark.parametrize("sample", ["0%", "0.1", "150%"])
def test_the_option_is_checked_like_the_setting(
    tmp_path: Path, sample: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "build.toml").write_text('[build]\nlinks = ["a"]\n')
    assert run(["build", str(tmp_path / "build.toml"), "--sample", sample]) == 2
    assert f"[build] sample = '{sample}'" in capsys.readouterr().err
