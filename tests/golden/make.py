"""Makes the golden files: one small build by the package's own commands, from texts made here.

    python tests/golden/make.py tests/golden/files

Run it when a format gets a new version, into another folder: the older files stay, because they must stay readable.
Never run it to make a test pass. The commands are a user's. Only these are written by the package's writers directly:
`removals/` and `harvest/` (their commands ask APIs), `older/pages/` (of an earlier version: no column `posts`, failures
in the manifest), `votes.score` and `wide.tok` (four bytes per token). Scratch files, pages for people and the machine's name
are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from webtext.app.main import run
from webtext.base.parts import partwriter
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import Failure
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import OLDER
from webtext.base.progress import Progress
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.score.model import write_model
from webtext.crawl.apis.harvest import HarvestFiles, Step, harvest
from webtext.crawl.fetch.run import fetch_pages
from webtext.crawl.pages.open_part import OpenPart
from webtext.crawl.visits.settings import FetchSettings
from webtext.shards.shardfile import ShardWriter

WORDS = [
    "harbour", "granite", "evening", "railway", "orchard", "lantern", "winter", "market", "garden", "bridge", "river",
    "window", "letter", "teacher", "morning", "station", "village", "mountain", "summer", "kitchen", "library", "engine",
    "doctor", "painter", "island", "forest",
]  # fmt: skip
VERBS = ["crossed", "remembered", "painted", "followed", "repaired", "described", "visited", "watched"]
PATHS = ("train-a", "train-b", "held-out-3", "copy-of-a", "short", "moved", "gone", "damaged", "train-d")
PORT = 18_017  # fixed, because ids and splits are hashes of URLs
CREATED, READ = 1_483_228_800, 1_496_318_400  # when the posts were made, and when their scores were read
TRAIN = """--n-layer 1 --n-head 2 --n-embd 8 --context 16 --batch-size 2 --microbatch-size 2 --steps 6 --warmup-steps 2
--learning-rate 1e-2 --threads 1 --device cpu --dtype float32 --eval-interval 2 --eval-windows 4
--checkpoint-interval 2 --keep-checkpoints 1"""
LEFT_OUT = """_dedup corpus/README.md corpus/croissant.json published/links published/recipe.toml report.html RS_2017-01
pages/clocks.tsv killed/pages/clocks.tsv"""


def article(seed: int) -> str:
    """Twelve English sentences, other ones for each seed."""
    chance = random.Random(seed)
    sentence = "The {} of the {} {} the {} in {}, and it wasn't the last time."
    return " ".join(
        sentence.format(
            *chance.sample(WORDS, 2), chance.choice(VERBS), chance.choice(WORDS), chance.randrange(1800, 2000)
        )
        for _ in range(12)
    )


def url(path: str) -> str:
    return f"http://127.0.0.1:{PORT}/{path}"


def page(path: str) -> bytes:
    texts = {"short": "Too short.", "copy-of-a": f"{article(0)} One more sentence follows."}
    text = texts.get(path) or f"{article(PATHS.index(path))} A naïve 数字 🙂."
    return f"<html><head><title>Page {path}</title></head><body><article><p>{text}</p></article></body></html>".encode()


class Site(BaseHTTPRequestHandler):
    """Answers with the pages. `moved` redirects to another one, `gone` isn't there, and `damaged` is gzip with a damaged end."""

    def do_GET(self) -> None:
        path = self.path.removeprefix("/")
        found = path in PATHS and path not in ("moved", "gone")
        data = page(path) if found else b""
        if path == "damaged":
            data = gzip.compress(data, mtime=0)[:40] + bytes(40)
        self.send_response(302 if path == "moved" else 200 if found else 404)
        if path == "moved":
            self.send_header("Location", "/train-b")
        if path == "damaged":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", PORT), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def webtext(command: str) -> None:
    """Run a command; it may end with 1, because some links have no page."""
    assert run(command.split()) in (0, 1), command


def write_dump() -> None:
    """Write a post for each page, and a second one, of a low score, for the first page."""
    base = {"subreddit": "books", "is_self": False, "over_18": False, "retrieved_on": READ}
    posts = [
        base | {"id": f"p{i}", "url": url(path), "score": 3 + i, "created_utc": CREATED + i}
        for i, path in enumerate(PATHS)
    ]
    posts.append(posts[0] | {"id": "p99", "score": 1, "created_utc": CREATED + 99, "subreddit": "maps"})
    Path("RS_2017-01").write_text("".join(json.dumps(post) + "\n" for post in posts))


