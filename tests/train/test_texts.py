"""Evaluation sets of running text: the text read from each file, its units, and lossless de-tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.train.evaluate import texts
from webtext.train.evaluate.cloze import read_lambada
from webtext.train.evaluate.detokenize import NEWS, PTB, TREEBANK, WIKITEXT, Detokenizer, split
from webtext.train.evaluate.texts import read_file, read_running_text

FORMS = [WIKITEXT, PTB, TREEBANK, NEWS]


def tokenized(form: Detokenizer, text: str) -> str:
    """Return the text that `detokenize` turned into `text`: a word after a second blank is as it was."""

    def line_of(line: str) -> str:
        parts = f" {line}".replace("  ", " \n")[1:].split(" ")  # a line break marks a word that is one
        words = [w for part in parts for w in ([part[1:]] if part.startswith("\n") else split(part, form.apart))]
        return f"{form.margin}{' '.join(words)}{form.margin}" if line else form.margin

    *lines, last = text.split("\n")
    return "\n".join([*map(line_of, lines), last and line_of(last)])


BY_NAME = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
_SAMPLES = """a b7 7 12 s x's ' ` `` '' " "" . , ; : ! ? ... .. ( ) [ ] $ # % & / \\/ - -- – — = ° + @ < > _ é 日 \t \x0b \xa0
@-@ @,@ @.@ <unk> <formula> -LRB- -RRB- 's 't n't 're 'Hello U.S. B. No. No al. 1,000th C# c$ us$ n N"""
EVERY_RULE = _SAMPLES.replace("\n", " ").split(" ")
WORDS = st.sampled_from(EVERY_RULE) | st.text(st.characters(exclude_characters=" \n"), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("form", "words", "text"),
    [
        (
            WIKITEXT,
            "The 1 @,@ 000 @-@ year @-@ old town ( Saint @-@ <unk> ) had a \" <unk> 's \" motto : it 's 3 @.@ 5 / 7 % ; dogs ' .",
            "The 1,000-year-old town (Saint-<unk>) had a \"<unk>'s\" motto: it's 3.5/7%; dogs'.",
        ),
        (WIKITEXT, "= = Career = =", "= = Career = ="),
        (
            WIKITEXT,
            "In the U.S. , Mr. B. met O 'Brien at 6 : 30 , 1990 – 91 .",
            "In the U.S., Mr. B. met O'Brien at 6:30, 1990–91.",
        ),
        (PTB, "no it was n't black monday at mgm\\/ua <unk> 's $ N", "no it wasn't black monday at mgm/ua <unk>'s $N"),
        (
            TREEBANK,
            "`` Oh , do n't ! '' said she -LRB- the cat 's friend -RRB- , `` I wo n't . ''",
            '"Oh, don\'t!" said she (the cat\'s friend), "I won\'t."',
        ),
        (
            NEWS,
            'He said : " I don \'t know the 1,000 people ( yet ) . "',
            'He said: "I don\'t know the 1,000 people (yet)."',
        ),
    ],
)
def test_text_as_it_is_usually_written(form: Detokenizer, words: str, text: str) -> None:
    line = f"{form.margin}{words}{form.margin}"
    assert form.detokenize(line) == text
    assert tokenized(form, text) == line


def test_a_word_that_the_inverse_would_change_follows_a_second_blank() -> None:
    """In WikiText `No.` is a word and `1,000th` would come back as `1 @,@ 000th`."""
    assert WIKITEXT.detokenize(" the 1,000th No. ") == "the  1,000th No."
    assert WIKITEXT.detokenize(" plan No . ") == "plan No ."


@BY_NAME
@given(lines=st.lists(st.lists(WORDS, max_size=12), max_size=4), ends=st.booleans())
def test_every_line_of_words_comes_back(form: Detokenizer, lines: list[list[str]], ends: bool) -> None:
    margins = [form.margin + " ".join(words) + form.margin if words else form.margin for words in lines]
    text = "\n".join([*margins, ""] if ends or (margins and margins[-1] == form.margin) else margins)
    assert tokenized(form, form.detokenize(text)) == text


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (WIKITEXT, "wikitext-2/test.txt"),
        pytest.param(WIKITEXT, "wikitext-2/valid.txt", marks=pytest.mark.slow),
        pytest.param(WIKITEXT, "wikitext-103/wiki.test.tokens", marks=pytest.mark.slow),
        pytest.param(WIKITEXT, "wikitext-103/wiki.valid.tokens", marks=pytest.mark.slow),
        (PTB, "ptb/ptb.test.txt"),
        pytest.param(PTB, "ptb/ptb.valid.txt", marks=pytest.mark.slow),
    ],
)
def test_every_byte_of_the_real_files_comes_back(form: Detokenizer, name: str, shared_data: Path) -> None:
    """And the rules apply: at least an eighth of WikiText's blanks are removed, and few words get a second blank."""
    original = (shared_data / "eval" / name).read_bytes()
    text = form.detokenize(original.decode())
    assert tokenized(form, text).encode() == original
    assert text.count(" ") < original.count(b" ") * (7 / 8 if form is WIKITEXT else 1)
    assert text.count("  ") < len(original.split()) / 2000


@pytest.mark.parametrize(
    ("form", "line"),
    [(WIKITEXT, "no margin"), (WIKITEXT, " two  blanks "), (WIKITEXT, ""), (NEWS, " margin"), (PTB, "  ")],
)
def test_a_line_that_is_not_tokenised_is_named(form: Detokenizer, line: str) -> None:
    with pytest.raises(InputError, match=f"line 2 is not in the tokenised form {form.name}"):
        form.detokenize(f"{form.margin}a{form.margin}\n{line}\n")


def test_a_text_that_ends_inside_a_line_is_refused() -> None:
    with pytest.raises(InputError, match="ends inside a line of wikitext"):
        WIKITEXT.detokenize(" a \n ")


def test_a_line_of_nothing_but_brackets_takes_linear_time() -> None:
    line = " " + "( " * 50_000
    assert tokenized(WIKITEXT, WIKITEXT.detokenize(line)) == line


WIKI = ' \n = The harbor = \n \n Its 1 @,@ 200 @-@ metre pier ( of 1901 ) , the town \'s " pride " , is closed . \n'
PENN = " the harbor 's pilots do n't like fog \n mr. <unk> paid $ N million for N\\/N of it \n"


@pytest.mark.parametrize(
    ("task", "form", "text", "words", "with_line_ends"),
    [("wikitext-2", WIKITEXT, WIKI, 26, 30), ("wikitext-103", WIKITEXT, WIKI, 26, 30), ("ptb", PTB, PENN, 18, 20)],
)
def test_the_words_of_a_set_are_counted_in_its_file_and_each_byte_comes_back(
    task: str, form: Detokenizer, text: str, words: int, with_line_ends: int
) -> None:
    read = read_running_text(task, text.encode(), "file")
    assert read.units == {"word": words, "word or line end": with_line_ends, "byte": len(text)}
    assert tokenized(form, read.text.decode()) == text
    assert read.text.count(b" ") < text.count(" ") * 7 / 8


@pytest.mark.parametrize(
    ("task", "name", "words", "with_line_ends"),
    [
        ("wikitext-2", "wikitext-2/test.txt", 241_211, 245_569),
        pytest.param("wikitext-103", "wikitext-103/wiki.test.tokens", 241_211, 245_569, marks=pytest.mark.slow),
        ("ptb", "ptb/ptb.test.txt", 78_669, 82_430),
    ],
)
def test_the_real_sets_have_the_published_number_of_words(
    task: str, name: str, words: int, with_line_ends: int, shared_data: Path
) -> None:
    data = read_file(str(shared_data / "eval" / name))
    read = read_running_text(task, data, name)
    assert read.units == {"word": words, "word or line end": with_line_ends, "byte": len(data)}
    assert len(read.text) < len(data)


def test_a_line_of_the_billion_word_benchmark_is_a_sentence() -> None:
    data = b'He said : " I don \'t know . "\nThe U.S. won , 3 - 2 .\n'
    read = read_running_text("1bw", data, "news.en.heldout-00000-of-00050")
    assert read.text == b'He said: "I don\'t know."\nThe U.S. won, 3 - 2.\n'
    assert read.units == {"word": 18, "word or line end": 20, "byte": len(data)}
    assert read.detokenizer == "news"


def test_of_the_hundred_million_bytes_the_last_five_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown on a hundred bytes; a cut through a letter of several bytes is kept as it is."""
    monkeypatch.setattr(texts, "WHOLE", 100)
    monkeypatch.setattr(texts, "TEST", 5)
    data = b"a" * 94 + "é".encode() + b"bcde"
    read = read_running_text("enwik8", data, "enwik8")
    assert (read.text, read.units, read.part) == (b"\xa9bcde"[-5:], {"byte": 5}, "last 5 bytes")
    read = read_running_text("text8", b"a b" * 30, "text8")
    assert (len(read.text), read.units, read.part) == (90, {"character": 90}, "all")


def test_a_part_of_the_real_enwik8_is_read_completely(shared_data: Path) -> None:
    data = read_file(str(shared_data / "eval/enwik8/enwik8.head"))
    assert read_running_text("enwik8", data, "enwik8.head").units == {"byte": 4_154_399}


def test_the_real_lambada_has_5153_passages(shared_data: Path) -> None:
    data = read_file(str(shared_data / "eval/lambada/lambada_test.jsonl"))
    clozes = read_lambada(data, "lambada_test.jsonl")
    assert len(clozes) == 5_153
    assert (clozes[0].before[-12:], clozes[0].target) == ("t care about", " signs")
    assert all(cloze.target[0] == " " and not cloze.before[-1].isspace() for cloze in clozes)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not UTF-8: byte 3"):
        read_running_text("text", b"01 \xff", "file")
    with pytest.raises(InputError, match="is a folder without a manifest.json"):
        read_file(str(tmp_path))
    with pytest.raises(InputError, match="nothing"):
        read_file(str(tmp_path / "nothing"))
