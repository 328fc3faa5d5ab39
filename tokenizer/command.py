"""The verbs of `webtext tokenizer`: train, count, encode, decode, inspect, convert, score."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from webtext.base.command import need_out, verb
from webtext.base.errors import ConfigError
from webtext.tokenizer.arguments import split_path
from webtext.tokenizer.files.corpus import CountSettings, TokenizerSettings, count_corpus, train_tokenizer
from webtext.tokenizer.files.token_files import decode_file, encode_file, write_npy, write_text
from webtext.tokenizer.measure.measures import SELDOM
from webtext.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from webtext.base.run import Run
    from webtext.tokenizer.files.token_files import Batch

_TOKENIZER = click.option(
    "--tokenizer", "path", required=True, metavar="PATH", help="tokenizer.json, *.tiktoken or folder."
)
_PATTERN = click.option(
    "--pattern", metavar="PATTERN", help="Pattern of a rank file (*.tiktoken): a name such as 'gpt2', or a regex."
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
_WITH_ID = re.compile(r"(.+)=(\d{1,9})", re.DOTALL)


@click.group(name="tokenizer", no_args_is_help=True)
def group() -> None:
    """Train and apply a byte-level BPE."""


TRAIN_EXAMPLES = """\b
Examples:
  webtext tokenizer train build/corpus --out build/tokenizer/tokenizer.json
  webtext tokenizer train *.txt --vocab-size 32000 --out tokenizer.json
  webtext tokenizer train en.jsonl.zst code.parquet --weight code.parquet=2.5 --out tokenizer.json
  webtext tokenizer train part-1.counts part-2.counts --out tokenizer.json
  webtext tokenizer train code.jsonl --base gpt2/ --vocab-size 60000 --out tokenizer.json

\b
Reads:  part sets of kind corpus or documents (their train split only); text, JSON lines, Parquet, counts, and folders
        of them; text and JSON lines also as .gz, .bz2, .xz, .zst
Writes: FILE, and its manifest next to it; for inputs of more than 64 MB also FILE.parts/, their counts
"""


@verb(group, "train", workers=True, settings=TokenizerSettings, section="tokenizer", epilog=TRAIN_EXAMPLES)
@click.argument("inputs", nargs=-1, required=True, metavar="SET|FILE...")
@click.option("--out", metavar="FILE", help="tokenizer.json, a name ending in .tiktoken, vocab.json, or a folder.")
def train(run: Run, settings: TokenizerSettings, inputs: tuple[str, ...], out: str | None) -> None:
    """Learn a vocabulary from a corpus."""
    target = need_out(out)
    tokenizer = train_tokenizer(inputs, target, settings, run)
    answer = {"out": target, "vocab_size": tokenizer.vocab_size, "hash": tokenizer.hash}
    run.console.result(answer, f"{tokenizer.vocab_size:,} tokens in '{target}' ({tokenizer.hash[:12]}…)")


COUNT_EXAMPLES = """\b
Examples:
  webtext tokenizer count build/corpus --out part-1.counts
  webtext tokenizer train part-1.counts part-2.counts --out tokenizer.json

\b
Reads:  the same inputs as `tokenizer train`, including counts
Writes: FILE, and its manifest next to it; for inputs of more than 64 MB also FILE.parts/, their counts
"""


@verb(group, "count", workers=True, settings=CountSettings, section="tokenizer.count", epilog=COUNT_EXAMPLES)
@click.argument("inputs", nargs=-1, required=True, metavar="SET|FILE...")
@click.option("--out", metavar="FILE", help="File to write; its name ends in .counts.")
def count(run: Run, settings: CountSettings, inputs: tuple[str, ...], out: str | None) -> None:
    """Count pieces, so that a later run can train on the counts of many machines."""
    target = need_out(out)
    n_pieces = count_corpus(inputs, target, settings, run)
    run.console.result({"out": target, "pieces": n_pieces}, f"{n_pieces:,} distinct pieces in '{target}'")


ENCODE_EXAMPLES = """\b
Examples:
  webtext tokenizer encode text.txt --tokenizer build/tokenizer --out ids.npy
  webtext tokenizer encode documents.txt --lines --tokenizer gpt2/ --out ids.npy
  echo 'some words' | webtext tokenizer encode --tokenizer tokenizer.json

