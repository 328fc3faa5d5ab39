"""What the quality rules are worth: bits per byte of prose after each profile, and the web pages that each drops.

    python tests/bench/bench_rules.py SITE DATA --texts FILE [--row NAME=PROFILE,RULE=VALUE,...] [--peer NAME=FOLDER] [--final]
    python tests/bench/bench_rules.py SITE DATA --texts FILE --pages FOLDER

SITE is a folder of manuals as `make proof` leaves it (build/proof/large/site): a folder of HTML files per package. Of each
package 90 pages are read, of those held out 150; DATA (default: WEBTEXT_TEST_DATA) has the web pages of extract/ and wcxb/,
and the evaluation texts. The extracted texts are kept in FILE, so extraction runs once.

Each row is a corpus: the English manuals that its rules keep; without --row, those of no rules and of every profile. A
model of byte n-grams (interpolated Kneser-Ney, order 6) learns from equally many bytes of each, random windows of 2 KiB as a
trainer would read them, once per seed. With --steps it is a small GPT-2 that makes so many steps of 2,048 tokens; one
tokenizer is learned from the windows of all rows. The model predicts WikiText-103 and PTB, de-tokenized, and manuals of
held-out packages: the validation splits and half of these packages, with --final the test splits and the other half. The
second table has the share of documents that a row drops of those that `minimal` keeps, by kind of web page, in all
languages. PEER is a folder of Parquet files with a column `text`, made by datatrove_pages.py from the FOLDER that --pages
writes: ten pages per package. Beside a peer, all rows have only these pages.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import json
import math
import random
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from arguments import parser
from extraction_sets import read_set
from pyarrow import parquet
from real_data import real_data

from webtext.base.config import changed
from webtext.clean.extract.body import Body, ExtractSettings, extract_body
from webtext.clean.extract.charset import decode
from webtext.clean.language import LanguageSettings, detect_language
from webtext.clean.rules.decide import verdicts
from webtext.clean.rules.measure import signals_table
from webtext.clean.rules.thresholds import PROFILES, RuleSettings
from webtext.tokenizer import Tokenizer
from webtext.train.data.windows import Windows, total_loss
from webtext.train.distributed import join_world
from webtext.train.evaluate.texts import read_running_text
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters
from webtext.train.optimizer.optimizer import gradient_norm, make_optimizer, set_learning_rate, update
from webtext.train.optimizer.schedule import learning_rate
from webtext.train.settings import TrainSettings

LIST = Path(__file__).parents[1] / "proof/packages.tsv"
N_PAGES, N_HELD_OUT, N_OF_PEERS, N_FILES = 90, 150, 10, 16
ORDER, WINDOW, N_BYTES = 6, 2048, 2_000_000
MOST_EVALUATED, MOST_OF_A_PAGE, LEAST_OF_A_PAGE = 300_000, 4_000, 500
PUBLIC = {
    "wikitext-103": ("eval/wikitext-103/wiki.valid.tokens", "eval/wikitext-103/wiki.test.tokens"),
    "ptb": ("eval/ptb/ptb.valid.txt", "eval/ptb/ptb.test.txt"),
}
N_TOKENS = 4096
TOY = TrainSettings.of(
    **{"n_layer": 4, "n_head": 4, "n_embd": 128, "context": 128, "batch_size": 16, "warmup_steps": 20},
    **{"learning_rate": 8e-3, "optimizer": "muon", "muon_learning_rate": 8e-3},
    **{"schedule": "wsd", "decay_ratio": 0.4},
)  # as train/recipes/toy-cpu-fast.toml
KINDS = {
    "articles": ("article",),
    "threads": ("forum",),
    "no type stated": ("no type stated", "another type"),
    **{kind: (kind,) for kind in ("documentation", "service", "product", "collection", "listing")},
}


class Model:
    """Probabilities of a byte after the five before it, by interpolated Kneser-Ney; a key is the bytes as one integer."""

    def __init__(self, text: bytes) -> None:
        keys = _keys(text)[ORDER - 1 :]
        self.levels = []
        keys, counts = np.unique(keys, return_counts=True)
        for size in range(ORDER, 0, -1):
            contexts = keys >> 8
            starts = np.flatnonzero(np.diff(contexts, prepend=-1))
            once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
            discount = once / (once + 2 * twice) if once else 0.5
            sums, types = np.add.reduceat(counts, starts), np.diff(starts, append=len(keys))
            self.levels.append((keys, counts, contexts[starts], sums, types, discount))
            keys, counts = np.unique(keys & ((1 << 8 * (size - 1)) - 1), return_counts=True)  # of distinct bytes before

    def bits_per_byte(self, text: bytes) -> float:
        """Return the mean of -log2 of the probability of each byte."""
        keys, likelihood = _keys(text), np.full(len(text), 1 / 256)
        for size, (known, counts, contexts, sums, types, discount) in enumerate(reversed(self.levels), 1):
            asked, back = np.unique(keys & ((1 << 8 * size) - 1), return_inverse=True)
            at, is_known = _find(known, asked)
            of, is_context = _find(contexts, asked >> 8)
            total = np.where(is_context, sums[of], 1)
            own = np.where(is_known, counts[at] - discount, 0) / total
            likelihood = own[back] + np.where(is_context, discount * types[of] / total, 1)[back] * likelihood
        return float(-np.log2(likelihood).mean())


class Gpt2:
    """GPT-2 that has read the tokens of a text, as often as `settings` have steps for."""

    def __init__(self, text: bytes, tokenizer: Tokenizer, settings: TrainSettings) -> None:
        self.tokenizer, self.model = tokenizer, GPT2(settings.config(tokenizer.vocab_size), settings.seed)
        stream = Windows([tokenizer.encode_numpy(text)], context=settings.context, stride=None)
        optimizer = make_optimizer(dict(self.model.named_parameters()), settings)
        draw = np.random.default_rng(settings.seed)
        orders = (draw.permutation(len(stream) - 1) for _ in itertools.count())  # the last one may be shorter
        numbers = itertools.chain.from_iterable(orders)
        for step in range(settings.steps):
            set_learning_rate(optimizer, learning_rate(settings, step))
            read = itertools.islice(numbers, settings.batch_size)
            tokens_bt = torch.from_numpy(np.stack([stream.window(int(i))[0] for i in read]))
            with cast_parameters(self.model, torch.bfloat16):
                self.model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:]).backward()  # type: ignore[no-untyped-call]
            norm = gradient_norm(self.model)
            update(optimizer, norm, 1.0, torch.zeros(()))
            optimizer.zero_grad(set_to_none=True)

    def bits_per_byte(self, text: bytes) -> float:
        """Return the sum of -log2 of the tokens' probabilities per byte; all but the first token are predicted."""
        windows = Windows([self.tokenizer.encode_numpy(text)], context=self.model.config.context, stride=None)
        with join_world("cpu") as world:
            return total_loss(self.model, windows, 16, world)[0] / math.log(2) / len(text)


