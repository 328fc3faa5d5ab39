"""Files of the formats as they were when they were frozen: they load, with the values written down here.

`make.py` made them. A version that cannot read them any more breaks its users' files: mend the reader, not the test.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from webtext.app.main import run
from webtext.base.archives.reader import read_responses
from webtext.base.errors import InputError, ShardCorrupt, WebtextError
from webtext.base.parts import schemas
from webtext.base.parts.digest import RecordDigest
from webtext.base.parts.lineage import stale
from webtext.base.parts.partset import Failure, PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.decontaminate.kept_filter import open_filter
from webtext.clean.dedup.index import corpus_of, open_signatures
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.score.model import open_model
from webtext.crawl.apis.harvest import HarvestFiles
from webtext.crawl.links.collect import collect_links
from webtext.crawl.links.dumps import SOURCE as REDDIT
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.pages.open_part import recover
from webtext.shards import Sampler, TokenShards
from webtext.shards.shardfile import ShardFile, verify_shard
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.files.corpus import TokenizerSettings, train_tokenizer
from webtext.tokenizer.train.counts import PieceCounts
from webtext.train.checkpoint.checkpoint import load_model, open_checkpoint
from webtext.train.run.loop import train_model
from webtext.train.settings import TrainSettings

GOLDEN = Path(__file__).parent / "files"
CHECKPOINT = "model/checkpoints/step-000004"
SETS = {  # folder: kind, digest of its rows, column, the column's values in the first three rows
    "links": ("links", "0cc93d61668214ba", "karma", [3, 9, 7]),
    "removals": ("removals", "faa0dd3a1e7ca0eb", "posts_left", [1]),
    "pages": ("pages", "a7ed5be71ce3f987", "status", [200, 200, 404]),
    "evidence/pages": ("pages", "68adb136ab5d0b89", "reason", ["robots_disallowed"]),
    "older/pages": ("pages", "d89b5c3261a2e9cb", "reason", ["timed_out"]),
    "page_kind/documents": ("documents", "d16ba582a6bf9f00", "title", ["Page train-d", "Page short", "Page copy-of-a"]),
    "signals": ("signals", "b0ec251396a40099", "n_words", [196, 2, 196]),
    "corpus": ("corpus", "ed1f62a98fb8a021", "split", ["train", "train", "validation"]),
    "page_kind/corpus": ("corpus", "e31b30f5202820ad", "split", ["train", "train", "validation"]),
    "dropped": ("dropped", "da1e506b46c04cd1", "reason", ["other_language", "near_duplicate"]),
    "published/release": ("release", "84fd8b378c5674e8", "karma", [11, 6, 5]),
    "page_kind/published/release": ("release", "a3837b712f218173", "karma", [11, 6, 5]),
    "index": ("signatures", "fdf6d7d76a8511e3", "has_words", [True, True, True]),
    "tokens": ("tokens", "9883f44d9ed17150", "length", [490, 495, 499]),
}
SCORES = [0.997955, 0.996077, None]
SAMPLE = "The doctor of the village, 1849."
SAMPLE_IDS = [268, 220, 67, 78, 66, 83, 291, 279, 258, 220, 85, 72, 292, 64, 70, 68, 11, 285, 19, 24, 13]


def copy(name: str, folder: Path) -> Path:
    """A copy of a golden file or folder that a test may change."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if (GOLDEN / name).is_dir() else shutil.copy)(GOLDEN / name, target)
    return target


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def read_counts(path: Path) -> dict[bytes, int]:
    counts = PieceCounts()
    counts.add_file(path)
    return dict(counts.items())


def test_there_is_a_golden_set_of_every_kind() -> None:
    """But of exchange and duplicates: later stages of the same run read them, and nothing else."""
    assert {kind for kind, *_ in SETS.values()} == schemas.SCHEMAS.keys() - {"exchange", "duplicates"}


@pytest.mark.parametrize("folder", SETS)
def test_a_golden_set_has_the_recorded_rows(folder: str) -> None:
    """The digest covers all values; one column is written out."""
    kind, digest, column, values = SETS[folder]
    opened = PartSet.open(str(GOLDEN / folder), kind)
    opened.verify()
    table = opened.table(0)
    found = RecordDigest()
    found.update(table)
    assert found.hexdigest()[:16] == digest
    assert table[column].to_pylist()[:3] == values
    assert table.num_rows == opened.records
    assert stale(opened) == []


