"""Corpora compared: verdicts that follow from the numbers, equal budgets, one frozen validation set, resuming."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import shown
from small_runs import SECONDS, flags, talking

from webtext.app.main import run
from webtext.base.config import changed
from webtext.base.errors import DryRun
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.page import as_page
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.experiments import measure
from webtext.train.experiments.compare import BETTER, NOISE, NONE, WORSE, Comparison, compare_corpora, verdicts
from webtext.train.experiments.measure import VALIDATION, EvaluationSet
from webtext.train.experiments.settings import CompareSettings
from webtext.train.metrics import steps_made
from webtext.train.settings import EvalSettings

pytestmark = pytest.mark.usefixtures("made")
COMPARE = CompareSettings(side_by_side=2)
FLAGS = flags(
    n_layer=2, n_head=2, n_embd=32, context=32, microbatch_size=4, warmup_steps=2, learning_rate=1e-2, dtype="float32",
    device="cpu", eval_windows=4, checkpoint_interval=8,
)  # fmt: skip


def compare(
    corpora: list[str], out: Path, settings: TrainSettings, how: CompareSettings = COMPARE, **more: Any
) -> Comparison:
    return compare_corpora(corpora, str(out), settings, how, Run.quiet(), **more)


def test_a_corpus_of_letters_is_worse_and_the_same_corpus_again_within_noise(
    sentences: str,
    letters: str,
    make_build: Callable[..., str],
    tmp_path: Path,
    settings: TrainSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    news = tmp_path / "news.txt"
    news.write_text("the old dog sees the small cat near the river. " * 100)
    settings = changed(settings, steps=20, eval_interval=10, seed=100, checkpoint_interval=None)
    names = [f"plain={sentences}", f"again={sentences}", f"letters={letters}"]
    found = compare_corpora(names, str(tmp_path / "out"), settings, COMPARE, talking(), evaluation=[str(news)])
    said = capsys.readouterr().err
    judged = {(each.corpus, each.set): each.verdict for each in found.judgements}
    assert judged == {
        (corpus, name): verdict
        for corpus, verdict in (("again", NOISE), ("letters", WORSE))
        for name in ("overall", "validation")  # the only evaluation set is overall, and judged once
    }
    assert found.overall_of == ["news.txt"]
    assert said.count("named before") == 1
    assert "; a token set that was named before: other seeds, so only chance differs" in said
    assert "validation set: 6 documents" in said
    assert "9 runs, 2 at a time, 23,040 tokens and " in said

    written = json.loads((tmp_path / "out/compare.json").read_text())
    assert [corpus["seeds"] for corpus in written["corpora"]] == [[100, 101, 102], [103, 104, 105], [100, 101, 102]]
    assert {corpus["trained_tokens"] for corpus in written["corpora"]} == {20 * 4 * 32}
    assert written["validation"].startswith("6 documents")
    result = found.results["letters"][1]
    assert sum(result.answer["news.txt"].sizes) == news.stat().st_size
    documents = dict(found.validation.documents)
    packed = make_build("packed", {"none": "of these"}, documents)
    tok = Tokenizer.load(f"{letters}/tokenizer/tokenizer.json")
    how = EvalSettings(untrained=False, baselines=False, device="cpu")
    alone = evaluate_model(load_measured(result.trial.folder, tok), f"{packed}/tokens", how, Run.quiet())
    assert result.answer["validation"].bits_per_byte == pytest.approx(alone["bits_per_byte"], rel=1e-6)
    assert result.answer["validation"].sizes == [len(text.encode()) for text in documents.values()]

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.safetensors")}
    more = compare(names, tmp_path / "out", settings, evaluation=[str(news)])
    assert more.to_json() == found.to_json()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.safetensors")} == before

    assert (tmp_path / "out/compare.html").read_text() == as_page("Corpora compared", found.sections())
    with shown(tmp_path / "out/compare.html") as browser:
        text = browser.inner_text("body")
        rows = [row.inner_text() for row in browser.query_selector_all("tr")]
    assert "letters: worse than plain" in text
    assert "again: within noise against plain" in text
    assert [row.split()[0] for row in rows] == ["corpus", "plain", "again", "letters"] * 2


def test_several_tokenizers_get_equal_bytes_and_say_so(
    sentences: str,
    remake: Callable[[str, str, Tokenizer], str],
    tmp_path: Path,
    settings: TrainSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A tokenizer with only bytes needs several times the tokens for the same text."""
    other = remake(sentences, "bytes", Tokenizer.train(["aa"], 258))
    with pytest.raises(DryRun):
        compare_corpora([sentences, other], str(tmp_path / "out"), settings, COMPARE, talking(dry_run=True))
    said = capsys.readouterr().err
    assert "tokenizers differ: runs have equal bytes of text, not equal tokens" in said
    assert not (tmp_path / "out").exists()
    found = compare([sentences, other], tmp_path / "out", settings, replace(COMPARE, seeds=1))
    first, second = found.to_json()["corpora"]
    assert second["trained_tokens"] > 2 * first["trained_tokens"]
    step = 4 * 32 * found.corpora[1].bytes_per_token
    assert abs(first["trained_bytes"] - second["trained_bytes"]) <= step + 1
    assert [each.verdict for each in found.judgements] == [NONE], "one seed shows nothing about chance"