def _keys(text: bytes) -> np.ndarray:
    """Return for each byte the integer of it and the ORDER - 1 bytes before."""
    data = np.frombuffer(bytes(ORDER - 1) + text, np.uint8).astype(np.int64)
    return sum(data[i : i + len(text)] << 8 * (ORDER - 1 - i) for i in range(ORDER))  # type: ignore[return-value]


def _find(known: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return at, known[at] == asked


def read_texts(site: Path, data: Path, file: Path) -> pa.Table:
    """Return the texts of manuals and web pages with their signals; extracts them if the file isn't there."""
    if not file.exists():
        parquet.write_table(pa.Table.from_pylist(list(extracted(site, data))), file)
    table = parquet.read_table(file)
    signals = pa.concat_tables(signals_table(batch) for batch in table.to_batches(512))
    for name in set(signals.column_names) - set(table.column_names):
        table = table.append_column(name, signals[name])
    return table


def extracted(site: Path, data: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each page that has a text."""
    for host, role, path in sample(site):
        yield from _row(str(path.relative_to(site)), host, role, path.read_bytes())
    for name in ("trafilatura", "wcxb"):
        for page in read_set(name, data):
            yield from _row(page.name, name, page.kind, page.body)


def sample(site: Path, most: int | None = None) -> Iterator[tuple[str, str, Path]]:
    """Yield package, role and page: the same pages of each package, at most `most`."""
    with open(LIST, encoding="utf-8", newline="") as file:
        roles = {row["package"]: row["role"] for row in csv.DictReader(file, delimiter="\t")}
    for folder in sorted(site.iterdir()):
        role = "held out" if roles.get(folder.name) == "held_out" else "manual"
        pages = sorted(path for path in folder.rglob("*") if path.is_file())
        random.Random(folder.name).shuffle(pages)
        for path in pages[: most or (N_HELD_OUT if role == "held out" else N_PAGES)]:
            yield folder.name, role, path


def _row(name: str, host: str, kind: str, body: bytes) -> Iterator[dict[str, Any]]:
    found = extract_body(body, "text/html", ExtractSettings())
    if isinstance(found, Body):
        language, score = detect_language(found.text) or (None, None)
        yield {
            **{"id": name, "host": host, "kind": kind, "page_kind": found.kind, "text": found.text},
            **{"language": language, "language_score": score, "extractor_agreement": found.agreement},
        }


def evaluation_texts(texts: pa.Table, data: Path, *, final: bool) -> dict[str, bytes]:
    """Return the texts to predict: public ones, and those of one half of the held-out packages, which take turns."""
    sets = {}
    for name, paths in PUBLIC.items():
        sets[name] = read_running_text(name, (data / paths[final]).read_bytes(), paths[final]).text[:MOST_EVALUATED]
    turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    pages = set()
    for row in texts.filter(pc.equal(texts["kind"], "held out")).select(["host", "language", "text"]).to_pylist():
        is_b = hashlib.sha256(row["host"].encode()).digest()[0] % 2 == 0
        if is_b == final and row["language"] == "en" and len(row["text"]) >= LEAST_OF_A_PAGE:
            pages.add((next(turns[row["host"]]), row["host"], row["text"][:MOST_OF_A_PAGE]))
    sets["held-out manuals"] = "\n\n".join(text for _, _, text in sorted(pages)).encode()[:MOST_EVALUATED]
    return sets


def windows(texts: Iterable[str], n_bytes: int, seed: int) -> bytes:
    """Return random windows of the distinct texts, joined."""
    data = "\n\n".join(dict.fromkeys(texts)).encode()
    pieces = np.frombuffer(data[: len(data) // WINDOW * WINDOW], np.uint8).reshape(-1, WINDOW)
    return pieces[np.random.default_rng(seed).permutation(len(pieces))[: n_bytes // WINDOW]].tobytes()


def kept(table: pa.Table, row: str, language: LanguageSettings | None) -> np.ndarray:
    """Return the mask of the documents that a row keeps: PROFILE,RULE=VALUE,..., or none for no rules."""
    profile, *rules = row.split(",")
    settings = None if profile == "none" else RuleSettings(profile=profile, rule=tuple(rules))
    return ~sum((each.drops for each in verdicts(table, settings, language)), np.zeros(table.num_rows, bool))


def print_bits(texts: pa.Table, rows: dict[str, str], peers: dict[str, Path], given: Namespace, data: Path) -> None:
    """Print documents, characters and bits per byte of each corpus; the mean over seeds, and their deviation."""
    sets = evaluation_texts(texts, data, final=given.final)
    manuals = texts.filter(pc.equal(texts["kind"], "manual"))
    if peers:
        same = [str(path.relative_to(given.site)) for _, _, path in sample(given.site, N_OF_PEERS)]
        manuals = manuals.filter(pc.is_in(manuals["id"], pa.array(same, manuals["id"].type)))
    corpora = {
        name: manuals["text"].filter(pa.array(kept(manuals, row, LanguageSettings()))).to_pylist()
        for name, row in rows.items()
    }
    for name, folder in peers.items():
        corpora[name] = pa.concat_tables(parquet.read_table(f, columns=["text"]) for f in folder.glob("*.parquet"))[
            "text"
        ].to_pylist()
    print_row("rules", "documents", "MB", *sets)
    print_row(*["---"] * (3 + len(sets)))
    tokenizer = given.steps and Tokenizer.train((windows(each, given.bytes, 0) for each in corpora.values()), N_TOKENS)
    for name, corpus in corpora.items():
        drawn = enumerate(windows(corpus, given.bytes, seed) for seed in range(given.seeds))
        models = [
            Gpt2(text, tokenizer, changed(TOY, steps=given.steps, seed=seed)) if given.steps else Model(text)
            for seed, text in drawn
        ]
        bits = [[model.bits_per_byte(text) for model in models] for text in sets.values()]
        size = sum(map(len, corpus)) / 1e6
        print_row(name, f"{len(corpus):,}", f"{size:.1f}", *(f"{np.mean(b):.3f} ± {np.std(b):.3f}" for b in bits))


def print_losses(texts: pa.Table, rows: dict[str, str]) -> None:
    """Print the share of the web pages that a row drops, of those of enough words."""
    web = texts.filter(pc.is_in(texts["host"], pa.array(["trafilatura", "wcxb"])))
    web = web.filter(pa.array(kept(web, "minimal", None)))
    kinds = {name: pc.is_in(web["kind"], pa.array(kind)).to_numpy() for name, kind in KINDS.items()}
    print_row("rules", *(f"{name} ({mask.sum()})" for name, mask in kinds.items()))
    print_row(*["---"] * (1 + len(kinds)))
    for name, row in rows.items():
        drops = ~kept(web, row, None)
        print_row(name, *(f"{100 * drops[mask].mean():.1f} %" for mask in kinds.values()))


def print_row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def write_pages(site: Path, folder: Path) -> None:
    """Write the peers' pages, as datatrove's reader takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = [(host, path) for host, role, path in sample(site, N_OF_PEERS) if role == "manual"]
    for part in range(N_FILES):
        with gzip.open(folder / f"{part}.jsonl.gz", "wt", encoding="utf-8") as file:
            for host, path in pages[part::N_FILES]:
                row = {"text": decode(path.read_bytes()), "id": str(path.relative_to(site)), "metadata": {"url": host}}
                file.write(json.dumps(row) + "\n")


def pairs(given: Sequence[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in given)  # type: ignore[misc]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("site", type=Path)
    arguments.add_argument("data", nargs="?")
    arguments.add_argument("--texts", type=Path, required=True, metavar="FILE", help="extracted texts, made if missing")
    arguments.add_argument("--row", action="append", default=[], metavar="NAME=PROFILE,RULE=VALUE,...")
    arguments.add_argument("--peer", action="append", default=[], metavar="NAME=FOLDER")
    arguments.add_argument("--pages", type=Path, metavar="FOLDER", help="only write the pages for datatrove_pages.py")
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--steps", type=int, metavar="N", help="measure by GPT-2 after N steps, not by n-grams")
    arguments.add_argument(
        "--bytes", type=int, default=N_BYTES, help="that each model learns from; default: %(default)s"
    )
    arguments.add_argument(
        "--final", action="store_true", help="test splits and the other half of the held-out packages"
    )
    given = arguments.parse_args()
    data = real_data(given.data)
    if given.pages:
        write_pages(given.site, given.pages)
        return
    texts = read_texts(given.site, data, given.texts)
    rows = pairs(given.row) or {"none": "none", **{name: name for name in PROFILES}}
    print_losses(texts, rows)
    print()
    print_bits(texts, rows, {name: Path(folder) for name, folder in pairs(given.peer).items()}, given, data)


if __name__ == "__main__":
    main()
