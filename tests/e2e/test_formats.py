"""Every format is written and read: docs/formats.md equals the code, and its readers give what the package's own readers give.

The files are those of the small demo's build; a released corpus, a kept index, a harvest and a vote score are made here.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import inspect
import itertools
import json
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from webtext.app.main import run
from webtext.base.console import Progress
from webtext.base.errors import WebtextError
from webtext.base.parts import partset
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import with_check
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.clean.dedup import sign
from webtext.clean.score import model as score_model
from webtext.crawl.links.reddit_api import harvest
from webtext.crawl.links.reddit_api.listing import ListingPage
from webtext.shards import TokenShards, format
from webtext.shards.sampling.stream import ORDER_VERSION
from webtext.shards.shardfile import ShardFile, ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.files import corpus
from webtext.train.checkpoint import checkpoint as checkpoints
from webtext.train.run.loop import TrainResult
from webtext.train.shape import GPT2Config

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text()
TOKENIZER = "tokenizer/tokenizer.json"
SETS = ("links", "pages", "documents", "signals", "corpus", "dropped", "tokens", "release", "index")


class Answers:
    """Reddit with two pages of a post each."""

    async def listing(self, path: str, query: Mapping[str, str], after: str | None) -> ListingPage:
        post = {"id": "1" if after is None else "2"}
        return ListingPage([{"kind": "t3", "data": post}], "t3_1" if after is None else None, 1_496_318_400)


@pytest.fixture(scope="module")
def build(small_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every format."""
    folder = shutil.copytree(small_demo / "build", tmp_path_factory.mktemp("formats") / "build")
    dedup = f"clean dedup {folder}/corpus --out {folder}/again --keep-index {folder}/index"
    assert run(dedup.split()) == 0
    assert run(["clean", "release", str(folder), "--out", str(folder / "published")]) == 0
    (folder / "published/release").rename(folder / "release")
    files = harvest.HarvestFiles(Folder(str(folder / "harvest")))
    files.begin("reddit:r/maps/new", 1_496_318_400)
    asyncio.run(harvest.harvest(Answers(), harvest.Listing("r/maps/new", None), files, Progress(None)))  # type: ignore[arg-type]
    weights = np.random.default_rng(0).integers(-127, 128, 1 << 10).astype(np.int16)
    score_model.write_model(
        str(folder / "votes.score"), weights, {"factor": 0.05, "offset": -0.25, "card": {"auc": 0.5}}
    )
    with ShardWriter(folder / "wide.tok", vocab_size=100_000, eot_id=99_999, tokenizer_hash="ab" * 32) as shard:
        shard.append(np.array([1, 65_536, 99_998], np.uint32))
        shard.append(np.array([7], np.uint32))
    return folder


def checkpoint_of(build: Path) -> Path:
    return sorted((build / "model/checkpoints").iterdir())[-1]


def section(title: str) -> str:
    """The page from a heading to the next one of the same level or above."""
    level = "#" * PAGE[: PAGE.index(f"# {title}\n") + 1].rpartition("\n")[2].count("#")
    found = re.search(
        rf"^{level} {re.escape(title)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
    assert found, title
    return found[1]


def table(text: str) -> list[list[str]]:
    """The cells of the first table in a text, without its head."""
    rows = re.search(r"^\|.*?\n\|-.*?\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert rows
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows[1].splitlines()]
    return [[cell.strip().replace(r"\|", "|").replace("`", "") for cell in row] for row in cells]


def keys_of(title: str, **others: str) -> dict[str, str]:
    """The names in a section's table, each with its type, and of the keys that the section's text names."""
    assert all(f"`{name}`" in section(title) for name in others)
    return {row[0]: row[1] for row in table(section(title))} | others


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def readers() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in blocks():
        exec(block, names)
    return names


def test_the_versions_are_those_of_the_code() -> None:
    now = {row[0]: row[2] for row in table(section("Versions"))}
    assert now == {
        "part set": str(partset.FORMAT_VERSION),
        "columns of a kind": "see [columns](#columns)",
        "values in .signatures": str(sign.CODE_VERSION),
        "token file": str(format.FORMAT_VERSION),
        "tokenizer.json": "1",
        "manifest of a tokenizer": str(corpus.MANIFEST_FORMAT),
        "checkpoint": str(checkpoints.FORMAT),
        "order of samples": str(ORDER_VERSION),
        "vote score": score_model.MAGIC.split()[-1].decode(),
        "harvest": str(harvest.FORMAT_VERSION),
    }


def test_the_header_of_a_token_file_is_the_code_s() -> None:
    """Each row begins where the one before it ends; `_FIELDS` gives the sizes up to the zeros."""
    rows = table(section("Token file"))[:10]
    parts = struct.Struct("<" + format._FIELDS.format.lstrip("<").replace(" ", "")).format.lstrip("<")
    codes = re.findall(r"(\d+s|[IQ])", parts)
    sizes = [struct.calcsize(f"<{code}") for code in codes]
    assert [int(row[1]) for row in rows[:8]] == sizes
    places = [(int(row[0]), int(row[1])) for row in rows]
    assert [start for start, _ in places[1:]] == [start + size for start, size in places[:-1]]
    assert sum(places[-1]) == format.HEADER_BYTES
    assert [row[3] == "bytes" for row in rows[:8]] == [code.endswith("s") for code in codes]


def json_type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "list"}
    return names[type(value)]


