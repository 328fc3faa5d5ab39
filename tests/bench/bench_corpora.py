"""`train compare` on three questions, with real text: which corpus makes the better model of about 5 million parameters.

    python tests/bench/bench_corpora.py [DATA] [--only NAME] [--out FOLDER] [--tokens N] [--seeds 3]

DATA (default: WEBTEXT_TEST_DATA) contains corpora/ and extract/. NAME is one of dedup, quality and extractors.
For each, webtext's own stages make the corpora (see `corpora_made.py`), and models are trained on an equal
number of tokens, at most one pass over the smallest corpus, and compared. With --out, finished comparisons are not
repeated and interrupted ones resume. CPU seconds are those of this process and its children.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpora_made import EXPERIMENTS, Making
from real_data import real_data

from webtext.base.config import changed
from webtext.base.console import Console
from webtext.base.run import Run
from webtext.train import TrainSettings
from webtext.train.evaluate.page import as_text
from webtext.train.experiments.compare import Comparison, compare_corpora
from webtext.train.experiments.corpora import open_corpora
from webtext.train.experiments.settings import CompareSettings

CHARACTERS_PER_TOKEN = 4
"""More than a token of a vocabulary of 2,048 has on average, so that the corpus is large enough for the budget."""
SETTINGS = TrainSettings.of(
    n_layer=4, n_head=5, n_embd=320, context=256, batch_size=16, microbatch_size=16,
    optimizer="muon", learning_rate=4e-3, muon_learning_rate=8e-3,
    schedule="wsd", decay_ratio=0.4, min_learning_rate_ratio=0.0,
    eval_windows=16, device="cpu", threads=1,
)  # fmt: skip
"""Model and schedule of all runs; warm-up, evaluations and checkpoints depend on the budget."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--only", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, help="folder for corpora and runs; default: a temporary folder")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of each run")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    data = real_data(options.data)
    with tempfile.TemporaryDirectory() as temporary:
        for name in [options.only] if options.only else EXPERIMENTS:
            compare(name, data, (options.out or Path(temporary)) / name, options.tokens, options.seeds)


def compare(name: str, data: Path, out: Path, n_tokens: int, n_seeds: int) -> Comparison:
    """Make the corpora, train, compare and print the result; write everything to `out`, with compare/compare.html."""
    started = cpu_seconds()
    run = Run.quiet(2)
    made = EXPERIMENTS[name](Making(data, out / "made", CHARACTERS_PER_TOKEN * n_tokens, run))
    arguments = [f"{corpus}={folder}" for corpus, folder in made.builds.items()]
    budget = min(n_tokens, one_pass(arguments))
    print(f"\n{name}: {n_seeds} seeds, {budget:,} tokens a run", end="")
    print("" if budget == n_tokens else f" (a pass over the smallest corpus; {n_tokens:,} were asked for)")
    for note in made.notes:
        print(f"  {note}")
    steps = -(-budget // (SETTINGS.batch_size * SETTINGS.context))
    settings = changed(
        SETTINGS, warmup_steps=steps // 20, eval_interval=max(1, steps // 10), checkpoint_interval=max(1, steps // 4)
    )
    run.console = Console("human")
    found = compare_corpora(
        arguments,
        str(out / "compare"),
        settings,
        CompareSettings(tokens=budget, seeds=n_seeds),
        run,
        validation=made.validation,
    )
    print(
        f"{as_text(found.sections())}\n{cpu_seconds() - started:,.0f} CPU seconds; the page: {out}/compare/compare.html"
    )
    sys.stdout.flush()
    return found


def one_pass(arguments: list[str]) -> int:
    """Return the most tokens, in complete steps, within one pass over every corpus."""
    step = SETTINGS.batch_size * SETTINGS.context
    return (min(corpus.source.train.n_tokens for corpus in open_corpora(arguments)) // step - 1) * step


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
