"""tokenizer.json files written by others: the structures of Llama 3, Qwen 2 and GPT-2, and hostile files."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import tokenizers

from webtext.app.main import run
from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.formats import tokenizer_json
from webtext.tokenizer.formats.added_tokens import read_added_tokens
from webtext.tokenizer.vocabulary import NEVER_IN_UTF8, byte_characters

from .conftest import SAMPLES
from .fuzz import random_texts
from .peers import RULES

LLAMA3_REGEX, QWEN2_REGEX = (rule.tiktoken for rule in RULES[3:])
Json = dict[str, Any]


def added(id_: int, content: str, **flags: bool) -> Json:
    defaults = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    return {"id": id_, "content": content} | defaults | flags


def byte_level(**changes: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False} | changes


def split(regex: str, **changes: Any) -> Json:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} | changes


def file_of(pattern: str, n_tokens: int = 340) -> Json:
    """Return a plain tokenizer.json, trained on SAMPLES, without our own field."""
    tokenizer = Tokenizer.train(SAMPLES * 2, vocab_size=n_tokens, pattern=pattern, special_tokens=[])
    theirs = json.loads(tokenizer_json.dump(tokenizer._vocabulary))
    del theirs["model"]["webtext"]
    return theirs


def llama3() -> Json:
    """A post-processor that adds <|begin_of_text|>; ignore_merges; merges as pairs; a token without a merge."""
    file = file_of(LLAMA3_REGEX)
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(LLAMA3_REGEX), byte_level()]}
    file["added_tokens"] = [added(341, "<|begin_of_text|>"), added(342, "<|end_of_text|>")]
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [341], "tokens": ["<|begin_of_text|>"]}
        },
    }
    file["post_processor"] = {"type": "Sequence", "processors": [byte_level(), template]}
    file["model"]["ignore_merges"] = True
    file["model"]["merges"] = [merge.split(" ") for merge in file["model"]["merges"]]
    file["model"]["vocab"]["Ġcaf"] = 340
    return file


def qwen2() -> Json:
    """An empty sequence of normalizers; prefixes and suffixes as empty strings."""
    file = file_of(QWEN2_REGEX)
    file["normalizer"] = {"type": "Sequence", "normalizers": []}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(QWEN2_REGEX), byte_level()]}
    file["added_tokens"] = [added(340, "<|im_start|>"), added(341, "<think>")]
    file["post_processor"] = byte_level()
    file["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": "", "unk_token": None}
    return file


def gpt2_of_hugging_face() -> Json:
    file = file_of("gpt2")
    file["added_tokens"] = [added(340, "<|endoftext|>", normalized=True)]
    file["model"]["vocab"]["<|endoftext|>"] = 340
    file["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    file["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    del file["model"]["ignore_merges"], file["model"]["type"]
    return file


SHAPES: dict[str, Callable[[], Json]] = {"Llama 3": llama3, "Qwen 2": qwen2, "GPT-2": gpt2_of_hugging_face}
TEXTS = [
    *SAMPLES,
    "a<think>b <|im_start|>\n\n    x",
    "café  <|endoftext|><|begin_of_text|> 1234567 ",
    "don't DON'T\r\n\n a",
]


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(SHAPES[request.param]()), encoding="utf-8")
    return path


def test_every_shape_has_hugging_faces_ids_with_all_added_tokens(shape: Path, tmp_path: Path) -> None:
    """The file that we write after reading it has the same ids, there and here, and keeps Llama 3's template."""
    ours = Tokenizer.load(shape)
    theirs = tokenizers.Tokenizer.from_file(str(shape))
    ours.save(tmp_path / "again.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="all") == ids
        assert again.encode(text, add_special_tokens=False).ids == ids
        assert again.encode(text).ids == theirs.encode(text).ids
        assert again.decode(ids) == theirs.decode(ids)
    assert Tokenizer.load(tmp_path / "again.json").hash == ours.hash
    assert [str(token) for token in again.get_added_tokens_decoder().values()] == [
        str(token) for token in theirs.get_added_tokens_decoder().values()
    ]


NFC: Json = {"type": "NFC"}
OTHER_IDS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "NFKC": (lambda f: f.update(normalizer={"type": "NFKC"}), "has the normalizer NFKC"),
    "a sequence": (
        lambda f: f.update(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}, NFC]}),
        "has the normalizer Lowercase",
    ),
    "a replacement": (
        lambda f: f.update(normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
        "has the normalizer Replace",
    ),
    "truncation": (
        lambda f: f.update(truncation={"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}),
        "has truncation: .*",
    ),
    "padding": (
        lambda f: f.update(
            padding={
                "strategy": {"Fixed": 9},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "!",
            }
        ),
        "has padding: .*",
    ),
    "lstrip": (lambda f: f["added_tokens"].append(added(341, "<m>", lstrip=True)), '"lstrip": true'),
    "rstrip": (lambda f: f["added_tokens"].append(added(341, "<m>", rstrip=True)), '"rstrip": true'),
    "single word": (lambda f: f["added_tokens"].append(added(341, "<m>", single_word=True)), '"single_word": true'),
}


@pytest.mark.parametrize("name", OTHER_IDS)
def test_a_file_that_would_give_other_ids_than_hugging_face_is_rejected(tmp_path: Path, name: str) -> None:
    """Each of these has other ids there than here for one of the texts; the message names the part and the remedy."""
    change, message = OTHER_IDS[name]
    file = gpt2_of_hugging_face()
    plain = file_of("gpt2")
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    change(file)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file))
    ours, theirs = Tokenizer.load(tmp_path / "plain.json"), tokenizers.Tokenizer.from_file(str(path))
    texts = [*SAMPLES, "cafe\u0301  a", "A a <m> <m>a"]
    marked = [text.replace("<m>", " " if name in ("lstrip", "rstrip") else "") for text in texts]
    assert any(theirs.encode(text).ids != ours.encode(text) for text in [*texts, *marked])
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "in the file" in str(caught.value)


