"""docs/formats.md: its tables equal the code, and its readers give what the package's own readers give."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import shutil
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from webtext.app.inspect.held_out import Sample
from webtext.app.inspect.memorized import find_memorized
from webtext.app.reports.report import make_report
from webtext.base.parts import partset
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import Attachment, Failure, Part, PartSet, Source
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import NOTICE, POST, RELEASE, REMOVAL, SCHEMAS, SCORED_SIGNALS, SIGNALS
from webtext.base.run import Run
from webtext.clean.decontaminate import kept_filter
from webtext.clean.decontaminate.comparison import examples_of
from webtext.clean.dedup import sign
from webtext.clean.score import model as score_model
from webtext.crawl.apis import harvest
from webtext.shards import TokenShards, format
from webtext.shards.sampling.stream import ORDER_VERSION
from webtext.shards.shardfile import ShardFile
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.files import corpus
from webtext.tokenizer.train.counts import PieceCounts
from webtext.train.checkpoint import checkpoint as checkpoints
from webtext.train.run.loop import TrainResult
from webtext.train.shape import GPT2Config

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text()
GOLDEN = Path(__file__).parent / "files"
STRUCTS = {"post": POST, "notice": NOTICE, "removed post": REMOVAL.field("posts").type.value_type}
SETS = sorted(path.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("manifest.json"))
for older in ("refused/index", "documents"):  # their columns are those of an earlier version
    SETS.remove(older)


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


def keys_of(title: str) -> dict[str, str]:
    """The names in a section's table, each with its type."""
    return {row[0]: row[1] for row in table(section(title))}


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def readers() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in blocks():
        exec(block, names)
    return names


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    return next((name for name, struct in STRUCTS.items() if struct.equals(kind)), str(kind))


def column(field: pa.Field) -> list[str]:
    meaning = (field.metadata or {}).get(b"meaning", b"").decode().replace("`", "")
    return [field.name, type_name(field.type) + "?" * field.nullable, meaning]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_columns_of_every_kind_are_those_of_the_code(kind: str) -> None:
    title = "documents, corpus, release" if kind in ("documents", "corpus", "release") else kind
    rows = table(section(title))
    if kind == "release":
        left_out = re.search(r"`release` has no ([^.]*)\.", PAGE)
        assert left_out
        rows = [row for row in rows if f"`{row[0]}`" not in left_out[1]]
        assert [row[0] for row in rows] == RELEASE.names
    assert rows == [column(field) for field in SCHEMAS[kind]]


def test_the_column_of_a_model_is_the_code_s() -> None:
    text = section("signals")
    assert table(text[text.rindex("| column |") :]) == [column(SCORED_SIGNALS.field("vote_score"))]
    assert SCORED_SIGNALS.names == [*SIGNALS.names, "vote_score"]


@pytest.mark.parametrize("name", STRUCTS)
def test_the_fields_of_a_struct_are_those_of_the_code(name: str) -> None:
    rows = table(PAGE[PAGE.index(f"A {name}:\n") :])
    assert [row[:2] for row in rows] == [column(field)[:2] for field in STRUCTS[name]]


def test_the_versions_are_those_of_the_code() -> None:
    now = {row[0]: row[2] for row in table(section("Versions"))}
    magic = kept_filter.MAGIC.split()[-1].decode()
    assert now == {
        "part set": str(partset.FORMAT_VERSION),
        "columns of a kind": "see [columns](#columns)",
        "values in .signatures": str(sign.CODE_VERSION),
        "token file": str(format.FORMAT_VERSION),
        "tokenizer.json": "1",
        "manifest of a tokenizer or of counts": str(corpus.MANIFEST_FORMAT),
        "piece counts": "1",
        "checkpoint": str(checkpoints.FORMAT),
        "order of samples": str(ORDER_VERSION),
        "n-gram filter": magic,
        "vote score": score_model.MAGIC.split()[-1].decode(),
        "harvest": str(harvest.FORMAT_VERSION),
    }


