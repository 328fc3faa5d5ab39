"""WMT-14 French and English (Bojar et al. 2014): newstest2014-fren-src.fr.sgm or .en.sgm; section 3.7 of the paper.

The references are in newstest2014-fren-ref.en.sgm or .fr.sgm beside the file. The context has pairs "english sentence =
french sentence", whose number the paper doesn't say; after the last "sentence =" the model continues greedily, up to a
line end, and its first sentence is the translation. The paper doesn't say how its BLEU splits words. sacrebleu computes
it with two ways: 13a, which current papers report, and international, in lower case, the closer one to the tokenised
BLEU of the unsupervised systems that the paper compares with.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from webtext.base.errors import InputError
from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, greedy, text_of
from webtext.train.evaluate.tasks.sentences import first_sentences
from webtext.train.evaluate.texts import decoded, read_file

BLEU = {"13a words": ("13a", False), "international words, lower case": ("intl", True)}
_TAG = re.compile(r"<(doc|seg)\b[^<>]{0,200}?\b(?:doc)?id=\"([^\"<>]*)\"[^<>]{0,200}>(?:([^<]*)</seg>)?", re.IGNORECASE)


def _segments(path: str) -> dict[str, str]:
    """Return the segments by document and number."""
    found, document = {}, ""
    for number, line in enumerate(decoded(read_file(path), path).split("\n"), 1):
        for tag, name, text in _TAG.findall(line):
            if tag.lower() == "doc":
                document = name
                continue
            with expected(f"'{path}', line {number:,}", 'a segment with a text: <seg id="1">…</seg>'):
                found[f"{document} {name}"] = " ".join(text_of(html.unescape(text)).split())
    if not found:
        raise InputError(f"'{path}' has no segments", 'expected newstest2014 in SGML: <seg id="1">…</seg>')
    return found


def _read(path: str, source: str, target: str) -> list[Item]:
    if f"-src.{source}." not in path:
        raise InputError(
            f"'{path}' is not named newstest2014-fren-src.{source}.sgm",
            f"name it so, and its references -ref.{target}.",
        )
    place = path.replace(f"-src.{source}.", f"-ref.{target}.")
    texts, references = _segments(path), _segments(place)
    for name in texts.keys() ^ references.keys():
        lacks = place if name in texts else path
        raise InputError(f"'{lacks}' lacks the segment '{name}'", "name a file and references of the same segments")
    return [
        Item(name, (f"{text} =",), (references[name],), f"{text} = {references[name]}\n")
        for name, text in texts.items()
    ]


def _judge(items: Sequence[Item], answers: Sequence[str], _: Sequence[float]) -> Judgement:
    import sacrebleu

    golds = [item.golds[0] for item in items]
    rows: list[dict[str, Any]] = []
    for unit, (tokenize, lowercase) in BLEU.items():
        value = sacrebleu.corpus_bleu(answers, [golds], tokenize=tokenize, lowercase=lowercase).score
        rows.append({"measure": "BLEU", "unit": unit, "units": len(items), "value": value})
    scores = [sacrebleu.sentence_bleu(one, [gold]).score for one, gold in zip(answers, golds, strict=True)]
    return Judgement(rows, scores)


def task(source: str, target: str) -> Task:
    """Return the task of one direction, "en" and "fr" or the reverse."""
    read = partial(_read, source=source, target=target)
    return Task(read, _judge, greedy(200), ("\n",), partial(first_sentences, n=1), shots=5, library="sacrebleu")
