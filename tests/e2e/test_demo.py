"""All stages on a small web: every planted page ends as planned, every document traces to its posts."""

from __future__ import annotations

import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from webtext.app.chain import BuildLayout
from webtext.app.demo.pages import NAMES
from webtext.app.demo.plan import CANARY, make_plan
from webtext.app.demo.run import check_outcomes
from webtext.app.inspect.trace import Tracer
from webtext.base.parts.partset import PartSet


@pytest.fixture(scope="module")
def build(small_demo: Path) -> Path:
    return small_demo / "build"


def test_every_planted_page_ends_as_planned(small_demo: Path, build: Path) -> None:
    names = json.loads((small_demo / "web" / NAMES).read_text())
    outcomes = check_outcomes(make_plan(names, int((small_demo / "port").read_text())), BuildLayout(str(build)))
    assert len(outcomes) >= 20
    assert [outcome for outcome in outcomes if not outcome["met"]] == []


def test_the_records_of_every_stage_add_up_along_the_way(build: Path) -> None:
    sets = {
        name: PartSet.open(str(build / name))
        for name in ("links", "pages", "documents", "signals", "corpus", "dropped")
    }
    assert all(opened.counts.balanced for opened in sets.values())
    assert sets["pages"].counts.records_in == sets["links"].records
    assert sets["documents"].counts.records_in == sets["pages"].counts.kept
    assert sets["signals"].records == sets["documents"].records
    assert sets["corpus"].records + sets["dropped"].records == sets["documents"].records


def test_every_token_traces_to_the_posts_that_voted(build: Path) -> None:
    tracer = Tracer(str(build))
    tokens = PartSet.open(str(build / "tokens"), "tokens")
    rows = [row for part in tokens.parts for row in tokens.table(part).to_pylist()]
    assert len(rows) == PartSet.open(str(build / "corpus")).records
    for row in rows:
        trace = tracer.trace_document(row["id"])
        assert trace is not None
        assert trace.stage == "corpus"
        assert trace.tokens[0]["start"] == row["start"]
        assert trace.page is not None
        assert (build / "pages" / trace.page["warc_file"]).is_file()
        assert trace.link is not None
        assert max(post["score"] for post in trace.link["posts"]) == trace.link["karma"] >= 3


def test_the_corpus_is_prose(build: Path) -> None:
    """Readable text without menus and footers; only the planted page is in another language, and none is uncertain."""
    corpus = PartSet.open(str(build / "corpus"))
    texts = [row["text"] for part in corpus.parts for row in corpus.table(part).to_pylist()]
    assert not any("|  |" in text or "Subscribe to our weekly letter" in text for text in texts)
    words = [word for text in texts for word in text.split()]
    assert sum(word.strip(".,:;()\"'").isalpha() for word in words) > 0.75 * len(words)
    dropped = corpus.counts.dropped
    assert "uncertain_language" not in dropped
    assert dropped["other_language"] == 1


def test_the_canary_is_in_the_corpus_as_validation_and_in_no_training_token(build: Path) -> None:
    from webtext.shards import TokenShards
    from webtext.tokenizer import Tokenizer

    corpus = PartSet.open(str(build / "corpus"))
    held = [row for part in corpus.parts for row in corpus.table(part).to_pylist() if CANARY in row["text"]]
    assert [row["split"] for row in held] == ["validation"]
    tokenizer = Tokenizer.load(str(build / "tokenizer" / "tokenizer.json"))
    for split, expected in (("train", False), ("validation", True)):
        shards = TokenShards(str(build / "tokens"), split=split)
        text = b"".join(tokenizer.decode_bytes(shards.tokens(i)) for i in range(len(shards)))
        assert (CANARY.encode() in text) is expected


def test_training_lowered_the_held_out_perplexity(build: Path) -> None:
    evaluation = json.loads((build / "model" / "evaluation.json").read_text())
    untrained = json.loads((build / "model" / "metrics.jsonl").read_text().splitlines()[0])
    assert evaluation["perplexity"] < untrained["perplexity"] / 2


def test_the_exported_model_loads_in_transformers(build: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel.from_pretrained(build / "model" / "export")
    tokenizer = transformers.AutoTokenizer.from_pretrained(build / "model" / "export")
    assert model.config.vocab_size == len(tokenizer)


def config_from_pages(build: Path, folder: Path) -> Path:
    """Return the config of a build that starts from existing pages; from pages on, a build is a pure function."""
    path = folder / "build.toml"
    path.write_text(f'[build]\npages = ["{build}/pages"]\nout = "{folder}/build"\n[tokenizer]\nvocab_size = 600\n')
    return path


def webtext(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "webtext.app.main", *arguments]


def files(folder: Path) -> dict[str, bytes]:
    skipped = {"run.json", "report.json", "report.html", "config.json"}  # times, and paths of this folder
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped
    }


@pytest.mark.slow
def test_a_build_killed_at_ten_random_moments_has_the_bytes_of_an_undisturbed_one(build: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    started = time.monotonic()
    subprocess.run(webtext("build", str(config_from_pages(build, whole)), "--quiet"), check=True, timeout=300)
    seconds = time.monotonic() - started
    moments = random.Random(7)
    config = str(config_from_pages(build, killed))
    for _ in range(10):
        process = subprocess.Popen(
            webtext("build", config, "--quiet"), start_new_session=True, stderr=subprocess.DEVNULL
        )
        time.sleep(moments.uniform(0.1, 0.5) * seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(webtext("build", config, "--quiet"), check=True, timeout=300)
    first = files(whole / "build")
    assert files(killed / "build") == first
    subprocess.run(webtext("build", config, "--quiet"), check=True, timeout=300)
    assert files(killed / "build") == first


def test_a_changed_rule_redoes_what_it_touches_and_nothing_else(build: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(build, tmp_path / "build")
    documents = (copy / "documents" / "manifest.json").stat().st_mtime_ns
    config = tmp_path / "build.toml"
    config.write_text(f'[build]\npages = ["{copy}/pages"]\nout = "{copy}"\n[tokenizer]\nvocab_size = 600\n')
    subprocess.run(webtext("build", str(config), "--quiet"), check=True, timeout=300)
    assert (copy / "documents" / "manifest.json").stat().st_mtime_ns == documents


@pytest.mark.slow
def test_a_dump_that_was_cut_short_is_built_and_not_overlooked(
    small_demo: Path, small_web: int, tmp_path: Path
) -> None:
    with open(small_demo / "RS_2017-01.zst", "rb") as file:
        lines = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file).read()
    (tmp_path / "RS_2017-01.xz").write_bytes(lzma.compress(lines)[:-64])
    config = tmp_path / "build.toml"
    contact = f'allow_address = ["127.0.0.0/28:{small_web}"]\ndelay = 0.02\n'
    config.write_text(
        f'[build]\nlinks = ["{tmp_path}/RS_2017-01.xz"]\nout = "{tmp_path}/build"\n[crawl.fetch]\n{contact}'
        "[tokenizer]\nvocab_size = 400\n"
    )
    answer = subprocess.run(webtext("build", str(config), "--quiet"), capture_output=True, text=True, timeout=300)
    assert answer.returncode == 1
    assert "RS_2017-01.xz': truncated_stream" in answer.stderr
    assert PartSet.open(str(tmp_path / "build" / "tokens")).records > 0
