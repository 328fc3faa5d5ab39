"""Folders that transformers loads completely: roles of tokens, chat templates, lengths; and GPT-2's two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.formats.files import unsaid

from .conftest import SAMPLES

transformers: Any = pytest.importorskip("transformers")

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|pad|>"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def chat() -> Tokenizer:
    return Tokenizer.train(SAMPLES, vocab_size=300, special_tokens=SPECIALS)


def loaded(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text())
    return found


def test_transformers_loads_a_folder_completely(chat: Tokenizer, tmp_path: Path) -> None:
    chat.save(tmp_path / "own", model_max_length=1024)
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    theirs = loaded(tmp_path / "own")
    assert theirs.eos_token_id == theirs.bos_token_id == theirs.unk_token_id == chat.eot_id
    assert (theirs.model_max_length, len(theirs), theirs.pad_token) == (1024, chat.vocab_size, None)
    for text in [*SAMPLES, "a<|endoftext|> <|im_start|>b"]:
        ids = chat.encode(text, allowed_special="all")
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == text
    assert Tokenizer.load(tmp_path / "own") == chat


def test_a_tokenizer_without_end_of_text_names_no_roles(tmp_path: Path) -> None:
    Tokenizer.train(SAMPLES, vocab_size=300, special_tokens=["<s>"]).save(tmp_path / "own")
    assert loaded(tmp_path / "own").eos_token is None


@pytest.mark.parametrize("place", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_chat_template_and_roles_are_kept(chat: Tokenizer, tmp_path: Path, place: str) -> None:
    """Also where a token is an object, as transformers 4 writes it, and where only special_tokens_map.json has a role."""
    source = tmp_path / "source"
    chat.save(source)
    config = {"eos_token": {"content": "<|im_start|>", "lstrip": False}, "padding_side": "left", "model_max_length": 99}
    if place == "chat_template.jinja":
        (source / place).write_text(TEMPLATE)
        config["chat_template"] = "an older one"
    else:
        config["chat_template"] = TEMPLATE
    more = {"auto_map": {"AutoTokenizer": ["code.Own", None]}, "tokenizer_class": "Own"}
    (source / "tokenizer_config.json").write_text(json.dumps(config | more))
    (source / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<|pad|>", "eos_token": "<|endoftext|>"}))
    tokenizer = Tokenizer.load(source)
    tokenizer.save(tmp_path / "copy")
    assert not config_of(tmp_path / "copy").keys() & {"auto_map", "added_tokens_decoder"}
    for theirs in (loaded(tmp_path / "copy"), tokenizer.to_huggingface()):
        assert (theirs.eos_token, theirs.pad_token, theirs.bos_token) == ("<|im_start|>", "<|pad|>", None)
        assert (theirs.chat_template, theirs.padding_side, theirs.model_max_length) == (TEMPLATE, "left", 99)
        messages = [{"role": "user", "content": "the dog"}]
        shown = theirs.apply_chat_template(messages, tokenize=False)
        assert shown == "<|im_start|>the dog"
    assert unsaid(tokenizer._vocabulary, tmp_path / "t.json") == ["chat_template: left out; a folder stores everything"]
    assert unsaid(tokenizer._vocabulary, tmp_path / "copy") == []


def test_named_chat_templates_are_kept(chat: Tokenizer, tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    chat.save(tmp_path / "source")
    config = config_of(tmp_path / "source") | {"chat_template": templates}
    (tmp_path / "source" / "tokenizer_config.json").write_text(json.dumps(config))
    Tokenizer.load(tmp_path / "source").save(tmp_path / "copy")
    assert loaded(tmp_path / "copy").chat_template == {"default": "A", "tool_use": "B"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("tokenizer_config.json", b"[1]", "is a JSON list, not an object"),
        ("tokenizer_config.json", b"{" * 10**5, "is not valid JSON"),
        ("special_tokens_map.json", b"", "is empty"),
        ("chat_template.jinja", b"\xff", "is not valid UTF-8"),
    ],
)
def test_a_damaged_file_beside_a_tokenizer_is_named(
    chat: Tokenizer, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    chat.save(tmp_path / "own")
    (tmp_path / "own" / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{name}' {message}"):
        Tokenizer.load(tmp_path / "own")


@pytest.mark.parametrize(("vocabulary", "merges"), [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_two_files_are_named_by_the_first(chat: Tokenizer, tmp_path: Path, vocabulary: str, merges: str) -> None:
    chat.save(tmp_path / vocabulary)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([vocabulary, merges])
    assert Tokenizer.load(tmp_path / vocabulary) == Tokenizer.load(tmp_path) == chat
    if vocabulary == "vocab.json":
        theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
        assert [theirs(text)["input_ids"] for text in SAMPLES] == chat.encode_batch(SAMPLES)
    (tmp_path / merges).unlink()
    with pytest.raises(InputError, match=f"{merges}"):
        Tokenizer.load(tmp_path / vocabulary)


def test_two_files_with_gpt2s_configuration_become_a_complete_folder(chat: Tokenizer, tmp_path: Path) -> None:
    """In GPT-2's published folder the configuration names a length only; its class knows the roles."""
    (tmp_path / "gpt2").mkdir()
    chat.save(tmp_path / "gpt2" / "vocab.json")
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
    Tokenizer.load(tmp_path / "gpt2").save(tmp_path / "copy")
    theirs = loaded(tmp_path / "copy")
    assert (theirs.eos_token, theirs.unk_token, theirs.model_max_length) == ("<|endoftext|>", "<|endoftext|>", 1024)


@pytest.mark.parametrize("length", [0, -1, True, "5"])
def test_a_bad_length_is_an_error(chat: Tokenizer, tmp_path: Path, length: Any) -> None:
    with pytest.raises(ConfigError, match="model_max_length is"):
        chat.save(tmp_path / "own", model_max_length=length)
    assert not (tmp_path / "own").exists()
    with pytest.raises(ConfigError, match="tokenizer.json' can't store model_max_length\nname a folder"):
        chat.save(tmp_path / "tokenizer.json", model_max_length=5)
