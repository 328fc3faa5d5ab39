"""`train run --from`: given weights are those a run starts with, in every engine, and its records say which."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from huggingface_hub import ModelCard
from small_runs import given, losses, rows, small, state, train, train_on_ranks

from webtext.app.main import run as command
from webtext.base.config import changed
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import load_model
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.settings import EvalSettings

TEXT = "The cat sat on the mat, and he said: it is here. The dog sat on the rugs.\n" * 60
SHAPE: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 24, "context": 20}
HOW: dict[str, Any] = {"steps": 4, "learning_rate": 1e-3, "eval_interval": 2, "eval_windows": None, "dtype": "float32"}
SETTINGS = small(**SHAPE, **HOW)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], vocab_size=290, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def own_tokens(tokenizer: Tokenizer, token_set_of: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A token set of the models' tokenizer: one document for training, and a part of it held out."""
    ids = tokenizer.encode_numpy(TEXT)
    facts = {"held_out": [ids[:90]], "tokenizer_hash": tokenizer.hash}
    return token_set_of(tmp_path_factory.mktemp("set") / "tokens", [ids], tokenizer.vocab_size, **facts)


@pytest.fixture(scope="module")
def theirs(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random GPT-2 that transformers made, with dropout, which this model has not."""
    torch.manual_seed(5)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 24, "n_positions": 20, "vocab_size": tokenizer.vocab_size}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=0.2))
    folder = tmp_path_factory.mktemp("theirs") / "gpt2"
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def trained(own_tokens: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("trained") / "model")
    train(own_tokens, folder, changed(SETTINGS, seed=9, learning_rate=1e-2))
    return folder


def loss_of(folder: str, tokens: str) -> float:
    """What `train eval` measures on the held-out windows that a run measures at step 0."""
    how = EvalSettings()
    return math.log(evaluate_model(load_measured(folder), tokens, how, Run.quiet())["perplexity"])


def held_out_losses(out: Path) -> list[float]:
    return [row["validation_loss"] for row in rows(out) if "validation_loss" in row]


@pytest.mark.parametrize("kind", ["Hugging Face", "training folder", "checkpoint", "export"])
def test_the_first_loss_is_that_of_the_weights(
    kind: str, theirs: str, trained: str, own_tokens: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Without a setting of the shape: it is that of the weights."""
    folder = {"Hugging Face": theirs, "checkpoint": f"{trained}/checkpoints/step-000004"}.get(kind, trained)
    if kind == "export":
        folder = str(tmp_path / "export")
        load_model(trained).to_huggingface(folder, tokenizer)
    out = tmp_path / "out"
    call = ["train", "run", own_tokens, "--from", folder, "--out", str(out), "--quiet"]
    assert command([*call, *given(HOW), "--batch-size", "4", "--warmup-steps", "1"]) == 0
    assert held_out_losses(out)[0] == pytest.approx(loss_of(folder, own_tokens), rel=1e-6)
    assert held_out_losses(out)[-1] < held_out_losses(out)[0]


def test_an_offloaded_run_starts_with_the_same_weights(theirs: str, own_tokens: str, tmp_path: Path) -> None:
    train(own_tokens, tmp_path / "plain", SETTINGS, start=theirs)
    train(own_tokens, tmp_path / "host", changed(SETTINGS, offload=True), start=theirs)
    assert losses(tmp_path / "host") == pytest.approx(losses(tmp_path / "plain"), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["theirs", "trained"])
def test_runs_on_a_mesh_start_with_the_same_weights(
    folder: str, own_tokens: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start = request.getfixturevalue(folder)
    train(own_tokens, tmp_path / "one", SETTINGS, start=start)
    meshes = ("fsdp=2", "tp=2", "pp=2", "dp=2")
    runs = [(own_tokens, tmp_path / mesh, changed(SETTINGS, mesh=mesh), start) for mesh in meshes]
    train_on_ranks(2, tmp_path / "two", runs)
    for mesh in meshes:
        assert losses(tmp_path / mesh) == pytest.approx(losses(tmp_path / "one"), rel=1e-5), mesh


def test_if_the_newest_checkpoint_of_the_folder_is_damaged_all_processes_start_with_the_one_before(
    own_tokens: str, tmp_path: Path
) -> None:
    train(own_tokens, tmp_path / "model", changed(SETTINGS, checkpoint_interval=2))
    weights = tmp_path / "model/checkpoints/step-000004/model-00000.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    model, shards = str(tmp_path / "model"), changed(SETTINGS, stop_at_step=1, mesh="fsdp=2")
    train_on_ranks(2, tmp_path / "two", [(own_tokens, tmp_path / "tuned", shards, model)])
    assert state(tmp_path / "tuned", 1)["recipe"]["settings"]["from"]["step"] == 2
    weights.write_bytes(b"")
    assert command(["train", "run", own_tokens, "--from", model, "--out", str(tmp_path / "out"), "--dry-run"]) == 0


def test_the_weights_are_recorded_and_the_optimizer_is_new(
    theirs: str, trained: str, own_tokens: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for name, folder in (("theirs", theirs), ("trained", trained)):
        train(own_tokens, tmp_path / name, changed(SETTINGS, stop_at_step=1), start=folder)
    facts = state(tmp_path / "theirs", 1)["recipe"]["settings"]["from"]
    digest = hashlib.sha256(Path(theirs, "model.safetensors").read_bytes()).hexdigest()
    weights = {"model.safetensors": digest}
    assert facts == {"folder": theirs, "step": None, "tokenizer": tokenizer.hash, "weights": weights}
    facts = state(tmp_path / "trained", 1)["recipe"]["settings"]["from"]
    files = {"model-00000.safetensors": facts["weights"]["model-00000.safetensors"]}
    assert facts == {"folder": trained, "step": 4, "tokenizer": tokenizer.hash, "weights": files}
    assert [row["learning_rate"] for row in rows(tmp_path / "trained") if "loss" in row] == [
        next(row["learning_rate"] for row in rows(tmp_path / "theirs") if "loss" in row)
    ]
    moments = safetensors.torch.load_file(tmp_path / "trained/checkpoints/step-000001/optimizer-00000.safetensors")
    assert {float(tensor) for name, tensor in moments.items() if ".step@" in name} == {1.0}


def test_the_model_card_of_an_export_says_what_the_model_was_trained_from(
    theirs: str, trained: str, own_tokens: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tuned = tmp_path / "tuned"
    result = train(own_tokens, tuned, SETTINGS, start=theirs)
    for model in (str(tuned), trained):
        assert command(["train", "export", model, "--out", str(tmp_path / "export"), "--quiet"]) == 0
        card = (tmp_path / "export/README.md").read_text()
        head = ModelCard(card).data  # Hugging Face's parser, which asks nobody
        assert (head.library_name, head.pipeline_tag, head.tags) == ("transformers", "text-generation", ["gpt2"])
        described = json.loads(card.partition("```json\n")[2].partition("```")[0])
        assert (described["tokenizer"], described["step"], described["result"]["tokens"]) == (tokenizer.hash, 4, 320)
        assert described["learning_rate"] == (1e-2 if model == trained else 1e-3)
        assert described.get("from", {}).get("folder") == (None if model == trained else theirs)
        assert model == trained or described["result"]["validation_loss"] == result.validation_loss
    again = ["train", "export", str(tmp_path / "export"), "--out", str(tmp_path / "again"), "--quiet"]
    assert command(again) == 0
    assert not (tmp_path / "again/README.md").exists()


def test_a_run_resumes_without_the_folder_and_equals_an_undisturbed_one(
    theirs: str, own_tokens: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(theirs, tmp_path / "folder")
    train(own_tokens, tmp_path / "whole", SETTINGS, start=str(folder))
    train(own_tokens, tmp_path / "out", changed(SETTINGS, stop_at_step=2), start=str(folder))
    shutil.rmtree(folder)
    call = ["train", "run", own_tokens, "--from", str(folder), "--out", str(tmp_path / "out"), "--quiet"]
    how = "--batch-size 4 --microbatch-size 2 --warmup-steps 1"
    assert command([*call, *given(HOW), *how.split()]) == 0
    assert losses(tmp_path / "out")[-4:] == losses(tmp_path / "whole")[-4:]
    ours, whole = load_model(tmp_path / "out"), load_model(tmp_path / "whole")
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), whole.parameters(), strict=True))


def test_other_weights_at_a_resume_are_refused(theirs: str, own_tokens: str, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs, tmp_path / "folder")
    first = changed(SETTINGS, stop_at_step=1)
    train(own_tokens, tmp_path / "out", first, start=str(folder))
    with pytest.raises(InputError, match="was started with the weights of '.*folder'"):
        train(own_tokens, tmp_path / "out", SETTINGS)
    train(own_tokens, tmp_path / "drawn", first)
    with pytest.raises(InputError, match="was started with drawn weights"):
        train(own_tokens, tmp_path / "drawn", SETTINGS, start=str(folder))
    rewrite(folder, lambda weights: weights["transformer.wpe.weight"].mul_(2))
    with pytest.raises(InputError, match="has changed since the run started with it"):
        train(own_tokens, tmp_path / "out", SETTINGS, start=str(folder))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# Differences


def test_a_difference_in_tokenizer_vocabulary_or_shape_is_named_with_both_values(
    theirs: str, own_tokens: str, tokens: str, token_set_of: Callable[..., str], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    ids, n = [np.zeros(50, np.uint16)], tokenizer.vocab_size
    another = token_set_of(tmp_path / "another", ids, n, held_out=ids)
    with pytest.raises(InputError, match=f"tokenizer is aaaaaaaaaaaa in .*another' and {tokenizer.hash[:12]} in '"):
        train(another, tmp_path / "out", SETTINGS, start=theirs)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(theirs, name), bare)
    with pytest.raises(InputError, match=f"vocabulary size is 61 in '.*' and {n} in '"):
        train(tokens, tmp_path / "out", SETTINGS, start=str(bare))
    for name, value in (("n_layer", 3), ("n_head", 3), ("n_embd", 12), ("context", 16)):
        with pytest.raises(ConfigError, match=f"{name} is {value} here and {SHAPE[name]} in '"):
            train(own_tokens, tmp_path / "out", changed(SETTINGS, **{name: value}), start=theirs)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--context", "1024"], "context is 1024 here and 20 in '"),  # also if it is the default
        (["--set", "train.context=19"], "context is 19 here and 20 in '"),
        (["--n-layer", "3"], "n_layer is 3 here and 2 in '"),
        (["--model", "124M"], "n_layer is 12 here and 2 in '"),
    ],
)
def test_a_given_setting_of_the_shape_is_compared_with_the_weights(
    given: list[str], message: str, theirs: str, own_tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["train", "run", own_tokens, "--from", theirs, "--out", str(tmp_path / "out")]
    assert command([*call, *given]) == 2
    assert message in capsys.readouterr().err
    assert command([*call, "--n-layer", "2", "--steps", "9", "--warmup-steps", "2", "--dry-run"]) == 0
    assert "would train" in capsys.readouterr().err


# Bad input


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no file '.*model.safetensors'"),
        (lambda folder: (folder / "config.json").unlink(), "contains no model"),
        (lambda folder: shutil.rmtree(folder), "contains no model"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json"),
        (
            lambda folder: rewrite(folder, lambda w: w["transformer.h.1.mlp.c_fc.bias"].fill_(math.nan)),
            "tensor 'h.1.mlp.c_fc.bias' in '.*' has values that are not finite",
        ),
    ],
)
def test_a_folder_that_is_not_a_gpt2_is_named(
    damage: Callable[[Path], None], message: str, theirs: str, own_tokens: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(theirs, tmp_path / "folder")
    damage(folder)
    with pytest.raises(InputError, match=message) as caught:
        train(own_tokens, tmp_path / "out", SETTINGS, start=str(folder))
    assert len(caught.value.lines) <= 3
    assert not list((tmp_path / "out").glob("checkpoints/*"))


def test_a_folder_without_a_tokenizer_is_compared_by_size_with_a_warning(
    theirs: str, own_tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(theirs, tmp_path / "folder")
    for path in folder.glob("*token*"):
        path.unlink()
    train(own_tokens, tmp_path / "out", changed(SETTINGS, stop_at_step=1), start=str(folder))
    assert state(tmp_path / "out", 1)["recipe"]["settings"]["from"]["tokenizer"] is None
    assert "has no tokenizer: only the size of its vocabulary is compared" in capsys.readouterr().err