def steps(*given: Json) -> Json:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(given)}}


def normalizers(*given: Json) -> Json:
    return {"normalizer": {"type": "Sequence", "normalizers": list(given)}}


def decoders(*given: Json) -> Json:
    return {"decoder": {"type": "Sequence", "decoders": list(given)}}


GPT2_STEP = byte_level(use_regex=True)
REPLACE: Json = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}
METASPACE: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
PARTS_NOT_READ: list[tuple[Json, str]] = [
    ({"normalizer": {"type": "Lowercase"}}, "has the normalizer Lowercase"),
    *(
        (normalizers(NFC, step), f"has the normalizer {step['type']}")
        for step in [
            *({"type": name} for name in ("NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")),
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Prepend", "prepend": "a"},
            {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            REPLACE,
        ]
    ),
    *(
        (steps(step, GPT2_STEP), f"cannot be read: {{'type': '{step['type']}'")
        for step in [
            *({"type": name} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")),
            {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "CharDelimiterSplit", "delimiter": "a"},
            {"type": "FixedLength", "length": 5},
            GPT2_STEP,
            METASPACE,
            *(
                split("a", behavior=behavior)
                for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
            ),
        ]
    ),
    (steps(GPT2_STEP, split("a")), "cannot be read: {'type': 'ByteLevel'"),
    (steps(split("a"), byte_level(add_prefix_space=True)), "cannot be read: {'type': 'ByteLevel'"),
    (steps(), "cannot be read: None"),
    ({"pre_tokenizer": byte_level()}, "cannot be read: {'type': 'ByteLevel'"),
    *(
        (decoders(byte_level(), step), f"has the decoder {step['type']}")
        for step in [
            *({"type": name} for name in ("ByteFallback", "Fuse")),
            {"type": "WordPiece", "prefix": "##", "cleanup": True},
            {"type": "BPEDecoder", "suffix": "</w>"},
            {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
            {"type": "Strip", "content": "a", "start": 1, "stop": 1},
            REPLACE,
            METASPACE,
        ]
    ),
    ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "has a WordLevel model"),
    ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]], "byte_fallback": False}}, "has a Unigram model"),
    (
        {
            "model": {
                "type": "WordPiece",
                "vocab": {"a": 0},
                "unk_token": "a",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
            }
        },
        "has a WordPiece model",
    ),
]


