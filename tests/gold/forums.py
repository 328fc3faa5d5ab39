"""Make forum pages whose text is known: `python tests/gold/forums.py --size large --out DIR`.

Threads are made of the blocks of the gold set's pages, a thread of one source package, in its split and language. Titles,
posts and quotes are text; who wrote them, ranks, numbers, signatures and buttons are not. Names and dates of posts, and
the title where it is repeated, are neutral.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from gold import align, pairs, truth  # noqa: E402

VENV = pairs.WORK / "boards"
LAYOUTS = "spirit", "flaskbb", "table", "boxes", "articles", "questions", "archive"
HELD_OUT = "machina", "flaskbb-wide"
"""Layouts that only development pages have."""
PER_PAGE = {"spirit": 20, "machina": 15}
"""Posts of a page where the engine cuts a thread into pages."""
PER_PACKAGE = 12
"""Threads of a source package and language."""
MOST = {"train": 700, "development": 250}
LONGEST = 150  # words of a block
ADJECTIVES = "amber brisk calm dusty early fuzzy grey hasty idle jolly keen lazy misty nimble odd pale quiet rusty"
NOUNS = "acorn badger comet dynamo ember falcon gadget harbor island jigsaw kettle lantern magnet needle otter"
RANKS = "Newbie", "Member", "Senior Member", "Regular", "Moderator", "Administrator", "Junior Member", "Veteran"
PLACES = "", "", "up north", "Somewhere warm", "Behind you", "127.0.0.1"
SIGNATURES = (
    "", "", "", "Please search before you post!", "My machine: 16 GB RAM, two disks, one broken fan",
    "There are 10 kinds of people.", "Sent from my toaster", "Read the FAQ, then read it again. It really helps.",
)  # fmt: skip
SHORT = (
    "Thanks, that did it!", "Same here.", "Did you ever find a solution for this?", "+1", "Bump.",
    "I have the same problem with the latest version.", "Works for me, thank you so much.", "Never mind, found it.",
    "Which version are you on?", "Nice write-up, I learned something today.", "Could you post the whole log?",
)  # fmt: skip
Block = dict[str, str]


def main() -> None:
    """Write the pages of each layout, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "large"), default="large", help="gold set; default: %(default)s")
    parser.add_argument("--out", type=Path, default=pairs.WORK / "forums", metavar="DIR", help="default: %(default)s")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not (VENV / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        # FlaskBB needs releases that no longer build; of it, only the templates are used.
        needed = Path(__file__).with_name("boards.txt")
        subprocess.run([VENV / "bin/pip", "install", "-q", "--no-deps", "-r", needed], check=True)
        (VENV / "ready").touch()
    of_layout: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for split in MOST:
        layouts = LAYOUTS if split == "train" else HELD_OUT + LAYOUTS
        for i, made in enumerate(threads(pairs.WORK / given.size, split)):
            of_layout[layouts[i % len(layouts)]].append(made)
    counts: Counter[tuple[str, str]] = Counter()
    for layout, made in of_layout.items():
        rows = [row for row in pages(layout, made) if row["found"] >= align.MIN_FOUND]
        counts.update((layout, row["split"]) for row in rows)
        counts[layout, "left out"] += len(made) - len(rows)
        pq.write_table(pa.Table.from_pylist(rows, pairs.SCHEMA), given.out / f"{layout}.parquet", compression="zstd")
    print("| layout | training | development | left out |\n|---|---|---|---|")
    for layout in of_layout:
        print(
            f"| {layout} | {counts[layout, 'train']} | {counts[layout, 'development']} | {counts[layout, 'left out']} |"
        )


def threads(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """Yield threads of a split, in turn of each source package and language; hashes and their seeds decide."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        columns = [name for name in pairs.SCHEMA.names if name not in ("html", "neutral")]
        for row in pq.read_table(path, columns=columns, filters=[("split", "==", split)]).to_pylist():
            groups[row["source"], row["language"]].append(row)
    n = 0
    for turn in range(PER_PACKAGE):
        for key in sorted(groups, key=lambda key: pairs._hash(*key)):
            made = thread(groups[key], random.Random(f"{turn} {key}"))
            if made and n < MOST[split]:
                n += 1
                yield made


def thread(rows: Sequence[dict[str, Any]], chance: random.Random) -> dict[str, Any] | None:
    """Return a thread of pages' blocks, each used once; None if there are too few."""
    used: set[str] = set()
    runs = []
    for row in chance.sample(sorted(rows, key=lambda row: row["id"]), min(len(rows), 14)):
        runs += [(row, run) for run in passages(row["blocks"], used, chance)]
    runs = runs[: chance.choice((2, 3, 4, 6, 8, 12, 18, 25))]
    if len(runs) < 2:
        return None
    row, first = runs[0]
    title = next(
        (b["text"] for b in row["blocks"] if b["kind"] == truth.HEADING), " ".join(first[0]["text"].split()[:8])
    )
    others = [b["text"] for row in rows for b in row["blocks"] if b["kind"] == truth.HEADING and b["text"] != title]
    people = [user(chance) for _ in range(chance.randint(2, max(2, len(runs) // 2)))]
    when = datetime(chance.randint(2004, 2025), chance.randint(1, 12), chance.randint(1, 28), chance.randint(0, 23), 7)
    is_broken = chance.random() < 0.4  # lines are parted by <br>, as by old boards
    posts: list[dict[str, Any]] = []
    for i, (_, blocks) in enumerate(runs):
        if i and row["language"].startswith("en") and chance.random() < 0.2:
            blocks = [{"kind": truth.PARAGRAPH, "text": chance.choice(SHORT)}]
        quoted = chance.choice(posts[-3:]) if i and chance.random() < 0.3 else None
        quote = next((b for b in quoted["blocks"] if b["kind"] == truth.PARAGRAPH), None) if quoted else None
        who = f"{quoted['user']['username']} wrote:" if quoted else ""
        when += timedelta(minutes=chance.randint(3, 4000))
        posts.append({
            "user": chance.choice(people), "date": when.isoformat() + "+00:00", "likes": chance.randint(0, 14), "who": who,
            "blocks": [quote, *blocks] if quote else blocks, "html": in_html(blocks, quote, who, is_broken),
        })  # fmt: skip
    if sum(len(align.words(block["text"])) for post in posts for block in post["blocks"]) < align.MIN_WORDS:
        return None
    shared = {name: row[name] for name in ("package", "version", "source", "licence", "split", "format", "language")}
    return shared | {
        "topic": {"title": title}, "posts": posts, "forum": chance.choice(("Support", "General", "Help", "Off Topic", "Users")),
        "board": chance.choice(NOUNS.split()).title() + chance.choice((" Forums", " Community", " Board", "Talk")),
        "n_pages": chance.choice((1, 1, 2, 4)), "tags": chance.sample(NOUNS.split(), chance.randint(0, 3)),
        "similar": chance.sample(others, min(len(others), 5)) or ["FAQ"],
    }  # fmt: skip


def passages(blocks: Sequence[Block], used: set[str], chance: random.Random) -> Iterator[list[Block]]:
    """Yield runs of 1 to 6 blocks that begin with a paragraph and may be a post."""
    run: list[Block] = []
    size = chance.randint(1, 6)
    for block in blocks:
        is_new = block["text"] not in used and len(align.words(block["text"])) <= LONGEST
        fits = block["kind"] in ((truth.PARAGRAPH, truth.ITEM, truth.CODE) if run else (truth.PARAGRAPH,))
        if run and (len(run) == size or not fits or not is_new):
            yield run
            run, size = [], chance.randint(1, 6)
            fits = block["kind"] == truth.PARAGRAPH
        if fits and is_new:
            used.add(block["text"])
            run.append(block)
    if run:
        yield run


def user(chance: random.Random) -> dict[str, Any]:
    """Return an invented user."""
    name = chance.choice(("{}_{}", "{}{}", "{1}{0}", "{}-{}{}")).format(
        chance.choice(ADJECTIVES.split()), chance.choice(NOUNS.split()), chance.randint(1, 99)
    )
    return {
        "username": name, "rank": chance.choice(RANKS), "post_count": int(chance.lognormvariate(5, 2)) + 1,
        "date_joined": datetime(chance.randint(1999, 2004), chance.randint(1, 12), chance.randint(1, 28)).isoformat(),
        "place": chance.choice(PLACES), "signature": chance.choice(SIGNATURES),
    }  # fmt: skip


def in_html(blocks: Sequence[Block], quote: Block | None, who: str, is_broken: bool) -> str:
    """Return a post as boards keep it: with paragraphs, or with line breaks alone."""
    parts = []
    if quote:
        text = escape(quote["text"])
        parts.append(
            f'<div class="quote"><b>{who}</b><div>{text}</div></div>' if is_broken
            else f"<blockquote><cite>{who}</cite><p>{text}</p></blockquote>"
        )  # fmt: skip
    was = ""
    for block in blocks:
        text, kind = escape(block["text"]), block["kind"]
        if was == truth.ITEM != kind:
            parts.append("</ul>")
        if kind == truth.ITEM:
            parts.append(("<ul>" if was != kind else "") + f"<li>{text}</li>")
        elif kind == truth.CODE:
            parts.append(f"<pre><code>{text}</code></pre>")
        else:
            parts.append(("<br><br>" if was == kind else "") + text if is_broken else f"<p>{text}</p>")
        was = kind
    return "\n".join([*parts, "</ul>"] if was == truth.ITEM else parts)


def pages(layout: str, made: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of threads in one layout."""
    asked = json.dumps([thread | {"layout": layout} for thread in made])
    command = [VENV / "bin/python", Path(__file__).with_name("boards.py"), layout]
    lines = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    for number, (thread, line) in enumerate(zip(made, lines, strict=True)):
        html, dates = json.loads(line)
        title, posts = thread["topic"]["title"], thread["posts"][: PER_PAGE.get(layout)]
        blocks = [{"kind": truth.HEADING, "text": title}, *(block for post in posts for block in post["blocks"])]
        source = [word for block in blocks for word in align.words(block["text"])]
        theirs = align.words(align.page_text(html.encode()))
        neutral = [f"by on Re: {title} {post['who']} {post['user']['username']}" for post in posts]
        yield thread | {
            "generator": layout, "theme": "", "made": True, "page": f"{number}", "html": html.encode(), "blocks": blocks,
            "neutral": align.words(" ".join([*neutral, *dates])), "more": 0.0,
            "found": len(align.matches(source, theirs)) / len(source),
            "id": pairs._hash(thread["package"], layout, "", thread["language"], f"{number}")[:32],
        }  # fmt: skip


if __name__ == "__main__":
    main()
