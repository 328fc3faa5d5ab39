"""`train scale` on real text: several sizes and budgets, and the law that fits them.

    python tests/bench/bench_scale.py [DATA] [--tokens 65536,131072,262144] [--seeds 1] [--out FOLDER]

DATA (default: WEBTEXT_TEST_DATA) contains corpora/en.txt.xz, English documentation. With
--out, finished runs are not repeated, and scale.html is kept. CPU seconds are those of this process and its children.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_corpora import SETTINGS, cpu_seconds
from corpora_made import HELD_OUT_CHARACTERS, Making
from corpora_texts import cut, texts_of
from real_data import real_data

from webtext.base.config import changed
from webtext.base.console import Console
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train.evaluate.page import as_text
from webtext.train.experiments.scale import run_scale
from webtext.train.experiments.settings import ScaleSettings

VOCAB_SIZE = 1024
CHARACTERS = 12_000_000
"""More than four million tokens, so that no run reads a text twice."""
SIZES = ("2x64", "3x96", "4x128", "5x160", "6x192")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--tokens", default="65536,131072,262144", help="budgets of tokens for every size")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for corpus and runs; default: a temporary folder")
    options = parser.parse_args()
    data = real_data(options.data)
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        started = cpu_seconds()
        making = Making(data, out / "made", CHARACTERS, Run.quiet(2))
        build = make_build(making)
        settings = changed(
            SETTINGS, context=128, batch_size=8, microbatch_size=8, eval_windows=128, eval_interval=None,
            checkpoint_interval=100, keep_checkpoints=1, keep_best=False,
        )  # fmt: skip
        scale = ScaleSettings(
            sizes=SIZES, tokens=tuple(map(float, options.tokens.split(","))), warmup_ratio=0.05, seeds=options.seeds
        )
        run = Run.quiet()
        run.console = Console("human")
        place = str(out / "scale")
        found = run_scale(f"{build}/tokens", place, settings, scale, run)
        print(f"{as_text(found.sections())}\n{cpu_seconds() - started:,.0f} CPU seconds; the page: {place}/scale.html")


def make_build(making: Making) -> str:
    """Cut the documentation and pack it with its own tokenizer; held out are the documents of `bench_corpora.py`."""
    held_out, prose = cut(making.prose(), HELD_OUT_CHARACTERS)
    documents = making.documents("prose", cut(prose, making.n_characters)[0], held_out)
    return making.build("prose", documents, Tokenizer.train(texts_of(documents), VOCAB_SIZE))


if __name__ == "__main__":
    main()
