"""A causal model of Hugging Face, measured and sampled: equal to plain transformers on the same tokens."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers
from torch import Tensor

import webtext.train.model.pretrained as pretrained
from webtext.app.main import run as command
from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import GPT2, GPT2Config
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.evaluate.zero_shot import evaluate_task
from webtext.train.model.pretrained import PretrainedModel, PretrainedTokenizer
from webtext.train.model.sample import sample_batch, sample_texts, stream_text
from webtext.train.settings import EvalSettings, SampleSettings

TEXT = "The cat sat on the mat, and he said: it's here.\n\nThe dog sät on the 12 rugs.\n" * 12
CONTEXT, PADDED = 64, 384
BOS = 5 + 256  # of `word_tokenizer`


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT] * 3, vocab_size=300, special_tokens=["<|endoftext|>"])


def shape(**changes: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.3}
    return {**sizes, **more, "vocab_size": PADDED, "bos_token_id": None, "eos_token_id": None, **changes}


def saved(folder: Path, model: Any) -> Any:
    torch.manual_seed(3)
    model.init_weights()
    model.save_pretrained(folder)
    return model.eval()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> tuple[str, Any]:
    """A random Llama in a folder with our tokenizer; it has more logits than the tokenizer has ids."""
    folder = tmp_path_factory.mktemp("llama")
    model = saved(folder, transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape())))
    tokenizer.save(folder)
    assert tokenizer.vocab_size < PADDED
    return str(folder), model


def their_scores(model: Any, tokens_bt: Tensor, last: int) -> Tensor:
    with torch.no_grad():
        scores_btv = model(tokens_bt[:, :-1]).logits.log_softmax(-1)
    return scores_btv.gather(-1, tokens_bt[:, 1:, None])[:, -last:, 0]


@pytest.mark.parametrize(
    "model",
    [
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape())),
        transformers.MistralForCausalLM(transformers.MistralConfig(**shape(sliding_window=8))),
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=2,
                n_head=2,
                n_embd=32,
                n_positions=CONTEXT,
                vocab_size=PADDED,
                activation_function="relu",
                initializer_range=0.3,
            )
        ),
        transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(**shape(head_dim=8, sliding_window=8, final_logit_softcapping=2.0))
        ),
        transformers.BloomForCausalLM(
            transformers.BloomConfig(
                hidden_size=32, n_layer=2, n_head=2, vocab_size=PADDED, seq_length=CONTEXT, initializer_range=0.3
            )
        ),
        transformers.RecurrentGemmaForCausalLM(
            transformers.RecurrentGemmaConfig(**shape(num_hidden_layers=3, lru_width=32, attention_window_size=16))
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_logits_equal_those_of_transformers(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, token after token, from a start that several texts share, and when only some logits fit into memory."""
    model = saved(tmp_path, model)
    ours = PretrainedModel(str(tmp_path))
    assert ours.shape == (sum(each.numel() for each in model.parameters()), model.config.num_hidden_layers, 32)
    tokens_bt = torch.randint(0, PADDED, (3, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs_btv = model(tokens_bt).logits
    whole = their_scores(model, tokens_bt, 20)
    assert torch.allclose(ours.log_likelihood(tokens_bt, last=20), whole, atol=1e-4)
    monkeypatch.setattr(pretrained, "LOGITS_AT_ONCE", 7 * PADDED)
    assert torch.allclose(ours.log_likelihood(tokens_bt, last=20), whole, atol=1e-4)
    assert torch.allclose(ours.next_logits(tokens_bt), theirs_btv[:, -1], atol=1e-4)
    cache = ours.empty_cache(3)
    for start, end in ((0, 5), (5, 6), (6, 7), (7, 30)):
        found_bv = ours.next_logits(tokens_bt[:, start:end], cache)
        assert torch.allclose(found_bv, theirs_btv[:, end - 1], atol=1e-4)
    tokens_bt[:, :9] = tokens_bt[:1, :9]
    with torch.no_grad():
        theirs_btv = model(tokens_bt).logits
    shared = ours.empty_cache(3)
    assert torch.allclose(ours.next_logits(tokens_bt[:1, :9], shared), theirs_btv[:1, 8], atol=1e-4)
    places = torch.tensor([2, 0, 0]), torch.tensor([1, 20, 1])
    found_nv = ours.next_logits(tokens_bt[:, 9:], shared, places)
    assert torch.allclose(found_nv, theirs_btv[places[0], 9 + places[1]], atol=1e-4)


@pytest.mark.parametrize("stride", [None, 10])
def test_perplexity_equals_a_plain_loop_over_transformers(
    stride: int | None, llama: tuple[str, Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text(TEXT)
    answer = evaluate_task(
        load_measured(llama[0]), "text", str(tmp_path / "text"), EvalSettings(stride=stride), Run.quiet()
    )
    stream = torch.tensor([[tokenizer.eot_id, *tokenizer.encode(TEXT)]])
    step, n, loss = stride or CONTEXT, stream.shape[1] - 1, 0.0
    assert n > 3 * CONTEXT
    for start in range(0, n, step):
        end = min(start + step, n)
        loss -= float(their_scores(llama[1], stream[:, max(0, end - CONTEXT) : end + 1], end - start).sum())
    values = {(row["measure"], row["unit"]): row["value"] for row in answer["results"]}
    assert values["perplexity", "token"] == pytest.approx(math.exp(loss / n), rel=1e-4)
    assert values["bits", "byte"] == pytest.approx(loss / math.log(2) / len(TEXT.encode()), rel=1e-4)
    assert (answer["context"], answer["vocab_size"]) == (CONTEXT, tokenizer.vocab_size)


@pytest.mark.parametrize("task", ["lambada", "cbt-cn"])
def test_clozes_are_scored_as_one_by_one(
    task: str, llama: tuple[str, Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """CBT's ten choices share the text before them, which is read once."""
    if task == "lambada":
        texts = ["The cat sat on the mat", "it's here.\n\nThe dog", "and he said: it's here and the rugs"]
        pairs = [(text.rpartition(" ")[0], " " + text.rpartition(" ")[2]) for text in texts]
        (tmp_path / "set").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        lines = [*(f"{i} it ." for i in range(1, 21)), "21 the XXXXX sat .\tcat\t\tdog|cat|rugs|mat"]
        (tmp_path / "set").write_text("\n".join(lines) + "\n")
        before = "it .\n" * 20 + "the"
        pairs = [(before, f" {word} sat .") for word in ("dog", "cat", "rugs", "mat")]
    measured = load_measured(llama[0])
    answer = evaluate_task(measured, task, str(tmp_path / "set"), EvalSettings(), Run.quiet(), detokenize=False)
    losses = []
    for before, target in pairs:
        n = len(tokenizer.encode(target))
        tokens = [tokenizer.eot_id, *tokenizer.encode(before), *tokenizer.encode(target)][-CONTEXT - 1 :]
        losses.append(-float(their_scores(llama[1], torch.tensor([tokens]), n).sum()))
    if task == "lambada":
        assert answer["loss"] == pytest.approx(sum(losses), rel=1e-5)
    else:
        assert answer["results"][0]["value"] == float(losses.index(min(losses)) == 1)


def test_greedy_samples_equal_those_of_transformers(llama: tuple[str, Any], tokenizer: Tokenizer) -> None:
    """Of ids that the tokenizer has: transformers would draw from the padding as well."""
    measured, prompts = load_measured(llama[0]), ["The cat", "it's"]
    how = SampleSettings(temperature=0, max_tokens=40)
    texts = sample_texts(measured.model, tokenizer, prompts, how)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([[tokenizer.eot_id, *tokenizer.encode(prompt)]])
        padding = list(range(tokenizer.vocab_size, PADDED))
        limits = {"do_sample": False, "max_new_tokens": 40, "suppress_tokens": padding}
        theirs = (
            llama[1].generate(ids, eos_token_id=tokenizer.eot_id, pad_token_id=0, **limits)[0, ids.shape[1] :].tolist()
        )
        theirs = theirs[: theirs.index(tokenizer.eot_id)] if tokenizer.eot_id in theirs else theirs
        assert text == prompt + tokenizer.decode(theirs)
    assert texts[0] == "The cat" + "".join(stream_text(measured.model, tokenizer, "The cat", how))


def test_an_id_that_ends_texts_of_the_model_ends_a_sample(
    llama: tuple[str, Any], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    how = SampleSettings(temperature=0, max_tokens=9)
    ids = [token for (token,) in sample_batch(PretrainedModel(llama[0]), [[5, 6]], how)]
    llama[1].save_pretrained(tmp_path)
    ends = {"eos_token_id": [ids[4], PADDED - 1]}
    (tmp_path / "generation_config.json").write_text(json.dumps(ends))
    model = PretrainedModel(str(tmp_path))
    assert model.end_ids == {ids[4], PADDED - 1}
    tokenizer.save(tmp_path)
    begin = tokenizer.decode([6])
    how = SampleSettings(temperature=0, max_tokens=40)
    text = sample_texts(load_measured(str(tmp_path)).model, tokenizer, [begin], how)[0]
    start = [tokenizer.eot_id, *tokenizer.encode(begin)]
    free = [t for (t,) in sample_batch(model, [start], how, vocab_size=tokenizer.vocab_size)]
    stops = [i for i, t in enumerate(free) if t in (ids[4], tokenizer.eot_id)]
    assert text == begin + tokenizer.decode(free[: stops[0]] if stops else free)


def test_a_gpt2_with_more_logits_than_ids_is_measured_and_never_samples_the_others(
    tokenizer: Tokenizer, tmp_path: Path, packed: Callable[[Tokenizer, str], str]
) -> None:
    """It is loaded by this package, and its likeliest tokens are in the padding."""
    model = GPT2(GPT2Config(n_layer=1, n_head=2, n_embd=16, context=CONTEXT, vocab_size=PADDED))
    with torch.no_grad():
        model.token_embedding.weight[tokenizer.vocab_size : PADDED] *= 100
    model.to_huggingface(tmp_path / "model", tokenizer)
    measured = load_measured(str(tmp_path / "model"))
    assert isinstance(measured.model, GPT2)
    text = sample_texts(measured.model, tokenizer, ["The"], SampleSettings(max_tokens=20))[0]
    assert text.startswith("The")
    how = EvalSettings(baselines=False)
    assert evaluate_model(measured, packed(tokenizer, "own"), how, Run.quiet())["perplexity"] > tokenizer.vocab_size
    for path in (tmp_path / "model").glob("*token*"):
        path.unlink()
    with pytest.raises(InputError, match=f"has a vocabulary of {PADDED}, '.*' one of {tokenizer.vocab_size}"):
        load_measured(str(tmp_path / "model"), tokenizer)


def test_only_a_gpt2_is_exported(llama: tuple[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["train", "export", llama[0], "--out", str(tmp_path / "out")]) == 3
    assert "is not a GPT-2" in capsys.readouterr().err


def test_token_sets_need_the_tokenizer_of_the_model(
    llama: tuple[str, Any], tokenizer: Tokenizer, packed: Callable[[Tokenizer, str], str]
) -> None:
    own = packed(tokenizer, "own")
    measured = load_measured(llama[0])
    answer = evaluate_model(measured, own, EvalSettings(), Run.quiet())
    assert answer["bits_per_byte"] > 0
    other = Tokenizer.train([TEXT[::-1]], vocab_size=300)
    with pytest.raises(InputError, match="was trained with another tokenizer than the one of '.*another'"):
        evaluate_model(measured, packed(other, "another"), EvalSettings(), Run.quiet())
    with pytest.raises(InputError, match="trained with another tokenizer"):
        load_measured(llama[0], other)


@pytest.fixture
def packed(tmp_path: Path, token_set_of: Callable[..., str]) -> Callable[[Tokenizer, str], str]:
    """packed(tokenizer, name) packs the text once for training and once held out."""

    def pack(tokenizer: Tokenizer, name: str) -> str:
        ids, facts = [tokenizer.encode_numpy(TEXT)], {"tokenizer_hash": tokenizer.hash}
        return token_set_of(tmp_path / name, ids, tokenizer.vocab_size, held_out=ids, **facts)

    return pack


# Tokenizers of transformers


def word_tokenizer(folder: Path, **roles: str) -> None:
    """Save a tokenizer of words and bytes, which isn't byte-level BPE."""
    pieces = ["<unk>", "▁the", "▁cat", "▁sat", "▁", *(f"<0x{byte:02X}>" for byte in range(256))]
    scores = [(piece, -float(i)) for i, piece in enumerate(pieces)]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=0, byte_fallback=True))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **roles).save_pretrained(folder)


def test_a_tokenizer_of_transformers_is_used_where_ours_does_not_support_it(
    llama: tuple[str, Any], tmp_path: Path
) -> None:
    llama[1].save_pretrained(tmp_path)
    word_tokenizer(tmp_path, bos_token="<s>", eos_token="</s>")
    measured = load_measured(str(tmp_path))
    tokenizer = measured.text_tokenizer()
    assert isinstance(tokenizer, PretrainedTokenizer)
    assert (tokenizer.eot_id, tokenizer.vocab_size) == (BOS, BOS + 2)
    assert tokenizer.encode("the cat sat") == tokenizer.encode_numpy(b"the cat sat").tolist() == [1, 2, 3]
    ids = tokenizer.encode("the cät sat <s>")
    assert BOS not in ids, "a special token's name is text"
    assert tokenizer.decode(ids) == "the cät sat <s>"
    stream = tokenizer.decode_stream()
    pieces = [stream.push(id_) for id_ in ids]
    assert "".join(pieces) + stream.finish() == "the cät sat <s>"
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    (tmp_path / "text").write_text("the cat sat")
    answer = evaluate_task(measured, "text", str(tmp_path / "text"), EvalSettings(), Run.quiet())
    loss = -float(their_scores(llama[1], torch.tensor([[BOS, 1, 2, 3]]), 3).sum())
    assert answer["loss"] == pytest.approx(loss, rel=1e-5)
    assert answer["tokenizer_hash"] == tokenizer.hash != load_measured(llama[0]).hash


@pytest.mark.parametrize(("roles", "eot_id"), [({"eos_token": "</s>"}, BOS), ({}, None)])
def test_a_text_begins_with_bos_or_eos_and_without_both_there_is_an_error(
    roles: dict[str, str], eot_id: int | None, llama: tuple[str, Any], tmp_path: Path
) -> None:
    llama[1].save_pretrained(tmp_path)
    word_tokenizer(tmp_path, **roles)
    measured = load_measured(str(tmp_path))
    assert measured.tokenizer.eot_id == eot_id
    if eot_id is None:
        with pytest.raises(ConfigError, match="nor a token that begins or ends a text"):
            measured.text_tokenizer()


# Bad input


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def changed_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def changed_weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        change(weights)
        safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return rewrite


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_weights, "no file '.*model.safetensors'"),
        (pickled, "pickled weights are not read"),
        (changed_config(num_hidden_layers=3), "weights, fewer than its config.json requires"),
        (changed_config(num_hidden_layers=10**12), "weights, fewer than its config.json requires"),
        (changed_config(vocab_size=10**12), "weights, fewer than its config.json requires"),
        (changed_config(hidden_size=16), "can't load the model|config"),
        (changed_config(vocab_size="many"), "can't load the model"),
        (changed_config(model_type="nothing"), "can't load the model in .*nothing"),
        (changed_config(model_type="nothing", auto_map={"AutoConfig": "evil.Config"}), "can't load the model"),
        (changed_config(max_position_embeddings=None), "states no context|can't load"),
        (changed_config(quantization_config={"quant_method": "gptq", "bits": 4}), "has quantized weights"),
        (changed_weights(lambda w: w.update({Q: w[Q][:16].clone(), "more": w[Q].clone()})), "can't load|no tensor"),
        (changed_weights(lambda w: w.update({"another": w.pop(Q)})), f"has no tensor '{Q}'"),
        (changed_weights(lambda w: w[Q].fill_(math.nan)), f"'{Q}' in .* has values that are not finite"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"1234567890"), "not an intact safetensors file"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
    ],
)
def test_a_damaged_folder_is_named(
    damage: Callable[[Path], None], message: str, llama: tuple[str, Any], tmp_path: Path
) -> None:
    llama[1].save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load_measured(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert len(caught.value.lines) <= 3


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    saved(
        tmp_path, transformers.BertLMHeadModel(transformers.BertConfig(**sizes, vocab_size=40, initializer_range=0.5))
    )
    with pytest.raises(InputError, match="is not causal"):
        load_measured(str(tmp_path))


def test_a_model_without_its_tokenizer_is_named(
    llama: tuple[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    llama[1].save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text("the cat")
    assert command(["train", "eval", str(tmp_path / "model"), str(tmp_path / "text")]) == 2
    assert "contains no tokenizer" in capsys.readouterr().err
    assert command(["train", "sample", str(tmp_path / "model")]) == 2
    assert "add --tokenizer FILE" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_gguf_file_without_its_library_names_the_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MachineError, match=rf"'{package}' is not installed") as caught:
        load_measured(str(tmp_path / "model.gguf"))
    assert "webtext[transformers]" in caught.value.lines[1]


def test_a_gguf_file_that_is_none_or_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file '.*model.gguf'"):
        load_measured(str(tmp_path / "model.gguf"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(InputError, match="can't load the model in '.*model.gguf'"):
        load_measured(str(tmp_path / "model.gguf"))


@pytest.mark.slow
def test_real_weights_have_the_perplexity_of_a_plain_loop_over_transformers(
    smollm2: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SmolLM2's GGUF, by the verbs: strides of 128 in a text that its context has room for, and a greedy text."""
    text = "".join(f"{i}. Hot water rises, cold water sinks; naïve {i} × {i * i}.\n" for i in range(24))
    (tmp_path / "text").write_text(text)
    folder, name = os.path.split(smollm2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    start = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    stream = torch.tensor([[start, *tokenizer.encode(text, add_special_tokens=False)]])
    n, loss = stream.shape[1] - 1, 0.0
    assert n > 300
    for begin in range(0, n, 128):
        end = min(begin + 128, n)
        loss -= float(their_scores(model, stream[:, : end + 1], end - begin).double().sum())
    assert command(["train", "eval", smollm2, str(tmp_path / "text"), "--stride", "128", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    value = next(row["value"] for row in answer["results"] if row["unit"] == "token")
    assert value == pytest.approx(math.exp(loss / n), rel=1e-4)
    prompt = "Water boils at"
    ids = torch.tensor([[start, *tokenizer.encode(prompt, add_special_tokens=False)]])
    how = {"do_sample": False, "max_new_tokens": 20, "attention_mask": torch.ones_like(ids)}
    theirs = model.generate(ids, **how)[0, ids.shape[1] :]
    assert command(["train", "sample", smollm2, "--prompt", prompt, "--temperature", "0", "--max-tokens", "20"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == prompt + tokenizer.decode(theirs).removesuffix("<|im_end|>")
