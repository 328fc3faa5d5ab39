"""Training a tokenizer on a corpus: part sets or text files in, one tokenizer file and its manifest out.

Of a part set only documents of the split 'train' are read: held-out text reaches no merge. The manifest beside the file
(`tokenizer.manifest.json`) names the recipe and the parents; when they are the same again, nothing is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from webtext.base.config import recipe_settings, setting
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.recipe import Recipe
from webtext.base.storage import Folder
from webtext.tokenizer.formats import load, save
from webtext.tokenizer.patterns import pattern_name, unicode_version
from webtext.tokenizer.tokenizer import Tokenizer
from webtext.tokenizer.training import GPT2_VOCAB_SIZE, train_vocabulary
from webtext.tokenizer.vocabulary import EOT

if TYPE_CHECKING:
    from webtext.base.counts import Counts
    from webtext.base.partset import PartSet
    from webtext.base.progress import Progress
    from webtext.base.run import Run

CODE_VERSION = 1
MANIFEST_FORMAT = 1
HELD_OUT = "held_out"
EMPTY = "empty"

_BLOCK_BYTES = 1 << 20
_LONGEST_BLOCK = 1 << 26
_NO_PLAIN_TEXT = (".parquet", ".json", ".jsonl", ".gz", ".bz2", ".xz", ".zst", ".warc", ".zip")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """What decides the merges, given the texts."""

    vocab_size: int = setting(GPT2_VOCAB_SIZE, "tokens: 256 bytes, the merges, the special tokens")
    pattern: str = setting("gpt2", "how text is cut before merging: 'gpt2' or a regular expression")
    special_tokens: tuple[str, ...] = setting((EOT,), "tokens that no text gives, with the ids after the merges")
    min_frequency: int = setting(1, "merge only pairs that occur this often")

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        smallest = 256 + len(set(self.special_tokens))
        if self.vocab_size < smallest:
            raise ConfigError(
                f"tokenizer.vocab_size is {self.vocab_size}", f"expected {smallest} or more: bytes and special tokens"
            )
        if self.min_frequency < 1:
            raise ConfigError(f"tokenizer.min_frequency is {self.min_frequency}", "expected 1 or more")


@dataclass(slots=True)
class _Input:
    """One input with what it gave; either a part set or a text file."""

    url: str
    set: PartSet | None
    sha256: str
    texts: int = 0
    bytes: int = 0
    held_out: int = 0
    empty: int = 0

    def parent(self) -> dict[str, str]:
        return {"set": self.set.kind, "hash": self.set.hash} if self.set else {"file_sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class _Output:
    folder: Folder
    name: str
    manifest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest", f"{self.name.partition('.')[0]}.manifest.json")


def train_tokenizer(inputs: Sequence[str], out: str, settings: TokenizerSettings, run: Run) -> Tokenizer:
    """Train on part sets of kind corpus or documents (their 'train' split) and on plain text files; write `out`.

    `out` is named as `Tokenizer.save` wants it, normally tokenizer.json. Skipped when the manifest beside it says that
    the same recipe made it from the same parents. InputError when there is no text at all.
    """
    sources = [_open(url) for url in inputs]
    recipe = Recipe(
        stage="tokenizer.train",
        code_version=CODE_VERSION,
        settings=recipe_settings(settings),
        versions={"unicode": unicode_version(pattern_name(settings.pattern))},
    )
    parents = [source.parent() for source in sources]
    output = _output(out)
    if _is_done(output, recipe, parents):
        run.console.say(f"tokenizer train: '{out}' is done")
        return Tokenizer(load(out))
    if run.dry_run:
        run.console.say(f"tokenizer train: {len(sources):,} inputs, vocabulary of {settings.vocab_size:,}, to do")
        raise DryRun
    with run.console.progress(None, "tokenizer train: texts", "texts") as progress:
        vocabulary = train_vocabulary(
            _counted(sources, progress),
            vocab_size=settings.vocab_size,
            pattern=settings.pattern,
            special_tokens=settings.special_tokens,
            min_frequency=settings.min_frequency,
            threads=run.engine.workers,
        )
    if not any(source.texts for source in sources):
        raise InputError(
            f"no text to train on in '{inputs[0] if inputs else ''}'", "name a corpus with train documents"
        )
    output.folder.remove(output.manifest)  # from here until it is written again, the file is not done
    save(vocabulary, out)
    tokenizer = Tokenizer(vocabulary)
    output.folder.write_bytes(output.manifest, _manifest(output, recipe, parents, sources, tokenizer))
    return tokenizer


def _open(url: str) -> _Input:
    folder = Folder(url)
    if not (folder.is_local and folder.local_path().is_file()):  # a file needs no pyarrow
        from webtext.base.partset import MANIFEST, PartSet

        if folder.exists(MANIFEST) or (folder.is_local and folder.local_path().is_dir()):
            return _Input(url, PartSet.open(url, ("corpus", "documents")), "")
    if url.endswith(_NO_PLAIN_TEXT):
        raise InputError(f"'{url}' is no plain text", "name a part set, or text files")
    parent, name = _split(url)
    with parent.open(name) as file:
        return _Input(url, None, hashlib.file_digest(cast(Any, file), "sha256").hexdigest())


def _split(url: str) -> tuple[Folder, str]:
    parent, slash, name = url.rstrip("/").rpartition("/")
    return Folder(parent or slash or "."), name


def _output(out: str) -> _Output:
    folder, name = _split(out)
    if not name:
        raise ConfigError(f"'{out}' names no file", "name the file to write, e.g. build/tokenizer/tokenizer.json")
    return _Output(folder, name)


def _counted(sources: Sequence[_Input], progress: Progress) -> Iterator[str | bytes]:
    """The texts to learn from, counted as they pass."""
    for source in sources:
        for text in _documents(source) if source.set else _blocks(source.url):
            if not text:
                source.empty += 1
                continue
            source.texts += 1
            source.bytes += len(text.encode()) if isinstance(text, str) else len(text)
            progress.advance()
            yield text


def _documents(source: _Input) -> Iterator[str]:
    """Texts of the train split of a part set; the others are counted."""
    assert source.set is not None
    for part in source.set.parts:
        for batch in source.set.batches(part, columns=["text", "split"]):
            for document in batch.to_pylist():
                if document["split"] == "train":
                    yield document["text"]
                else:
                    source.held_out += 1


def _blocks(url: str) -> Iterator[bytes]:
    r"""A text file in blocks of about a megabyte, cut before a "\n" that follows no blank: GPT-2's pattern cuts there too.

    Only a file without such a place for _LONGEST_BLOCK is cut elsewhere, so that memory stays bounded.
    """
    parent, name = _split(url)
    with parent.open(name) as file:
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            searched = max(len(rest) - 1, 0)
            rest += block
            place = rest.rfind(b"\n", searched)
            while place > 0 and _ends_blank(rest, place):
                place = rest.rfind(b"\n", searched, place)
            if place <= 0 and len(rest) >= _LONGEST_BLOCK:
                place = len(rest)
            if place > 0:
                yield rest[:place]
                rest = rest[place:]
        if rest:
            yield rest


def _ends_blank(data: bytes, end: int) -> bool:
    """Whether the character before `end` is white space."""
    return data[max(end - 4, 0) : end].decode("utf-8", "ignore")[-1:].isspace()


def _is_done(output: _Output, recipe: Recipe, parents: list[dict[str, str]]) -> bool:
    """Whether the manifest tells of this recipe and these parents, and the file is the one it tells of."""
    if not (output.folder.exists(output.manifest) and output.folder.exists(output.name)):
        return False
    try:
        found = json.loads(output.folder.read_bytes(output.manifest))
        wanted = {"format": MANIFEST_FORMAT, "recipe_hash": recipe.hash, "parents": parents}
        return {key: found[key] for key in wanted} == wanted and found["file"] == _file(output)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _file(output: _Output) -> dict[str, Any]:
    """The tokenizer file; a folder of two files has no digest and is always trained again."""
    if output.folder.is_local and output.folder.local_path(output.name).is_dir():
        return {"name": output.name}
    data = output.folder.read_bytes(output.name)
    return {"name": output.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _manifest(
    output: _Output, recipe: Recipe, parents: list[dict[str, str]], sources: Sequence[_Input], tokenizer: Tokenizer
) -> bytes:
    manifest = {
        "format": MANIFEST_FORMAT,
        "kind": "tokenizer",
        "recipe": recipe.to_json(),
        "recipe_hash": recipe.hash,
        "parents": parents,
        "counts": _counts(sources).to_json(),
        "bytes": sum(source.bytes for source in sources),
        "tokenizer_hash": tokenizer.hash,
        "vocab_size": tokenizer.vocab_size,
        "file": _file(output),
    }
    return (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()


def _counts(sources: Sequence[_Input]) -> Counts:
    from webtext.base.counts import Counts

    counts = Counts()
    counts.keep(sum(source.texts for source in sources))
    for reason, n in ((HELD_OUT, sum(s.held_out for s in sources)), (EMPTY, sum(s.empty for s in sources))):
        if n:
            counts.drop(reason, n)
    return counts
