"""Summaries of CNN and Daily Mail (Nallapati et al. 2016): a folder of the test split's .story files; section 3.6.

A story is an article, then highlights, each after a line "@highlight". The model continues the article after "TL;DR:"
by top-k sampling with k = 2 for 100 tokens; its first three sentences are the summary. ROUGE is F1 with Porter's stems,
and ROUGE-L that of complete summaries (the union of sentences), as in the script of 2004; "ROUGE" is the mean of the
three. The article's first three sentences and three random ones are judged on the same items.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import partial

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.evaluate.tasks.item import Item, Judgement, Task, expected, row, text_of, texts_of
from webtext.train.evaluate.tasks.sentences import first_sentences, sentences
from webtext.train.evaluate.texts import decoded
from webtext.train.settings import SampleSettings

KINDS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeLsum"}
N_SENTENCES, ASK = 3, "\nTL;DR:"


def _read(path: str) -> list[Item]:
    folder = Folder(path)
    names = sorted(folder.names(".story"))
    if not names:
        raise InputError(f"'{path}' has no .story files", "name the folder that has those of the test split")
    items = []
    for name in names:
        article, *highlights = re.split(r"^@highlight$\s*", decoded(folder.read_bytes(name), name), flags=re.MULTILINE)
        with expected(f"'{folder.location(name)}'", "an article, then highlights, each after a line @highlight"):
            gold = "\n".join(text.strip() for text in texts_of(highlights))
            document = sentences(text_of(article).strip())
        example = f"{''.join(document)}{ASK} {gold}\n\n"
        items.append(Item(name.removesuffix(".story"), (*document, ASK), (gold,), example))
    return items


def _judge(items: Sequence[Item], answers: Sequence[str], _: Sequence[float]) -> Judgement:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(KINDS.values()), use_stemmer=True)

    def scored(item: Item, summary: str) -> dict[str, float]:
        found = scorer.score(item.golds[0], summary)
        each = {name: found[key].fmeasure for name, key in KINDS.items()}
        return each | {"ROUGE": sum(each.values()) / len(each)}

    ours = [scored(item, answer) for item, answer in zip(items, answers, strict=True)]
    lead = [scored(item, first_sentences("".join(item.units[:-1]), N_SENTENCES)) for item in items]
    drawn = [scored(item, _random(item)) for item in items]
    rows = [
        row(f"{name}{who}", "article", [score[name] for score in scores], 100)
        for name in (*KINDS, "ROUGE")
        for who, scores in (("", ours), (", lead-3", lead), (", random-3", drawn))
    ]
    return Judgement(rows, ours)


def _random(item: Item) -> str:
    """Three sentences of the article in their order, drawn by the item's name."""
    article = item.units[:-1]
    chosen = random.Random(item.id).sample(range(len(article)), min(N_SENTENCES, len(article)))
    return "\n".join(article[i].strip() for i in sorted(chosen))


TASK = Task(
    _read,
    _judge,
    SampleSettings(max_tokens=100, top_k=2),
    clean=partial(first_sentences, n=N_SENTENCES),
    library="rouge_score",
)