\b
Reads:  a text file of any size or standard input, and a tokenizer
Writes: FILE (with --lines and .npy also FILE.offsets.npy), or standard output
"""


@verb(group, "encode", workers=True, epilog=ENCODE_EXAMPLES)
@click.argument("file", default="-", metavar="[FILE]")
@_TOKENIZER
@_ALLOW
@_LINES
@click.option("--out", metavar="FILE", help="Write the ids here: an array if the name ends in .npy, else text.")
def encode(run: Run, file: str, path: str, allowed: tuple[str, ...], lines: bool, out: str | None) -> None:
    """Turn a text file, or standard input, into token ids."""
    tokenizer = Tokenizer.load(path)
    if out is not None:
        run.would_write(out)
    with _opened(file) as source:
        batches = encode_file(tokenizer, source, file, lines=lines, allowed=_allowed(allowed), threads=run.threads)
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
    run.console.result({"out": out, "tokens": n_ids}, f"{n_ids:,} tokens in '{out}'")


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
    """Turn token ids (an .npy array, or numbers as text from FILE or standard input) into text."""
    tokenizer = Tokenizer.load(path)
    if out is not None:
        run.would_write(out)
    offsets_file = _offsets_name(file)
    folder, name = split_path(offsets_file)
    has_offsets = lines and file != "-" and folder.exists(name)
    with _opened(file) as source, _opened(offsets_file) if has_offsets else contextlib.nullcontext() as offsets:
        parts = decode_file(tokenizer, source, file, offsets, lines)
        if out is not None:
            with _written(out) as target:
                n_bytes = sum(target.write(part) for part in parts)
            run.console.result({"out": out, "bytes": n_bytes}, f"{n_bytes:,} bytes in '{out}'")
        elif run.console.mode == "human":
            for part in parts:
                sys.stdout.buffer.write(part)  # exact bytes, without a newline at the end
        else:
            run.console.result({"text": b"".join(parts).decode("utf-8", "replace")}, "")


INSPECT_EXAMPLES = """\b
Examples:
  webtext tokenizer inspect 'some words' --tokenizer tokenizer.json
  webtext tokenizer inspect - --tokenizer gpt2/ --out tokens.html < text.txt
  webtext tokenizer inspect --tokenizer tokenizer.json

\b
Reads:  a text (- for standard input), and a tokenizer
Writes: an HTML page with --out, otherwise nothing
"""


@verb(group, "inspect", epilog=INSPECT_EXAMPLES)
@click.argument("text", required=False)
@_TOKENIZER
@_PATTERN
@_ALLOW
@click.option("--ids", is_flag=True, help="Also print one line per token, with its id.")
@click.option("--out", metavar="FILE.html", help="Write the tokens as an HTML page that shows ids and bytes on hover.")
def inspect(
    run: Run, text: str | None, path: str, pattern: str | None, allowed: tuple[str, ...], ids: bool, out: str | None
) -> None:
    """Show how TEXT is cut into tokens; without TEXT, show the tokenizer's properties and oddities."""
    from webtext.tokenizer.show.overview import facts, overview, overview_text
    from webtext.tokenizer.show.visible import wants_colour

    tokenizer = Tokenizer.load(path, pattern)
    if text is None:
        if ids or out is not None:
            raise ConfigError("--ids and --out need a TEXT", "give one, or - for standard input")
        found = overview(tokenizer._vocabulary)
        run.console.result(found, overview_text(found))
        return
    view = tokenizer.view(_read(text) if text == "-" else text, _allowed(allowed))
    if out is not None:
        from webtext.tokenizer.show.view import page

        run.would_write(out)
        with _written(out) as target:
            target.write(page(view, facts(tokenizer._vocabulary, tokenizer.hash)).encode())
        run.console.result({"out": out, "n_tokens": len(view)}, f"{len(view):,} tokens in '{out}'")
        return
    coloured = wants_colour()
    lines = [view.coloured() if coloured else str(view), *([view.rows()] if ids else []), view.summary()]
    run.console.result(view.to_json(), "\n".join(lines), coloured=coloured)


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
    """Read the tokenizer SOURCE and write it as TARGET: tokenizer.json, *.tiktoken, vocab.json, or a folder."""
    from webtext.tokenizer.formats.files import refuse_to_overwrite, unsaid
    from webtext.tokenizer.show.overview import safe

    tokenizer = Tokenizer.load(source, pattern, _special_tokens(special_tokens))
    refuse_to_overwrite(target, source)
    run.would_write(target)
    tokenizer.save(target)
    remarks = [*unsaid(tokenizer._vocabulary, target), *tokenizer.remarks]
    rule = {"pattern": tokenizer.pattern, "unicode_version": tokenizer.unicode_version}
    answer = {"out": target, "vocab_size": tokenizer.vocab_size, "hash": tokenizer.hash, **rule, "remarks": remarks}
    shown = f"pattern {safe(tokenizer.pattern)}, Unicode {tokenizer.unicode_version}"
    run.console.result(answer, f"{tokenizer.vocab_size:,} tokens in '{target}' ({tokenizer.hash[:12]}…), {shown}")
    for remark in remarks:
        run.console.say(f"note: {remark}")


