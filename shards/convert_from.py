"""Conversion from the token files of other trainers: reads them and makes an ordinary token set, one part per file.

It needs the tokenizer that made the ids, because none of these formats stores it, and resumes like packing.

    nanogpt     u16 little-endian, end-of-text after each document
    llm.c       256 i32: magic, version, number of tokens, zeros; then u16 (magic 20240520, version 1) or u32 (20240801, 7);
                end-of-text before each document
    megatron    tokens in .bin; .idx: "MMIDIDX\\0\\0", u64 version 1, u8 code of the token's type, u64 sequences S,
                u64 documents D + 1; i32 lengths [S], i64 byte offsets [S] into .bin, i64 [D + 1]: the sequence each document
                begins with, then S
    datatrove   .ds: u16 or u32; .ds.index: u64 for each document, the number of tokens up to its end; .ds.metadata: three
                lines, tokenizer|bytes per token, number of tokens, the same number for people; .ds.loss is not read

The layouts follow the projects' public READMEs, scripts and classes (`IndexedDataset`, `TokenizedFile`). Numbers are
little-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.config import recipe_settings
from webtext.base.errors import InputError
from webtext.base.inputs.files import InputFile, files_of, short_names
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards.format import Tokens, token_dtype
from webtext.shards.settings import PackSettings
from webtext.shards.shardfile import pieces, release
from webtext.shards.writing.pack import load_tokenizer, vocabulary_of
from webtext.shards.writing.token_part import NO_TOKENS, TokenizerInfo, TokenPartWriter

CODE_VERSION = 4
LLM_C_HEADER_BYTES = 1024
LLM_C_KINDS = {2: (20240520, 1), 4: (20240801, 7)}
"""Bytes per token -> magic and version."""
MEGATRON_MAGIC = b"MMIDIDX\0\0"
MEGATRON_HEADER = struct.Struct("<9s Q B Q Q")
MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Type codes of integers; 6 and 7 are floats."""
PIECE = 1 << 24
"""Tokens searched per step, which bounds memory."""
NO_ENDS = np.zeros(0, np.int64)
_VALIDATION = re.compile(r"(^|[^a-z])val(id|idation)?([^a-z]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the suffix of its files, and the function that reads one, given vocabulary size and end-of-text."""

    suffix: str
    read: Callable[[Path, int, int], Iterator[Tokens]]
    beside: str = ""
    """Suffix of the file with the tokens, if that is a separate file."""
    after: tuple[str, ...] = ()
    """Endings of the names of further files, where they are present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    path: str
    name: str
    split: str
    format: str
    files: list[tuple[InputFile, str, str]]  # with their versions, and then SHA-256
    vocabulary: TokenizerInfo
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
        files = [InputFile(Folder(each.parent), each.name) for each in _belonging(path, FORMATS[form])]
        payload = _Payload(
            path=str(path),
            name=name,
            split=split or split_by_name(path),
            format=form,
            files=[(file, file.version, file.sha256()) for file in files],
            vocabulary=vocabulary,
            shard_tokens=settings.shard_tokens,
        )
        depends = [payload.name, payload.split, *(sha256 for _, _, sha256 in payload.files)]
        tasks.append(PartTask(index=index, sources=(), payload=payload, depends=" ".join(depends)))
    return make_set(_read_part, tasks, out, "tokens", recipe, [], run, "shards convert")


def split_by_name(path: Path) -> str:
    """Return the split according to the name of a file or its folder.

    >>> split_by_name(Path("data/fineweb_val_000000.bin")), split_by_name(Path("validated/train.bin"))
    ('validation', 'train')
    """
    return "validation" if any(_VALIDATION.search(name) for name in (path.stem, path.parent.name)) else "train"


def _files(sources: list[str], form: Format) -> list[Path]:
    read_too = (*filter(None, [form.beside]), *form.after)
    named = (form.suffix, *read_too)
    for source in sources:
        Folder(source).local_path()  # raises for a store: the files are mapped into memory
    paths = [
        file.folder.local_path(file.name)
        for source in sources
        for file in files_of(source, "tokens", named, takes=lambda file: file.name.endswith(named))
    ]
    paths = [each.with_suffix(form.suffix) if each.suffix == form.beside else each for each in paths]
    if not (wanted := dict.fromkeys(each for each in paths if not each.name.endswith(read_too))):
        raise InputError(f"no file in '{sources[0]}'", f"expected files that end in {form.suffix}")
    return list(wanted)


def _belonging(path: Path, form: Format) -> list[Path]:
    """Return the file and the files beside it that are needed to read it."""
    beside = [path.with_suffix(form.beside)] if form.beside else []
    more = [path.with_name(path.name + suffix) for suffix in form.after]
    for each in (path, *beside):
        if not each.is_file():
            raise InputError(f"no file '{each}'", f"'{path.stem}' needs both {form.suffix} and {form.beside}")
    return [path, *beside, *(each for each in more if each.is_file())]


def _read_part(context: PartContext, task: PartTask) -> None:
    payload: _Payload = task.payload
    writer, vocabulary = context.output("tokens"), payload.vocabulary
    documents = FORMATS[payload.format].read(Path(payload.path), vocabulary.vocab_size, vocabulary.eot_id)
    position = 0
    with TokenPartWriter(writer, vocabulary, payload.shard_tokens) as tokens_of_part:
        for row, tokens in enumerate(documents):
            _check_ids(payload, tokens, position)
            position += len(tokens)
            if not len(tokens):
                writer.counts.drop(NO_TOKENS)
                continue
            opens, closes = (int(tokens[at] == vocabulary.eot_id) for at in (0, -1))
            body = tokens[opens : len(tokens) - closes]
            tokens_of_part.add(payload.split, body, id=f"{payload.name}:{row}", source_part=payload.name, row=row)
    for file, version, sha256 in payload.files:
        file.check_unchanged(version, sha256)


def _check_ids(payload: _Payload, tokens: Tokens, position: int) -> None:
    size = payload.vocabulary.vocab_size
    for start, piece in pieces(tokens):
        wrong = (piece < 0) | (piece >= size)
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                f"token {position + start + at:,} of '{payload.path}' is {piece[at]}; the vocabulary has {size:,} tokens",
                "check that --tokenizer made the file, and that --from is its format",
            )


def read_nanogpt(path: Path, vocab_size: int, eot_id: int) -> Iterator[Tokens]:
    """Yield each document of a nanoGPT file."""
    if vocab_size > 1 << 16:
        raise InputError(
            f"'{path}' can't have ids of 2 bytes: the vocabulary has {vocab_size:,} tokens",
            "nanoGPT's files only store ids below 65,536; name the tokenizer that made them, or the format of the file",
        )
    tokens = mapped(path, "<u2")
    _check_width(tokens, path)
    yield from cut_documents(tokens, eot_id)


def _check_width(tokens: Tokens, path: Path) -> None:
    """Raise InputError if ids of 2 bytes are halves of wider ones."""
    head = tokens[:PIECE]
    if head.any() and len(head) > 3 and not (head[1::2].any() and head[::2].any()):
        raise InputError(
            f"every second number of 2 bytes in '{path}' is 0: its ids have 4 bytes or more",
            "write them as numpy's uint16 (little-endian), or name the format of the file",
        )


def read_llm_c(path: Path, vocab_size: int, eot_id: int) -> Iterator[Tokens]:
    """Yield each document of an llm.c file; a document that spans two files becomes two here."""
    with open(path, "rb") as file:
        header = file.read(LLM_C_HEADER_BYTES)
    magic, version, n_tokens = struct.unpack_from("<3i", header.ljust(12, b"\0"))
    sizes = [size for size, kind in LLM_C_KINDS.items() if kind == (magic, version)]
    if len(header) < LLM_C_HEADER_BYTES or not sizes:
        raise InputError(
            f"'{path}' is not a token file of llm.c: it starts with magic {magic}, version {version}",
            f"expected {' or '.join(f'{m}, {v}' for m, v in LLM_C_KINDS.values())}",
        )
    tokens = mapped(path, f"<u{sizes[0]}", LLM_C_HEADER_BYTES)
    if len(tokens) != n_tokens:
        raise InputError(f"'{path}' contains {len(tokens):,} tokens", f"its header says {n_tokens:,}: it is truncated")
    yield from cut_documents(tokens, eot_id, opens=True)


def read_megatron(path: Path, vocab_size: int, eot_id: int) -> Iterator[Tokens]:
    """Yield each document of the .bin beside an .idx; the sequences of a document are joined."""
    with open(path, "rb") as file:
        head = file.read(MEGATRON_HEADER.size).ljust(MEGATRON_HEADER.size, b"\0")
    magic, version, code, n_sequences, n_bounds = MEGATRON_HEADER.unpack(head)
    if magic != MEGATRON_MAGIC or version != 1 or code not in MEGATRON_TYPES:
        raise InputError(
            f"'{path}' is not a Megatron index of tokens: magic {magic!r}, version {version}, type {code}",
            f"expected {MEGATRON_MAGIC!r}, 1, and one of {', '.join(map(str, MEGATRON_TYPES))}",
        )
    expected = MEGATRON_HEADER.size + 12 * n_sequences + 8 * n_bounds
    if path.stat().st_size != expected:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes", f"its header needs {expected:,}: truncated")
    data = mapped(path, "u1")[MEGATRON_HEADER.size :]
    lengths = data[: 4 * n_sequences].view("<i4").astype(np.int64)
    offsets = data[4 * n_sequences : 12 * n_sequences].view("<i8")
    bounds = data[12 * n_sequences :].view("<i8")
    tokens = mapped(path.with_suffix(".bin"), MEGATRON_TYPES[code])
    ends = np.cumsum(lengths)
    if not (
        (lengths >= 0).all()
        and np.array_equal(offsets, (ends - lengths) * tokens.itemsize)
        and lengths.sum() == len(tokens)
        and n_bounds
        and bounds[0] == 0
        and bounds[-1] == n_sequences
        and (np.diff(bounds) >= 0).all()
    ):
        raise InputError(
            f"'{path}' doesn't match '{path.with_suffix('.bin').name}' beside it",
            "sequences must follow each other without gaps: make both again",
        )
    yield from cut_documents(tokens, eot_id, np.append(0, ends)[bounds[1:]])


def read_datatrove(path: Path, vocab_size: int, eot_id: int) -> Iterator[Tokens]:
    """Yield each document of a .ds file; uses its index if it has one."""
    token_bytes = _token_bytes(path) or token_dtype(vocab_size).itemsize
    tokens = mapped(path, f"<u{token_bytes}")
    if token_bytes == 2:
        _check_width(tokens, path)
    index = path.with_name(path.name + ".index")
    ends = NO_ENDS
    if index.exists():
        stored = mapped(index, "<u8")
        rises = bool((stored[1:] >= stored[:-1]).all())
        if not rises or int(stored[-1] if len(stored) else 0) != len(tokens):
            raise InputError(f"'{index}' doesn't match '{path.name}': {len(tokens):,} tokens", "make both again")
        ends = stored.astype(np.int64)
    yield from cut_documents(tokens, eot_id, ends)


def _token_bytes(path: Path) -> int | None:
    metadata = path.with_name(path.name + ".metadata")
    if not metadata.exists():
        return None
    with open(metadata, "rb") as file:
        size = file.read(1 << 16).split(b"\n", 1)[0].rpartition(b"|")[2].strip()
    if size not in (b"2", b"4"):
        raise InputError(
            f"'{metadata}' says {size!r} bytes per token", "expected 2 or 4 after the tokenizer's name and |"
        )
    return int(size)


def cut_documents(
    tokens: Tokens, eot_id: int, ends: npt.NDArray[np.int64] = NO_ENDS, *, opens: bool = False
) -> Iterator[Tokens]:
    """Yield the documents, each with its end-of-text if it has one, which closes it or, with `opens`, opens it.

    `ends` are further document ends, in ascending order; a repeated end makes a document without tokens.

    >>> [document.tolist() for document in cut_documents(np.array([1, 9, 2, 3, 4]), 9, np.array([3, 3, 5]))]
    [[1, 9], [2], [], [3, 4]]
    >>> [document.tolist() for document in cut_documents(np.array([1, 9, 2, 9]), 9, opens=True)]
    [[1], [9, 2], [9]]
    """
    start = 0
    for first in range(0, max(len(tokens), 1), PIECE):
        stop = min(first + PIECE, len(tokens))
        of_piece = ends[
            np.searchsorted(ends, first, "right" if first else "left") : np.searchsorted(ends, stop, "right")
        ]
        at_eot = np.flatnonzero(tokens[first:stop] == eot_id) + first + (0 if opens else 1)
        at_eot = at_eot[(at_eot > 0) & ~np.isin(at_eot, of_piece)]
        for end in np.sort(np.concatenate([at_eot, of_piece])).tolist():
            yield tokens[start:end]
            start = end
        release(tokens)
    if start < len(tokens):
        yield tokens[start:]


def mapped(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> Tokens:
    """Return a file's values from a byte offset on, memory-mapped; raise InputError if the last value is incomplete."""
    kind: np.dtype[Any] = np.dtype(dtype)
    n_bytes = path.stat().st_size - offset
    if n_bytes < 0 or n_bytes % kind.itemsize:
        raise InputError(
            f"'{path}' has {n_bytes + offset:,} bytes",
            f"expected {offset:,} plus a multiple of {kind.itemsize}: it is truncated, or of another format",
        )
    if not n_bytes:
        return np.zeros(0, kind)
    return np.memmap(path, kind, "r", offset).view(np.ndarray)


FORMATS = {
    "nanogpt": Format(".bin", read_nanogpt),
    "llm.c": Format(".bin", read_llm_c),
    "megatron": Format(".idx", read_megatron, beside=".bin"),
    "datatrove": Format(".ds", read_datatrove, after=(".index", ".metadata")),
}
