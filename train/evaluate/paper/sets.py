"""The files that `train paper` looks for in a folder: evaluation sets by their owners' names, and reports of our own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from webtext.base.errors import InputError
from webtext.base.storage import Folder

SETS: Mapping[str, str] = {
    "lambada": "lambada_test.jsonl",
    "cbt-cn": "cbtest_CN_valid_2000ext.txt",
    "cbt-ne": "cbtest_NE_valid_2000ext.txt",
    "wikitext-2": "wikitext-2/wiki.test.tokens",
    "ptb": "ptb.test.txt",
    "enwik8": "enwik8",
    "text8": "text8",
    "wikitext-103": "wikitext-103/wiki.test.tokens",
    "1bw": "news.en.heldout-00000-of-00050",
    "coqa": "coqa-dev-v1.0.json",
    "cnn-dailymail": "cnn-dailymail/",
    "wmt14-fr-en": "newstest2014-fren-src.fr.sgm",
    "wmt14-en-fr": "newstest2014-fren-src.en.sgm",
    "natural-questions": "NQ-open.dev.jsonl",
    "winograd": "WSCollection.xml",
}
"""Task of `train eval` -> the set's file, or its folder; CBT's are the validation sets, as in the paper (section 3.2)."""
STOP_WORDS, MEMORIZED, GREP = "stop-words.txt", "memorized.json", "grep.jsonl"


def find(data: str) -> dict[str, str]:
    """Return name -> path of those that the folder has, at any depth. InputError if one of them is there twice."""
    root = Folder(data).local_path()
    if not root.is_dir():
        raise InputError(f"'{data}' is not a folder", "name the folder that has the evaluation sets")
    inside = sorted(
        os.path.join(place, name)
        for place, folders, files in os.walk(root)
        for name in (*files, *(f"{folder}/" for folder in folders))
    )
    found: dict[str, str] = {}
    for name in (*SETS.values(), STOP_WORDS, MEMORIZED, GREP):
        same = [path for path in inside if f"/{path}".endswith(f"/{name}")]
        if len(same) > 1:
            raise InputError(
                f"two candidates for '{name}': '{same[0]}' and '{same[1]}'", "leave one of them in the folder"
            )
        if same:
            found[name] = same[0]
    return found