def write_set(folder: str, kind: str, row: dict[str, Any], *failures: Failure) -> None:
    """Write a part set of one row; earlier versions stored `failures` in the part's entry."""
    writer = SetWriter(folder, kind, Recipe(stage=f"golden.{kind}", code_version=1, settings={}))
    with writer.part(0, key="golden") as part:
        part.write([row])
        writer.seal([dataclasses.replace(part.publish(), failures=failures)])


def write_others() -> None:
    """Write the files that no command here makes."""
    removed = {"source": "reddit", "post_id": "p0", "reason": "deleted_by_user", "noticed": READ}
    link = {"link_id": link_id(url("train-a")), "url": url("train-a")}
    write_set("removals", "removals", link | {"posts": [removed], "posts_left": 1})
    failed = {"outcome": "failed", "reason": "timed_out", "source": "web", "voted": CREATED, "karma": 3, "requests": 1}
    row = link | failed | {"redirects": [], "split": "train", "opt_outs": []}
    notice = {"rule": "robots_disallowed", "source": url("robots.txt"), "noticed": READ}
    refused = {"outcome": "refused", "reason": "robots_disallowed", "opt_outs": ["robots_disallowed"]}
    write_set("evidence/pages", "pages", row | refused | {"opt_out_evidence": [notice], "posts": []})
    with mock.patch.dict(partwriter.SCHEMAS, pages=OLDER["pages"][0]):
        write_set("older/pages", "pages", row, Failure("an id", "raised", "ValueError: a cause"))
    write_harvest()
    write_killed_crawl()
    weights = np.random.default_rng(0).integers(-127, 128, 1 << 10).astype(np.int16)
    write_model("votes.score", weights, {"factor": 0.05, "offset": -0.25, "card": {"auc": 0.5}})
    with ShardWriter(
        Path("wide.tok"), vocab_size=100_000, eot_id=99_999, tokenizer_hash="ab" * 32, block_bytes=16
    ) as shard:
        shard.append(np.array([1, 65_536, 99_998], np.uint32))
        shard.append(np.array([7], np.uint32))


class Killed(Exception):
    pass


def write_killed_crawl() -> None:
    """Leave what a crawl leaves that is killed before it publishes its first part."""
    settings = FetchSettings(allow_address=(f"127.0.0.1:{PORT}",), delay=0.0, retries=0)
    with serving(), mock.patch.object(OpenPart, "publish", side_effect=Killed), contextlib.suppress(Killed):
        fetch_pages("links", "killed/pages", settings, Run.quiet())


class Items:
    """Two items of Hacker News, of which the second doesn't exist; each is a step."""

    api, first = "firebase", "1"

    async def ask(self, cursor: str) -> Step:
        story = {"id": 1, "type": "story", "url": url("train-a"), "score": 5, "time": CREATED}
        return Step([story], READ, "2") if cursor == "1" else Step([None], READ, None)


def write_harvest() -> None:
    files = HarvestFiles(Folder("harvest"))
    files.begin({"input": "hackernews:1..3", "began": READ, "end": 3})
    asyncio.run(harvest(Items(), files, 0.0, Progress(None)))


def build() -> None:
    write_dump()
    webtext("crawl links RS_2017-01 --out links")
    with serving():
        webtext(f"crawl fetch links --out pages --allow-address 127.0.0.1:{PORT} --delay 0 --retries 0")
    webtext("clean run pages --out . --rule too_few_words=20 --keep-index index")
    webtext("clean release . --out published")
    webtext("clean decontaminate corpus --keep-filter corpus.filter")
    webtext("tokenizer train corpus --out tokenizer.json --vocab-size 300")
    webtext("tokenizer count corpus --out corpus.counts")
    webtext("shards pack corpus --tokenizer tokenizer.json --out tokens --shard-tokens 1000")
    webtext(f"train run tokens --out model --stop-at-step 4 {TRAIN}")
    webtext("report .")
    write_others()
    for name in LEFT_OUT.split():
        shutil.rmtree(name, ignore_errors=True)
        Path(name).unlink(missing_ok=True)
    for path in Path().rglob("run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "host"}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True)
    with contextlib.chdir(sys.argv[1]):
        build()