def test_the_header_of_a_token_file_is_the_code_s() -> None:
    """Each row begins where the one before it ends; `_FIELDS` gives the sizes up to the zeros."""
    rows = table(section("Token file"))[:12]
    parts = struct.Struct("<" + format._FIELDS.format.lstrip("<").replace(" ", "")).format.lstrip("<")
    codes = re.findall(r"(\d+s|[IQ])", parts)
    sizes = [struct.calcsize(f"<{code}") for code in codes]
    assert [int(row[1]) for row in rows[:10]] == sizes
    places = [(int(row[0]), int(row[1])) for row in rows]
    assert [start for start, _ in places[1:]] == [start + size for start, size in places[:-1]]
    assert sum(places[-1]) == format.HEADER_BYTES
    assert [row[3] == "bytes" for row in rows[:10]] == [code.endswith("s") for code in codes]


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
def test_manifests_entries_and_runs_have_the_keys_of_the_page(folder: str) -> None:
    manifest = json.loads((GOLDEN / folder / "manifest.json").read_bytes())
    check_types(manifest, keys_of("manifest.json"), folder)
    for path in (GOLDEN / folder / "_parts").iterdir():
        check_types(json.loads(path.read_bytes()), keys_of("Entry of a part"), str(path))
    run = GOLDEN / folder / "run.json"
    if run.exists():
        check_types(json.loads(run.read_bytes()), keys_of("run.json"), folder)


def test_an_entry_has_the_keys_that_the_reader_accepts() -> None:
    types = keys_of("Entry of a part")
    assert list(types) == [*(["name", "generation", "records", "bytes", "sha256", "record_digest", "key", "sources"]),
                           *["counts", "attachments", "failures", "check"]]  # fmt: skip
    assert set(types) == {field.name for field in fields(Part)} | {"check"}
    text = section("Entry of a part")
    for row, cls in (("sources", Source), ("attachments", Attachment), ("counts", Counts), ("failures", Failure)):
        meaning = next(line for line in text.splitlines() if line.startswith(f"| `{row}`"))
        assert all(f"`{field.name}`" in meaning for field in fields(cls)), row


def test_a_recipe_has_the_keys_of_the_page() -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("| `recipe` | object | what determines"))
    assert re.findall(r"`(\w+)`", line)[1:] == [field.name for field in fields(Recipe)]


@pytest.mark.parametrize("name", ["tokenizer.manifest.json", "corpus.counts.manifest.json"])
def test_the_manifest_of_a_tokenizer_has_the_keys_of_the_page(name: str) -> None:
    check_types(json.loads((GOLDEN / name).read_bytes()), keys_of("Manifest of a tokenizer"), name)


def test_our_field_of_a_tokenizer_json_has_the_keys_of_the_page() -> None:
    check_types(json.loads((GOLDEN / "tokenizer.json").read_bytes())["model"]["webtext"], keys_of("tokenizer.json"))


def test_state_json_has_the_keys_of_the_page() -> None:
    state = json.loads((GOLDEN / "model/checkpoints/step-000004/state.json").read_bytes())
    check_types(state, keys_of("state.json"))
    lines = {row[0]: row[2] for row in table(section("state.json"))}
    assert set(state["config"]) == {field.name for field in fields(GPT2Config)}
    assert set(state["result"]) == {field.name for field in fields(TrainResult)} - {"checkpoint", "step", "skipped"}
    for name in ("config", "result", "environment", "guard", "sampler"):
        assert all(key in lines[name] for key in state[name]), name


def test_the_header_of_a_filter_has_the_keys_of_the_page() -> None:
    text = section("N-gram filter")
    rows = table(text[text.index("| key |") :])
    assert [row[0] for row in rows] == [field.name for field in fields(kept_filter.FilterHeader)]
    assert [row[1] for row in rows] == [
        {"int": "integer", "str": "string"}[str(field.type)] for field in fields(kept_filter.FilterHeader)
    ]


def test_a_report_has_the_keys_of_the_page() -> None:
    recorded = json.loads((GOLDEN / "report.json").read_bytes())
    for report in (recorded, json.loads(json.dumps(make_report(str(GOLDEN))))):
        check_nested(report, "report.json")


def test_what_a_model_memorised_has_the_keys_of_the_page(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "corpus", tmp_path / "corpus")
    text = PartSet.open(str(GOLDEN / "corpus")).table(0)["text"][0].as_py()
    found = find_memorized(str(tmp_path), [Sample("a", text, None)], [], 1, Run.quiet())
    check_nested(json.loads(json.dumps(found)), "memorized.json")