SCORE_EXAMPLES = """\b
Examples:
  webtext tokenizer score tokenizer.json gpt2/ --on build/corpus
  webtext tokenizer score tokenizer.json --on en=english.txt --on de=german.txt --json

\b
Reads:  tokenizers, and texts: part sets, text files, JSON lines, Parquet, compressed or not, LANG=FILE
Writes: nothing
"""


@verb(group, "score", workers=True, epilog=SCORE_EXAMPLES)
@click.argument("paths", nargs=-1, required=True, metavar="TOKENIZER...")
@click.option("--on", "inputs", multiple=True, required=True, metavar="SET|FILE|LANG=FILE", help="Texts to measure on.")
@click.option("--reference", metavar="LANG", help="Language that parity compares with.  [default: en, or the first]")
@click.option(
    "--seldom", type=click.IntRange(1), default=SELDOM, show_default=True, help="Ids with fewer occurrences are seldom."
)
@click.option("--text-field", default="text", show_default=True, help="Field of JSON lines, column of Parquet files.")
@_PATTERN
def score(
    run: Run,
    paths: tuple[str, ...],
    inputs: tuple[str, ...],
    reference: str | None,
    seldom: int,
    text_field: str,
    pattern: str | None,
) -> None:
    """Measure how well TOKENIZERs suit texts: compression, fertility, Rényi efficiency, vocabulary use, parity."""
    from webtext.tokenizer.measure.scoring import score_inputs

    tokenizers = {path: Tokenizer.load(path, pattern if path.endswith(".tiktoken") else None) for path in paths}
    found = score_inputs(tokenizers, inputs, run, reference=reference, seldom=seldom, text_field=text_field)
    run.console.result(*found)


def _special_tokens(given: tuple[str, ...]) -> list[str] | dict[str, int] | None:
    """Return names, or a dict of names and ids if all have one. Raises ConfigError for a mixture."""
    named = [_WITH_ID.fullmatch(name) for name in given]
    if all(named):
        return {found[1]: int(found[2]) for found in named if found} or None
    if any(named):
        raise ConfigError("some --special-token have an id and others don't", "give all of them as NAME=ID, or none")
    return list(given)


def _allowed(names: tuple[str, ...]) -> Any:
    return "all" if "all" in names else names


def _read(file: str) -> bytes:
    with _opened(file) as source:
        return source.read()


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open a path or URL for reading; '-' is standard input."""
    if file == "-":
        yield sys.stdin.buffer
        return
    folder, name = split_path(file)
    with folder.open(name) as source:
        yield source


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
    buffer = io.BytesIO()
    write_text(batches, buffer)
    documents = [list(map(int, line.split())) for line in buffer.getvalue().splitlines()]
    run.console.result({"ids": documents if lines else documents[0]}, "")
