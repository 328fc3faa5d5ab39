"""Every format stores the same tokenizer; Hugging Face's libraries read ours; damaged files are short errors."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.vocabulary import byte_characters

from .conftest import SAMPLES, real_is_slow

EOT = ["<|endoftext|>"]
BYTE_RANKS = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))


def saved(tokenizer: Tokenizer, folder: Path) -> dict[str, Tokenizer]:
    """Write the tokenizer in every format and read it again."""
    names = ["tokenizer.json", "ranks.tiktoken", "folder", "pair/vocab.json", "openai/encoder.json"]
    for name in names:
        tokenizer.save(folder / name)
    return {
        name: Tokenizer.load(folder / name, *(("gpt2", EOT) if name.endswith(".tiktoken") else ())) for name in names
    }


def test_published_files_are_one_tokenizer(trained: Tokenizer, data: Path) -> None:
    """encoder.json with vocab.bpe, and r50k_base.tiktoken, whose hash implies its pattern and special token."""
    ranks = Tokenizer.load(data / "gpt2" / "r50k_base.tiktoken")
    eot = {EOT[0]: trained.vocab_size - 1}
    assert ranks.hash == trained.hash
    assert (ranks.pattern, ranks.special_tokens) == (trained.pattern, trained.special_tokens) == ("gpt2", eot)


@pytest.mark.parametrize("source", ["small", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_formats_keep_ids_and_hash(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(source)
    for name, again in saved(tokenizer, tmp_path).items():
        assert (again.hash, again.vocab_size) == (tokenizer.hash, tokenizer.vocab_size), name
        assert again.special_tokens == tokenizer.special_tokens
        assert [again.encode(text) for text in SAMPLES] == [tokenizer.encode(text) for text in SAMPLES]


@real_is_slow
def test_a_rank_file_survives_every_other_format(wide: Tokenizer, tmp_path: Path) -> None:
    wide.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.hash == wide.hash
    assert again.pattern == wide.pattern
    assert [again.encode(text) for text in SAMPLES] == [wide.encode(text) for text in SAMPLES]


def test_vocab_bpe_is_written_as_published(trained: Tokenizer, data: Path, tmp_path: Path) -> None:
    """The rank file has no merges: they follow from the order of ids."""
    Tokenizer.load(data / "gpt2" / "r50k_base.tiktoken").save(tmp_path / "out" / "vocab.json")
    assert (tmp_path / "out" / "merges.txt").read_bytes() == (data / "gpt2" / "vocab.bpe").read_bytes()
    assert json.loads((tmp_path / "out" / "vocab.json").read_text()) == json.loads(
        (data / "gpt2" / "encoder.json").read_text()
    )


def test_rank_file_is_written_as_published(trained: Tokenizer, data: Path, tmp_path: Path) -> None:
    trained.save(tmp_path / "out.tiktoken")
    assert (tmp_path / "out.tiktoken").read_bytes() == (data / "gpt2" / "r50k_base.tiktoken").read_bytes()


def test_we_read_what_hugging_face_writes(small: Tokenizer, tmp_path: Path) -> None:
    """Their own variant of the file: merges as lists, without our field."""
    small.save(tmp_path / "ours.json")
    tokenizers.Tokenizer.from_file(str(tmp_path / "ours.json")).save(str(tmp_path / "theirs.json"))
    assert "webtext" not in json.loads((tmp_path / "theirs.json").read_text())["model"]
    assert Tokenizer.load(tmp_path / "theirs.json").hash == small.hash


def test_a_folder_with_tokenizer_json_is_read_from_it(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "model" / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "model").hash == small.hash


def test_merges_that_ranks_do_not_imply_are_hashed_and_not_saved_as_ranks(tmp_path: Path) -> None:
    """'abc' from 'a' and 'bc', although the order of ids ('ab' before 'bc') implies 'ab' and 'c'."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"bc", b"abc"]
    odd = Vocabulary(tokens=tokens, merges=[(98, 99), (97, 257), (97, 98)])
    plain = Vocabulary(tokens=tokens, merges=None)
    assert Tokenizer(odd).encode("abc") == Tokenizer(plain).encode("abc") == [258]
    assert Tokenizer(odd).hash != Tokenizer(plain).hash
    with pytest.raises(InputError, match="a rank file can't represent these merges\nsave as tokenizer.json"):
        Tokenizer(odd).save(tmp_path / "odd.tiktoken")
    Tokenizer(odd).save(tmp_path / "odd.json")
    assert Tokenizer.load(tmp_path / "odd.json").hash == Tokenizer(odd).hash


