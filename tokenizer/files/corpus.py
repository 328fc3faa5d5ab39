"""Training a tokenizer on a corpus: inputs in, one file and its manifest out.

Only documents of a part set's split 'train' are read, so held-out text doesn't affect the merges. The manifest next to
the file (`tokenizer.manifest.json`) contains the recipe, the parents and the counts of records by outcome. If recipe
and parents haven't changed, the run is skipped. Files are written atomically, the manifest last. One process counts and
merges with a thread per core, in bounded memory.

Inputs can have weights, which are exact: they are brought to their least common denominator, and every count is
multiplied by an integer, as is `min_frequency`. A sum above 63 bits is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import recipe_settings, setting
from webtext.base.console import counted
from webtext.base.errors import ConfigError, DryRun, MachineError
from webtext.base.inputs.encodings import versions_for
from webtext.base.inputs.files import InputFile
from webtext.base.parts.counts import Counts
from webtext.base.parts.outcomes import check_counts
from webtext.base.parts.recipe import Recipe, with_check, without_check
from webtext.tokenizer.arguments import MAX_INT, checked_int, split_path
from webtext.tokenizer.files.inputs import Input, count_inputs, find_killers, open_inputs, weights_by_input
from webtext.tokenizer.formats.files import dumped, load
from webtext.tokenizer.patterns.named import UNICODE_VERSION, checked_version, pattern_name
from webtext.tokenizer.tokenizer import Tokenizer
from webtext.tokenizer.train.counts import PieceCounts
from webtext.tokenizer.train.progress import TrainingProgress
from webtext.tokenizer.train.training import GPT2_VOCAB_SIZE, about_size, check_names, rule_of_base, train_vocabulary
from webtext.tokenizer.vocabulary import EOT, Vocabulary

if TYPE_CHECKING:
    from webtext.base.run import Run

CODE_VERSION = 1
MANIFEST_FORMAT = 1
_Rule = tuple[str, str]  # a pattern, and its Unicode version


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """Settings of `tokenizer train`."""

    vocab_size: int = setting(GPT2_VOCAB_SIZE, "number of tokens, with the special ones")
    pattern: str = setting("gpt2", "gpt2, cl100k, o200k, llama3, qwen2 or a regex")
    special_tokens: tuple[str, ...] = setting((EOT,), "special tokens, after the merges")
    min_frequency: int = setting(1, "merge only pairs that occur this often")
    base: str | None = setting(None, "tokenizer to extend; its ids are kept", in_recipe=False)
    text_field: str = setting("text", "field or column with the text")
    encoding: str = setting("utf-8", "encoding of files, or auto")
    weight: tuple[str, ...] = setting((), "INPUT=NUMBER: count it 2.5 or 1/3 times; repeatable", in_recipe=False)
    memory_mb: int = setting(1024, "megabytes for counts; the rest is spilled", in_recipe=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for values out of range."""
        smallest = 256 + len(set(self.special_tokens))
        expected = f"{smallest} or more: bytes and special tokens"
        checked_int("tokenizer.vocab_size", self.vocab_size, smallest, MAX_INT, expected)
        if self.base is None:
            check_names(self.special_tokens, self.pattern)
        for name in ("min_frequency", "memory_mb"):
            checked_int(f"tokenizer.{name}", getattr(self, name), 1, MAX_INT, "1 or more")
        pattern_name(self.pattern)


def check_tokenizer(inputs: Sequence[str], settings: TokenizerSettings) -> None:
    """Raise the errors of `train_tokenizer` that need no texts, so that they come before the texts are made."""
    weights_by_input(inputs, settings.weight)
    base = _base_and_rule(settings)[0]
    if base is not None and settings.vocab_size < base.size:
        raise ConfigError(f"tokenizer.vocab_size is {settings.vocab_size}", f"the base alone has {base.size} ids")


def _base_and_rule(settings: TokenizerSettings) -> tuple[Vocabulary | None, _Rule]:
    rule = (pattern_name(settings.pattern), UNICODE_VERSION)
    if settings.base is None:
        return None, rule
    base = load(settings.base)
    return base, rule_of_base(base, *rule, settings.special_tokens)


def train_tokenizer(
    inputs: Sequence[str], out: str, settings: TokenizerSettings, run: Run, *, keeps: bool = False
) -> Tokenizer:
    """Train on the train split of part sets and on files (see `inputs.py`); write `out` and its manifest.

    `out` is a path that `Tokenizer.save` accepts, normally tokenizer.json. Training is skipped if the manifest next to
    it has the same recipe and parents. With `keeps` other parents are accepted, and a message says so. Raises
    InputError if there is no text.
    """
    sources = open_inputs(inputs, run, settings.weight, settings.encoding)
    base, rule = _base_and_rule(settings)
    of_recipe = recipe_settings(settings) | ({} if base is None else {"base": base.hash()})
    versions = {"unicode": checked_version(*rule)} | versions_for(settings.encoding)
    recipe = Recipe(stage="tokenizer.train", code_version=CODE_VERSION, settings=of_recipe, versions=versions)
    stem = split_path(out)[1].partition(".")[0]
    output = _Output(out, manifest := f"{stem}.manifest.json", sources, recipe)
    parents, made = output.parents(), output.made(run.replaces)
    if made is not None and (keeps or made["parents"] == parents):
        kept = f"is kept: trained on {_named(made['parents'])}, now there is {_named(parents)}"
        run.console.say(f"tokenizer train: '{out}' {'is done' if made['parents'] == parents else kept}")
        check_counts({out: Counts(**made["counts"])})
        return Tokenizer(load(out))
    _check_out(out, settings, base)
    if run.dry_run:
        run.console.say(
            f"tokenizer train: {counted(len(sources), 'input')}, vocabulary of {settings.vocab_size:,}, to do"
        )
        raise DryRun
    find_killers(sources, run)
    n_known = base.size if base is not None else 256 + len(settings.special_tokens)
    with _progress(run, max(settings.vocab_size - n_known, 0)) as progress:
        counts = PieceCounts(*rule, threads=run.threads, max_memory=settings.memory_mb << 20)
        scale = count_inputs(sources, counts, settings.text_field, run, progress)
        vocabulary = train_vocabulary(
            counts,
            vocab_size=settings.vocab_size,
            pattern=rule[0],
            unicode_version=rule[1],
            special_tokens=settings.special_tokens,
            min_frequency=settings.min_frequency * scale,
            base=base,
            progress=progress,
        )
    if remark := about_size(vocabulary, settings.vocab_size):
        run.console.warn(remark)
    output.folder.remove_leftovers(f"{stem}.")  # a user's folder may contain other .tmp files
    output.folder.remove(manifest)  # until it is written again, the file doesn't count as finished
    tokenizer = Tokenizer(vocabulary)
    tokenizer.save(out)
    output.finish(tokenizer_hash=tokenizer.hash, vocab_size=tokenizer.vocab_size)
    check_counts({out: output.counts()})
    return tokenizer