def check_types(values: dict[str, Any], types: dict[str, str], place: str = "") -> None:
    """Compare an object with its table: every key is listed, and only a key whose type has a `?` may be missing."""
    assert not values.keys() - types.keys(), f"{place} has keys that the table lacks"
    for name, kind in types.items():
        if name not in values or values[name] is None:
            assert kind.endswith("?"), f"{place} lacks {name}"
        else:
            found = json_type(values[name])
            assert kind.startswith(("number", "integer") if found == "integer" else found), (
                f"{place}: {name} is {found}"
            )


@pytest.mark.parametrize("folder", SETS)
def test_manifests_entries_and_runs_have_the_keys_of_the_page(folder: str, build: Path) -> None:
    manifest = json.loads((build / folder / "manifest.json").read_bytes())
    check_nested(manifest, keys_of("manifest.json", check="string"), folder)
    for path in (build / folder / "_parts").iterdir():
        check_nested(json.loads(path.read_bytes()), keys_of("Entry of a part", check="string"), str(path))
    run = build / folder / "run.json"
    if run.exists():
        more = {"parents": "list", "links_gone": "integer?", "links_elsewhere": "integer?"}
        check_types(json.loads(run.read_bytes()), keys_of("run.json", **more), folder)


def test_the_manifest_of_a_tokenizer_has_the_keys_of_the_page(build: Path) -> None:
    (path,) = build.rglob("tokenizer.manifest.json")
    more = {"tokenizer_hash": "string", "vocab_size": "integer", "check": "string"}
    check_types(json.loads(path.read_bytes()), keys_of("Manifest of a tokenizer", **more))


def test_our_field_of_a_tokenizer_json_has_the_keys_of_the_page(build: Path) -> None:
    check_types(json.loads((build / TOKENIZER).read_bytes())["model"]["webtext"], keys_of("tokenizer.json"))


def test_state_json_has_the_keys_of_the_page(build: Path) -> None:
    state = json.loads((checkpoint_of(build) / "state.json").read_bytes())
    lines = {name: row[1] for row in table(section("state.json")) for name in row[0].split(", ")}
    assert set(state) == set(lines)
    assert set(state["config"]) == {field.name for field in fields(GPT2Config)}
    assert set(state["result"]) == {field.name for field in fields(TrainResult)} - {"checkpoint", "step", "skipped"}
    for name in ("config", "result", "environment", "guard", "sampler"):
        assert all(key in lines[name] for key in state[name]), name


def check_nested(value: dict[str, Any], types: dict[str, str], place: str) -> None:
    """Compare an object with a table whose names may be those of nested objects and of items of lists."""
    nested: dict[str, dict[str, str]] = {"": {}}
    for name, kind in types.items():
        parent, _, key = name.rpartition(".")
        nested.setdefault(parent, {})[key] = kind
    check_types(value, nested.pop(""), place)
    for name, found in nested.items():
        for each in value[name.removesuffix("[]")] if name.endswith("[]") else [value[name]]:
            check_types(each, found, f"{place} {name}")


def test_every_file_that_the_code_names_is_on_the_page() -> None:
    """The demo's own files aren't part of a user's build, nor is the extractor's model."""
    root = Path(__file__).parents[2]
    folders = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")
    paths = [path for folder in folders for path in (root / folder).rglob("*.py") if "demo" not in path.parts]
    paths = [path for path in paths if path.parts[-2:] != ("extract", "scorer.py")]
    names = {name for path in paths for name in re.findall(r'"([a-z][a-z_-]*\.(?:jsonl?|tsv|toml))"', path.read_text())}
    assert len(names) > 20
    assert not (missing := {name for name in names if name not in PAGE}), missing


def test_a_reader_takes_thirty_lines_and_only_the_libraries_of_its_format() -> None:
    allowed = {"gzip", "hashlib", "json", "struct", "zlib", "pathlib", "numpy", "pyarrow", "safetensors", "zstandard"}
    for block in blocks():
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
                )
                assert {module.partition(".")[0] for module in modules} <= allowed
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 30, node.name


