"""Evaluation sets of running text: the text that the model reads, and the units that its loss is divided by.

wikitext-2, wikitext-103    wiki.test.tokens (or .raw): one line per paragraph, headings like " = Robert Boulter = "
ptb                         ptb.test.txt: Mikolov's Penn Treebank, lower case, `N` for numbers, one line per sentence
1bw                         news.en.heldout-00000-of-00050: one line per sentence
enwik8, text8               the last 5,000,000 bytes of the file of 100,000,000, which are its usual test split; a
                            file of another size is scored completely
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
    """One set: `text` is what the model reads; `units` has the number of words etc. in the text as it was published."""

    text: bytes
    units: Mapping[str, int]
    detokenizer: str | None = None
    part: str = "all"


def read_running_text(task: str, data: bytes, place: str) -> RunningText:
    """Return the set that a file's bytes contain; InputError if they don't have the set's format."""
    if task in ("enwik8", "text8"):
        if task == "text8" and (other := data.translate(None, _LETTERS)):
            raise InputError(f"'{place}' is not text8: it contains {other[:1]!r}", "expected a to z and blanks only")
        text, part = (data[-TEST:], f"last {TEST:,} bytes") if len(data) == WHOLE else (data, "all")
        return RunningText(text, {"character" if task == "text8" else "byte": len(text)}, part=part)
    original = decoded(data, place)
    n_words = len(original.split())
    units = {"word": n_words, "word or line end": n_words + original.count("\n"), "byte": len(data)}
    form = DETOKENIZERS.get(task)
    if form is None:
        return RunningText(data, units)
    return RunningText(form.detokenize(original).encode(), units, form.name)


def read_file(path: str) -> bytes:
    """Return the bytes of a file, local or at a URL."""
    if Folder(path).is_local and Path(path).is_dir():
        raise InputError(f"'{path}' is a folder without a manifest.json, so not a token set", "name a file")
    folder, name = Folder.split(path)
    return folder.read_bytes(name)


def decoded(data: bytes, place: str) -> str:
    """Decode UTF-8; the InputError names the offset of the first invalid byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"'{place}' is not UTF-8: byte {error.start}", "convert it first") from None
