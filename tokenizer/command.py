"""The verbs of `webtext tokenizer`: train, encode, decode, inspect, convert."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from webtext.base.command import need_out, verb
from webtext.base.console import counted
from webtext.base.errors import ConfigError
from webtext.tokenizer.arguments import split_path
from webtext.tokenizer.files.corpus import TokenizerSettings, train_tokenizer
from webtext.tokenizer.files.token_files import decode_file, encode_file, write_npy, write_text
from webtext.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from webtext.base.run import Run
    from webtext.tokenizer.files.token_files import Batch

_TOKENIZER = click.option(
    "--tokenizer", "path", required=True, metavar="PATH", help="tokenizer.json, *.tiktoken or folder."
)
_PATTERN = click.option(
    "--pattern", metavar="PATTERN", help="Pattern of a file that doesn't state it: a name such as 'gpt2', or a regex."
)
_SPECIAL = click.option(
    "--special-token",
    "special_tokens",
    multiple=True,
    metavar="NAME[=ID]",
    help="Special token that the file doesn't contain; without ID it gets the one after the largest.",
)
_LINES = click.option("--lines", is_flag=True, help="Treat every line as a document.")
_ALLOW = click.option(
    "--allowed-special", "allowed", multiple=True, metavar="NAME", help="Special token to recognise in texts, or 'all'."
)
MARKS = ("tokenizer.json", "vocab.json", "encoder.json", "*.manifest.json")
"""Names that mark a folder to which `train` may write."""
_WITH_ID = re.compile(r"(.+)=(\d{1,9})", re.DOTALL)


@click.group(name="tokenizer", no_args_is_help=True)
def group() -> None:
    """Train and apply a byte-level BPE."""


TRAIN_EXAMPLES = """\b
Examples:
  webtext tokenizer train build/corpus --out build/tokenizer/tokenizer.json
  webtext tokenizer train *.txt --vocab-size 32000 --out tokenizer.json
  webtext tokenizer train en.jsonl.zst code.parquet --weight code.parquet=2.5 --out tokenizer.json
  webtext tokenizer train code.jsonl --base gpt2/ --vocab-size 60000 --out tokenizer.json

\b
Reads:  part sets of kind corpus or documents (their train split only); text, JSON, CSV, Parquet, and folders of them;
        all but Parquet also as .gz, .bz2, .xz, .zst
Writes: FILE, and its manifest next to it
"""


@verb(
    group,
    "train",
    replaces=False,
    workers=True,
    resumes=False,
    settings=TokenizerSettings,
    section="tokenizer",
    epilog=TRAIN_EXAMPLES,
)
@click.argument("inputs", nargs=-1, required=True, metavar="SET|FILE...")
@click.option("--out", metavar="FILE", help="tokenizer.json, a name ending in .tiktoken, vocab.json, or a folder.")
def train(run: Run, settings: TokenizerSettings, inputs: tuple[str, ...], out: str | None) -> None:
    """Learn a vocabulary from a corpus."""
    target = need_out(out, MARKS)
    tokenizer = train_tokenizer(inputs, target, settings, run)
    run.console.result(
        {"out": target, "vocab_size": tokenizer.vocab_size, "hash": tokenizer.hash},
        f"{tokenizer.vocab_size:,} tokens in '{target}' ({tokenizer.hash[:12]}…)",
    )


ENCODE_EXAMPLES = """\b
Examples:
  webtext tokenizer encode text.txt --tokenizer build/tokenizer --out ids.npy
  webtext tokenizer encode documents.txt --lines --tokenizer gpt2/ --out ids.npy
  echo 'some words' | webtext tokenizer encode --tokenizer tokenizer.json

