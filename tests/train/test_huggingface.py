"""Import and export against transformers' own GPT2LMHeadModel, with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint import load_model
from webtext.train.model import GPT2
from webtext.train.shape import GPT2Config

transformers = pytest.importorskip("transformers")
CONFIG = GPT2Config(n_layer=3, n_head=4, n_embd=48, context=32, vocab_size=301)
TOLERANCE = 1e-5


def random_model() -> GPT2:
    """Every parameter is drawn, norms and biases too, so that none can be mixed up unseen."""
    torch.manual_seed(3)
    model = GPT2(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        model.token_embedding.weight[CONFIG.vocab_size :] = 0
    return model.eval()


def test_transformers_loads_the_export_with_equal_logits_loss_and_gradients(tmp_path: Path) -> None:
    model = random_model()
    model.to_huggingface(tmp_path)
    theirs, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    theirs.eval()
    tokens = torch.randint(CONFIG.vocab_size, (2, 32))
    result = theirs(tokens, labels=tokens)
    assert (result.logits - model(tokens)).abs().max() < TOLERANCE
    loss = model.loss(tokens[:, :-1], tokens[:, 1:])
    assert abs(loss.item() - result.loss.item()) < TOLERANCE
    loss.backward()  # type: ignore[no-untyped-call]
    result.loss.backward()
    block, their_block = model.blocks[1], theirs.transformer.h[1]
    fused = torch.cat([getattr(block.attention, name).weight.grad.T for name in ("query", "key", "value")], dim=1)
    assert (fused - their_block.attn.c_attn.weight.grad).abs().max() < TOLERANCE
    assert model.token_embedding.weight.grad is not None
    embedding_difference = model.token_embedding.weight.grad[: CONFIG.vocab_size] - theirs.transformer.wte.weight.grad
    assert embedding_difference.abs().max() < TOLERANCE
    assert (block.feed_forward.expand.bias.grad - their_block.mlp.c_fc.bias.grad).abs().max() < TOLERANCE  # type: ignore[union-attr, operator]


def test_a_model_of_transformers_is_read_with_equal_logits(tmp_path: Path) -> None:
    torch.manual_seed(4)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=77)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    model = GPT2.from_huggingface(tmp_path).eval()
    assert model.config.dropout == 0.1
    tokens = torch.randint(77, (3, 16))
    assert (theirs(tokens).logits - model(tokens)).abs().max() < TOLERANCE
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_export_and_import_give_the_same_parameters(tmp_path: Path) -> None:
    model = random_model()
    model.to_huggingface(tmp_path)
    again = GPT2.from_huggingface(tmp_path)
    assert again.config == model.config
    for (name, one), other in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "says model_type = 'llama'\na GPT-2 has 'gpt2'"),
        ({"activation_function": "relu"}, "says activation_function = 'relu'"),
        ({"n_inner": 7}, "says n_inner = 7"),
        ({"n_layer": None}, "has no 'n_layer'"),
        ({"n_layer": 9}, "do not fit its config.json"),
        ({"vocab_size": 9}, "do not fit its config.json"),
    ],
)
def test_a_folder_of_another_model_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    random_model().to_huggingface(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config = {name: value for name, value in {**config, **change}.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        GPT2.from_huggingface(tmp_path)


def test_missing_or_cut_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file .*config.json"):
        GPT2.from_huggingface(tmp_path)
    random_model().to_huggingface(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="no whole safetensors file"):
        GPT2.from_huggingface(tmp_path)
    weights.unlink()
    with pytest.raises(InputError, match="pickled or split weights are not read"):
        GPT2.from_huggingface(tmp_path)


def test_the_tokenizer_beside_the_model_is_loaded_by_transformers_and_by_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat"] * 9, vocab_size=300)
    torch.manual_seed(5)
    model = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=16, context=16, vocab_size=tokenizer.vocab_size))
    model.to_huggingface(tmp_path, tokenizer=tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "the cat\n\nsat on Zoë's mat"
    assert theirs.encode(text) == tokenizer.encode(text)
    assert theirs.eos_token_id == tokenizer.eot_id
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert loaded.config.eos_token_id == tokenizer.eot_id
    assert run(["train", "sample", str(tmp_path), "--prompt", "the cat", "--max-tokens", "5"]) == 0
    streamed = capsys.readouterr().out
    assert streamed.startswith("the cat")
    command = ["train", "sample", str(tmp_path), "--max-tokens", "5", "--prompt", "the cat"]
    assert run([*command, "--prompt", "the", "--samples", "2"]) == 0
    shown = capsys.readouterr().out.split("\n\n----\n\n")
    assert (shown[0], len(shown)) == (streamed.removesuffix("\n"), 4)
    assert run([*command, "--json"]) == 0
    answer = {"samples": [{"prompt": "the cat", "text": shown[0]}]}
    assert json.loads(capsys.readouterr().out) == answer
    assert run(["train", "sample", str(tmp_path / "nowhere")]) == 3


@pytest.mark.parametrize(
    "data", ["[1]", "{", "[" * 100_000, '{"n_layer": "x", "n_head": 1, "n_embd": 1, "vocab_size": 1}']
)
def test_a_damaged_config_is_named(data: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(data)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"config\.json"):
        load_model(tmp_path)