def test_a_golden_model_gives_the_recorded_scores() -> None:
    model = open_model(str(GOLDEN / "votes.score"))
    assert model.scores(pa.array([SAMPLE, "数字 village", "--"])).to_pylist() == SCORES


def test_a_row_has_every_value_that_was_written() -> None:
    (row,) = (row for row in PartSet.open(str(GOLDEN / "links")).table(0).to_pylist() if row["karma"] == 9)
    post = {"source": REDDIT, "post_id": "p6", "subreddit": "books", "score": 9, "created": 1_483_228_806}
    assert row == {
        "link_id": "7a51964205139c5674f02c176a73feb8",
        "url": "http://127.0.0.1:18017/gone",
        "url_raw": "http://127.0.0.1:18017/gone",
        "domain": "127.0.0.1",
        "karma": 9,
        "karma_sum": 9,
        "first_created": 1_483_228_806,
        "posts": [post | {"retrieved": 1_496_318_400}],
        "split": "train",
    }


def test_failures_are_read_from_the_attachment_and_from_an_older_manifest() -> None:
    (failure,) = PartSet.open(str(GOLDEN / "documents")).failures()
    assert (failure.reason, failure.cause) == ("damaged_body", "damaged_body: cut short")
    assert list(PartSet.open(str(GOLDEN / "older/pages")).failures()) == [
        Failure("an id", "raised", "ValueError: a cause")
    ]


def test_the_rows_of_the_golden_pages_locate_their_responses() -> None:
    folder = Folder(str(GOLDEN / "pages"))
    rows = {row["url"]: row for row in PartSet.open(folder.url).table(0).to_pylist() if row["outcome"] == "fetched"}
    found = {each.url: each for each in read_responses(folder, "part-00000.warc.gz")}
    assert found.keys() == rows.keys()
    for url, row in rows.items():
        assert (found[url].offset, found[url].length) == (row["warc_offset"], row["warc_length"])
        assert (found[url].status, found[url].damage) == (200, None)
    title = b"<html><head><title>Page short</title></head><body><article><p>Too short.</p></article></body></html>"
    assert found["http://127.0.0.1:18017/short"].raw == title


def test_a_killed_crawl_s_rows_and_records_are_recovered(tmp_path: Path) -> None:
    """A half-written line and a damaged record cost the rows from there on, which are fetched again."""
    folder = copy("killed/pages", tmp_path)
    recovered = recover(Folder(str(folder)), {})
    assert recovered is not None
    paths = {entry.row["url"].rpartition("/")[2]: entry.row["outcome"] for entry in recovered.entries}
    assert paths.pop("gone") == "failed"
    assert paths.pop("moved") == "linked"
    assert paths == dict.fromkeys(
        ("train-d", "damaged", "short", "copy-of-a", "held-out-3", "train-b", "train-a"), "fetched"
    )
    assert (recovered.index, recovered.entries[-1].end) == (0, (folder / "_open/part-00000.warc.gz").stat().st_size)
    journal = folder / "_open/part-00000.journal"
    assert recovered.journal_bytes == journal.stat().st_size
    journal.write_bytes(journal.read_bytes()[:-10])
    assert n_recovered(folder) == 8
    flip(folder / "_open/part-00000.warc.gz", recovered.entries[3].end + 100)
    assert n_recovered(folder) == 4


def n_recovered(folder: Path) -> int:
    recovered = recover(Folder(str(folder)), {})
    return len(recovered.entries) if recovered is not None else 0


def test_the_golden_index_is_opened_with_its_corpus() -> None:
    index = open_signatures(str(GOLDEN / "index"))
    corpus = corpus_of(index)
    assert corpus is not None
    assert corpus.hash == PartSet.open(str(GOLDEN / "corpus")).hash
    assert index.recipe["settings"]["permutations"] == DedupSettings().permutations == 128


def test_an_index_of_an_older_version_is_rejected() -> None:
    """Its signatures have one byte per value and can't be compared with today's."""
    with pytest.raises(InputError, match=r"has signatures of version 3 and .* of version 4 and .*\nmake it again"):
        open_signatures(str(GOLDEN / "refused/index"))


