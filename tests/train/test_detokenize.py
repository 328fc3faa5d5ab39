"""De-tokenizers write text as usual and restore every byte of the tokenised text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.train.evaluate.detokenize import NEWS, PTB, TREEBANK, WIKITEXT, Detokenizer

FORMS = [WIKITEXT, PTB, TREEBANK, NEWS]
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
    assert form.tokenize(text) == line


def test_a_word_that_the_inverse_would_change_follows_a_second_blank() -> None:
    """In WikiText `No.` is a word and `1,000th` would come back as `1 @,@ 000th`."""
    assert WIKITEXT.detokenize(" the 1,000th No. ") == "the  1,000th No."
    assert WIKITEXT.detokenize(" plan No . ") == "plan No ."


@BY_NAME
@given(lines=st.lists(st.lists(WORDS, max_size=12), max_size=4), ends=st.booleans())
def test_every_line_of_words_comes_back(form: Detokenizer, lines: list[list[str]], ends: bool) -> None:
    margins = [form.margin + " ".join(words) + form.margin if words else form.margin for words in lines]
    text = "\n".join([*margins, ""] if ends or (margins and margins[-1] == form.margin) else margins)
    assert form.tokenize(form.detokenize(text)) == text


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
    assert form.tokenize(text).encode() == original
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
    assert WIKITEXT.tokenize(WIKITEXT.detokenize(line)) == line
