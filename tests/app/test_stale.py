"""A removal reaches what was made from the corpus: tokens and models say that they are stale, and `build` renews what it can."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from webtext.app.chain import Layout
from webtext.app.inspect.stale import stale_in
from webtext.app.main import run
from webtext.app.reports.report import make_report
from webtext.base.parts.partset import PartSet

sys.path.insert(0, str(Path(__file__).parent.parent / "clean"))

from warc_files import article, page, write_pages  # noqa: E402

CONFIG = """
[build]
pages = ["{pages}"]
out = "{out}"
[clean.remove]
remove = [{remove}]
[tokenizer]
vocab_size = 300
[train]
context = 16
batch_size = 2
steps = 2
warmup_steps = 1
device = "cpu"
[train.shape]
n_layer = 1
n_head = 1
n_embd = 16
"""


def test_after_a_removal_tokens_and_model_are_stale_and_build_packs_the_tokens_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = write_pages(
        tmp_path / "pages",
        [[{"url": f"http://{i}{j}.example/", "body": page(article(3 * i + j, 40))} for j in (1, 2)] for i in (1, 2)],
    ).folder.url
    build, config, requests = tmp_path / "build", tmp_path / "build.toml", tmp_path / "requests.txt"
    requests.write_text("21.example # a letter\n")
    tokens = str(build / "tokens")

    def built(remove: str) -> str:
        config.write_text(CONFIG.format(pages=pages, out=build, remove=remove))
        assert run(["build", str(config), "--workers", "1"]) == 0
        return capsys.readouterr().out

    built("")
    assert run(["train", "run", tokens, "--out", str(build / "model"), "--config", str(config)]) == 0
    capsys.readouterr()
    assert stale_in(Layout(str(build))) == make_report(str(build))["stale"] == []

    # Only the corpus is made again: everything made from it says so, and how to renew it.
    arguments = ["clean", "run", pages, "--out", str(build), "--remove", str(requests), "--workers", "1"]
    assert run(arguments) == 0
    said = f"'{tokens}' is stale, and so is each model that was trained on it: 1 part of '{build / 'corpus'}' changed"
    assert said in capsys.readouterr().out
    for command in (["inspect", "set", tokens], ["shards", "info", tokens], ["shards", "verify", tokens]):
        assert run(command) == 0
        assert said in capsys.readouterr().out
        assert run([*command, "--json"]) == 0
        assert said in json.loads(capsys.readouterr().out)["stale"][0]
    assert run(["train", "run", tokens, "--out", str(tmp_path / "other"), "--config", str(config)]) == 0
    assert f"warning: {said}" in capsys.readouterr().err
    assert run(["report", str(build)]) == 0
    assert "is stale, and so is each model" in (build / "report.html").read_text()

    # The chain packs the tokens again; it leaves the model alone, and says so.
    text = built(f'"{requests}"')
    assert PartSet.open(str(build / "corpus")).counts.dropped == {"removed_on_request": 1}
    assert f"'{build / 'model'}' is stale: it was trained on other tokens than those in '{tokens}'" in text
    assert "changed since" not in text
    tokenizer, model = stale_in(Layout(str(build)))
    assert (model in text, "tokenizer.json' was trained on an earlier corpus and is kept" in tokenizer) == (True, True)
    assert PartSet.open(tokens).records == 3
    capsys.readouterr()
    assert run(["shards", "info", tokens]) == 0
    assert "stale" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_corpus_that_grows_keeps_its_tokenizer_and_the_tokens_of_its_old_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second generation of pages, with words that the first has not; then the setting that trains again."""
    first = [{"url": f"http://{i}.example/", "body": page(article(i, 40))} for i in (1, 2)]
    words = " ".join(f"quagga{i % 9} okapi{i % 7} and the others were there." for i in range(60))
    second = [{"url": "http://new.example/", "body": page(words)}]
    config, build = tmp_path / "build.toml", tmp_path / "build"

    def built(parts: list[list[dict[str, object]]], *options: str) -> tuple[dict[str, bytes], str]:
        pages = write_pages(tmp_path / "pages", parts).folder.url if parts else str(tmp_path / "pages")
        config.write_text(CONFIG.format(pages=pages, out=build, remove=""))
        assert run(["build", str(config), "--workers", "1", *options]) == 0
        found = {
            name: (build / name).read_bytes()
            for name in ("tokenizer/tokenizer.json", "tokenizer/tokenizer.manifest.json")
        }
        return found | {
            path.name: path.read_bytes() for path in (build / "tokens").glob("*.tok")
        }, capsys.readouterr().err

    before, _ = built([first])
    after, said = built([first, second])
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before
    trained_on = json.loads(before["tokenizer/tokenizer.manifest.json"])["parents"][0]["hash"][:12]
    now = PartSet.open(str(build / "corpus")).hash[:12]
    assert f"is kept: trained on corpus {trained_on}, now there is corpus {now}\n" in said
    (stale,) = make_report(str(build))["stale"]
    assert "was trained on an earlier corpus and is kept; retrain_tokenizer = true in [build] trains it again" in stale
    again, said = built([])
    assert (again, "is kept: trained on corpus" in said) == (after, True)
    retrained, _ = built([], "--set", "build.retrain_tokenizer=true")
    assert retrained["tokenizer/tokenizer.json"] != before["tokenizer/tokenizer.json"]
    assert stale_in(Layout(str(build))) == []
    same, said = built([])  # the setting is off again, and there is nothing to keep back
    assert (same, "tokenizer.json' is done" in said) == (retrained, True)