@pytest.mark.parametrize(("change", "message"), PARTS_NOT_READ, ids=lambda part: str(part)[-40:])
def test_every_other_part_of_hugging_faces_files_is_rejected_by_its_name(
    tmp_path: Path, change: Json, message: str
) -> None:
    """Their library reads each of these files; all kinds of normalizer, pre-tokenizer, decoder and model are here."""
    (tmp_path / "t.json").write_text(json.dumps(file_of("gpt2") | change))
    tokenizers.Tokenizer.from_file(str(tmp_path / "t.json"))
    with pytest.raises(InputError) as caught:
        Tokenizer.load(tmp_path / "t.json")
    assert message in str(caught.value)
    assert len(caught.value.lines) >= 2


@pytest.mark.parametrize(("key", "value"), [("dropout", 0.5), ("byte_fallback", True)])
def test_a_setting_of_the_model_is_rejected_by_its_name(tmp_path: Path, key: str, value: Any) -> None:
    file = file_of("gpt2")
    file["model"][key] = value
    (tmp_path / "t.json").write_text(json.dumps(file))
    tokenizers.Tokenizer.from_file(str(tmp_path / "t.json"))
    with pytest.raises(InputError, match=f"has {key} {value} in its model"):
        Tokenizer.load(tmp_path / "t.json")


def test_unknown_tokens_change_nothing_where_every_byte_is_a_token(tmp_path: Path) -> None:
    file = file_of("gpt2")
    file["model"] |= {"unk_token": "!", "fuse_unk": True}
    (tmp_path / "t.json").write_text(json.dumps(file))
    theirs, ours = tokenizers.Tokenizer.from_file(str(tmp_path / "t.json")), Tokenizer.load(tmp_path / "t.json")
    assert [theirs.encode(text).ids for text in TEXTS] == ours.encode_batch(TEXTS)


def test_another_version_of_the_format_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(file_of("gpt2") | {"version": "2.0"}))
    with pytest.raises(InputError, match="has the version 2.0\nexpected 1.0"):
        Tokenizer.load(tmp_path / "t.json")


