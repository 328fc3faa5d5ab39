"""Import and export compared with transformers' own GPT2LMHeadModel, with random weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from webtext.app.main import run
from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint.checkpoint import load_model
from webtext.train.model.gpt2 import GPT2
from webtext.train.shape import GPT2Config

transformers = pytest.importorskip("transformers")
CONFIG = GPT2Config(n_layer=3, n_head=4, n_embd=48, context=32, vocab_size=301)
TOLERANCE = 1e-5


def random_model() -> GPT2:
    """Draw every parameter, including norms and biases, so that a mix-up shows."""
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


def test_a_weight_that_float16_lacks_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    model = random_model()
    with torch.no_grad():
        model.blocks[1].feed_forward.contract.weight[3, 2] = -70_000  # type: ignore[union-attr, operator]
    with pytest.raises(
        ConfigError,
        match=r"a weight of 'blocks\.1\.feed_forward\.contract\.weight' is ±70,000; 65,504 is the largest float16",
    ):
        model.to_huggingface(tmp_path / "model", dtype=torch.float16)
    assert not (tmp_path / "model").exists()
    model.to_huggingface(tmp_path / "model", dtype=torch.bfloat16)


def test_a_model_of_transformers_is_read_with_equal_logits(tmp_path: Path) -> None:
    torch.manual_seed(4)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=77)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    model = GPT2.from_huggingface(tmp_path).eval()
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
        ({"n_layer": 9}, "tensor 'h.3.ln_1.weight' in '.*' is missing, but its config.json requires"),
        ({"n_layer": 10**9}, "tensor 'h.3.ln_1.weight' in '.*' is missing"),
        ({"n_layer": 2}, r"tensor 'h\.2\..*' in '.*' is \[.*\], but its config.json requires none"),
        ({"vocab_size": 9}, r"tensor 'wte.weight' in .* is \[301, 48\], but its config.json requires \[9, 48\]"),
        ({"n_head": 5}, "config.json': n_embd 48 is not a multiple of n_head 5"),
        ({"n_positions": 0}, "config.json': context is 0"),
        ({"n_embd": float("inf")}, "config.json' is damaged"),
        ({"tie_word_embeddings": False}, "says tie_word_embeddings = False"),
    ],
)
def test_a_folder_of_another_model_is_rejected(tmp_path: Path, change: dict[str, object], message: str) -> None:
    random_model().to_huggingface(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config = {name: value for name, value in {**config, **change}.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        GPT2.from_huggingface(tmp_path)


def save(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_all_names_that_transformers_uses_for_gpt2_tensors_are_read(tmp_path: Path) -> None:
    """Without the prefix, with the causal masks and the output layer that older versions wrote, in half precision."""
    model = random_model()
    model.to_huggingface(tmp_path)
    theirs = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in theirs.items()}
    masks = {f"h.{i}.attn.{name}": torch.ones(1, 1, 32, 32) for i in range(3) for name in ("bias", "masked_bias")}
    save(tmp_path, {**bare, **masks, "lm_head.weight": bare["wte.weight"].clone()})
    tokens = torch.randint(CONFIG.vocab_size, (2, 32))
    assert torch.equal(GPT2.from_huggingface(tmp_path).eval()(tokens), model(tokens))
    for dtype in (torch.float16, torch.bfloat16):
        save(tmp_path, {name: tensor.to(dtype) for name, tensor in theirs.items()})
        again = GPT2.from_huggingface(tmp_path)
        assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
        assert torch.equal(again.position_embedding.weight, model.position_embedding.weight.to(dtype).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_reads_our_dtypes_and_we_read_its_several_files(tmp_path: Path, dtype: torch.dtype) -> None:
    """An export to its folder is read, and not the files that were there."""
    model = random_model().to(dtype).float()
    model.to_huggingface(tmp_path, dtype=dtype)
    tokens = torch.randint(CONFIG.vocab_size, (2, 32))
    theirs, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert theirs.dtype == dtype
    assert (theirs.float().eval()(tokens).logits - model(tokens)).abs().max() < TOLERANCE
    assert torch.equal(GPT2.from_huggingface(tmp_path).eval()(tokens), model(tokens))
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="40KB")
    assert (tmp_path / "theirs/model.safetensors.index.json").exists()
    assert torch.equal(GPT2.from_huggingface(tmp_path / "theirs").eval()(tokens), model(tokens))
    model.to_huggingface(tmp_path / "theirs")
    assert not (tmp_path / "theirs/model.safetensors.index.json").exists()
    assert torch.equal(GPT2.from_huggingface(tmp_path / "theirs").eval()(tokens), model(tokens))


def test_missing_or_cut_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file .*config.json"):
        GPT2.from_huggingface(tmp_path)
    random_model().to_huggingface(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="is not an intact safetensors file"):
        GPT2.from_huggingface(tmp_path)
    weights.unlink()
    with pytest.raises(InputError, match="pickled weights are not read"):
        GPT2.from_huggingface(tmp_path)


def test_the_tokenizer_beside_the_model_is_loaded_by_transformers_and_by_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat"] * 9, vocab_size=300)
    torch.manual_seed(5)
    model = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=16, context=16, vocab_size=tokenizer.vocab_size))
    model.to_huggingface(tmp_path, tokenizer=tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    every_byte = bytes(range(128)).decode() + "".join(chr(0x80 + 64 * i + i) for i in range(30)) + "\U0010ffff  'S 's"
    for text in ("the cat\n\nsat on Zoë's mat", every_byte, "the mat<|endoftext|>the cat <|endoftext|>", ""):
        ids = tokenizer.encode(text, allowed_special="all")
        assert theirs.encode(text) == ids
        assert theirs.decode(ids) == text
    assert (theirs.eos_token_id, len(theirs)) == (tokenizer.eot_id, tokenizer.vocab_size)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.config.eos_token_id == tokenizer.eot_id
    batch = theirs(["the cat sat", "on the mat"], return_tensors="pt", padding=False, return_token_type_ids=False)
    assert (loaded(**batch).logits - model(batch["input_ids"])).abs().max() < TOLERANCE
    assert run(["train", "sample", str(tmp_path), "--prompt", "the cat", "--max-tokens", "5"]) == 0
    streamed = capsys.readouterr().out
    assert streamed.startswith("the cat")
    command = ["train", "sample", str(tmp_path), "--max-tokens", "5", "--prompt", "the cat"]
    assert run([*command, "--prompt", "the", "--samples", "2"]) == 0
    shown = capsys.readouterr().out.split("\n\n----\n\n")
    assert (shown[0], len(shown)) == (streamed.removesuffix("\n"), 4)
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"samples": [{"prompt": "the cat", "text": shown[0]}]}
    stop = shown[0].removeprefix("the cat")[1:3]
    before = "the cat" + shown[0].removeprefix("the cat").partition(stop)[0]
    assert run([*command, "--stop", stop, "--stop", "nowhere", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"samples": [{"prompt": "the cat", "text": before}]}
    assert run([*command, "--stop", ""]) == 2
    assert "--stop is empty" in capsys.readouterr().err
    assert run([*command, "--dtype", "bfloat16"]) == 0
    assert "sample: bfloat16 on " in capsys.readouterr().err


@pytest.mark.parametrize(
    "data", ["[1]", "{", "[" * 100_000, '{"n_layer": "x", "n_head": 1, "n_embd": 1, "vocab_size": 1}']
)
def test_a_damaged_config_is_named(data: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(data)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"config\.json"):
        load_model(tmp_path)


HOSTILE = {
    "a header longer than the file": struct.pack("<Q", 2**62) + b"{}",
    "a header longer than any": struct.pack("<Q", 2**27) + b"{" + b" " * 200,
    "no JSON": struct.pack("<Q", 4) + b"{{{{",
    "overlapping tensors": '{"wte.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
    '"wpe.weight":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}',
    "a tensor past the end": '{"wte.weight":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}',
    "a size past all numbers": '{"wte.weight":{"dtype":"F32","shape":[4294967296,4294967296,9],"data_offsets":[0,12]}}',
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_safetensors_header_is_rejected(name: str, tmp_path: Path) -> None:
    random_model().to_huggingface(tmp_path)
    data = HOSTILE[name]
    if isinstance(data, str):
        data = struct.pack("<Q", len(data)) + data.encode() + bytes(12)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match=r"model\.safetensors' is not an intact safetensors file"):
        GPT2.from_huggingface(tmp_path)


def test_tensors_that_are_not_gpt2s_are_named(tmp_path: Path) -> None:
    random_model().to_huggingface(tmp_path)
    theirs = load_file(tmp_path / "model.safetensors")
    embedding = theirs["transformer.wte.weight"]
    for change, message in (
        ({"lm_head.weight": embedding + 1}, "'lm_head.weight' differs from 'wte.weight'\na GPT-2 shares the two"),
        (
            {"lm_head.bias": torch.zeros(3)},
            "tensor 'lm_head.bias' in '.*' is \\[3\\], but its config.json requires none",
        ),
        ({"wte.weight": embedding.clone()}, "contains tensor 'wte.weight' twice"),
        (
            {"transformer.h.0.attn.c_attn.weight": torch.zeros(144, 48)},
            r"is \[144, 48\], but its config.json requires \[48, 144\]",
        ),
        ({"transformer.h.1.ln_1.bias": torch.zeros(48, dtype=torch.int8)}, "is int8\nexpected float32"),
    ):
        save(tmp_path, {**theirs, **change})
        with pytest.raises(InputError, match=message):
            GPT2.from_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no weight_map of file names"),
        ({"weight_map": {"wte.weight": 1}}, "has no weight_map of file names"),
        ({"weight_map": {"wte.weight": "../other/model.safetensors"}}, "lists '../other/model.safetensors'"),
        ({"weight_map": {"wte.weight": "pytorch_model.bin"}}, "lists 'pytorch_model.bin'"),
        ({"weight_map": {"wte.weight": "model-2.safetensors"}}, "no file .*model-2.safetensors', which"),
        ({"weight_map": {"wte.weight": "model-1.safetensors"}}, "tensor 'h.1.ln_1.weight' in '.*' is missing"),
        ({"weight_map": {"a": "model-1.safetensors", "b": "model-3.safetensors"}}, "contains tensor .* twice"),
    ],
)
def test_an_index_that_leads_nowhere_is_named(index: dict[str, object], message: str, tmp_path: Path) -> None:
    random_model().to_huggingface(tmp_path)
    theirs = load_file(tmp_path / "model.safetensors")
    part = {name: tensor for name, tensor in theirs.items() if ".h.1." not in name}
    for name in ("model-1.safetensors", "model-3.safetensors"):
        save_file(part, tmp_path / name)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=message):
        GPT2.from_huggingface(tmp_path)


def test_an_export_is_rejected_in_a_run_folder_or_with_another_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A config.json among the checkpoints would be taken for the model from then on."""
    model, other = tmp_path / "model", tmp_path / "other.json"
    random_model().to_huggingface(model)
    Tokenizer.train(["the cat sat"], vocab_size=260).save(other)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").touch()
    for arguments, code, message in (
        (["--out", str(tmp_path / "run")], 3, "and nothing that this command writes\n  choose another --out"),
        (["--out", str(tmp_path / "new"), "--tokenizer", str(other)], 3, "has a vocabulary of 301, "),
    ):
        assert run(["train", "export", str(model), *arguments]) == code
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other.json", "run"]
    assert run(["train", "export", str(model), "--out", str(tmp_path / "half"), "--dtype", "bfloat16"]) == 0
    assert json.loads((tmp_path / "half/config.json").read_text())["torch_dtype"] == "bfloat16"