@pytest.mark.parametrize("folder", SETS)
def test_the_page_s_reader_gives_the_rows_of_a_part_set(folder: str, build: Path) -> None:
    opened = PartSet.open(str(build / folder))
    rows = [row for part in opened.parts for row in opened.table(part).to_pylist()]
    assert list(readers()["read_part_set"](build / folder)) == rows != []


def test_the_page_s_reader_gives_the_response_of_a_page(build: Path) -> None:
    rows = PartSet.open(str(build / "pages")).table(0).to_pylist()
    row = next(row for row in rows if row["outcome"] == "fetched")
    head, _, body = readers()["read_response"](build / "pages", row).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.")
    (found,) = (
        each for each in read_responses(Folder(str(build / "pages")), row["warc_file"]) if each.url == row["url"]
    )
    assert body == found.raw != b""


def test_the_page_s_reader_gives_a_signature_for_each_row_of_an_index(build: Path) -> None:
    index = PartSet.open(str(build / "index"))
    n = index.recipe["settings"]["permutations"]
    read = readers()["read_signatures"](build / "index" / index.attachment(0, ".signatures"), n)
    assert read.shape == (index.records, n)
    assert len(np.unique(read[:, 0])) > index.records / 2


@pytest.mark.parametrize("name", ["tokens/train-00000.tok", "tokens/validation-00000.tok", "wide.tok"])
def test_the_page_s_reader_gives_the_documents_of_a_token_file(name: str, build: Path) -> None:
    shard = ShardFile(build / name)
    header, documents = readers()["read_tokens"](build / name)
    assert header == {key: getattr(shard.header, key) for key in header}
    assert len(documents) == shard.header.n_documents > 0
    for document, (start, end) in zip(documents, itertools.pairwise(shard.index.tolist()), strict=True):
        assert document.dtype == shard.tokens.dtype
        assert document.tolist() == shard.tokens[start:end].tolist()


def test_the_page_s_readers_give_the_text_of_packed_documents(build: Path) -> None:
    tokens, *_ = readers()["read_tokenizer"](build / TOKENIZER)
    texts = {row["id"]: row["text"] for row in readers()["read_part_set"](build / "corpus")}
    for document in TokenShards(str(build / "tokens")).documents():
        assert b"".join(tokens[id_] for id_ in document.tokens[1:].tolist()).decode() == texts[document.id]


def test_the_page_s_reader_gives_the_tokenizer(build: Path) -> None:
    tokens, merges, specials, own = readers()["read_tokenizer"](build / TOKENIZER)
    vocabulary = Tokenizer.load(build / TOKENIZER)._vocabulary
    assert [tokens[id_] for id_ in range(len(vocabulary.tokens))] == list(vocabulary.tokens)
    assert merges == list(vocabulary.merges or ())
    assert specials == dict(vocabulary.special_tokens)
    assert (own["pattern"], own["unicode_version"]) == (vocabulary.pattern, vocabulary.unicode_version)


def test_the_page_s_reader_gives_a_checkpoint_s_tensors(build: Path) -> None:
    state, tensors = readers()["read_checkpoint"](checkpoint_of(build))
    opened = checkpoints.open_checkpoint(checkpoint_of(build))
    assert {key: value for key, value in state.items() if key != "check"} == opened.state
    of_model = {name.removeprefix("model."): array for name, array in tensors.items() if name.startswith("model.")}
    loaded = {name: tensor.numpy() for name, tensor in checkpoints.load_model(opened.path).state_dict().items()}
    assert of_model.keys() == loaded.keys()
    assert all(np.array_equal(of_model[name], loaded[name]) for name in loaded)
    states = {name.rpartition(".")[2] for name in tensors if name.startswith("optimizer.")}
    assert states == {"step", "exp_avg", "exp_avg_sq"}
    assert all(f"`{name}`" in section("Checkpoint") for name in states)


def test_the_page_s_reader_gives_the_answers_of_a_harvest(build: Path) -> None:
    answers = list(readers()["read_harvest"](build / "harvest"))
    assert answers == [{"api": "reddit", "retrieved": 1_496_318_400, "data": {"id": each}} for each in "12"]
    assert all(f"`{key}`" in section("Harvest") for key in json.loads((build / "harvest/harvest.json").read_bytes()))


def test_the_page_s_reader_gives_the_header_and_weights_of_a_vote_score(build: Path) -> None:
    header, weights = readers()["read_score"](build / "votes.score")
    opened = score_model.open_model(str(build / "votes.score"))
    assert header == opened.header
    assert np.array_equal(weights, opened.weights)
    assert all(f"`{key}`" in section("Vote score") for key in header)


