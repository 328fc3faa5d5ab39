"""Held-out loss of the fast toy recipe at fewer tokens, compared with the plain one at its best rate, over seeds.

    python tests/bench/bench_recipes.py [DATA] [--tokens N] [--seeds 3] [--only sweep|compare] [--work FOLDER]

DATA contains corpora/en.txt.xz. A tokenizer of 1,024 tokens is trained on it; documents are pieces of about 4,000
characters, of which every 40th is held out. Both recipes are read from train/recipes and stretched to N tokens: steps,
warm-up and batch ramp. `sweep` trains the plain recipe with several learning rates and every seed, and the fast one
with several rates for Muon and one seed. `compare` trains both with their own rates and every seed. Only losses are
measured. Finished runs in --work are not repeated, and an interrupted one resumes.
"""

from __future__ import annotations

import argparse
import lzma
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from real_data import real_data

from webtext.base.config import changed, from_table, load_config, section_of
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.shards.shardfile import ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings, train_model
from webtext.train.optimizer.schedule import sequences_before

RECIPES = Path(__file__).resolve().parents[2] / "train/recipes"
PLAIN, FAST = "toy-cpu", "toy-cpu-fast"
PLAIN_RATES = (1e-3, 2e-3, 4e-3)
FAST_RATES = (4e-3, 8e-3, 16e-3)
SHARES = (0.4, 0.65, 1.0)
"""Shares of the plain recipe's tokens on which the fast one trains; its schedule ends there."""
SHARE = 0.65
VOCAB_SIZE = 1024
DOCUMENT_CHARACTERS = 4000
HELD_OUT_EVERY = 40
EVAL_WINDOWS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--tokens", type=int, default=512_000, help="tokens for the plain recipe")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=["sweep", "compare"])
    parser.add_argument("--work", type=Path, help="folder for the runs; default: a temporary folder")
    options = parser.parse_args()
    data = real_data(options.data)
    with tempfile.TemporaryDirectory() as temporary:
        work: Path = options.work or Path(temporary)
        if not (work / "tokens/manifest.json").exists():
            write_tokens(data / "corpora/en.txt.xz", work / "tokens")
        if options.only != "compare":
            sweep(work, options.tokens, options.seeds)
        if options.only != "sweep":
            compare(work, options.tokens, options.seeds)


def write_tokens(corpus: Path, folder: Path) -> None:
    """Write the corpus as a token set with one part."""
    documents = [""]
    for paragraph in lzma.decompress(corpus.read_bytes()).decode().split("\n\n"):
        if len(documents[-1]) > DOCUMENT_CHARACTERS:
            documents.append("")
        documents[-1] += paragraph + "\n\n"
    held_out = documents[::HELD_OUT_EVERY]
    del documents[::HELD_OUT_EVERY]
    tokenizer = Tokenizer.train(documents, VOCAB_SIZE)
    facts = {"vocab_size": VOCAB_SIZE, "eot_id": tokenizer.eot_id, "tokenizer_hash": "0" * 64}
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts))
    with tokens.part(0, key="all") as part:
        for split, texts in (("train", documents), ("validation", held_out)):
            name = f"{split}-00000.tok"
            with ShardWriter(part.attach(name), **facts) as shard:
                for i, text in enumerate(texts):
                    ids = tokenizer.encode_numpy(text)
                    row = {"shard": name, "start": shard.append(ids), "length": len(ids) + 1, "id": f"{split} {i}"}
                    part.write([{**row, "source_part": "en.txt", "row": i}])
            part.describe(name, shard.in_manifest())
        part.counts.keep(len(documents) + len(held_out))
        tokens.seal([part.publish()])