def test_a_token_that_only_a_complete_piece_produces_is_kept(tmp_path: Path) -> None:
    """Llama 3's " caf" (340) isn't the result of a merge: only a piece equal to it produces it."""
    (tmp_path / "t.json").write_text(json.dumps(llama3()), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    assert tokenizer.encode("a caf b").count(340) == 1
    assert 340 not in tokenizer.encode("a cafe b")
    for name in ("ranks.tiktoken", "vocab.json"):
        with pytest.raises(InputError, match="save as tokenizer.json"):
            tokenizer.save(tmp_path / name)


def test_a_split_that_removes_text_between_matches_is_read_only_for_a_known_pattern(tmp_path: Path) -> None:
    gpt2_regex = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    file = file_of("gpt2")
    for regex, known in ((gpt2_regex, True), (r"\w+", False)):
        steps = [split(regex, behavior="Removed", invert=True), byte_level()]
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        (tmp_path / "t.json").write_text(json.dumps(file), encoding="utf-8")
        if known:
            assert Tokenizer.load(tmp_path / "t.json").pattern == "gpt2"
        else:
            with pytest.raises(InputError, match="has a pre-tokenizer that cannot be read"):
                Tokenizer.load(tmp_path / "t.json")


def gpt_neox() -> Json:
    """No tokens for bytes that UTF-8 never has; runs of blanks that are found in the text after NFC."""
    file = file_of("gpt2")
    characters = byte_characters()[1]
    for byte in NEVER_IN_UTF8:
        del file["model"]["vocab"][characters[byte]]
    file["model"]["vocab"] = {token: id_ for id_, token in enumerate(file["model"]["vocab"])}
    blanks = [added(327 + n, " " * (24 - n), normalized=True, special=False) for n in range(23)]
    return file | {"normalizer": NFC, "added_tokens": [*blanks, added(350, "<|endoftext|>")]}


def cohere() -> Json:
    """Tokens that aren't written in characters for bytes, one of them in a merge: no text produces them."""
    file = gpt2_of_hugging_face()
    file["model"]["vocab"] |= {"中": 341, "▁the": 342, "\xad": 343, "中a": 344, "<extra id>": 345}
    file["model"]["merges"].append("中 a")
    return file


def deepseek_v4() -> Json:
    """A token found first ends with the begin of one that is found then, and another contains one."""
    file = qwen2()
    then = [added(343, "｜DSML｜", normalized=True, special=False), added(344, "think", normalized=True)]
    file["added_tokens"] += [added(342, "<｜/table>｜"), *then]
    return file


def overlapping() -> Json:
    """Tokens that are found in what others leave, which they contain or overlap."""
    file = gpt2_of_hugging_face()
    then = [added(341 + n, name, normalized=True) for n, name in enumerate(["A ", "a<m>b", "<m>b", "ab"])]
    return file | {
        "added_tokens": [*file["added_tokens"], *then, added(345, " a"), added(346, "<m>"), added(347, "b ")]
    }


def normalized() -> Json:
    """Tokens that a fine-tuning added to a tokenizer with NFC: NFC decides where they are found."""
    names = ["<tool>", "K;", "x\u1eb9", "<=", " ", "\u1100"]
    added_tokens = [added(342 + n, name, normalized=True, special=n % 2 == 0) for n, name in enumerate(names)]
    file = qwen2()
    return file | {"normalizer": NFC, "added_tokens": [*file["added_tokens"], *added_tokens]}


FUZZED: dict[str, tuple[Callable[[], Json], str]] = {
    "GPT-NeoX": (gpt_neox, "<|endoftext|> \u0338\u0301>a"),
    "Cohere": (cohere, "中▁the\xad<extra id>a"),
    "DeepSeek V4": (deepseek_v4, "<｜/table>｜DSML｜<think>think<｜/table>"),
    "overlapping tokens": (overlapping, "aAb <m>"),
    "tokens in the normalized text": (normalized, "\u0338\u0301\u0323>;K\u037e\u212ae=\u1100\u1161\u11a8 "),
}


@pytest.mark.parametrize("name", FUZZED)
def test_files_of_other_models_give_hugging_faces_ids_and_are_written_again(tmp_path: Path, name: str) -> None:
    make, alphabet = FUZZED[name]
    (tmp_path / "t.json").write_text(json.dumps(make()), encoding="utf-8")
    theirs, ours = tokenizers.Tokenizer.from_file(str(tmp_path / "t.json")), Tokenizer.load(tmp_path / "t.json")
    ours.save(tmp_path / "again.json")
    assert Tokenizer.load(tmp_path / "again.json") == ours
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    random, stream = Random(0), ours._encode_stream("all")
    parts = [*alphabet, "<｜/table>｜", "｜DSML｜", "<think>", "xe\u0323", "x\u1eb9", "<tool>", "<|endoftext|>"]
    parts += ["   ", "中", "中a", "▁the", "<extra id>"]
    texts = random_texts(2_000, seed=3)
    texts += ["".join(random.choices(parts, k=random.randrange(20))) for _ in range(2_000)]
    for text in texts:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="all") == ids, repr(text)
        assert ours.encode(text.encode(), allowed_special="all") == ids
    streamed = [stream.push(text.encode()) for text in texts] + [stream.finish()]
    assert np.array_equal(np.concatenate(streamed), ours.encode_numpy("".join(texts), "all"))
    every = range(ours.vocab_size)
    assert [ours.decode([id_]) for id_ in every] == [theirs.decode([id_], skip_special_tokens=False) for id_ in every]
    assert [again.id_to_token(id_) for id_ in every] == [theirs.id_to_token(id_) for id_ in every]


def test_bytes_without_a_token_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(gpt_neox()), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    valid = "aé\U0010ffff".encode()
    assert tokenizer.decode_bytes(tokenizer.encode(valid + b"\x80\xf4")) == valid + b"\x80\xf4"
    for byte in NEVER_IN_UTF8:
        with pytest.raises(InputError, match=f"a text has the byte 0x{byte:x} at position 2: this isn't UTF-8"):
            tokenizer.encode_batch(["ok", bytearray([97, 97, byte])])
    for ids in ([0, tokenizer.vocab_size], np.array([0, tokenizer.vocab_size + 12])):
        with pytest.raises(InputError, match="unknown token id .* at position 1"):
            tokenizer.decode(ids)
    (tmp_path / "t.json").write_text(json.dumps(gpt_neox() | {"normalizer": None, "added_tokens": []}))
    with pytest.raises(ConfigError, match="base has no token for the byte 0xc0"):
        Tokenizer.train(["a"], base=Tokenizer.load(tmp_path / "t.json"))