\b
Reads:  a text file of any size or standard input, and a tokenizer
Writes: FILE (with --lines and .npy also FILE.offsets.npy), or standard output
"""


@verb(group, "encode", workers=True, resumes=False, epilog=ENCODE_EXAMPLES)
@click.argument("file", default="-", metavar="[FILE]")
@_TOKENIZER
@_ALLOW
@_LINES
@click.option("--out", metavar="FILE", help="Write the ids here: an array if the name ends in .npy, else text.")
def encode(run: Run, file: str, path: str, allowed: tuple[str, ...], lines: bool, out: str | None) -> None:
    """Turn a text file, or standard input, into token ids."""
    tokenizer, special = Tokenizer.load(path), "all" if "all" in allowed else allowed
    if out is not None:
        _would_write(run, out, file, path)
    with _opened(file) as source:
        batches = encode_file(tokenizer, source, file, lines=lines, allowed=special, threads=run.threads)
        if out is None:
            _print_ids(run, batches, lines)
            return
        with _written(out) as target:
            if not out.endswith(".npy"):
                n_ids = write_text(batches, target)
            else:
                dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
                with _written(_offsets_name(out)) if lines else contextlib.nullcontext() as offsets:
                    n_ids = write_npy(batches, dtype, target, offsets)
    run.console.result({"out": out, "tokens": n_ids}, f"{counted(n_ids, 'token')} in '{out}'")


DECODE_EXAMPLES = """\b
Examples:
  webtext tokenizer decode ids.npy --tokenizer tokenizer.json --out text.txt
  echo 464 | webtext tokenizer decode --tokenizer tokenizer.json

\b
Reads:  token ids from a file of any size or standard input, and a tokenizer
Writes: FILE, or standard output
"""


@verb(group, "decode", epilog=DECODE_EXAMPLES)
@click.argument("file", default="-", metavar="[FILE]")
@_TOKENIZER
@_LINES
@click.option("--out", metavar="FILE", help="Write the text here instead of standard output.")
def decode(run: Run, file: str, path: str, lines: bool, out: str | None) -> None:
    """Turn token ids into text.

    FILE is an .npy array, or numbers as text, by default from standard input.
    """
    tokenizer = Tokenizer.load(path)
    if out is not None:
        _would_write(run, out, file, path)
    offsets_file = _offsets_name(file)
    folder, name = split_path(offsets_file)
    has_offsets = lines and file != "-" and folder.exists(name)
    with _opened(file) as source, _opened(offsets_file) if has_offsets else contextlib.nullcontext() as offsets:
        parts = decode_file(tokenizer, source, file, offsets, lines)
        if out is not None:
            with _written(out) as target:
                n_bytes = sum(map(target.write, parts))
            run.console.result({"out": out, "bytes": n_bytes}, f"{n_bytes:,} bytes in '{out}'")
        elif run.console.mode == "human":
            for part in parts:
                sys.stdout.buffer.write(part)  # exact bytes, without a newline at the end
        else:
            run.console.result({"text": b"".join(parts).decode("utf-8", "replace")}, "")


INSPECT_EXAMPLES = """\b
Examples:
  webtext tokenizer inspect 'some words' --tokenizer tokenizer.json
  webtext tokenizer inspect - --tokenizer gpt2/ --ids < text.txt
  webtext tokenizer inspect --tokenizer tokenizer.json

\b
Reads:  a text (- for standard input), and a tokenizer
Writes: nothing
"""


@verb(group, "inspect", epilog=INSPECT_EXAMPLES)
@click.argument("text", required=False)
@_TOKENIZER
@_PATTERN
@_ALLOW
@click.option("--ids", is_flag=True, help="Also print one line per token, with its id.")
def inspect(run: Run, text: str | None, path: str, pattern: str | None, allowed: tuple[str, ...], ids: bool) -> None:
    """Show how TEXT is cut into tokens; without it, a tokenizer."""
    from webtext.tokenizer.view import overview, overview_text, view, wants_colour

    tokenizer = Tokenizer.load(path, pattern)
    if text is None:
        if ids:
            raise ConfigError("--ids needs a TEXT", "give one, or - for standard input")
        found = overview(tokenizer._vocabulary)
        run.console.result(found, overview_text(found))
        return
    given = sys.stdin.buffer.read() if text == "-" else text
    shown = view(tokenizer._vocabulary, tokenizer.encode(given, "all" if "all" in allowed else allowed))
    coloured = wants_colour()
    lines = [shown.coloured() if coloured else str(shown), *([shown.rows()] if ids else []), shown.summary()]
    run.console.result(shown.to_json(), "\n".join(lines), coloured=coloured)


CONVERT_EXAMPLES = """\b
Examples:
  webtext tokenizer convert tokenizer.json gpt2.tiktoken
  webtext tokenizer convert gpt2/ tokenizer.json
  webtext tokenizer convert own.tiktoken own.json --pattern gpt2 --special-token '<|endoftext|>=50256'