def check_nested(value: dict[str, Any], title: str) -> None:
    """Compare an object with a section's table, whose names may be those of nested objects and of items of lists."""
    nested: dict[str, dict[str, str]] = {"": {}}
    for name, kind in keys_of(title).items():
        parent, _, key = name.rpartition(".")
        nested.setdefault(parent, {})[key] = kind
    check_types(value, nested[""], title)
    for name in nested.keys() - {""}:
        found = value.get(name.removesuffix("[]"), [])  # a key that is missing has a question mark, see check_types
        for each in found if name.endswith("[]") else [found]:
            check_types(each, nested[name], name)


def test_every_file_that_the_code_names_is_on_the_page() -> None:
    """The demo's own files aren't part of a user's build, nor those that the extractor's model is learned from."""
    root = Path(__file__).parents[2]
    folders = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")
    paths = [path for folder in folders for path in (root / folder).rglob("*.py") if "demo" not in path.parts]
    paths = [path for path in paths if path.parts[-2:] not in (("extract", "learn.py"), ("extract", "scorer.py"))]
    names = {name for path in paths for name in re.findall(r'"([a-z][a-z_-]*\.(?:jsonl?|tsv|toml))"', path.read_text())}
    assert len(names) > 25
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
def test_the_page_s_reader_gives_the_rows_of_a_part_set(folder: str) -> None:
    opened = PartSet.open(str(GOLDEN / folder))
    rows = [row for part in opened.parts for row in opened.table(part).to_pylist()]
    assert list(readers()["read_part_set"](GOLDEN / folder)) == rows != []


def test_the_page_s_reader_gives_the_response_of_a_page() -> None:
    rows = PartSet.open(str(GOLDEN / "pages")).table(0).to_pylist()
    row = next(row for row in rows if row["url"].endswith("/short"))
    head, _, body = readers()["read_response"](GOLDEN / "pages", row).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert (
        body == b"<html><head><title>Page short</title></head><body><article><p>Too short.</p></article></body></html>"
    )


def test_the_page_s_reader_gives_a_signature_for_each_row_of_an_index() -> None:
    index = PartSet.open(str(GOLDEN / "index"))
    n = index.recipe["settings"]["permutations"]
    read = readers()["read_signatures"](GOLDEN / "index" / index.attachment(0, ".signatures"), n)
    assert read.shape == (index.records, n)
    assert read[:, :3].tolist() == [
        [10075563, 15576712, 14007140],
        [12840344, 15576712, 9752581],
        [65913246, 45767682, 8704177],
        [7451177, 55285661, 14232451],
    ]


@pytest.mark.parametrize("name", ["tokens/train-00000.tok", "tokens/validation-00000.tok", "wide.tok"])
def test_the_page_s_reader_gives_the_documents_of_a_token_file(name: str) -> None:
    shard = ShardFile(GOLDEN / name)
    header, documents = readers()["read_tokens"](GOLDEN / name)
    assert header == {key: getattr(shard.header, key) for key in header}
    assert len(documents) == shard.header.n_documents > 0
    for i, document in enumerate(documents):
        assert document.dtype == shard.tokens.dtype
        assert document.tolist() == shard.document(i).tolist()


def test_the_page_s_readers_give_the_text_of_packed_documents() -> None:
    tokens, *_ = readers()["read_tokenizer"](GOLDEN / "tokenizer.json")
    texts = {row["id"]: row["text"] for row in readers()["read_part_set"](GOLDEN / "corpus")}
    for document in TokenShards(str(GOLDEN / "tokens")).documents():
        assert b"".join(tokens[id_] for id_ in document.tokens[1:].tolist()).decode() == texts[document.id]


def test_the_page_s_reader_gives_the_tokenizer() -> None:
    tokens, merges, specials, own = readers()["read_tokenizer"](GOLDEN / "tokenizer.json")
    loaded = Tokenizer.load(GOLDEN / "tokenizer.json")
    vocabulary = loaded._vocabulary
    assert [tokens[id_] for id_ in range(len(vocabulary.tokens))] == list(vocabulary.tokens)
    assert merges == list(vocabulary.merges or ())
    assert specials == dict(vocabulary.special_tokens) == {"<|endoftext|>": 299}
    assert (own["pattern"], own["unicode_version"]) == (vocabulary.pattern, vocabulary.unicode_version)
    for piece in (" village", " remembered", "wasn", " 数字"):
        assert readers()["encode_piece"](piece.encode(), tokens, merges) == loaded.encode(piece)