def test_many_added_tokens_take_linear_time(tmp_path: Path) -> None:
    """A hundred times as many take less than a thousand times as long: quadratic time would be ten thousand."""
    seconds = []
    for n in (400, 40_000):
        many = [added(n_, f"<|{n_}|>", normalized=n_ % 2 == 0) for n_ in range(n)]
        start = time.process_time()
        read_added_tokens(many, {}, "t.json")
        seconds.append(time.process_time() - start)
    assert seconds[1] < 1000 * max(seconds[0], 0.001)


def qwen_folder(folder: Path, **config: Any) -> Path:
    """Write vocab.json, merges.txt and a configuration like Qwen2.5's."""
    file = file_of("qwen2")
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(file["model"]["vocab"]), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *file["model"]["merges"]]), encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


DECODER = {
    "341": added(341, "<tool_call>", special=False),
    "340": added(340, "<|im_start|>"),
    "342": added(342, "<|endoftext|>"),
}


def test_two_files_are_read_as_their_configuration_says(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for entry in DECODER.values():
        entry.pop("id", None)
    folder = qwen_folder(tmp_path / "qwen", tokenizer_class="Qwen2Tokenizer", added_tokens_decoder=DECODER)
    ours, theirs = Tokenizer.load(folder), transformers.Qwen2Tokenizer.from_pretrained(folder)
    assert (ours.pattern, list(ours.special_tokens)) == ("qwen2", ["<|im_start|>", "<tool_call>", "<|endoftext|>"])
    random = Random(0)
    parts = ["<|im_start|>", "<tool_call>", "<|endoftext|>", "e\u0301", "12", " the", "DON'T", "\r\n", "!", "<"]
    texts = random_texts(2_000, seed=4)
    texts += ["".join(random.choices(parts, k=random.randrange(20))) for _ in range(2_000)]
    expected = theirs.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    assert [encoding.ids for encoding in expected] == ours.encode_batch(texts, allowed_special="all")
    ours.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again") == Tokenizer.load(folder / "vocab.json") == ours
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2TokenizerFast"}')
    (folder / "added_tokens.json").write_text('{"<|endoftext|>": 341, "<|im_start|>": 340}')
    assert Tokenizer.load(folder).special_tokens == {"<|im_start|>": 340, "<|endoftext|>": 341}


@pytest.mark.parametrize("config", [{}, {"model_max_length": 5}, {"tokenizer_class": "PreTrainedTokenizerFast"}])
def test_two_files_without_a_known_class_need_a_pattern(tmp_path: Path, config: Json) -> None:
    folder = qwen_folder(tmp_path / "qwen", **config)
    with pytest.raises(InputError, match="don't state the pattern") as caught:
        Tokenizer.load(folder)
    assert "webtext tokenizer convert FOLDER tokenizer.json --pattern NAME" in str(caught.value)
    assert Tokenizer.load(folder, pattern="qwen2").pattern == "qwen2"
    assert run(["tokenizer", "convert", str(folder), str(tmp_path / "t.json"), "--pattern", "llama3"]) == 0
    assert Tokenizer.load(tmp_path / "t.json").pattern == "llama3"


@pytest.mark.parametrize(
    ("config", "pattern", "message"),
    [
        ({"tokenizer_class": "GPT2Tokenizer"}, "qwen2", "has the pattern 'gpt2'"),
        ({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True}, None, "add_prefix_space with the pattern"),
        (
            {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"x": {}}},
            None,
            "damaged tokenizer_config.json",
        ),
        ({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"340": 5}}, None, "damaged tokenizer_config"),
        ({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"340": {}}}, None, "damaged added_tokens"),
        (
            {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"340": added(0, "<m>", lstrip=True)}},
            None,
            '"lstrip": true',
        ),
    ],
)
def test_a_configuration_that_cannot_be_applied_is_rejected(
    tmp_path: Path, config: Json, pattern: str | None, message: str
) -> None:
    with pytest.raises((ConfigError, InputError), match=message):
        Tokenizer.load(qwen_folder(tmp_path / "qwen", **config), pattern)


def splits(*patterns: str) -> Callable[[Json], Any]:
    steps = [*map(split, patterns), byte_level()]
    return lambda file: file.update(pre_tokenizer={"type": "Sequence", "pretokenizers": steps})


