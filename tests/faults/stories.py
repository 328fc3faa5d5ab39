"""The runs that the drills disturb: each is what a user types, in one folder, with small inputs.

Folders are named relative to the one that the commands run in, which is the same for all drills of a story.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import json
import random
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastwarc.warc import ArchiveIterator, WarcRecordType

from webtext.base.config import recipe_settings
from webtext.base.console import Console
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Failed
from webtext.base.workers.local_engine import LocalEngine
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.visit import Visit

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "crawl")]

OF_THE_CLOCK = {
    "seconds", "cpu_seconds", "peak_bytes", "tokens_per_second", "mfu_ratio", "memory_bytes", "validation_seconds"
}  # fmt: skip
KEPT = 2  # checkpoints
TRAIN = (
    "--n-layer 1 --n-head 1 --n-embd 16 --context 16 --batch-size 4 --microbatch-size 2 --steps 6 --warmup-steps 1 "
    "--set train.dtype=float32 --set train.monitor.eval_windows=2 "
    "--set train.monitor.eval_interval=2 --set train.checkpoint.checkpoint_interval=2 "
    f"--set train.checkpoint.keep_checkpoints={KEPT}"
)
CLEAN = "clean run pages-0.warc.gz pages-1.warc.gz --out build --keep-index build/index"
CLEANED = tuple(f"build/{name}" for name in ("documents", "signals", "corpus", "dropped", "index"))
CLEAN_AGAIN = f"{CLEAN} --rule too_few_words=200"
TOKENIZER = "tokenizer train build/corpus --out build/tokenizer.json --vocab-size 290"
PACK = "shards pack build/corpus --tokenizer build/tokenizer.json --out build/tokens"
TRAINING = f"stories:train run build/tokens --out build/model {TRAIN}"


@dataclass(frozen=True)
class Story:
    """Commands, what they need, and the folders or files that they promise to have written when they end well."""

    name: str
    commands: tuple[str, ...]
    after: str = ""  # the story whose undisturbed end is this one's beginning
    outputs: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = lambda folder: None
    replaces: bool = False  # whether it replaces files of `after`
    locks: bool = False  # whether it locks its first output

    @property
    def words(self) -> list[list[str]]:
        """The commands for one worker, so that a recording has one order, the same in each run."""
        commands = [shlex.split(command) for command in self.commands]
        with_workers = ("clean", "crawl", "tokenizer", "shards")
        return [[*words, "--workers", "1"] if words[0] in with_workers else words for words in commands]


def write_pages(folder: Path) -> None:
    """Two WARC files, with pages that are kept, too short, in another language, and copies of each other."""
    import test_unchanged

    pages = test_unchanged.pages()
    chosen = [[*pages[:5], *pages[60:66]], pages[6:12]]
    for number, some in enumerate(chosen):
        test_unchanged.pages = lambda some=some: some
        test_unchanged.write_warc(folder / f"pages-{number}.warc.gz")
    test_unchanged.pages = lambda: pages


def write_dump(folder: Path) -> None:
    """Two months of Reddit's posts, some without enough votes."""
    chance = random.Random(5)
    for month in (1, 2):
        posts = [
            {"id": f"{month}{i:x}", "url": f"http://site-{chance.randrange(9)}.example/{chance.randrange(30)}",
             "score": chance.randrange(9), "created_utc": 1_400_000_000 + i, "subreddit": "books", "is_self": False,
             "over_18": False}
            for i in range(60)
        ]  # fmt: skip
        lines = "".join(json.dumps(post) + "\n" for post in posts)
        (folder / f"RS_2014-0{month}.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def made(kept: str, dropped: str, factor: str) -> int:
    """Run a stage with two outputs, attachments, a record that kills its worker and one that fails."""
    numbers = [[*range(8 * i, 8 * i + 8), 1000 + i] for i in range(3)]
    tasks = [
        PartTask(index=i, sources=(), payload=(int(factor), each), depends=f"{factor} of {i}")
        for i, each in enumerate(numbers)
    ]
    recipe = Recipe(stage="test.made", code_version=1, settings={"factor": factor})
    outputs = {"kept": (kept, "dropped"), "dropped": (dropped, "dropped")}
    with LocalEngine(workers=1, quiet=True) as engine:
        run_parts(make_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=Run(engine, Console("quiet")))
    return 0


def make_part(context: PartContext, task: PartTask) -> None:
    """Keep even numbers, drop odd ones, attach all; runs in the worker."""
    factor, numbers = task.payload
    for _, number, result in context.apply(multiplied, enumerate(numbers), identify=str):
        if isinstance(result, Failed):
            continue
        output = context.output("dropped" if number % 2 else "kept")
        value = float(number * factor)
        output.write(
            [{"id": str(number), "stage": "filter", "reason": "planted", "value": value, "text_start": "x" * number}]
        )
        if number % 2:
            context.main.counts.drop("odd")
        else:
            context.main.counts.keep()
    with open(context.main.attach(f"part-{task.index:05d}.numbers"), "w") as file:
        file.write("".join(f"{number * factor}\n" for number in numbers))


def multiplied(number: int) -> int:
    """Process a record; two of them are planted to fail."""
    if number == 1000:
        ctypes.string_at(0)
    if number == 1001:
        raise ValueError("a bad record")
    return number


def crawl(links: str, out: str) -> int:
    """Write the pages of a links set as a crawl does, without its network: every page is sent at once, and the same."""
    from warc_exchanges import exchange

    from webtext.crawl.fetch.clock_file import ClockFile, NotedClock
    from webtext.crawl.fetch.robots.cache import SilentSites
    from webtext.crawl.pages.pages_set import PagesSet
    from webtext.crawl.pages.visit import QueuedLink

    parent = PartSet.open(links, "links")
    settings = FetchSettings(part_pages=9)
    recipe = Recipe(stage="crawl.fetch", code_version=1, settings=recipe_settings(settings))
    pages = PagesSet(out, recipe, parent, settings.part_pages)
    rows = [row for part in parent.parts for row in parent.table(part).to_pylist()]
    missing = [row for row in rows if not pages.done.has_url(row["url"])]
    if missing or pages.recovered:
        with pages.writing():
            sites, clocks = SilentSites(Path(out) / "silent.tsv", 3, 30.0), ClockFile(Path(out))
            clocks.begin([*clocks.read(), NotedClock("10.0.0.1", 5.0, 1.0)])
            for row in missing:
                link = QueuedLink(
                    link_id=row["link_id"], url=row["url"], karma=row["karma"], split=row["split"], voted=1
                )
                chance = random.Random(row["url"])
                visit = Visit(url=link.url, final_url=link.url, requests=1, status=200)
                if chance.random() < 0.3:
                    visit.reason, visit.status = "http_404", 404
                    sites.did_not_answer(link.url)
                else:
                    visit.exchange = exchange(chance.randbytes(chance.randrange(9_000)), url=link.url)
                clocks.note(("10.0.0.1", 5.0, 1.0))
                pages.add(link, visit)
            clocks.close()
            pages.publish()
    pages.seal({}, complete=True)
    return 0


def crawled(out: str, summary: str) -> int:
    """Write what a crawl's pages contain, in whichever parts and order: each link's row, and the digest of its page."""
    pages = PartSet.open(out, "pages")
    pages.verify()
    found = []
    for part in pages.parts:
        warc = pages.folder.local_path(pages.attachment(part, ".warc.gz"))
        with open(warc, "rb") as file:
            records = ArchiveIterator(file, record_types=WarcRecordType.response)
            bodies = {
                each.headers["WARC-Target-URI"]: hashlib.sha256(each.reader.read()).hexdigest() for each in records
            }
        for row in pages.table(part).to_pylist():
            page = bodies.pop(row["url"]) if row["outcome"] == "fetched" else None
            found.append((row["url"], row["reason"], row["karma"], page))
        assert not bodies, f"pages without a row: {bodies}"
    assert pages.complete
    Folder(".").write_bytes(summary, json.dumps(sorted(found), indent=1).encode())
    return 0


def write_texts(folder: Path) -> None:
    """Texts of which some are nearly alike, and an evaluation set that contains one of them."""
    import test_unchanged

    chance = random.Random(3)
    texts = [test_unchanged.text(chance, 12) for _ in range(40)]
    texts += [text.replace("1", "2", 1) for text in texts[:6]] + texts[6:9]
    for number in range(2):
        rows = [{"id": str(i), "text": text} for i, text in enumerate(texts) if i % 2 == number]
        (folder / f"texts-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.jsonl").write_text(json.dumps({"text": texts[20]}) + "\n")


STORIES = {
    story.name: story
    for story in (
        Story("stage", ("stories:made kept dropped 2",), outputs=("kept", "dropped"), locks=True),
        Story("stage again", ("stories:made kept dropped 3",), "stage", ("kept", "dropped"), replaces=True),
        Story("tokenizer again", ("tokenizer train texts-1.jsonl --out t.json --vocab-size 290",), "tokenizer",
              ("t.json",), replaces=True),
        Story("clean", (CLEAN,), outputs=CLEANED, prepare=write_pages),
        Story("clean again", (CLEAN_AGAIN,), "clean", CLEANED, replaces=True),
        Story("pack", ("shards pack texts-0.jsonl texts-1.jsonl --tokenizer t.json --out build/tokens",), "tokenizer",
              ("build/tokens",)),
        Story("train", (TRAINING,), "pack", ("build/model",)),
        Story("links", ("crawl links RS_2014-01.gz RS_2014-02.gz --out links",), "", ("links",), write_dump),
        Story("crawl", ("stories:crawl links pages", "stories:crawled pages pages.json"), "links", ("pages/part", "pages/m")),
        Story("dedup", ("clean dedup texts-0.jsonl texts-1.jsonl --out build",), "", ("build/corpus", "build/dropped"),
              write_texts),
        Story("decontaminate",
              ("clean decontaminate texts-0.jsonl texts-1.jsonl --against eval.jsonl --drop --out build",), "",
              ("build/corpus", "build/dropped"), write_texts),
        Story("tokenizer", ("tokenizer train texts-0.jsonl texts-1.jsonl --out t.json --vocab-size 290",), "", ("t.json",),
              write_texts),
        Story("chain", (CLEAN, TOKENIZER, PACK, TRAINING, "report build"), "",
              (*CLEANED[:4], "build/tokenizer.json", "build/tokens", "build/model"), write_pages),
    )
}  # fmt: skip


def train(*arguments: str) -> int:
    """Run a verb of `webtext train`."""
    from webtext.app.main import run

    return run(["train", *arguments])


def contents(folder: Path) -> dict[str, object]:
    """Return path -> bytes of every file, without inputs of the clock: what a resumed run must give again."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (
            path.is_dir()
            or path.name == "run.json"
            or path.name.startswith("report.")
            or any(each.endswith(".tmp") for each in path.parts)
        ):
            continue  # no reader sees a temporary file, and the next run that has something to do removes it
        if path.parent.name.startswith("step-") and path.parent not in sorted(path.parents[1].glob("step-*"))[-KEPT:]:
            continue  # an old checkpoint, which a killed run may leave
        if "_work/" in name or (name.startswith("build/_dedup/") and name.count("/") > 2):
            continue  # scratch; a run leaves some that was killed in its very end, or that couldn't remove it
        if name.startswith("pages/"):
            continue  # what is in them is in pages.json; a crawl doesn't promise the same parts
        found[name] = data = path.read_bytes()
        with contextlib.suppress(ValueError):  # damaged: other bytes
            if path.name == "state.json":
                state = json.loads(data)
                without_check = {key: value for key, value in state.items() if len(str(value)) != 64}
                found[name] = {**without_check, "result": _timeless(state["result"])}
            elif path.name == "metrics.jsonl":
                found[name] = [_timeless(json.loads(line)) for line in data.splitlines()]
    return found


def _timeless(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in OF_THE_CLOCK}
