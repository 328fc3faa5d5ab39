"""How texts are scored on the three sets of pages, by worked examples."""

from __future__ import annotations

import json
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
from bench_extract import main, rows, texts_made_elsewhere
from extraction_sets import Page, count_passages, difference, rates, score, scores
from resources import grown_mib


def page(of: str, text: str | None = None, url: str = "http://a.example/", **passages: list[str]) -> Page:
    return Page(of, url, url, "article", b"", text, **passages)


def test_wcxb_counts_lower_cased_words_as_often_as_they_occur() -> None:
    """Of `two two two four`, two words are among `one two two three`, so half of both."""
    rows = score(page("wcxb", "One two, two three."), "two two Two four")
    assert rates("wcxb", rows).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("text", "expected"), [("", 1.0), ("anything", 0.0)])
def test_a_wcxb_page_without_text_wants_none(text: str, expected: float) -> None:
    assert rates("wcxb", score(page("wcxb", ""), text)).tolist() == [expected] * 3


def test_wcxb_averages_over_pages() -> None:
    rows = scores([page("wcxb", "a b"), page("wcxb", "c " * 98)], ["a b", "d"])
    assert rates("wcxb", rows.sum(0)).tolist() == [0.5, 0.5, 0.5]


def test_passages_are_found_whatever_their_blanks_and_composition() -> None:
    given = page("trafilatura", wanted=["caf\u00e9 au lait", "tea"], unwanted=["menu", "log in"])
    assert count_passages(given, "Home\n cafe\u0301 au\n  lait. Log in: menu") == (1, 1, 1)
    assert rates("trafilatura", score(given, "cafe\u0301 au lait menu")).tolist() == [0.5, 0.5, 0.5]


def test_articles_are_compared_by_runs_of_four_words() -> None:
    """Gold has the runs `a b c d` and `b c d e`, the text the first of them and `b c d x`."""
    assert rates("articles", score(page("articles", "a b c d e"), "a, b, c, d: x")).tolist() == [0.5, 0.5, 0.5]
    assert rates("articles", score(page("articles", "a b"), "a b")).tolist() == [1, 1, 1]


def test_articles_average_precision_only_over_pages_with_text() -> None:
    """Precision is that of the first page; recall is 1 and 0; F1 is that of 1 and 0.5."""
    rows = scores([page("articles", "a b c d"), page("articles", "e f g h")], ["a b c d", ""])
    assert rates("articles", rows.sum(0)).tolist() == pytest.approx([1, 0.5, 2 / 3])


def test_a_domain_is_resampled_with_all_of_its_pages() -> None:
    """With one domain each resample is the set itself; with two, a resample may have only one of them."""
    one = [page("wcxb", "a", f"http://www.a.example/{i}") for i in range(3)]
    own, others = scores(one, ["a", "a", "b"]), scores(one, ["b", "b", "b"])
    assert difference(one, own, others) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    two = [*one[:2], page("wcxb", "a", "http://b.example/")]
    assert difference(two, own, others) == pytest.approx((2 / 3, 0, 1))
    assert difference(two, own, own) == (0, 0, 0)


def test_texts_made_elsewhere_are_those_of_all_pages_or_of_none(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"set": "wcxb", "page": "http://a.example/", "text": "a"}) + "\n")
    assert texts_made_elsewhere(file, [page("wcxb", "a")]) == ["a"]
    assert texts_made_elsewhere(file, [page("articles", "a")]) is None
    with pytest.raises(SystemExit, match=r"no text of 1 pages of the set wcxb, the first: http://b\.example/"):
        texts_made_elsewhere(file, [page("wcxb", "a"), page("wcxb", "b", "http://b.example/")])


def test_rates_of_nothing_are_zero() -> None:
    assert rates("trafilatura", np.zeros(3)).tolist() == [0, 0, 0]


def test_a_work_s_memory_is_that_of_a_fork_which_leaves_nothing_behind() -> None:
    kept: list[mmap.mmap] = []

    def keep() -> None:  # mapped, because a heap may have free pages left
        kept.append(mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE))
        for page in range(0, 64 << 20, mmap.PAGESIZE):
            kept[0][page] = 1

    assert 60 < grown_mib(keep) < 200
    assert not kept
    with pytest.raises(RuntimeError, match="ended with code 1"):
        grown_mib(lambda: 1 / 0)


def test_the_speed_and_memory_of_every_extractor_on_a_folder_s_pages_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.html").write_text("<html><body><p>A page with some words in it.")
    monkeypatch.setattr(sys, "argv", ["bench_extract.py", "--pages", str(tmp_path)])
    main()
    said = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert said[1] == ["### Speed: 1 pages"]
    assert [cells[0].strip("| ") for cells in said[5:]] == list(rows())
    assert {len(cells) for cells in said[5:]} == {4}
