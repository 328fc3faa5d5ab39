"""`webtext shards`: pack a corpus or files into token shards, inspect and convert them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from webtext.base.command import need_out, verb
from webtext.base.run import Run
from webtext.shards.settings import FileSettings, PackSettings

_SPLIT = click.Choice(["train", "validation"])


@click.group(name="shards", no_args_is_help=True)
def group() -> None:
    """Pack a corpus or files into token shards; inspect and convert them."""


@verb(group, "pack", replaces=False, workers=True, settings={"shards": PackSettings, "shards.files": FileSettings})
@click.argument("documents", nargs=-1, required=True, metavar="SET|FILE...")
@click.option("--tokenizer", required=True, metavar="FILE", help="Tokenizer: tokenizer.json, or another known format.")
@click.option("--out", metavar="DIR", help="Folder for the token set.")
def pack(run: Run, settings: Mapping[str, Any], documents: tuple[str, ...], tokenizer: str, out: str | None) -> None:
    """Write documents as token shards.

    `<|endoftext|>` opens each document. Packs one part set, or files and folders of files. A file's document is held
    out by a hash of its id, or of its place in the file if it has none; a field `split` overrides that.

    \b
      webtext shards pack build/corpus --tokenizer build/tokenizer/tokenizer.json --out build/tokens
      webtext shards pack books/ news.jsonl.zst --tokenizer tokenizer.json --out tokens
      webtext shards pack stories.txt --separator '\\n\\n' --tokenizer tokenizer.json --out tokens

    \b
    Reads:  a part set of corpus or documents, or text, JSON, CSV and Parquet; and a tokenizer;
            all but Parquet also as .gz, .bz2, .xz, .zst
    Writes: DIR, a part set of tokens: .tok files, and a row for every document
    """
    from webtext.base.parts.outcomes import check_kept, check_settled, warn_of_failures
    from webtext.shards.info import empty_split
    from webtext.shards.writing.pack import pack_shards

    tokens = pack_shards(documents, tokenizer, need_out(out), settings["shards"], run, settings["shards.files"])
    found = _describe(run, tokens.folder.url)
    warn_of_failures(tokens, run.console)
    check_kept(tokens)
    if missing := empty_split(found):
        run.console.warn(missing)
    check_settled(tokens)


@verb(group, "info")
@click.argument("folder", metavar="DIR")
def info(run: Run, folder: str) -> None:
    """Print what a token set contains.

    \b
      webtext shards info build/tokens

    \b
    Reads:  a part set of tokens: manifests only
    Writes: nothing
    """
    _describe(run, folder)


def _describe(run: Run, folder: str) -> dict[str, Any]:
    from webtext.shards.info import describe, describe_text

    found = describe(folder)
    run.console.result(found, describe_text(folder, found))
    return found


@verb(group, "verify")
@click.argument("folder", metavar="DIR")
def verify(run: Run, folder: str) -> None:
    """Check every byte of a token set.

    Checks the hashes in the manifest, the ids, the counts and the document index.

    \b
      webtext shards verify build/tokens

    \b
    Reads:  a part set of tokens: every byte
    Writes: nothing
    """
    from webtext.base.console import counted
    from webtext.shards.info import verify_set

    found = verify_set(folder)
    tokens, shards = (sum(split[name] for split in found["splits"].values()) for name in ("tokens", "shards"))
    text = f"{folder} is intact: {counted(tokens, 'token')}, {counted(shards, 'token file')}"
    run.console.result(found | {"verified": True}, text)


@verb(group, "sample")
@click.argument("folder", metavar="DIR")
@click.option("--tokenizer", required=True, metavar="FILE", help="Tokenizer that DIR was packed with.")
@click.option("--split", type=_SPLIT, show_default="train")
@click.option("-n", "n", type=click.IntRange(1), default=1, show_default=True, help="Number of windows.")
@click.option("--context", type=click.IntRange(1), default=256, show_default=True, help="Tokens per window.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the training order to show.")
@click.option("--at", metavar="SHARD:OFFSET", help="Position to show instead, e.g. train-00000.tok:4096.")
def sample(
    run: Run, folder: str, tokenizer: str, split: str | None, n: int, context: int, seed: int, at: str | None
) -> None:
    """Decode windows of a token set, in training order.

    Prints the document and the corpus row in which each window starts.

    \b
      webtext shards sample build/tokens --tokenizer build/tokenizer/tokenizer.json -n 3
      webtext shards sample build/tokens --tokenizer tokenizer.json --at train-00000.tok:4096

    \b
    Reads:  a part set of tokens, and the tokenizer that packed it
    Writes: nothing
    """
    from webtext.base.errors import ConfigError
    from webtext.shards.format import shard_place
    from webtext.shards.info import sample_windows, window_at
    from webtext.shards.reader import TokenShards
    from webtext.shards.writing.pack import load_tokenizer

    decoder = load_tokenizer(tokenizer)
    if at is None:
        windows = sample_windows(TokenShards(folder, split or "train"), decoder, n=n, context=context, seed=seed)
    else:
        shard, _, offset = at.rpartition(":")
        place = shard_place(shard)
        if place is None or not offset.isdecimal():
            raise ConfigError(f"--at {at!r} is not of the form SHARD:OFFSET", "e.g. --at train-00000.tok:4096")
        if split not in (None, place[0]):
            raise ConfigError(f"--split {split}, but --at {at}", "leave --split out")
        windows = [window_at(TokenShards(folder, place[0]), decoder, shard, int(offset), context)]
    form = "--- {shard}:{offset}  document {id}, {source_part} row {row}\n{text}"
    run.console.result({"windows": windows}, "\n".join(map(form.format_map, windows)))


_FORMAT = click.Choice(["nanogpt", "llm.c", "megatron", "datatrove"])


@verb(group, "convert", replaces=False, workers=True, settings=PackSettings, section="shards")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--from", "source_format", type=_FORMAT, help="Make a token set from files in this format.")
@click.option("--to", "target_format", type=_FORMAT, help="Write a token set in this format.")
@click.option("--tokenizer", metavar="FILE", help="With --from: tokenizer that made the ids.")
@click.option("--split", type=_SPLIT, help="With --from: split of all files.")
@click.option("--out", metavar="DIR", help="Folder to write to.")
def convert(
    run: Run,
    settings: PackSettings,
    sources: tuple[str, ...],
    source_format: str | None,
    target_format: str | None,
    tokenizer: str | None,
    split: str | None,
    out: str | None,
) -> None:
    """Convert token shards from or to other trainers' formats.

    With --from, SOURCE is files, folders or globs; with --to, it is a part set of tokens.

    \b
      webtext shards convert data/openwebtext --from nanogpt --tokenizer gpt2 --out tokens
      webtext shards convert build/tokens --to megatron --out megatron

    \b
    Reads:  files of another trainer and the tokenizer that made them; or a part set of tokens
    Writes: DIR, a part set of tokens; or files of another trainer
    """
    from webtext.base.errors import ConfigError
    from webtext.base.parts.outcomes import check_kept
    from webtext.shards.convert_from import convert_from
    from webtext.shards.convert_to import convert_to

    if (source_format is None) == (target_format is None):
        raise ConfigError("one of --from and --to is needed", "e.g. --to nanogpt, or --from nanogpt --tokenizer gpt2")
    if target_format is not None:
        if len(sources) > 1 or tokenizer or split:
            raise ConfigError(
                "--to takes one token set, no --tokenizer and no --split", "e.g. build/tokens --to megatron"
            )
        names = convert_to(sources[0], target_format, need_out(out, ("*.bin", "train/", "validation/")), run)
        run.console.result({"files": names}, "\n".join(f"{out}/{name}" for name in names))
        return
    if tokenizer is None:
        raise ConfigError("--from needs --tokenizer", "name the tokenizer that made the ids: the files don't state it")
    assert source_format is not None
    tokens = convert_from(list(sources), source_format, tokenizer, need_out(out), settings, run, split)
    _describe(run, tokens.folder.url)
    check_kept(tokens)
