"""Conversion of token sets from and to the file formats of other trainers.

Converting from a format makes an ordinary token set, with one part for each file, and resumes like packing. It needs
the tokenizer that made the ids, because none of these formats stores it. Converting to a format writes files that the
trainer can read directly: tokens, document ends, and document ids if the format has a place for them.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from webtext.base.config import recipe_settings
from webtext.base.errors import DryRun, InputError
from webtext.base.inputs.files import short_names
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder, file_sha256
from webtext.shards.converting.datatrove import read_datatrove, write_datatrove
from webtext.shards.converting.flat_files import read_llm_c, read_nanogpt, write_llm_c, write_nanogpt
from webtext.shards.converting.id_tables import read_table, write_table
from webtext.shards.converting.megatron import read_megatron, write_megatron
from webtext.shards.format import SPLITS, Tokens
from webtext.shards.reading.reader import TokenShards
from webtext.shards.settings import PackSettings
from webtext.shards.writing.pack import load_tokenizer, vocabulary_of
from webtext.shards.writing.token_part import NO_TOKENS, TokenPartWriter, Vocabulary

CODE_VERSION = 3
_VALIDATION = re.compile(r"(^|[^a-z])val(id|idation)?([^a-z]|$)", re.IGNORECASE)

Document = tuple[str | None, Tokens]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the suffixes of its files, the function that reads a file, and the one that writes a split."""

    suffixes: tuple[str, ...]
    read: Callable[[Path, int, int], Iterator[Document]]
    write: Callable[[TokenShards, Folder], list[str]]
    beside: str = ""
    """Suffix of the file with the tokens, if that is a separate file."""


FORMATS = {
    "nanogpt": Format((".bin",), read_nanogpt, write_nanogpt),
    "llm.c": Format((".bin",), read_llm_c, write_llm_c),
    "megatron": Format((".idx",), read_megatron, write_megatron, beside=".bin"),
    "datatrove": Format((".ds",), read_datatrove, write_datatrove),
    "parquet": Format((".parquet", ".arrow"), read_table, write_table),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    path: str
    name: str
    split: str
    format: str
    vocabulary: Vocabulary
    shard_tokens: int


def convert_from(
    sources: list[str], form: str, tokenizer: str, out: str, settings: PackSettings, run: Run, split: str | None = None
) -> PartSet:
    """Make a token set from files in a format of FORMATS (files, folders, globs) and return it, sealed.

    Without `split`, a file is held out if its name or its folder's contains "val", "valid" or "validation".
    """
    vocabulary = vocabulary_of(load_tokenizer(tokenizer), tokenizer)
    of_recipe = recipe_settings(settings) | {"format": form} | asdict(vocabulary)
    recipe = Recipe(stage="shards.convert", code_version=CODE_VERSION, settings=of_recipe)
    tasks = []
    paths = _files(sources, FORMATS[form])
    for index, (path, name) in enumerate(zip(paths, short_names([str(path) for path in paths]), strict=True)):
        payload = _Payload(
            path=str(path),
            name=name,
            split=split or split_of(path),
            format=form,
            vocabulary=vocabulary,
            shard_tokens=settings.shard_tokens,
        )
        depends = [payload.name, payload.split, *(_sha256(each) for each in _belonging(path, FORMATS[form]))]
        tasks.append(PartTask(index=index, sources=(), payload=payload, depends=" ".join(depends)))
    outputs = {"tokens": (out, "tokens")}
    made = run_parts(_read_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=run, label="shards convert")
    return made["tokens"]


def convert_to(tokens: str, form: str, out: str, run: Run) -> list[str]:
    """Write both splits of a token set in a format of FORMATS and return the file names; each file appears complete."""
    splits = [TokenShards(tokens, split) for split in SPLITS]
    folder = Folder(out)
    if folder.exists("manifest.json"):
        raise InputError(f"'{out}' contains a part set", "choose another --out")
    if run.dry_run:
        n_tokens = sum(shards.n_tokens for shards in splits)
        run.console.say(f"would write {n_tokens:,} tokens in the format {form}")
        raise DryRun
    with folder.held():
        return [name for shards in splits if len(shards) for name in FORMATS[form].write(shards, folder)]


def split_of(path: Path) -> str:
    """Return the split according to the name of a file or its folder.

    >>> split_of(Path("data/fineweb_val_000000.bin")), split_of(Path("validated/train.bin"))
    ('validation', 'train')
    """
    return "validation" if any(_VALIDATION.search(name) for name in (path.stem, path.parent.name)) else "train"


def _files(sources: list[str], form: Format) -> list[Path]:
    found: list[Path] = []
    for source in sources:
        path = Folder(source).local_path()
        if path.is_dir():
            of_source = sorted(each for each in path.rglob("*") if each.suffix in form.suffixes and each.is_file())
        else:
            of_source = [path] if path.is_file() else [Path(each) for each in sorted(glob.glob(source))]
        if not of_source:
            raise InputError(f"no file in '{source}'", f"expected files that end in {' or '.join(form.suffixes)}")
        found += [
            each.with_suffix(".idx") if form.beside and each.suffix == form.beside else each for each in of_source
        ]
    return list(dict.fromkeys(found))


def _belonging(path: Path, form: Format) -> list[Path]:
    """Return the file and the files beside it that are needed to read it."""
    beside = [path.with_suffix(form.beside)] if form.beside else []
    more = [path.with_name(path.name + suffix) for suffix in (".index", ".metadata")]
    for each in (path, *beside):
        if not each.is_file():
            raise InputError(f"no file '{each}'", f"it is needed to read '{path.name}'")
    return [path, *beside, *(each for each in more if each.is_file())]


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return file_sha256(file)


def _read_part(context: PartContext, task: PartTask) -> None:
    payload: _Payload = task.payload
    writer, vocabulary = context.output("tokens"), payload.vocabulary
    documents = FORMATS[payload.format].read(Path(payload.path), vocabulary.vocab_size, vocabulary.eot_id)
    position = 0
    with TokenPartWriter(writer, vocabulary, payload.shard_tokens) as tokens_of_part:
        for row, (identifier, tokens) in enumerate(documents):
            _check_ids(payload, tokens, position)
            position += len(tokens)
            if not len(tokens):
                writer.counts.drop(NO_TOKENS)
                continue
            body = tokens[tokens != vocabulary.eot_id]
            name = f"{payload.name}:{row}" if identifier is None else identifier
            tokens_of_part.add(payload.split, body, id=name, source_part=payload.name, row=row)


def _check_ids(payload: _Payload, tokens: Tokens, position: int) -> None:
    size = payload.vocabulary.vocab_size
    wrong = (tokens < 0) | (tokens >= size)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            f"token {position + at:,} of '{payload.path}' is {int(tokens[at])}; the vocabulary has {size:,} tokens",
            "check that --tokenizer made the file, and that --from is its format",
        )
