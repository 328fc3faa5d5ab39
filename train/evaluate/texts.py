"""Evaluation sets of running text: what a model reads of them, and what their loss is divided by.

wikitext-2, wikitext-103    wiki.test.tokens (or .raw): " = Robert Boulter = " and the like, one line a paragraph
ptb                         ptb.test.txt: Mikolov's Penn Treebank, lower case, `N` for numbers, a line a sentence
1bw                         news.en.heldout-00000-of-00050: a line a sentence
enwik8, text8               the last 5,000,000 bytes of the file of 100,000,000, which are its usual test split; a
                            file of another size is taken whole
text                        any UTF-8
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.evaluate.detokenize import NEWS, PTB, WIKITEXT, Detokenizer

DETOKENIZERS: Mapping[str, Detokenizer] = {"wikitext-2": WIKITEXT, "wikitext-103": WIKITEXT, "ptb": PTB, "1bw": NEWS}
WHOLE, TEST = 100_000_000, 5_000_000  # Mahoney's files, and the 90 : 5 : 5 split that the field made of them
_LETTERS = b"abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True, slots=True)
class RunningText:
    """One set: `text` is what the model reads; `units` counts words and the like of the text as it was published."""

    text: bytes
    units: Mapping[str, int]
    detokenizer: str | None = None
    part: str = "all"


def read_running_text(task: str, data: bytes, place: str, *, detokenize: bool = True) -> RunningText:
    """The set in a file's bytes; InputError when it is not what the set's files are."""
    if task in ("enwik8", "text8"):
        if task == "text8" and (other := data.translate(None, _LETTERS)):
            raise InputError(f"'{place}' is no text8: it holds {other[:1]!r}", "expected a to z and blanks only")
        is_whole = len(data) == WHOLE
        text = data[-TEST:] if is_whole else data
        unit = "character" if task == "text8" else "byte"
        return RunningText(text, {unit: len(text)}, part=f"last {TEST:,} bytes" if is_whole else "all")
    original = decoded(data, place)
    n_words = len(original.split())
    units = {"word": n_words, "word or line end": n_words + original.count("\n"), "byte": len(data)}
    form = DETOKENIZERS.get(task) if detokenize else None
    if form is None:
        return RunningText(data, units)
    return RunningText(form.detokenize(original).encode(), units, form.name)


def read_file(path: str) -> bytes:
    """The bytes of a file, local or at a URL."""
    if Folder(path).is_local and Path(path).is_dir():
        raise InputError(f"'{path}' is a folder, and no token set (it has no manifest.json)", "name a file")
    folder, _, name = path.rpartition("/")
    return Folder(folder or ("/" if path.startswith("/") else ".")).read_bytes(name)


def decoded(data: bytes, place: str) -> str:
    """The bytes as UTF-8; InputError with the place of the first that is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"'{place}' is no UTF-8: byte {error.start}", "convert it first") from None