CHANGES: dict[str, tuple[Callable[[Json], Any], str]] = {
    "added token is a byte": (lambda f: f["added_tokens"].append(added(64, "a")), "also a token of text"),
    "added token is merged": (
        lambda f: f["added_tokens"].append(added(f["model"]["vocab"]["the"], "the")),
        r"the special token 'the' \(id \d+\) is also a token of text",
    ),
    "added token has another id": (lambda f: f["added_tokens"].append(added(999, "the")), "'the' twice or with"),
    "added token twice": (lambda f: f["added_tokens"].append(f["added_tokens"][0]), "twice or with two ids"),
    "added id of a text token": (
        lambda f: f["added_tokens"].append(added(300, "<x>")),
        "has the id 300, but Hugging Face's libraries use 341",
    ),
    "added ids equal": (
        lambda f: (f["model"]["vocab"].update({"<x>": 340}), f["added_tokens"].append(added(340, "<x>"))),
        "has the id of another token",
    ),
    "added id out of turn": (
        lambda f: f["added_tokens"].append(added(500, "<x>")),
        "the added token '<x>' has the id 500, but Hugging Face's libraries use 341",
    ),
    "added without name": (lambda f: f["added_tokens"].append(added(341, "")), "damaged added_tokens"),
    "added flag no bool": (lambda f: f["added_tokens"].append(added(341, "x", lstrip=1)), "damaged added_tokens"),
    "added id true": (lambda f: f["added_tokens"].append(added(True, "x")), "damaged added_tokens"),
    "added half a character": (lambda f: f["added_tokens"].append(added(341, "\ud800")), "surrogates not allowed"),
    "added no list": (lambda f: f.update(added_tokens={"a": 1}), "damaged added_tokens"),
    "many splits": (splits(*[r"\d"] * 1000), "has 1,001 pre-tokenizers\nexpected at most 20"),
    "no bytes": (lambda f: f.update(pre_tokenizer=split(r"\w+")), "a pre-tokenizer that cannot be read"),
    "bad regex": (splits("(" * 50), "a pattern that cannot be read"),
    "huge regex": (splits("a" * 10**6), "a pattern of 1,000,000 characters"),
    "unrolled regex": (splits("x|(?:a{1000}){1000}"), r"repeats too much: '\{1000\}'"),
    "intervals of intervals": (splits("a" + "{1,2}+" * 1600), "nests too deeply"),
    "huge interval": (splits("a{" + "9" * 5000 + "}"), "repeats too much|cannot be read"),
    "float id": (lambda f: f["model"]["vocab"].update(zz=1e9), "the id of 'zz' is 1000000000.0"),
    "bool id": (lambda f: f["model"]["vocab"].update(zz=True), "the id of 'zz' is True"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_contradiction_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    change, message = CHANGES[name]
    file = copy.deepcopy(gpt2_of_hugging_face())
    change(file)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert len(str(caught.value)) < 500


BOMBS = {
    "deep lists": (b'{"a":' + b"[" * 10**6, "is not valid JSON"),
    "deep objects": (b'{"a":' * 10**6, "is not valid JSON"),
    "many values": (b'{"a":[' + b"[]," * 10**7 + b"[]]}", "has more than 8,388,608 JSON values"),
    "a key twice": (b'{"model": {"vocab": {"a": 1, "b": 2, "a": 3}}}', "the key 'a' occurs twice"),
    "NaN": (b'{"model": {"vocab": {"a": NaN}}}', "NaN is not a JSON number"),
    "infinity": (b'{"model": {"vocab": {"a": -Infinity}}}', "-Infinity is not a JSON number"),
    "a huge number": (b'{"model": {"vocab": {"a": 1' + b"0" * 10**6 + b"}}}", "is not valid JSON"),
    "a large float": (b'{"model": {"vocab": {"a": 1e999}}}', "the id of 'a' is inf"),
    "half a character": (b'{"model": {}, "post_processor": "\\uD83D \\ude00"}', "surrogates not allowed"),
    "no UTF-8": (b'{"\xff": 1}', "is not valid JSON"),
    "a list": (b"[1]", "is a JSON list"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    """Less than ten times its size: the file is rejected before it becomes an unbounded number of Python objects."""
    data, message = BOMBS[name]
    if "pre_tokenizer" not in data.decode("latin-1"):
        data = data.replace(b'{"model"', b'{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model"')
    (tmp_path / "tokenizer.json").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message) as caught:
            Tokenizer.load(tmp_path / "tokenizer.json")
        assert tracemalloc.get_traced_memory()[1] < 10 * len(data) + (1 << 22)
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 500