def test_the_hash_of_a_tokenizer_is_computed_as_the_page_says(build: Path) -> None:
    tokens, _, specials, own = readers()["read_tokenizer"](build / TOKENIZER)
    found = hashlib.sha256(b"webtext tokenizer 1\0")
    named = [part for name, id_ in sorted(specials.items(), key=lambda item: item[1]) for part in (str(id_), name)]
    texts = [tokens[id_] for id_ in sorted(tokens) if id_ not in specials.values()]
    for items in ([f"{own['pattern']} {own['unicode_version']}".encode()], [part.encode() for part in named], texts):
        found.update(b"%d\0" % len(items) + b"".join(b"%d\0%b" % (len(item), item) for item in items))
    assert found.hexdigest() == Tokenizer.load(build / TOKENIZER).hash


@pytest.mark.parametrize("folder", SETS)
def test_the_record_digest_is_computed_as_the_page_says(folder: str, build: Path) -> None:
    opened = PartSet.open(str(build / folder))
    rows, found = opened.table(0), hashlib.sha256()

    def add(values: list[Any], kind: pa.DataType) -> None:
        found.update(np.packbits(np.array([value is not None for value in values], bool)).tobytes())
        if pa.types.is_struct(kind):
            for field in kind:
                found.update(field.name.encode() + b"\0")
                add([value[field.name] for value in values], field.type)
        elif pa.types.is_list(kind):
            found.update(np.array([len(value) for value in values], "<i8").tobytes())
            add([item for value in values for item in value], kind.value_type)
        elif pa.types.is_string(kind):
            texts = [(value or "").encode() for value in values]
            found.update(np.array([len(text) for text in texts], "<i8").tobytes() + b"".join(texts))
        else:
            dtype = "u1" if pa.types.is_boolean(kind) else kind.to_pandas_dtype()
            found.update(np.array([value or 0 for value in values], dtype).tobytes())

    for field in rows.schema:
        found.update(field.name.encode() + b"\0")
        add(rows[field.name].to_pylist(), field.type)
    digest, attached = found.hexdigest(), opened.parts[0].attachments
    if tokens := [[each.name, each.sha256] for each in attached if each.name.endswith(".tok")]:
        digest = hashlib.sha256(json.dumps([digest, *tokens], separators=(",", ":")).encode()).hexdigest()
    assert opened.parts[0].record_digest == digest


def test_every_reader_of_the_page_is_run_here(build: Path) -> None:
    source = inspect.getsource(inspect.getmodule(test_every_reader_of_the_page_is_run_here))  # type: ignore[arg-type]
    names = re.findall(r"^def (\w+)", "\n".join(blocks()), re.MULTILINE)
    assert len(names) == 8
    assert all(f'readers()["{name}"]' in source for name in names)


# Another version: rejected with an error that names the version.


def of_set(build: Path) -> None:
    replace(build / "corpus/manifest.json", b'"format": 1', b'"format": 2')
    PartSet.open(str(build / "corpus"))


def of_tokens(build: Path) -> None:
    data = bytearray((build / "wide.tok").read_bytes())
    data[8:12] = struct.pack("<I", 99)
    data[252:256] = struct.pack("<I", zlib.crc32(data[:252]))
    (build / "wide.tok").write_bytes(data)
    ShardFile(build / "wide.tok")


def of_tokenizer(build: Path) -> None:
    replace(build / TOKENIZER, b'"format": 1', b'"format": 2')
    Tokenizer.load(build / TOKENIZER)


def of_checkpoint(build: Path) -> None:
    path = checkpoint_of(build) / "state.json"
    state = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "check"}
    path.write_text(json.dumps(with_check(state | {"format": 3})))
    checkpoints.open_checkpoint(checkpoint_of(build))


def of_harvest(build: Path) -> None:
    replace(build / "harvest/harvest.json", b'"format": 1', b'"format": 2')
    harvest.HarvestFiles(Folder(str(build / "harvest"))).about()


def of_score(build: Path) -> None:
    replace(build / "votes.score", score_model.MAGIC, score_model.MAGIC.replace(b"1", b"2"))
    score_model.open_model(str(build / "votes.score"))


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (of_set, "has format 2; this version reads 1"),
        (of_tokens, "version is 99\nthis version of webtext reads version"),
        (of_tokenizer, "was written by another version of webtext"),
        (of_checkpoint, "has checkpoint format 3, but this webtext reads format 2"),
        (of_harvest, "has format 2; this version reads 1"),
        (of_score, "is not a vote score of version 1"),
    ],
)
def test_another_version_is_rejected(load: Callable[[Path], None], message: str, build: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(build, tmp_path / "build")
    with pytest.raises(WebtextError, match=message):
        load(copied)
