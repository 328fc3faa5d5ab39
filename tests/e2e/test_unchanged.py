"""A change that should not alter results alters none: a small build from fixed pages is compared with what was recorded.

`python tests/e2e/test_unchanged.py` records what the build gives now; that belongs in the change that means to alter it, with a
line in docs/CHANGELOG.md. Files are compared by their records, ids and losses, since file bytes depend on library versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from webtext.app.main import run
from webtext.shards import TokenShards

RECORDED = Path(__file__).with_suffix(".json")
SENTENCE = """\
the baker|an old sailor|my neighbour|the teacher|a young doctor|the farmer|her brother|the engineer
walked slowly to|remembered|wrote a long letter about|never came back from|could see|painted|sold
the harbour|a stone bridge|the railway station|the market in the square|that quiet garden|the lighthouse
because it had rained all day|before the winter came|and nobody knew why|when they were still children
"""
MODEL = "n-layer=1 n-head=2 n-embd=32 context=64 batch-size=4 microbatch-size=4 steps=8 warmup-steps=2"


def text(chance: random.Random, n_sentences: int) -> str:
    """Plain English with a number in each sentence, so that documents differ."""
    parts = [line.split("|") for line in SENTENCE.splitlines()]
    sentences = (" ".join(map(chance.choice, parts)).capitalize() for _ in range(n_sentences))
    return " ".join(f"{sentence} in the year {chance.randrange(1000, 2000)}." for sentence in sentences)


def pages() -> list[tuple[str, str]]:
    """URL and HTML: articles, and what each stage drops or reads in its own way."""
    chance = random.Random(17)
    bodies = [text(chance, chance.randrange(12, 60)) for _ in range(60)]
    bodies += [bodies[0], bodies[1] + " One more sentence was added to the end of this page.", "Too short.", ""]
    bodies += ["Das ist ein deutscher Satz über einen Hafen und eine Brücke, den niemand lesen wollte. " * 30]
    bodies += [text(chance, 20) + "</p><pre>def run(x):\n    return x  # a comment\n</pre><p>" + text(chance, 20)]
    bodies += [text(chance, 30) + " “Quotes”, naïve café, 数字, 🙂 and 1,234.5 remain." for _ in range(4)]
    menu = "<nav><ul>" + "".join(f"<li><a href='/{i}'>Section {i}</a></li>" for i in range(12)) + "</ul></nav>"
    page = "<html><head><title>Page {}</title></head><body>{}<article><h1>Page {}</h1><p>{}</p></article></body></html>"
    return [(f"http://site-{i % 7}.example/{i}", page.format(i, menu, i, body)) for i, body in enumerate(bodies)]


def write_warc(path: Path) -> None:
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, (url, body) in enumerate(pages()):
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
            fixed = {"WARC-Date": "2017-06-01T12:00:00Z", "WARC-Record-ID": uuid.UUID(int=number).urn}
            stream = io.BytesIO(body.encode())
            writer.write_record(
                writer.create_warc_record(url, "response", stream, http_headers=head, warc_headers_dict=fixed)
            )


def build(folder: Path) -> dict[str, Any]:
    """Build from the pages; the digests of all records, the tokenizer, the ids and the losses."""
    write_warc(folder / "pages.warc.gz")
    commands = [
        "clean run pages.warc.gz --out build",
        "tokenizer train build/corpus --out tokenizer.json --vocab-size 600",
        "shards pack build/corpus --tokenizer tokenizer.json --out tokens",
        "train run tokens --out model " + " ".join(f"--{each}" for each in MODEL.split()),
    ]
    with contextlib.chdir(folder):
        for command in commands:
            assert run(command.split()) == 0
    found: dict[str, Any] = {}
    for name in ("documents", "signals", "corpus", "dropped"):
        manifest = json.loads((folder / "build" / name / "manifest.json").read_bytes())
        parts = sorted((folder / "build" / name).glob("*.parquet"))
        rows = [row for part in parts for row in parquet.read_table(part).to_pylist()]
        records = [{key: value for key, value in row.items() if key != "warc_file"} for row in rows]  # an absolute path
        found[name] = {"counts": manifest["counts"], "records": digest(json.dumps(records, sort_keys=True).encode())}
    found["merges"] = digest(
        json.dumps(json.loads((folder / "tokenizer.json").read_bytes())["model"]["merges"]).encode()
    )
    for split in ("train", "validation"):
        shards = TokenShards(str(folder / "tokens"), split=split)
        found[f"{split} ids"] = [digest(shards.tokens(i).tobytes()) for i in range(len(shards))]
    rows = map(json.loads, (folder / "model/metrics.jsonl").read_text().splitlines())
    found["losses"] = [row["loss"] for row in rows if "loss" in row]
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_small_build_gives_the_recorded_records_ids_and_losses(tmp_path: Path) -> None:
    recorded, found = json.loads(RECORDED.read_text()), build(tmp_path)
    assert found.pop("losses") == pytest.approx(recorded.pop("losses"), rel=1e-6)
    assert found == recorded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        RECORDED.write_text(json.dumps(build(Path(name)), indent=1) + "\n")
