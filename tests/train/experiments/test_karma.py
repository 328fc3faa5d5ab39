"""Views of one build by vote threshold: what each has, the curve over karma, and builds that have no such views."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import shown
from small_runs import texts_of

from webtext.app.main import run
from webtext.base.config import changed
from webtext.base.console import Console
from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.base.html_pages.rendering import sections_text
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet, places_of
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.workers.attempt import Attempt
from webtext.shards import TokenShards
from webtext.shards.settings import PackSettings
from webtext.shards.writing.pack import pack_shards
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.experiments.compare import BETTER, NOISE, compare_corpora
from webtext.train.experiments.trials import Result
from webtext.train.settings import CompareSettings

COMPARE = CompareSettings(side_by_side=2)
Row = tuple[str, str, str, int | None, list[int]]
"""Id, text, split, karma and the scores of the posts."""
Vote = Callable[..., str]


class InThisProcess:
    """Makes every part in this process, which is quicker."""

    workers = 1

    def map(self, function: Callable[..., Any], tasks: Sequence[Any], *, on_done: Any, **_: Any) -> list[Any]:
        for i, task in enumerate(tasks):
            on_done(i, function(Attempt(), task))
        return []


def here(mode: str = "quiet", *, dry_run: bool = False) -> Run:
    return Run(InThisProcess(), Console(mode), dry_run=dry_run)


@pytest.fixture
def vote(tmp_path: Path, tokenizer: Tokenizer) -> Vote:
    """vote(rows, part of rows, …, links=recipe, votes=recipe) makes links/, corpus/, tokens/ and tokenizer/ of a build."""

    def write(name: str, kind: str, parts: list[list[dict[str, Any]]], settings: dict[str, Any], parents: Any) -> Any:
        recipe = Recipe(stage=f"test.{kind}", code_version=1, settings=settings)
        made = SetWriter(str(tmp_path / name), kind, recipe, parents)
        written = []
        for index, rows in enumerate(parts):
            with made.part(index, key=f"{index}") as part:
                part.write(rows)
                part.counts.keep(len(rows))
                written.append(part.publish())
        sealed = made.seal(written)
        (tmp_path / name / "run.json").write_text(json.dumps({"parents": places_of(parents, sealed.folder)}))
        return sealed

    def vote(*parts: list[Row], links: dict[str, Any] | None = None, votes: dict[str, Any] | None = None) -> str:
        post = {"source": "reddit", "post_id": "a", "subreddit": "test", "created": 1, "retrieved": None}
        documents = [
            [
                {
                    "id": identifier, "text": text, "text_digest": text_digest(text), "split": split, "karma": karma,
                    "link_ids": [], "posts": [post | {"score": score} for score in scores],
                }
                for identifier, text, split, karma, scores in rows
            ]
            for rows in parts
        ]  # fmt: skip
        linked = write("build/links", "links", [], links or {"min_karma": 1, "sum_karma": False}, [])
        write("build/corpus", "corpus", documents, {"votes": votes} if votes else {}, [linked])
        build = tmp_path / "build"
        (build / "tokenizer").mkdir(exist_ok=True)
        tokenizer.save(build / "tokenizer/tokenizer.json")
        place = str(build / "tokenizer/tokenizer.json")
        pack_shards(str(build / "corpus"), place, str(build / "tokens"), PackSettings(shard_tokens=3000), here())
        return str(build)

    return vote


def rows_of(texts: dict[int, list[str]], held_out: dict[int, list[str]]) -> list[Row]:
    """Documents of these texts by karma, shuffled; ids begin with the karma."""
    rows: list[Row] = [
        (f"{karma}-{split}-{i}", text, split, karma, [karma, 1] if karma else [])
        for split, by_karma in (("train", texts), ("validation", held_out))
        for karma, of_karma in by_karma.items()
        for i, text in enumerate(of_karma)
    ]
    random.Random(0).shuffle(rows)
    return rows


def compare(build: str, out: Path, settings: TrainSettings, karma: str, run: Run | None = None, **how: Any) -> Result:
    told = CompareSettings(side_by_side=2, **how)
    return compare_corpora([build], str(out), settings, told, run or here(), karma=karma)


@pytest.mark.usefixtures("made")
def test_the_curve_finds_quality_that_votes_show(
    vote: Vote, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training documents of one or two points are letters. Held-out ones are sentences, so all behave alike."""
    texts = {1: texts_of(1, 10, noise=True), 2: texts_of(2, 10, noise=True), 3: texts_of(3, 10), 30: texts_of(4, 14)}
    rows = rows_of(texts, {1: texts_of(5, 2), 30: texts_of(6, 8)})
    build = vote(rows[:30], rows[30:])
    settings = changed(settings, steps=10_000, warmup_steps=4, eval_interval=None, checkpoint_interval=None)
    found = compare(build, tmp_path / "out", settings, "1,3,30", here("human"))
    assert [row.get("verdict") for row in found.rows] == [None, BETTER, BETTER]
    assert found.facts["validation"].startswith("10 documents"), "also those of one point"

    views = [TokenShards(f"{tmp_path}/out/views/karma-{least}", "train") for least in (1, 3, 30)]
    whole = {each.id: each for each in TokenShards(f"{build}/tokens").documents()}
    for least, view in zip((1, 3, 30), views, strict=True):
        mine = list(view.documents())
        assert [each.id for each in mine] == [i for i in whole if int(i.partition("-")[0]) >= least]
        assert all((each.tokens == whole[each.id].tokens).all() for each in mine)
        assert all((each.source_part, each.row) == (whole[each.id].source_part, whole[each.id].row) for each in mine)
        view.verify()

    written = json.loads((tmp_path / "out/compare.json").read_text())
    assert [each["karma"] for each in written["rows"]] == [1, 3, 30]
    assert [each["documents"] for each in written["rows"]] == [44, 24, 14]
    assert views[-1].n_tokens - 4 * 32 < written["tokens"] <= views[-1].n_tokens
    assert all(each["passes"] <= 1 for each in written["rows"])
    for row in written["rows"][1:]:
        assert 0 < row["margin"] < row["smallest"] < -row["difference"]
        assert max(row["by_seeds"], row["by_documents"]) < row["margin"]
    assert "passes" in sections_text(found.sections())
    assert "smallest" in sections_text(found.sections())

    with shown(tmp_path / "out/compare.html") as browser:
        chart = browser.query_selector("svg[aria-label='bits per byte over karma']")
        bars = [bar.bounding_box() for bar in chart.query_selector_all("path[stroke-dasharray]")]
        dots = [dot.bounding_box() for dot in chart.query_selector_all("path:has(title)")]
    assert [box["x"] for box in dots] == sorted(box["x"] for box in dots)
    for bar, dot in zip(bars, dots[1:], strict=True):
        assert bar["y"] < dot["y"] + dot["height"] / 2 < bar["y"] + bar["height"]

    again = compare(build, tmp_path / "out", settings, "1,3,30")
    assert again.to_json() == found.to_json()


