"""The Winograd schema challenge (Levesque et al. 2012): WSCollection.xml; section 3.4 of the paper.

Each of two candidates is put in the place of a pronoun. By Trinh & Le 2018, "full" scoring takes the candidate whose
complete text is likelier, and "partial" the one after which the rest of the text is likelier. The paper doesn't say
which of them its 70.70 % are. Of the collection the first 273 schemas are read, which are those of WSC273. As in
lm-eval, a candidate gets 's if the pronoun is possessive, and its article a small letter within a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from webtext.base.errors import InputError
from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, row, text_of
from webtext.train.evaluate.texts import read_file

N_SCHEMAS = 273
FORM = "WSCollection.xml: <schema> with <text> (<txt1>, <pron>, <txt2>), two <answer>, <correctAnswer> A or B"
POSSESSIVE = ("my", "his", "her", "our", "their")
LOWERED = ("A", "An", "The", "She", "He", "It", "They", "My", "His", "Her", "Their")


def _read(path: str) -> list[Item]:
    data = read_file(path)
    if b"<!ENTITY" in data:
        raise InputError(f"'{path}' defines XML entities", "expected WSCollection.xml, which has none")
    try:
        schemas = ElementTree.fromstring(data).findall("schema")
    except ElementTree.ParseError as error:
        raise InputError(f"'{path}': {error}", f"expected {FORM}") from None
    items = []
    for number, schema in enumerate(schemas[:N_SCHEMAS], 1):
        with expected(f"'{path}', schema {number}", FORM):
            items.append(_item(schema, f"schema {number}"))
    return items


def _item(schema: ElementTree.Element, name: str) -> Item:
    before, pronoun, after, right, *options = (
        " ".join((element.text or "").split())
        for tag in ("text/txt1", "text/pron", "text/txt2", "correctAnswer", "answers/answer")
        for element in schema.findall(tag)
    )
    if len(options) != 2:
        raise ValueError(f"there are {len(options)} candidates")
    begins = not before or before[-1] in ".!?"
    choices = tuple(_in_place(text_of(option), text_of(pronoun), begins) for option in options)
    gold = choices["AB".index(text_of(right).rstrip(" ."))]
    before, rest = f"{before} ".lstrip(), " " * text_of(after)[0].isalnum() + after
    return Item(name, (before,), (gold,), f"{before}{gold}{rest}\n", choices=choices, rest=rest)


def _in_place(option: str, pronoun: str, begins_sentence: bool) -> str:
    first = option.split()[0]
    if not begins_sentence and first in LOWERED:
        option = option.replace(first, first.lower(), 1)
    return option + "'s" * (pronoun.lower() in POSSESSIVE)


def _judge(items: Sequence[Item], losses: Sequence[Any], _: Sequence[float]) -> Judgement:
    scores = []
    for item, choices in zip(items, losses, strict=True):
        taken = [min(range(len(choices)), key=lambda i: choices[i][how]) for how in (0, 1)]  # noqa: B023
        scores.append(
            {how: float(item.choices[i] == item.golds[0]) for how, i in zip(("full", "partial"), taken, strict=True)}
        )
    return Judgement(
        [row(f"accuracy, {how}", "schema", [score[how] for score in scores]) for how in ("full", "partial")], scores
    )


TASK = Task(_read, _judge, None)