def test_documents_of_an_older_version_are_rejected() -> None:
    """Their texts are another extractor's, and a corpus made of them would lack the kind of its pages."""
    with pytest.raises(InputError, match=r"does not have the columns of documents\n.*rerun the command"):
        PartSet.open(str(GOLDEN / "documents")).table(0)


def test_the_golden_tokens_are_read_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    shards = TokenShards(str(GOLDEN / "tokens"))
    assert [document.tokens[:6].tolist() for document in shards.documents()] == [
        [299, 268, 294, 283, 74, 290],
        [299, 268, 261, 290, 293, 279],
        [299, 268, 266, 81, 66, 71],
    ]
    assert [document.tokens.sum() for document in shards.documents()] == [90_859, 89_653, 89_501]
    assert run(["shards", "verify", str(GOLDEN / "tokens")]) == 0
    assert capsys.readouterr().out.endswith("tokens is intact: 1,971 tokens, 3 token files\n")


def test_a_golden_token_file_of_four_bytes_per_token_is_read() -> None:
    shard = ShardFile(GOLDEN / "wide.tok")
    verify_shard(shard)
    assert [shard.document(i).tolist() for i in range(2)] == [[99_999, 1, 65_536, 99_998], [99_999, 7]]
    assert shard.header.tokenizer_hash == "ab" * 32


def test_the_golden_tokenizer_gives_the_recorded_ids() -> None:
    tokenizer = Tokenizer.load(GOLDEN / "tokenizer.json")
    assert tokenizer.encode(SAMPLE) == SAMPLE_IDS
    assert tokenizer.decode(SAMPLE_IDS) == SAMPLE
    assert tokenizer.hash == "b0b9f34c1ddd02d3366f83e6e0bafd1a1aa26a8c4b15e1c99f7b236deba91132"
    assert (tokenizer.vocab_size, tokenizer.eot_id, tokenizer.pattern) == (300, 299, "gpt2")


def test_the_golden_counts_are_read() -> None:
    found = read_counts(GOLDEN / "corpus.counts")
    assert (len(found), found[b" the"], found[b" 1816"]) == (86, 108, 2)


def test_the_golden_filter_is_opened() -> None:
    header, bits = open_filter(GOLDEN / "corpus.filter")
    assert (header.words, header.ngrams, header.probes, header.failed) == (8, 601, 27, 0)
    assert int(np.bitwise_count(bits).sum()) == 10_469


def test_a_golden_filter_with_held_out_documents_is_rejected() -> None:
    """Every text that is held out would be found in it."""
    with pytest.raises(InputError, match="is not an n-gram filter of version 3, or is truncated\nmake it again"):
        open_filter(GOLDEN / "refused/corpus.filter")


def links_of(harvest: Path, out: Path) -> PartSet:
    files = HarvestFiles(Folder(str(harvest)))
    assert files.cursors == ["2", "end"]
    assert files.about() == {"began": 1_496_318_400, "end": 3, "format": 1, "input": "hackernews:1..3"}
    return collect_links(files.locations, str(out), LinkSettings(), Run.quiet())


def test_the_golden_harvest_gives_the_recorded_link(tmp_path: Path) -> None:
    (row,) = links_of(GOLDEN / "harvest", tmp_path / "links").table(0).to_pylist()
    assert (row["url"], row["karma"]) == ("http://127.0.0.1:18017/train-a", 5)
    assert row["posts"] == [
        {"source": "hackernews", "post_id": "1", "subreddit": None, "score": 5, "created": 1_483_228_800}
        | {"retrieved": 1_496_318_400}
    ]


def test_the_golden_checkpoint_loads_as_a_model() -> None:
    """Logits are compared to float32's precision, because kernels differ between machines."""
    model = load_model(GOLDEN / CHECKPOINT)
    with torch.no_grad():
        logits_v = model(torch.tensor([[299, 268, 294]]))[0, -1]
    assert logits_v[:3].tolist() == pytest.approx([-0.240383, -0.176923, -0.198027], abs=1e-5)
    assert int(logits_v.argmax()) == 78