def test_two_files_cannot_store_another_pattern(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't store the pattern and the Unicode version\nsave as tokenizer.json"):
        Tokenizer.train([], pattern=r"\w+").save(tmp_path / "vocab.json")


@pytest.mark.parametrize("other", ["encoder.json", "vocab.bpe", "chat_template.jinja", "special_tokens_map.json"])
def test_a_folder_never_mixes_two_tokenizers(small: Tokenizer, tmp_path: Path, other: str) -> None:
    """Existing files would be read instead of ours, or together with ours."""
    (tmp_path / other).write_bytes(b"{}")
    with pytest.raises(ConfigError, match=f"{other}' belongs to another tokenizer\nname another folder"):
        small.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_a_folder_with_two_vocabularies_is_not_guessed_at(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "vocab.json")
    (tmp_path / "encoder.json").write_bytes(b"{}")
    with pytest.raises(InputError, match="contains both vocab.json and encoder.json"):
        Tokenizer.load(tmp_path)


def test_merges_that_others_skip_are_not_written(tmp_path: Path) -> None:
    """tokenizers' BPE.read_file treats any line that begins with '#version' as a header."""
    text = "#version!" * 9
    tokenizer = Tokenizer.train([text], pattern="gpt2", vocab_size=300)
    assert b"#version" not in tokenizer._vocabulary.tokens  # GPT-2's pattern separates the letters from the sign
    tokens = [bytes([byte]) for byte in range(256)]
    for character in b"#version!":
        tokens.append((tokens[-1] if len(tokens) > 256 else b"") + bytes([character]))
    del tokens[256]
    merges = [(ord("#"), ord("v")), *((256 + at, ord("ersion!"[at])) for at in range(7))]
    with pytest.raises(InputError, match="other libraries skip merges that begin with '#version'"):
        Tokenizer(Vocabulary(tokens=tokens, merges=merges)).save(tmp_path / "vocab.json")


def test_a_special_token_in_two_files_must_look_like_one(small: Tokenizer, tmp_path: Path) -> None:
    named = Tokenizer.train(SAMPLES, vocab_size=300, special_tokens=["P A D"])
    with pytest.raises(InputError, match="can't mark 'P A D' as a special token"):
        named.save(tmp_path / "vocab.json")
    small.save(tmp_path / "vocab.json")
    with pytest.raises(InputError, match=r"'<\|endoftext\|>' has the id 399 in the file, not 5"):
        Tokenizer.load(tmp_path, special_tokens={"<|endoftext|>": 5})


def test_an_unknown_format_is_an_error(small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a known tokenizer format"):
        small.save(tmp_path / "tokenizer.txt")


# Rank files


def test_an_unknown_rank_file_needs_a_pattern(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "own.tiktoken")
    with pytest.raises(InputError, match="a rank file doesn't name its pattern"):
        Tokenizer.load(tmp_path / "own.tiktoken")
    bare = Tokenizer.load(tmp_path / "own.tiktoken", pattern="gpt2")
    assert (bare.special_tokens, bare.eot_id, bare.vocab_size) == ({}, None, 399)
    named = Tokenizer.load(tmp_path / "own.tiktoken", pattern="gpt2", special_tokens={"<s>": 1000})
    assert (named.special_tokens, named.vocab_size) == ({"<s>": 1000}, 1001)


@pytest.mark.parametrize(
    "line",
    [
        *(b"YQ==", b"YQ== x", b"!!! 5", b"YQ== -1", b"YQ== 99999999999", b" 5", b"YQ== 5 6", b"YQ 5"),
        *(b"YQ==YQ== 5", b"YWI= 97"),
    ],
)
def test_a_damaged_line_of_a_rank_file_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "bad.tiktoken").write_bytes(BYTE_RANKS + line + b"\n")
    with pytest.raises(InputError, match=r"line 257 of '.*bad.tiktoken' is b'.*'\nexpected a token in base64"):
        Tokenizer.load(tmp_path / "bad.tiktoken", pattern="gpt2")


def test_the_known_pattern_of_a_published_rank_file_is_kept(shared_data: Path) -> None:
    path = shared_data / "gpt2" / "cl100k_base.tiktoken"
    more = Tokenizer.load(path, special_tokens=["<|endoftext|>", "<|pad|>"]).special_tokens
    assert (more["<|endoftext|>"], more["<|endofprompt|>"], more["<|pad|>"]) == (100257, 100276, 100277)
    with pytest.raises(ConfigError, match="is published with the pattern"):
        Tokenizer.load(path, pattern="gpt2")


def test_more_special_tokens_follow_those_that_a_published_rank_file_has(data: Path) -> None:
    path = data / "gpt2" / "r50k_base.tiktoken"
    known = Tokenizer.load(path).special_tokens
    more = Tokenizer.load(path, special_tokens=[*EOT, "<|pad|>"]).special_tokens
    assert more == known | {"<|pad|>": known[EOT[0]] + 1}
    with pytest.raises(ConfigError, match="is published with the pattern"):
        Tokenizer.load(path, pattern="cl100k")


def test_a_rank_file_with_a_token_twice_is_an_error(tmp_path: Path) -> None:
    """tiktoken's reader keeps the last rank and leaves the first one unused."""
    (tmp_path / "twice.tiktoken").write_bytes(BYTE_RANKS + b"YQ== 256\n")
    with pytest.raises(InputError, match="twice.tiktoken': .* token 97 and token 256 have the same bytes"):
        Tokenizer.load(tmp_path / "twice.tiktoken", pattern="gpt2")


def test_ids_of_a_rank_file_may_be_in_any_order_and_have_gaps(tmp_path: Path) -> None:
    lines = [base64.b64encode(bytes([byte])) + b" %d\n" % (3 * byte) for byte in range(256)]
    (tmp_path / "own.tiktoken").write_bytes(b"".join(reversed([*lines, b"YWI= 900\n"])))
    tokenizer = Tokenizer.load(tmp_path / "own.tiktoken", pattern="gpt2", special_tokens=["<s>"])
    assert tokenizer.encode("abc <s>", allowed_special="all") == [900, 297, 96, 901]
    assert tokenizer.vocab_size == 902


def test_a_truncated_rank_file_is_an_error(data: Path, tmp_path: Path) -> None:
    whole = (data / "gpt2" / "r50k_base.tiktoken").read_bytes()
    (tmp_path / "r50k_base.tiktoken").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not one of OpenAI's published rank files"):
        Tokenizer.load(tmp_path / "r50k_base.tiktoken")


# Bad input


@pytest.fixture
def json_of(small: Tokenizer, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a tokenizer.json with one change."""
    small.save(tmp_path / "good.json")

    def write(change: Callable[[dict[str, Any]], Any]) -> Path:
        found = json.loads((tmp_path / "good.json").read_text())
        change(found)
        (tmp_path / "tokenizer.json").write_text(json.dumps(found))
        return tmp_path / "tokenizer.json"

    return write


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no model": (lambda d: d.pop("model"), "it has no model"),
    "no pre-tokenizer": (lambda d: d.update(pre_tokenizer=None), "has a pre-tokenizer"),
    "vocabulary of strings": (lambda d: d["model"]["vocab"].update(a="1"), "the id of 'a' is '1'"),
    "vocabulary list": (lambda d: d["model"].update(vocab=[]), "has no vocabulary"),
    "huge id": (lambda d: d["model"]["vocab"].update(a=2**40), "the id of 'a' is 1099511627776"),
    "negative id": (lambda d: d["model"]["vocab"].update(a=-1), "the id of 'a' is -1"),
    "one id twice": (lambda d: d["model"]["vocab"].update(a=d["model"]["vocab"]["b"]), "of another token"),
    "no byte a": (lambda d: (d["model"]["vocab"].pop("z"), d["model"].update(merges=[])), "no token for the byte 122"),
    "merge of three": (lambda d: d["model"]["merges"].insert(7, "a b c"), "merge 7 is 'a b c'"),
    "merge of numbers": (lambda d: d["model"]["merges"].insert(7, [1, 2]), r"merge 7 is '\[1, 2\]'"),
    "merge of nothing": (lambda d: d["model"]["merges"].insert(7, None), "merge 7 is 'None'"),
    "unknown merge": (lambda d: d["model"]["merges"].insert(7, "zz zz"), "a merge names 'zz', which is not a token"),
    "unknown result": (lambda d: d["model"]["merges"].insert(7, "z q"), "merge 7 produces bytes that are not a token"),
    "merges object": (lambda d: d["model"].update(merges={}), "has no merges"),
    "added tokens": (lambda d: d.update(added_tokens=[{"id": 1}]), "has damaged added_tokens"),
    "later Unicode": (lambda d: d["model"]["webtext"].update(unicode_version="18.0.0"), "uses Unicode 18.0.0"),
    "later format": (lambda d: d["model"]["webtext"].update(format=2), "written by another version of webtext"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_tokenizer_json_that_cannot_be_read_says_why(json_of: Callable[..., Path], name: str) -> None:
    change, message = CHANGES[name]
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.load(json_of(change))
    assert "tokenizer.json" in caught.value.lines[0]
    assert len(caught.value.lines) <= 3


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "ranks.tiktoken", "folder/tokenizer.json", "pair/vocab.json", "pair/merges.txt"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbage"])
def test_damaged_files_are_short_errors(small: Tokenizer, tmp_path: Path, name: str, damage: str) -> None:
    saved(small, tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "garbage": bytes(range(256)) * 9}[damage])
    top = tmp_path / name.split("/")[0]
    with pytest.raises(InputError) as caught:
        Tokenizer.load(top, "gpt2")
    assert str(tmp_path) in caught.value.lines[0]
    assert len(str(caught.value)) < 400


def test_a_path_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no tokenizer"):
        Tokenizer.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="is not a tokenizer\nexpected tokenizer.json"):
        Tokenizer.load(tmp_path)


def test_a_pattern_that_contradicts_the_file_is_an_error(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match="names its own pattern 'gpt2'"):
        Tokenizer.load(tmp_path / "tokenizer.json", pattern=r"\w+")


def test_more_special_tokens_can_be_named_when_loading(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "tokenizer.json")
    more = Tokenizer.load(tmp_path / "tokenizer.json", special_tokens=["<|endoftext|>", "<|pad|>"])
    assert more.special_tokens == {"<|endoftext|>": 399, "<|pad|>": 400}


def test_files_are_written_atomically(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    shutil.copy(tmp_path / "tokenizer.json", tmp_path / "copy.json")
    small.save(tmp_path / "tokenizer.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == (tmp_path / "copy.json").read_bytes()


def test_byte_characters_are_gpt2s() -> None:
    """In the released encoder.json the space is 'Ġ' and the newline 'Ċ'."""
    table, characters = byte_characters()
    assert (characters[ord(" ")], characters[ord("\n")], characters[ord("a")]) == ("Ġ", "Ċ", "a")
    assert len(table) == 256
    assert all(characters[byte] == character for character, byte in table.items())