def stretched(name: str, n_tokens: int) -> TrainSettings:
    """Return a recipe stretched to `n_tokens` (in complete steps), including its warm-up and batch ramp."""
    recipe = from_table(
        TrainSettings, section_of(load_config(str(RECIPES / f"{name}.toml")), "train", TrainSettings), "train"
    )
    factor = n_tokens / (sequences_before(recipe, recipe.steps) * recipe.context)
    ramp = round(recipe.schedule.batch_ramp_steps * factor)
    on_ramp = sequences_before(changed(recipe, batch_ramp_steps=ramp, steps=10**9), ramp)
    steps = ramp + round((n_tokens / recipe.context - on_ramp) / recipe.batch_size)
    return changed(
        recipe,
        steps=steps,
        warmup_steps=round(recipe.warmup_steps * factor),
        batch_ramp_steps=ramp,
        eval_interval=None,
        eval_windows=EVAL_WINDOWS,
        checkpoint_interval=max(1, steps // 4),
        keep_checkpoints=1,
        keep_best=False,
        threads=1,
    )


def sweep(work: Path, n_tokens: int, n_seeds: int) -> None:
    """Print final losses by learning rate: of the plain recipe with every seed, of the fast one with the first."""
    for rate in PLAIN_RATES:
        losses(work, PLAIN, replace(stretched(PLAIN, n_tokens), learning_rate=rate), n_seeds)
    for rate in FAST_RATES:
        losses(work, FAST, changed(stretched(FAST, round(SHARE * n_tokens)), muon_learning_rate=rate), 1)


def compare(work: Path, n_tokens: int, n_seeds: int) -> None:
    """Compare both recipes with their own rates and the same seeds."""
    plain = losses(work, PLAIN, stretched(PLAIN, n_tokens), n_seeds)
    fast = {share: losses(work, FAST, stretched(FAST, round(share * n_tokens)), n_seeds) for share in SHARES}
    enough = [share_needed(statistics.fmean(plain), [statistics.fmean(fast[share]) for share in SHARES])]
    enough += [share_needed(one, [fast[share][seed] for share in SHARES]) for seed, one in enumerate(plain)]
    print(f"the fast recipe reaches the plain one's final loss with {enough[0]} of its tokens;", end=" ")
    print(f"by seed {', '.join(enough[1:])}")


def losses(work: Path, recipe: str, settings: TrainSettings, n_seeds: int) -> list[float]:
    """Return the final losses in nats per token for seeds 0, 1, ...; print them with mean and standard deviation."""
    rate, n_tokens = settings.optimizer.muon_learning_rate or settings.learning_rate, tokens_of(settings)
    found = []
    for seed in range(n_seeds):
        out = work / f"{recipe}-{n_tokens}-{rate:g}-{seed}"
        result = train_model(str(work / "tokens"), str(out), replace(settings, seed=seed), Run.quiet())
        assert result.validation_loss is not None
        found.append(result.validation_loss)
    spread = f" +- {statistics.stdev(found):.4f}" if n_seeds > 1 else ""
    each = " ".join(f"{loss:.4f}" for loss in found)
    print(
        f"{recipe:<14}{n_tokens:>10,} tokens  rate {rate:<6g} {each}  mean {statistics.fmean(found):.4f}{spread}",
        flush=True,
    )
    return found


def share_needed(loss: float, reached: Sequence[float]) -> str:
    """Return the share at which the losses `reached` at SHARES pass `loss`, interpolated over the log of the tokens."""
    if reached[0] <= loss:
        return f"less than {SHARES[0]:.2f}"
    for (a, b), (x, y) in zip(
        zip(SHARES, SHARES[1:], strict=False), zip(reached, reached[1:], strict=False), strict=True
    ):
        if y <= loss:
            return f"{math.exp(math.log(a) + (x - loss) / (x - y) * math.log(b / a)):.2f}"
    return f"more than {SHARES[-1]:.2f}"


def tokens_of(settings: TrainSettings) -> int:
    """Return the number of tokens that a run trains on."""
    return sequences_before(settings, settings.steps) * settings.context


if __name__ == "__main__":
    main()
