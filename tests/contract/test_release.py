"""A release is enough for a build: the commands of clean's README, on a local web, reproduce every text."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "crawl"), str(HERE.parent / "clean")]  # the local web; pages of the tests

from local_web import LocalWeb  # noqa: E402
from warc_files import article, page  # noqa: E402

from webtext.app.main import run  # noqa: E402
from webtext.base.parts.partset import PartSet  # noqa: E402

README = (HERE.parents[1] / "clean" / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Return the commands of the section on releases."""
    section = README.partition("## Release without text")[2].partition("\n## ")[0].replace("\\\n", "")
    return [shlex.split(line)[1:] for line in re.findall(r"^    (webtext .*)$", section, re.M)]


@pytest.mark.slow
def test_the_readmes_commands_release_a_build_and_build_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages of all kinds: behind a redirect, deleted since, changed since, mirrors, and too short for the rule."""
    monkeypatch.chdir(tmp_path)
    web = LocalWeb()
    try:
        urls = [web.page(f"/{i}.html", page(article(i, 40), f"Page {i}"), host=i % 4 + 1) for i in range(8)]
        urls += [web.page("/mirror", page(article(0, 40)), host=5), web.page("/short", page("Few words."), host=5)]
        urls.append(web.redirect("/moved", web.page("/target", page(article(9, 40)), host=6), host=6))
        Path("links.csv").write_text(
            "url,score,created\n" + "".join(f"{url},{i + 3},1400000000\n" for i, url in enumerate(urls))
        )

        def webtext(*arguments: str) -> str:
            local = ["--delay", "0.01", "--allow-address", f"127.0.0.0/28:{web.port}"]
            more = local if arguments[:2] == ("crawl", "fetch") else ["--workers", "1"]
            assert run([*arguments, *more]) == 0
            return capsys.readouterr().out

        webtext("crawl", "links", "links.csv", "--out", "build/links")
        webtext("crawl", "fetch", "build/links", "--out", "build/pages", "--contact", "you@example.org")
        webtext("clean", "run", "build/pages", "--out", "build", "--rule", "too_few_words=20")
        assert PartSet.open("build/corpus").records == 9

        release, fetch, clean, check = commands()
        webtext(*release)
        fetch[fetch.index("--from") + 1] = "web"  # archives are not on this machine
        for command in (fetch, clean):
            webtext(*command)
        same = {"documents": 9, "same_text": 9, "other_text": 0, "missing": 0, "new_texts": 0, "same_recipe": True}
        answer = json.loads(webtext(*check, "--json"))
        assert {key: answer[key] for key in same} == same
        columns = ["text_digest", "link_ids", "url", "karma", "split"]
        made, again = (
            sorted(
                (row for part in each.parts for row in each.table(part, columns).to_pylist()),
                key=lambda row: row["url"],
            )
            for each in (PartSet.open("published/release"), PartSet.open("rebuilt/corpus"))
        )
        assert made == again

        # Since then one page has changed and one was deleted.
        web.page("/1.html", page(article(21, 40)), host=2)
        web.plant("/2.html", b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", host=3)
        later = [["rebuilt/pages", "later/pages"], ["rebuilt", "later"]]
        for command in (fetch, clean, check):
            for old, new in later:
                command = [new if part == old else part for part in command]
            answer = webtext(*command, "--json")
        found = json.loads(answer)
        assert (found["same_text"], found["other_text"], found["missing"], found["new_texts"]) == (7, 1, 1, 1)
    finally:
        web.close()
