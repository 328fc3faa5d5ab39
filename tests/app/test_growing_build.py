"""A build whose corpus shrinks or grows: `build` packs what changed, and keeps the tokenizer and what depends on nothing new."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from webtext.app.main import run
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
"""


def test_after_a_removal_build_packs_the_tokens_again(tmp_path: Path) -> None:
    pages = write_pages(
        tmp_path / "pages",
        [[{"url": f"http://{i}{j}.example/", "body": page(article(3 * i + j, 40))} for j in (1, 2)] for i in (1, 2)],
    ).folder.url
    build, config, requests = tmp_path / "build", tmp_path / "build.toml", tmp_path / "requests.txt"
    requests.write_text("21.example # a letter\n")

    def tokens(remove: str) -> PartSet:
        config.write_text(CONFIG.format(pages=pages, out=build, remove=remove))
        assert run(["build", str(config), "--workers", "1"]) == 0
        return PartSet.open(str(build / "tokens"))

    before = tokens("")
    after = tokens(f'"{requests}"')
    assert (before.records, after.records) == (4, 3)
    assert PartSet.open(str(build / "corpus")).counts.dropped == {"removed_on_request": 1}
    assert after.parts[0].sha256 == before.parts[0].sha256


@pytest.mark.slow
def test_a_corpus_that_grows_keeps_its_tokenizer_and_the_tokens_of_its_old_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second generation of pages, with words that the first has not; then a tokenizer that was removed is trained again."""
    first = [{"url": f"http://{i}.example/", "body": page(article(i, 40))} for i in (1, 2)]
    words = " ".join(f"quagga{i % 9} okapi{i % 7} and the others were there." for i in range(60))
    second = [{"url": "http://new.example/", "body": page(words)}]
    config, build = tmp_path / "build.toml", tmp_path / "build"

    def built(parts: list[list[dict[str, object]]]) -> tuple[dict[str, bytes], str]:
        pages = write_pages(tmp_path / "pages", parts).folder.url if parts else str(tmp_path / "pages")
        config.write_text(CONFIG.format(pages=pages, out=build, remove=""))
        assert run(["build", str(config), "--workers", "1"]) == 0
        files = [*(build / "tokenizer").glob("*.json"), *(build / "tokens").glob("*.tok")]
        return {file.name: file.read_bytes() for file in files}, capsys.readouterr().err

    before, _ = built([first])
    after, said = built([first, second])
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before
    trained_on = json.loads(before["tokenizer.manifest.json"])["parents"][0]["hash"][:12]
    now = PartSet.open(str(build / "corpus")).hash[:12]
    assert f"is kept: trained on corpus {trained_on}, now there is corpus {now}\n" in said
    again, said = built([])
    assert (again, "is kept: trained on corpus" in said) == (after, True)
    shutil.rmtree(build / "tokenizer")
    retrained, _ = built([])
    assert retrained["tokenizer.json"] != before["tokenizer.json"]
    same, said = built([])
    assert (same, "tokenizer.json' is done" in said) == (retrained, True)