@pytest.mark.slow
def test_a_comparison_ended_at_any_point_resumes_to_the_same_answer(
    sentences: str, letters: str, tmp_path: Path, experiment_that_waits: Callable[..., list[str]]
) -> None:
    """SIGTERM comes while the first run waits for it; the resumed comparison has the numbers of an undisturbed one."""

    def command(out: Path) -> list[str]:
        arguments = [sentences, letters, "--out", str(out), "--seeds", "2", "--tokens", "1400", "--side-by-side", "1"]
        return ["train", "compare", *arguments, *FLAGS]

    out = tmp_path / "ended"
    process = subprocess.Popen(experiment_that_waits(5, command(out)), stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + SECONDS
    while not any(steps_made(folder) >= 3 for folder in out.glob("runs/*/*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, said
    assert len(list(out.glob("runs/*/*"))) == 1
    for folder in (out, tmp_path / "whole"):
        assert run([*command(folder), "--quiet"]) == 0
    ended, whole = (json.loads((folder / "compare.json").read_text()) for folder in (out, tmp_path / "whole"))
    assert ended["bits_per_byte"] == whole["bits_per_byte"]
    assert ended["judgements"] == whole["judgements"]


def test_a_verdict_needs_a_difference_beyond_that_of_seeds() -> None:
    values = {
        "near": {"a": [1.00, 1.02, 0.98], "b": [1.01, 0.99, 0.97], "c": [0.90, 0.91, 0.89], "d": [1.2, 1.21, 1.22]},
        "equal": {"a": [1.0, 1.0], "b": [0.5, 0.5], "c": [1.0, 1.0], "d": [1.0, 1.0]},
        "one": {"a": [1.0], "b": [0.5], "c": [0.5], "d": [2.0]},
    }
    assert [each.verdict for each in verdicts(values, ["near"], ["a", "b", "c", "d"])] == [NOISE, BETTER, WORSE]
    for name in ("equal", "one"):
        assert [each.verdict for each in verdicts(values, [name], ["a", "b", "c", "d"])] == [NONE] * 3
    found = verdicts(values, ["near"], ["a", "b"])[0]
    assert found.difference.margin is not None
    assert math.isclose(found.difference.mean, -0.01, abs_tol=1e-12)


def test_losses_are_those_of_documents_or_of_blocks_of_a_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """An end-of-text belongs to the document that it ends, and a token to the block of its first byte."""

    def stream_of(each: EvaluationSet) -> tuple[list[int], list[int], list[float]]:
        tokens, documents, sizes = measure._stream(each, tokenizer, tokenizer.eot_id)
        assert len(documents) == len(tokens) - 1
        return tokens.tolist(), documents.tolist(), sizes

    tokens, documents, sizes = stream_of(EvaluationSet(VALIDATION, (b"the old dog", b"a cat")))
    n_first = len(tokenizer.encode("the old dog"))
    assert tokens[n_first + 1] == tokenizer.eot_id
    assert documents == [0] * (n_first + 1) + [1] * len(tokenizer.encode("a cat"))
    assert sizes == [11, 5]
    text = "the old dog sees a cat. " * 200
    (tmp_path / "text").write_text(text)
    tokens, documents, sizes = stream_of(*measure.open_evaluation_sets([str(tmp_path / "text")]))
    assert sizes == [2048, 2048, len(text) - 4096]
    starts = [len(tokenizer.decode_bytes(tokens[1:i])) for i in range(1, len(tokens))]
    assert documents == [start // 2048 for start in starts]