def test_a_run_resumes_from_the_golden_checkpoint_with_the_recorded_losses(tmp_path: Path) -> None:
    """Recorded with torch 2.13 on x86-64. The tolerance is that of float32 sums in another order, over two steps."""
    copy("model", tmp_path)
    settings = TrainSettings.of(
        n_layer=1, n_head=2, n_embd=8, context=16, batch_size=2, microbatch_size=2, steps=6, warmup_steps=2,
        learning_rate=1e-2, threads=1, device="cpu", dtype="float32", eval_interval=2, eval_windows=4,
    )  # fmt: skip
    result = train_model(str(GOLDEN / "tokens"), str(tmp_path / "model"), settings, Run.quiet())
    rows = [json.loads(line) for line in (tmp_path / "model/metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if "loss" in row}
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert (losses[5], losses[6]) == pytest.approx((5.516794681549072, 5.455867767333984), rel=1e-5)
    assert result.validation_loss == pytest.approx(5.498075485229492, rel=1e-5)


# Newer versions: rejected with an error that names the version, or, if a file is only a saved computation, made again.


def of_set(folder: Path) -> None:
    replace(copy("corpus", folder) / "manifest.json", b'"format": 1', b'"format": 2')
    PartSet.open(str(folder / "corpus"))


def of_columns(folder: Path) -> None:
    """A newer version added a column."""
    path = copy("signals", folder) / "part-00000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("n_verbs", pa.array([1] * len(table))), path)
    manifest = json.loads((path.parent / "manifest.json").read_bytes())
    manifest["parts"][0] |= {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))
    PartSet.open(str(path.parent)).table(0)


def of_tokens(folder: Path) -> None:
    path = copy("wide.tok", folder)
    data = bytearray(path.read_bytes())
    data[8:12] = struct.pack("<I", 4)
    data[252:256] = struct.pack("<I", zlib.crc32(data[:252]))
    path.write_bytes(data)
    ShardFile(path)


def of_tokenizer(folder: Path) -> None:
    replace(copy("tokenizer.json", folder), b'"format": 1', b'"format": 2')
    Tokenizer.load(folder / "tokenizer.json")


def of_checkpoint(folder: Path) -> None:
    replace(copy(CHECKPOINT, folder) / "state.json", b'"format": 2', b'"format": 3')
    open_checkpoint(folder / CHECKPOINT)


def of_counts(folder: Path) -> None:
    replace(copy("corpus.counts", folder), b"webtext counts 1\n", b"webtext counts 2\n")
    read_counts(folder / "corpus.counts")


def of_filter(folder: Path) -> None:
    replace(copy("corpus.filter", folder), b"filter 3\n", b"filter 4\n")
    open_filter(folder / "corpus.filter")


def of_harvest(folder: Path) -> None:
    replace(copy("harvest", folder) / "harvest.json", b'"format": 1', b'"format": 2')
    HarvestFiles(Folder(str(folder / "harvest"))).about()


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (of_set, "has format 2; this version reads 1"),
        (of_columns, "does not have the columns of signals\nit was made by another version of webtext"),
        (of_tokens, "version is 4\nthis version of webtext reads version 3"),
        (of_tokenizer, "was written by another version of webtext"),
        (of_checkpoint, "has checkpoint format 3, but this webtext reads format 2"),
        (of_counts, "is not a file of piece counts of version 1"),
        (of_filter, "is not an n-gram filter of version 3"),
        (of_harvest, "has format 2; this version reads 1"),
    ],
)
def test_a_newer_version_is_rejected(load: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    with pytest.raises(WebtextError, match=message):
        load(tmp_path)


def test_a_set_of_a_newer_version_is_never_overwritten(tmp_path: Path) -> None:
    """A crawl's pages, for example, could not be made again."""
    replace(copy("pages", tmp_path) / "manifest.json", b'"format": 1', b'"format": 2')
    recipe = Recipe(stage="crawl.fetch", code_version=9, settings={})
    with pytest.raises(
        InputError, match="has format 2; this version reads 1\nuse the version of webtext that wrote it"
    ):
        SetWriter(str(tmp_path / "pages"), "pages", recipe).check_place()


def test_a_tokenizer_whose_manifest_is_newer_is_trained_again(tmp_path: Path) -> None:
    for name in ("corpus", "tokenizer.json"):
        copy(name, tmp_path)
    manifest = copy("tokenizer.manifest.json", tmp_path)
    settings = TokenizerSettings(vocab_size=300)

    def train() -> int:
        train_tokenizer([str(tmp_path / "corpus")], str(tmp_path / "tokenizer.json"), settings, Run.quiet())
        return (tmp_path / "tokenizer.json").stat().st_mtime_ns

    before = (tmp_path / "tokenizer.json").stat().st_mtime_ns
    assert train() == before  # the golden manifest is recognised
    replace(manifest, b'"format": 1', b'"format": 2')
    train()
    assert json.loads(manifest.read_bytes())["format"] == 1
    assert Tokenizer.load(tmp_path / "tokenizer.json").hash == Tokenizer.load(GOLDEN / "tokenizer.json").hash


def test_a_run_of_a_newer_order_of_samples_is_not_resumed(tmp_path: Path) -> None:
    replace(copy(CHECKPOINT, tmp_path) / "state.json", b'"version": 2', b'"version": 3')
    state = open_checkpoint(tmp_path / CHECKPOINT).state["sampler"]
    with pytest.raises(InputError, match="belongs to another order of samples: version 3"):
        Sampler(TokenShards(str(GOLDEN / "tokens")), context=16, batch_size=2).load_state_dict(
            state | {"fingerprint": sha256_json(state["order"])}
        )


# One flipped byte.


@pytest.mark.parametrize("folder", SETS)
def test_a_flipped_byte_in_any_file_of_a_set_is_found(folder: str, tmp_path: Path) -> None:
    copied = copy(folder, tmp_path)
    opened = PartSet.open(str(copied))
    names = [name for part in opened.parts for name in (part.name, *(each.name for each in part.attachments))]
    for name in names:
        size = (copied / name).stat().st_size
        for at in (0, size // 2, size - 1):
            flip(copied / name, at)
            with pytest.raises(InputError, match=f"{name}' was altered: SHA-256"):
                PartSet.open(str(copied)).verify()
            flip(copied / name, at)


def test_a_flipped_byte_anywhere_in_a_token_file_is_found(tmp_path: Path) -> None:
    path = copy("wide.tok", tmp_path)
    for at in range(path.stat().st_size):
        flip(path, at)
        with pytest.raises(ShardCorrupt):
            verify_shard(ShardFile(path))
        flip(path, at)
    verify_shard(ShardFile(path))


def test_a_flipped_byte_in_counts_is_found(tmp_path: Path) -> None:
    path = copy("corpus.counts", tmp_path)
    for at in range(0, path.stat().st_size, 5):
        flip(path, at)
        with pytest.raises(WebtextError):
            read_counts(path)
        flip(path, at)
    assert len(read_counts(path)) == 86


@pytest.mark.parametrize("name", ["layout.json", "model-00000.safetensors", "optimizer-00000.safetensors"])
def test_a_flipped_byte_in_a_checkpoint_is_found(name: str, tmp_path: Path) -> None:
    path = copy(CHECKPOINT, tmp_path) / name
    for at in (0, path.stat().st_size // 2, path.stat().st_size - 1):
        flip(path, at)
        with pytest.raises(InputError, match=f"{name}' has changed since it was written"):
            open_checkpoint(path.parent)
        flip(path, at)


def test_a_flipped_byte_in_a_harvest_is_counted(tmp_path: Path) -> None:
    path = copy("harvest", tmp_path) / "00000.2.harvest.jsonl.zst"
    flip(path, path.stat().st_size // 2)
    assert links_of(path.parent, tmp_path / "links").counts.failed == {"damaged_stream": 1}


def test_a_flipped_byte_in_a_tokenizer_is_found_by_its_manifest(tmp_path: Path) -> None:
    """The file itself has no checksum: token sets name the tokenizer's hash, and `tokenizer train` makes it again."""
    tokenizer = copy("tokenizer.json", tmp_path)
    for name in ("corpus", "tokenizer.manifest.json"):
        copy(name, tmp_path)
    flip(tokenizer, tokenizer.read_bytes().index(b'"ignore_merges"') + 1)
    train_tokenizer([str(tmp_path / "corpus")], str(tokenizer), TokenizerSettings(vocab_size=300), Run.quiet())
    assert tokenizer.read_bytes() == (GOLDEN / "tokenizer.json").read_bytes()


def test_a_flipped_bit_of_a_filter_is_found(tmp_path: Path) -> None:
    path = copy("corpus.filter", tmp_path)
    flip(path, 5000)
    with pytest.raises(InputError, match="was altered"):
        open_filter(path)
