"""The Winograd schema challenge (Levesque et al. 2012): WSCollection.xml or wsc273 as JSON lines; section 3.4.

Each of two candidates is put in the place of a pronoun. By Trinh & Le 2018, "full" scoring takes the candidate whose
complete text is likelier, and "partial" the one after which the rest of the text is likelier; the paper's 70.70 % is
the better of both. Of a longer collection the first 273 schemas are read, which are those of WSC273.

As in lm-eval, a candidate gets 's if the pronoun is possessive, and its article a small letter within a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from webtext.base.errors import InputError
from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, read_lines, row, text_of, texts_of
from webtext.train.evaluate.texts import read_file

N_SCHEMAS = 273
JSON_FORM = '{"text", "pronoun", "pronoun_loc", "options": [two], "label": 0 or 1}'
XML_FORM = "<schema> with <text> (<txt1>, <pron>, <txt2>), two <answer> and <correctAnswer> A or B"
POSSESSIVE = ("my", "his", "her", "our", "their")
LOWERED = ("A", "An", "The", "She", "He", "It", "They", "My", "His", "Her", "Their")


def _read(path: str) -> list[Item]:
    data = read_file(path)
    if not data.lstrip().startswith(b"<"):
        return read_lines(path, JSON_FORM, _of_json)[:N_SCHEMAS]
    if b"<!ENTITY" in data:
        raise InputError(f"'{path}' defines XML entities", "expected WSCollection.xml, which has none")
    with expected(f"'{path}'", "WSCollection.xml"):
        schemas = _parsed(data).findall("schema")
    items = []
    for number, schema in enumerate(schemas[:N_SCHEMAS], 1):
        with expected(f"'{path}', schema {number}", XML_FORM):
            items.append(_of_xml(schema, f"schema {number}"))
    return items


def _parsed(data: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _of_json(line: Any, name: str) -> Item:
    text, pronoun, start = text_of(line["text"]), text_of(line["pronoun"]), line["pronoun_loc"]
    end = start + len(pronoun)
    if text[start:end] != pronoun:
        raise ValueError(f"the text has no {pronoun!r} at {start}")
    return _item(name, text[:start], pronoun, text[end:], texts_of(line["options"]), (0, 1).index(line["label"]))


def _of_xml(schema: ElementTree.Element, name: str) -> Item:
    before, pronoun, after = (
        " ".join((schema.findtext(f"text/{tag}") or "").split()) for tag in ("txt1", "pron", "txt2")
    )
    options = tuple(" ".join(text_of(answer.text).split()) for answer in schema.findall("answers/answer"))
    right = "AB".index(text_of(schema.findtext("correctAnswer")).strip(" .\n\t"))
    joint = " " if text_of(after)[0].isalnum() else ""
    return _item(name, f"{before} " if before else "", text_of(pronoun), joint + after, options, right)


def _item(name: str, before: str, pronoun: str, rest: str, options: tuple[str, ...], right: int) -> Item:
    if len(options) != 2:
        raise ValueError(f"there are {len(options)} candidates")
    begins = not before.strip() or before.rstrip()[-1] in ".!?"
    choices = tuple(_in_place(option, pronoun, begins) for option in options)
    return Item(name, (before,), (choices[right],), f"{before}{choices[right]}{rest}\n", choices=choices, rest=rest)


def _in_place(option: str, pronoun: str, begins_sentence: bool) -> str:
    first = option.split()[0]
    if not begins_sentence and first in LOWERED:
        option = option.replace(first, first.lower(), 1)
    return option + "'s" * (pronoun.lower() in POSSESSIVE)


def _judge(items: Sequence[Item], losses: Sequence[Any], _: Sequence[float]) -> Judgement:
    """Each item's losses are nats [choice][full, partial]."""
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