def _check_out(out: str, settings: TokenizerSettings, base: Vocabulary | None) -> None:
    """Raise the errors of saving that don't depend on the merges, so that they come before hours of training."""
    specials = settings.special_tokens
    folder, _ = dumped(
        base or train_vocabulary((), vocab_size=256 + len(specials), pattern=settings.pattern, special_tokens=specials),
        out,
    )
    if folder.is_local:
        place = folder.local_path().absolute()
        while not place.exists():
            place = place.parent
        if not (place.is_dir() and os.access(place, os.W_OK)):
            raise MachineError(
                f"cannot write '{out}': '{place}' isn't a folder that you may write to", "choose another --out"
            )


@contextlib.contextmanager
def _progress(run: Run, n_merges: int) -> Iterator[TrainingProgress]:
    """Show the fraction that is done in percent, MB per second while counting, and then the number of merges."""
    start = time.monotonic()
    with run.console.progress(100, "tokenizer train", "%") as shown:

        def show(fraction: float | None, n_bytes: int, n_merges: int) -> None:
            megabytes, seconds = n_bytes / 1e6, max(time.monotonic() - start, 1e-9)
            note = f"{n_merges:,} merges" if n_merges else f"{megabytes:,.0f} MB, {megabytes / seconds:,.0f} MB/s"
            shown.advance(int(100 * (fraction or 0)) - shown.done, note)

        yield TrainingProgress(show, run.threads, n_merges)


class _Output:
    """The tokenizer's file, its inputs, and the manifest next to it."""

    def __init__(self, out: str, manifest: str, sources: Sequence[Input], recipe: Recipe) -> None:
        self.folder, self.name = split_path(out)
        if not self.name:
            raise ConfigError(
                f"'{out}' is not a file name", "name the file to write, e.g. build/tokenizer/tokenizer.json"
            )
        self._manifest, self._sources, self._recipe = manifest, sources, recipe

    def parents(self) -> list[dict[str, str]]:
        return [source.parent() for source in self._sources]

    def counts(self) -> Counts:
        return sum((source.counts for source in self._sources), Counts())

    def made(self, replaces: bool) -> dict[str, Any] | None:
        """Return the manifest if it matches the recipe and the file's digest, else None.

        Raises InputError if it has other settings, unless the run `replaces` such a file.
        """
        if not (self.folder.exists(self._manifest) and self.folder.exists(self._file_name())):
            return None
        try:
            found = without_check(json.loads(self.folder.read_bytes(self._manifest)))
            if (
                found["file"]["name"] == self._file_name() and not replaces
            ):  # else of another file, `en.json` and `en.32k.json`
                self._recipe.check_settings(found["recipe"], self.folder.location(self.name))
            wanted = {"format": MANIFEST_FORMAT, "recipe_hash": self._recipe.hash, "file": self._file()}
            return found if wanted.items() <= found.items() and found["parents"] else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def finish(self, **made: Any) -> None:
        """Write the manifest, with the facts that are only known at the end."""
        manifest = {
            "format": MANIFEST_FORMAT,  # integer: version of this format
            "kind": "tokenizer",  # string: `tokenizer`
            "recipe": self._recipe.to_json(),  # object: as in a part set
            "recipe_hash": self._recipe.hash,  # string: as in a part set
            "parents": self.parents(),  # list: for each, `set` and `hash`, or `file_sha256`; `weight`
            "counts": self.counts().to_json(),  # object: numbers of records by outcome
            "bytes": sum(source.bytes for source in self._sources),  # integer: text that was read
            "file": self._file(),  # object: `name`, `bytes`, `sha256`; of a folder, those of its tokenizer.json
        }
        self.folder.write_object(self._manifest, with_check(manifest | made))

    def _file_name(self) -> str:
        return self.name if self.folder.is_file(self.name) else f"{self.name}/tokenizer.json"

    def _file(self) -> dict[str, Any]:
        """Return the entry for the written file, or for a folder's tokenizer.json."""
        file = InputFile(self.folder, self._file_name())
        return {"name": file.name, "bytes": self.folder.size(file.name), "sha256": file.sha256()}


def _named(parents: Sequence[Mapping[str, str]]) -> str:
    """Format the parents of a manifest for a message.

    >>> _named([{"set": "corpus", "hash": "0123456789abcdef"}, {"file_sha256": "fedcba9876543210", "weight": "2"}])
    'corpus 0123456789ab, file fedcba987654'
    """
    return ", ".join(f"{each.get('set', 'file')} {(each.get('hash') or each['file_sha256'])[:12]}" for each in parents)