def test_the_page_s_reader_gives_piece_counts() -> None:
    pattern, unicode_version, counts = readers()["read_counts"](GOLDEN / "corpus.counts")
    loaded = PieceCounts(pattern, unicode_version)  # accepts only files of its own pattern and version
    loaded.add_file(GOLDEN / "corpus.counts")
    assert counts == dict(loaded.items())


def test_the_page_s_reader_gives_a_checkpoint_s_tensors() -> None:
    state, tensors = readers()["read_checkpoint"](GOLDEN / "model/checkpoints/step-000004")
    opened = checkpoints.open_checkpoint(GOLDEN / "model/checkpoints/step-000004")
    assert state == opened.state
    of_model = {name.removeprefix("model."): array for name, array in tensors.items() if name.startswith("model.")}
    loaded = {name: tensor.numpy() for name, tensor in checkpoints.load_model(opened.path).state_dict().items()}
    assert of_model.keys() == loaded.keys()
    assert all(np.array_equal(of_model[name], loaded[name]) for name in loaded)
    states = {name.rpartition(".")[2] for name in tensors if name.startswith("optimizer.")}
    assert states == {"step", "exp_avg", "exp_avg_sq"}
    assert all(f"`{name}`" in section("Checkpoint") for name in states)


def test_the_page_s_reader_gives_the_answers_of_a_harvest() -> None:
    answers = list(readers()["read_harvest"](GOLDEN / "harvest"))
    story = {"id": 1, "type": "story", "url": "http://127.0.0.1:18017/train-a", "score": 5, "time": 1_483_228_800}
    assert answers == [{"api": "firebase", "retrieved": 1_496_318_400, "data": data} for data in (story, None)]
    check_types(json.loads((GOLDEN / "harvest/harvest.json").read_bytes()), keys_of("Harvest"))


def test_the_page_s_reader_finds_the_n_grams_of_a_filter(tmp_path: Path) -> None:
    header, has = readers()["read_filter"](GOLDEN / "corpus.filter")
    opened, _ = kept_filter.open_filter(GOLDEN / "corpus.filter")
    assert header == {field.name: getattr(opened, field.name) for field in fields(opened)}
    text = tmp_path / "example.txt"
    text.write_text(
        PartSet.open(str(GOLDEN / "corpus")).table(0)["text"][0].as_py()[:300]
        + " eight words that no document has at all"
    )
    hashes = examples_of(kept_filter.evaluation_sets([str(text)]), header["words"]).table.hashes().tolist()
    found = [has(hashed) for hashed in hashes]
    assert found[:10] == [True] * 10
    assert not any(found[-1:])
    assert sum(found) == len(found) - 8


def test_the_page_s_reader_gives_the_header_and_weights_of_a_vote_score() -> None:
    header, weights = readers()["read_score"](GOLDEN / "votes.score")
    opened = score_model.open_model(str(GOLDEN / "votes.score"))
    assert header == opened.header
    assert np.array_equal(weights, opened.weights)
    text = section("Vote score")
    check_types(header, {row[0]: row[1] for row in table(text[text.index("| key |") :])}, "votes.score")


def test_the_hash_of_a_tokenizer_is_computed_as_the_page_says() -> None:
    tokens, _, specials, own = readers()["read_tokenizer"](GOLDEN / "tokenizer.json")
    found = hashlib.sha256(b"webtext tokenizer 1\0")
    named = [part for name, id_ in sorted(specials.items(), key=lambda item: item[1]) for part in (str(id_), name)]
    texts = [tokens[id_] for id_ in sorted(tokens) if id_ not in specials.values()]
    for items in ([f"{own['pattern']} {own['unicode_version']}".encode()], [part.encode() for part in named], texts):
        found.update(b"%d\0" % len(items) + b"".join(b"%d\0%b" % (len(item), item) for item in items))
    assert found.hexdigest() == Tokenizer.load(GOLDEN / "tokenizer.json").hash


@pytest.mark.parametrize("folder", SETS)
def test_the_record_digest_is_computed_as_the_page_says(folder: str) -> None:
    """All golden parts have one block of rows."""
    opened = PartSet.open(str(GOLDEN / folder))
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


def test_every_reader_of_the_page_is_run_here() -> None:
    source = inspect.getsource(inspect.getmodule(test_every_reader_of_the_page_is_run_here))  # type: ignore[arg-type]
    names = re.findall(r"^def (\w+)", "\n".join(blocks()), re.MULTILINE)
    assert len(names) == 11
    assert all(f'readers()["{name}"]' in source for name in names)
