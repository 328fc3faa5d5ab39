"""How often `train compare` calls a corpus better or worse than itself, and how small a difference it finds.

    python tests/bench/bench_compare.py DATA [--repetitions 20] [--seeds 3] [--tokens 65536] [--work FOLDER]
    python tests/bench/bench_compare.py --only simulated

DATA contains corpora/en.txt.xz. A against A: a corpus is compared with itself, with other seeds in each repetition; a
sound test reports "within noise" in at least 19 of 20. A against a damaged A: several shares of the words of each
document are shuffled; printed is how many repetitions report "worse". Comparisons already in --work are not repeated.
Simulated: losses of equal corpora with known noise, and how often each rule calls them different, in percent.
"""

from __future__ import annotations

import argparse
import lzma
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from real_data import real_data

from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.shards.shardfile import ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.experiments import significance
from webtext.train.experiments.compare import compare_corpora
from webtext.train.experiments.settings import CompareSettings
from webtext.train.experiments.significance import ALPHA, Influence, differences, influence

CORPUS_CHARACTERS = 2_000_000
DOCUMENT_CHARACTERS = 4000
HELD_OUT_EVERY = 20
VOCAB_SIZE = 512
SHARES = (0.02, 0.1, 0.5)
SETTINGS = TrainSettings.of(
    n_layer=2, n_head=2, n_embd=64, context=64, batch_size=8, microbatch_size=8, warmup_steps=10, learning_rate=3e-3,
    eval_interval=None, checkpoint_interval=None, eval_windows=8, threads=1, device="cpu",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--only", choices=["same", "damaged", "simulated"])
    parser.add_argument("--work", type=Path, help="folder for the comparisons; default: a temporary folder")
    options = parser.parse_args()
    if options.only == "simulated":
        simulate(options.seeds)
        return
    texts = read_texts(real_data(options.data) / "corpora/en.txt.xz")
    tokenizer = Tokenizer.train(texts, VOCAB_SIZE)
    with tempfile.TemporaryDirectory() as temporary:
        work: Path = options.work or Path(temporary)
        corpora = {"A": write_build(work / "A", texts, tokenizer, 0.0)}
        if options.only != "damaged":
            tell("A against A", corpora["A"], corpora["A"], work / "same", options)
        if options.only != "same":
            for share in SHARES:
                other = write_build(work / f"damaged-{share}", texts, tokenizer, share)
                tell(f"A against A, {share:.0%} of words moved", corpora["A"], other, work / f"to-{share}", options)


def tell(title: str, one: str, other: str, work: Path, options: argparse.Namespace) -> None:
    """Run the repetitions and print their verdicts."""
    compare = CompareSettings(tokens=options.tokens, seeds=options.seeds)
    verdicts: Counter[str] = Counter()
    differences, margins, spreads = [], [], []
    for repetition in range(options.repetitions):
        settings = replace(SETTINGS, seed=2 * options.seeds * repetition)
        found = compare_corpora(
            [f"one={one}", f"other={other}"], str(work / str(repetition)), settings, compare, Run.quiet()
        )
        other_row = found.rows[1]
        assert other_row.difference is not None
        verdicts[other_row.verdict] += 1
        differences.append(other_row.difference.mean)
        margins.append(other_row.difference.margin or 0.0)
        spreads += [statistics.stdev(row.bits_per_byte) for row in found.rows]
    said = ", ".join(f"{n} of {options.repetitions} {verdict}" for verdict, n in sorted(verdicts.items()))
    print(f"{title}: {said}")
    print(
        f"  difference {statistics.median(differences):+.4f} bits per byte, margin {statistics.median(margins):.4f}, "
        f"spread over {options.seeds} seeds {statistics.median(spreads):.4f} (medians)",
        flush=True,
    )


def simulate(seeds: int, n: int = 2000) -> None:
    """Print false alarms for noise by seed, by document and by seed in each document, of 2 corpora and 25 documents."""
    significance.quantile = lambda *_: 0.0  # of intervals, which take long and aren't looked at
    n_bytes = np.full(25, 1000.0)
    for by_seed, by_document, by_both in ((0.01, 0, 0), (0.005, 0.03, 0), (0.005, 0.03, 0.03), (0.002, 0.02, 0.05)):
        generator, alarms = np.random.default_rng(0), Counter[str]()
        for _ in range(n):
            bits = 1 + generator.normal(0, by_seed, (2, seeds, 1)) + generator.normal(0, by_document, (2, 1, 25))
            bits = (bits + generator.normal(0, by_both, (2, seeds, 25))) * n_bytes
            runs, documents = bits.sum(-1) / n_bytes.sum(), influence(bits, n_bytes)
            twice = Influence(np.broadcast_to(documents.values.mean(1, keepdims=True), bits.shape), documents.freedom)
            rules = {"seeds alone": None, "documents x seeds": documents, "what both share counted twice": twice}
            alarms.update(name for name, each in rules.items() if (differences(runs, each)[0].p or 1) < ALPHA)
        told = ", ".join(f"{name} {100 * alarms[name] / n:.1f}" for name in rules)
        print(f"seed {by_seed}, document {by_document}, both {by_both}: {told}")


def read_texts(corpus: Path) -> list[str]:
    """Return English documents of about DOCUMENT_CHARACTERS each."""
    documents = [""]
    for paragraph in lzma.decompress(corpus.read_bytes()).decode()[:CORPUS_CHARACTERS].split("\n\n"):
        if len(documents[-1]) > DOCUMENT_CHARACTERS:
            documents.append("")
        documents[-1] += paragraph + "\n\n"
    return documents


def write_build(folder: Path, texts: list[str], tokenizer: Tokenizer, share: float) -> str:
    """Write a build in which this share of the training documents' words is moved; every 20th document is held out."""
    if (folder / "tokens/manifest.json").exists():
        return str(folder)
    (folder / "tokenizer").mkdir(parents=True)
    tokenizer.save(folder / "tokenizer/tokenizer.json")
    splits: Mapping[str, dict[str, str]] = {"train": {}, "validation": {}}
    for i, text in enumerate(texts):
        if i % HELD_OUT_EVERY == 0:
            splits["validation"][f"{i:06d}"] = text
        else:
            splits["train"][f"{i:06d}"] = moved(text, share, i)
    facts = {"vocab_size": tokenizer.vocab_size, "eot_id": tokenizer.eot_id, "tokenizer_hash": tokenizer.hash}
    tokens = SetWriter(str(folder / "tokens"), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts))
    with tokens.part(0, key=f"{share}") as part:
        for split, documents in splits.items():
            name = f"{split}-00000.tok"
            with ShardWriter(part.attach(name), **facts) as shard:
                for row, (identifier, text) in enumerate(documents.items()):
                    ids = tokenizer.encode_numpy(text)
                    about = {"id": identifier, "source_part": "en.txt", "row": row}
                    part.write([{"shard": name, "start": shard.append(ids), "length": len(ids) + 1, **about}])
            part.describe(name, shard.in_manifest())
        part.counts.keep(len(texts))
        tokens.seal([part.publish()])
    return str(folder)


def moved(text: str, share: float, seed: int) -> str:
    """Return the text with this share of its words permuted among themselves."""
    words = text.split(" ")
    generator = random.Random(seed)
    places = generator.sample(range(len(words)), round(share * len(words)))
    for place, word in zip(places, [words[i] for i in generator.sample(places, len(places))], strict=True):
        words[place] = word
    return " ".join(words)


if __name__ == "__main__":
    main()
