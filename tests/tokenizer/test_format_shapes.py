"""tokenizer.json files written by others: the structures of Llama 3, Qwen 2 and GPT-2, and hostile files."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer

from .conftest import SAMPLES
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
    theirs = json.loads(_json_of(tokenizer))
    del theirs["model"]["webtext"]
    return theirs


def _json_of(tokenizer: Tokenizer) -> bytes:
    from webtext.tokenizer.formats import tokenizer_json

    return tokenizer_json.dump(tokenizer._vocabulary)


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
    "NFC of a token in the normalized text": (
        lambda f: f.update(normalizer=NFC),
        "the added token '<.endoftext.>' has \"normalized\": true",
    ),
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
    "tokens found before others": (
        lambda f: f["added_tokens"].extend([added(341, "A ", normalized=True), added(342, " a")]),
        "the added token 'A ' has \"normalized\": true and may overlap",
    ),
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
    "many splits": (
        lambda f: f.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [*[split(r"\d")] * 1000, byte_level()]}),
        "has 1,001 pre-tokenizers\nexpected at most 20",
    ),
    "no bytes": (lambda f: f.update(pre_tokenizer=split(r"\w+")), "a pre-tokenizer that cannot be read"),
    "bad regex": (
        lambda f: f.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split("(" * 50), byte_level()]}),
        "a pattern that cannot be read",
    ),
    "huge regex": (
        lambda f: f.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split("a" * 10**6), byte_level()]}),
        "a pattern of 1,000,000 characters",
    ),
    "unrolled regex": (
        lambda f: f.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split("x|(?:a{1000}){1000}"), byte_level()]}
        ),
        r"repeats too much: '\{1000\}'",
    ),
    "intervals of intervals": (
        lambda f: f.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split("a" + "{1,2}+" * 1600), byte_level()]}
        ),
        "nests too deeply",
    ),
    "huge interval": (
        lambda f: f.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split("a{" + "9" * 5000 + "}"), byte_level()]}
        ),
        "repeats too much|cannot be read",
    ),
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
