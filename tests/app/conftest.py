"""A whole build in small, written part by part: eight links, and every way that one can end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from webtext.base.parts.counts import Counts
from webtext.base.parts.identifiers import link_id, text_digest
from webtext.base.parts.partset import FailedRecord, PartSet
from webtext.base.parts.recipe import Recipe, with_check
from webtext.base.parts.schemas import SCHEMAS
from webtext.base.parts.stage import SetWriter
from webtext.shards.shardfile import ShardWriter

SCRIPT = "<script>alert('&\"')</script>"
URLS = {
    "kept": "http://kept.example/",
    "copy": "http://copy.example/",
    "short": "http://short.example/",
    "forbidden": "http://forbidden.example/",
    "moved": "http://moved.example/",
    "deep": "http://deep.example/",
    "empty": "http://empty.example/",
    "held": "http://held.example/",
}
TEXTS = {
    "kept": f"{SCRIPT} and the words that people voted for. " * 40,
    "copy": f"{SCRIPT} and the words that people voted for. " * 40,
    "short": "Too short <b>to be</b> kept.",
    "held": "A page that is held out, word by word. " * 40,
}
IDS = {name: text_digest(name) for name in TEXTS}
TARGET_URLS = URLS | {"kept": f"http://kept.example/?q={SCRIPT}", "copy": f"http://copy.example/{SCRIPT}"}
MODEL_SAMPLE = f"The model says {SCRIPT}"


def write_set(
    folder: Path,
    kind: str,
    parts: Sequence[Sequence[Mapping[str, Any]]],
    *,
    settings: Mapping[str, Any] | None = None,
    counts: Counts | None = None,
    failures: Sequence[FailedRecord] = (),
    shards: Mapping[str, Sequence[Any]] | None = None,
    seconds: float = 1.5,
) -> PartSet:
    """A sealed set with these counts in all; failures are in its first part. Columns that a row lacks are 0, "" or null."""
    writer = SetWriter(str(folder), kind, Recipe(stage=f"test.{kind}", code_version=1, settings=settings or {}))
    done = []
    for index, rows in enumerate(parts):
        with writer.part(index, key=f"{kind} {index}") as part:
            if any(row.keys() - set(SCHEMAS[kind].names) for row in rows):
                part.widen(kind)
            if index == 0 and counts is not None:
                later = sum(map(len, parts[1:]))
                part.counts = Counts(counts.records_in - later, counts.kept - later, counts.dropped, counts.failed)
                part.name_failures(failures)
            part.write([_blank(kind) | dict(row) for row in rows])
            for name, documents in (shards or {}).items():
                with ShardWriter(part.attach(name), vocab_size=257, eot_id=256, tokenizer_hash="ab" * 32) as shard:
                    for tokens in documents:
                        shard.append(tokens)
                part.describe(name, shard.in_manifest())
            done.append(part.publish())
    return writer.seal(done, run={"seconds": seconds})


def _blank(kind: str) -> dict[str, Any]:
    def of(field: pa.Field) -> Any:
        if field.nullable:
            return None
        if pa.types.is_list(field.type):
            return []
        return "" if pa.types.is_string(field.type) else 0

    return {field.name: of(field) for field in SCHEMAS[kind]}


def link(name: str, karma: int) -> dict[str, Any]:
    post = {"source": "reddit", "post_id": f"p-{name}", "subreddit": "test", "score": karma, "created": 1_483_228_800}
    return {
        "link_id": link_id(URLS[name]),
        "url": URLS[name],
        "url_raw": URLS[name],
        "domain": URLS[name].split("/")[2],
        "karma": karma,
        "karma_sum": karma,
        "first_created": 1_483_228_800,
        "posts": [post | {"retrieved": None}],
        "split": "validation" if name == "held" else "train",
    }


NOTICE = {"rule": "robots_disallowed", "source": "http://forbidden.example/robots.txt", "noticed": 1_600_000_000}


def page(
    name: str, outcome: str = "fetched", reason: str | None = None, offset: int = 0, **more: Any
) -> dict[str, Any]:
    fetched = outcome == "fetched"
    return {
        "link_id": link_id(URLS[name]),
        "url": URLS[name],
        "final_url": URLS[name],
        "outcome": outcome,
        "reason": reason,
        "status": 200 if fetched else None,
        "source": "web",
        "captured": 1_600_000_000,
        "voted": 1_483_228_800,
        "split": "validation" if name == "held" else "train",
        "warc_file": "part-00000.warc.gz" if fetched else None,
        "warc_offset": offset if fetched else None,
        **more,
    }


def document(name: str, *also: str) -> dict[str, Any]:
    return {
        "id": IDS[name],
        "link_ids": [link_id(URLS[each]) for each in (name, *also)],
        "posts": [],
        "url": TARGET_URLS[name],
        "text": TEXTS[name],
        "text_digest": text_digest(TEXTS[name]),
        "title": f"Title {SCRIPT}",
        "date": 1_600_000_000,
        "domain": f"{name}.example",
        "language": "en",
        "language_score": 0.98,
        "extractor_agreement": 0.42 if name == "kept" else None,
        "karma": 12,
        "split": "validation" if name == "held" else "train",
    }


def signals(name: str) -> dict[str, Any]:
    return {"id": IDS[name], "n_characters": len(TEXTS[name]), "n_words": len(TEXTS[name].split())}


def decision(
    name: str, stage: str, reason: str, value: float, threshold: float, twin: str | None = None
) -> dict[str, Any]:
    return {
        "id": IDS[name],
        "url": TARGET_URLS[name],
        "stage": stage,
        "reason": reason,
        "value": value,
        "threshold": threshold,
        "duplicate_of": twin and IDS[twin],
        "text_start": TEXTS[name][:200],
    }


def write_links(build: Path) -> None:
    rows = [link(name, 12) for name in URLS]
    counts = Counts(12, len(rows), {"too_little_karma": 3}, {"invalid_json": 1})
    write_set(build / "links", "links", [rows[:5], rows[5:]], counts=counts)


def write_build(build: Path) -> None:
    write_links(build)
    pages = [
        page("kept", offset=10),
        page("copy", offset=20),
        page("short", offset=30),
        page("forbidden", "refused", "robots_disallowed", opt_outs=["robots_disallowed"], opt_out_evidence=[NOTICE]),
        page("moved", "linked", "redirects_to_link", final_url=URLS["kept"], redirects=[URLS["moved"]]),
        page("deep", offset=40),
        page("empty", offset=50),
        page("held", offset=60),
    ]
    counts = Counts(8, 6, {"robots_disallowed": 1, "redirects_to_link": 1}, {})
    write_set(build / "pages", "pages", [pages], counts=counts)
    failure = FailedRecord(f"part-00000.warc.gz:40 {URLS['deep']}", "too_deep", f"100,000 levels {SCRIPT}")
    rows = [document("kept", "moved"), document("copy"), document("short"), document("held")]
    counts = Counts(6, 4, {"empty_text": 1}, {"too_deep": 1})
    write_set(build / "documents", "documents", [rows[:2], rows[2:]], counts=counts, failures=[failure])
    write_set(build / "signals", "signals", [[signals("kept"), signals("copy")], [signals("short"), signals("held")]])
    rules = {"rules": {"profile": "minimal", "rule": []}}
    counts = Counts(4, 2, {"exact_duplicate": 1, "too_few_words": 1}, {})
    write_set(build / "corpus", "corpus", [rows[:1], rows[3:]], counts=counts, settings=rules)
    copy = decision("copy", "dedup", "exact_duplicate", 1.0, 0.8, "kept")
    write_set(build / "dropped", "dropped", [[copy], [decision("short", "filter", "too_few_words", 5, 100)]])
    write_tokens(build)
    write_model(build / "model")


def write_tokens(build: Path) -> None:
    tokens = {name: np.frombuffer(TEXTS[name].encode(), np.uint8).astype(np.uint16) for name in ("kept", "held")}
    rows = [
        {"shard": f"{split}-00000.tok", "start": 0, "length": len(tokens[name]) + 1, "id": IDS[name],
         "source_part": part, "row": 0}
        for name, split, part in (("kept", "train", "part-00000.parquet"), ("held", "validation", "part-00001.parquet"))
    ]  # fmt: skip
    write_set(
        build / "tokens",
        "tokens",
        [rows],
        settings={"vocab_size": 257, "eot_id": 256, "tokenizer_hash": "ab" * 32},
        shards={"train-00000.tok": [tokens["kept"]], "validation-00000.tok": [tokens["held"]]},
    )
    manifest = build / "tokens" / "manifest.json"
    value = json.loads(manifest.read_text())
    value["parents"] = [{"kind": "corpus", "hash": "0" * 64}]
    del value["check"]
    manifest.write_text(json.dumps(with_check(value)))


def write_model(model: Path) -> None:
    """metrics.jsonl and evaluation.json in the form that `train` leaves them."""
    model.mkdir()
    rows: list[dict[str, Any]] = [{"step": 0, "validation_loss": 5.6, "perplexity": 270.4}]
    for step in range(1, 1001):
        loss = 5.6 - 2 * step / 1000
        rows.append({"step": step, "loss": loss, "learning_rate": 1e-3, "grad_norm": 0.5, "tokens_per_second": 9e3})
        if step % 250 == 0:
            rows.append({"step": step, "validation_loss": loss + 0.1, "perplexity": 2.718 ** (loss + 0.1)})
    (model / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = {"model": str(model), "step": 1000, "tokens": 4321, "key": "k"}
    evaluation |= {"perplexity": 40.5, "bits_per_byte": 1.9, "sample": MODEL_SAMPLE}
    (model / "evaluation.json").write_text(json.dumps(evaluation))


@pytest.fixture(scope="session")
def written_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole small build; nobody writes into it."""
    build = tmp_path_factory.mktemp("written") / "build"
    write_build(build)
    return build


@pytest.fixture(scope="session")
def only_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that went no further than its links."""
    build = tmp_path_factory.mktemp("links") / "build"
    write_links(build)
    return build