\b
Reads:  a tokenizer in any format: tokenizer.json, *.tiktoken, vocab.json with merges.txt, or their folder
Writes: TARGET, in the format that its name implies; an error if that format would change ids
"""


@verb(group, "convert", epilog=CONVERT_EXAMPLES)
@click.argument("source")
@click.argument("target")
@_PATTERN
@_SPECIAL
def convert(run: Run, source: str, target: str, pattern: str | None, special_tokens: tuple[str, ...]) -> None:
    """Read the tokenizer SOURCE and write it as TARGET.

    TARGET is tokenizer.json, *.tiktoken, vocab.json, or a folder.
    """
    from webtext.tokenizer.formats.files import refuse_to_overwrite, unsaid
    from webtext.tokenizer.view import safe

    tokenizer = Tokenizer.load(source, pattern, _special_tokens(special_tokens))
    refuse_to_overwrite(target)
    _would_write(run, target, source)
    tokenizer.save(target)
    remarks = unsaid(tokenizer._vocabulary, target)
    answer = {"out": target, "vocab_size": tokenizer.vocab_size, "hash": tokenizer.hash, "remarks": remarks}
    answer |= {"pattern": tokenizer.pattern, "unicode_version": tokenizer.unicode_version}
    shown = f"pattern {safe(tokenizer.pattern)}, Unicode {tokenizer.unicode_version}"
    run.console.result(answer, f"{tokenizer.vocab_size:,} tokens in '{target}' ({tokenizer.hash[:12]}…), {shown}")
    for remark in remarks:
        run.console.say(f"note: {remark}")


def _special_tokens(given: tuple[str, ...]) -> list[str] | dict[str, int] | None:
    """Return names, or a dict of names and ids if all have one. Raises ConfigError for a mixture."""
    named = [_WITH_ID.fullmatch(name) for name in given]
    if all(named):
        return {found[1]: int(found[2]) for found in named if found} or None
    if any(named):
        raise ConfigError("some --special-token have an id and others don't", "give all of them as NAME=ID, or none")
    return list(given)


def _would_write(run: Run, target: str, *sources: str) -> None:
    """Raise ConfigError for a target that the verb also reads; in a dry run, print it and raise DryRun."""
    if os.path.realpath(target) in map(os.path.realpath, sources):
        raise ConfigError(f"'{target}' is both source and target", "name another target")
    run.would_write(target)


def _opened(file: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open a path or URL for reading; '-' is standard input, which stays open."""
    if file == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    folder, name = split_path(file)
    return folder.open(name)


@contextlib.contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """Open a file for writing; it is published atomically at the end."""
    folder, name = split_path(file)
    if file.endswith("/") or name in ("", ".", ".."):
        raise ConfigError(f"--out '{file}' is not a file name", "name the file to write, e.g. --out ids.npy")
    with folder.scratch(name) as path, path.open("wb") as target:
        yield target


def _offsets_name(file: str) -> str:
    """Return 'ids.offsets.npy' for 'ids.npy'."""
    return f"{file.removesuffix('.npy')}.offsets.npy"


def _print_ids(run: Run, batches: Iterator[Batch], lines: bool) -> None:
    if run.console.mode == "human":
        write_text(batches, sys.stdout.buffer)
        return
    write_text(batches, buffer := io.BytesIO())
    documents = [list(map(int, line.split())) for line in buffer.getvalue().splitlines()]
    run.console.result({"ids": documents if lines else documents[0]}, "")