@pytest.mark.usefixtures("made")
def test_votes_that_show_nothing_are_within_noise_and_repeated_text_is_warned_of(
    vote: Vote, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    build = vote(rows_of({1: texts_of(1, 20), 9: texts_of(2, 4)}, {1: texts_of(3, 6), 9: texts_of(4, 4)}))
    found = compare(build, tmp_path / "out", settings, "1,9", here("human"), tokens=3_000)
    assert [row.get("verdict") for row in found.rows] == [None, NOISE]
    assert found.rows[1]["passes"] > 1 > found.rows[0]["passes"]
    assert "warning: 'karma 9' is repeated" in capsys.readouterr().err


def test_karma_is_the_highest_score_and_a_document_of_unknown_karma_is_in_no_view(
    vote: Vote, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    text = texts_of(0, 1)[0]
    rows: list[Row] = [(f"often-{i}", text, "train", 2, [2, 2, 2]) for i in range(9)]
    rows += [(f"one-{i}", text, "train", 5, [5]) for i in range(7)]
    rows += [(f"none-{i}", text, "train", None, []) for i in range(5)] + [("held", text, "validation", 5, [5])]
    found = compare(vote(rows), tmp_path / "out", changed(settings, steps=3), "1,3", tokens=400, seeds=1)
    assert [row["documents"] for row in found.rows] == [16, 7]
    counts = PartSet.open(f"{tmp_path}/out/views/karma-3").manifest["counts"]
    assert counts["dropped"] == {"too_little_karma": 9, "unknown_karma": 5}


@pytest.mark.parametrize("karma", ["3", "", "3,x", "10,3", "3,3", "0,3", "3,,10", "3.5,10"])
def test_thresholds_that_are_not_rising_numbers(
    karma: str, sentences: str, tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(ConfigError, match="give two or more numbers that rise from 1 or more, e.g. 1,3,10"):
        compare(sentences, tmp_path / "out", settings, karma)


HELD = texts_of(9, 3)


@pytest.mark.parametrize(
    ("texts", "karma", "recipes", "kind", "message"),
    [
        ({5: 9, 7: 9}, "1,7", {"links": {"min_karma": 3}}, InputError, "min_karma 3: links below it were never crawled"),
        ({5: 9, 7: 9}, "3,7", {"votes": {"min_karma": 5}}, InputError, "begin --karma with 5 or more"),
        ({5: 9, 7: 9}, "5,7", {"votes": {"communities": ["science"]}}, InputError, "counts only some posts"),
        ({5: 9, 7: 9}, "5,8", {}, InputError, "0 training documents of .* reach karma 8"),
        ({5: 9, 7: 9}, "5,6,7", {}, InputError, "9 .* reach karma 7\nleave it out: the threshold before it"),
        ({None: 9}, "1,3", {}, InputError, "0 .* reach karma 1\nname a build of links with votes"),
        ({5: 60, 7: 1}, "5,7", {}, ConfigError, "tokens are . steps of 128, and the warm-up is 40"),
    ],
)  # fmt: skip
def test_builds_without_such_views(
    texts: dict[int, int], karma: str, recipes: dict[str, Any], kind: type[WebtextError], message: str, vote: Vote,
    tmp_path: Path, settings: TrainSettings,
) -> None:  # fmt: skip
    build = vote(rows_of({k: texts_of(k or 0, n) for k, n in texts.items()}, dict.fromkeys(texts, HELD)), **recipes)
    with pytest.raises(kind, match=message) as caught:
        compare(build, tmp_path / "out", changed(settings, warmup_steps=40, steps=50), karma)
    assert len(caught.value.lines) <= 3
    assert not (tmp_path / "out/runs").exists()


def test_several_corpora_tokens_without_a_corpus_and_a_corpus_that_changed(
    sentences: str, letters: str, vote: Vote, tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(ConfigError, match="--karma with 2 corpora\nname one build"):
        compare_corpora([sentences, letters], str(tmp_path / "out"), settings, COMPARE, Run.quiet(), karma="1,3")
    with pytest.raises(InputError, match="has no corpus that it was packed from, so karma is unknown"):
        compare(sentences, tmp_path / "out", settings, "1,3")
    build = vote(rows_of({1: texts_of(1, 3), 3: texts_of(3, 3)}, {3: HELD}))
    tokens = Path(build, "tokens").rename(tmp_path / "before")
    vote(rows_of({1: texts_of(1, 4), 3: texts_of(3, 3)}, {3: HELD}))
    Path(build, "tokens").rename(tmp_path / "after")
    tokens.rename(Path(build, "tokens"))
    with pytest.raises(InputError, match="changed since '.*' was packed from it\npack it again"):
        compare(build, tmp_path / "out", settings, "1,3")


def test_the_command_line(
    vote: Vote, tmp_path: Path, made: list[Any], capsys: pytest.CaptureFixture[str], settings: TrainSettings
) -> None:
    """No document of the first part reaches the second threshold."""
    build = vote(rows_of({1: texts_of(1, 20)}, {}), rows_of({3: texts_of(3, 20)}, {3: HELD}))
    model = "--n-layer 1 --n-head 1 --n-embd 16 --context 32 --batch-size 4 --microbatch-size 4 --warmup-steps 2"
    how = f"--set train.device=cpu --set train.dtype=float32 --seeds 2 --karma 1,3 --out {tmp_path}/out --json"
    assert run(["train", "compare", build, *model.split(), *how.split()]) == 0
    assert [each["corpus"] for each in json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]] == [
        "karma 1",
        "karma 3",
    ]
    assert "over karma" in (tmp_path / "out/compare.html").read_text()
