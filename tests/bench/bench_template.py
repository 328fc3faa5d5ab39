"""Site templates: their share of the text with and without `--template-ratio`, and bits per byte of models of both corpora.

    python tests/bench/bench_template.py PROOF [--out DIR] [--steps 500] [--seeds 3] [--data DATA]

PROOF is what `make proof` left: its documents are read, and its held-out pages judge the models. With --steps 0 no
model is trained.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "proof"))
import ours
import verdict

from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.clean.template import find
from webtext.tokenizer import Tokenizer
from webtext.train import load_model

RATIO, KINDS = 0.2, ("without", "with")


def webtext(*arguments: object) -> None:
    subprocess.run(["nice", ours.WEBTEXT, *map(str, arguments), "--quiet"], check=True, stdout=subprocess.DEVNULL)


def make_documents(proof: Path, out: Path) -> dict[str, Path]:
    """Leave the templates out of the proof's documents; print what that changed and cost."""
    whole = PartSet.open(str(proof / "ours/build/documents"))
    folder = out / "with/documents"
    begun = time.perf_counter()
    with Run.quiet(2).engine as engine:
        run = Run(engine, Run.quiet().console)
        left = find.leave_out_templates(whole, str(folder), RATIO, [], run)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{whole.records:,} documents in {time.perf_counter() - begun:.0f} s, {usage.ru_utime + usage.ru_stime:.0f} "
        f"CPU seconds, at most {usage.ru_maxrss / 1024:.0f} MiB in a worker; {dict(left.counts.dropped)}"
    )
    texts = {name: dict(_texts(each)) for name, each in (("without", whole), ("with", left))}
    lost = [1 - len(texts["with"].get(name, "")) / len(text) for name, text in texts["without"].items()]
    above = {bound: sum(share > bound for share in lost) for bound in (0, 0.1, 0.5, 0.9)}
    print("documents that lost more than a share of their text:", above)
    return {"without": proof / "ours/build/documents", "with": folder}


def _texts(opened: PartSet):
    for part in range(len(opened.parts)):
        table = opened.table(part, ["id", "text"])
        yield from zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)


def print_shares(documents: dict[str, Path], corpora: dict[str, Path]) -> None:
    """Print the share of lines that recur on a fifth of a host's pages, of all lines and in runs of 80 characters."""
    for label, folders in (("documents", documents), ("corpus", corpora)):
        for kind in KINDS:
            facts = verdict.text_facts(folders[kind])
            runs, worst = runs_of_templates(folders[kind])
            print(
                f"{label} {kind}: {facts['documents']:,} documents, {facts['characters']:,} characters, template lines "
                f"{facts['template_ratio']:.2%}, in runs {runs:.2%}, of the worst hosts {worst}"
            )


def runs_of_templates(folder: Path) -> tuple[float, list[str]]:
    """Return the share of characters that `without_template` would still leave out, and the hosts with most of them."""
    hosts: dict[str, list[str]] = {}
    for url, text in verdict.documents(folder):
        hosts.setdefault(verdict.urlsplit(url).netloc, []).append(text)
    left, totals = Counter[str](), Counter[str]()
    for host, texts in hosts.items():
        counted = Counter(itertools.chain.from_iterable(map(find.candidates, texts)))
        needed = max(len(texts) * RATIO, find.MIN_RECURRING - 1) if len(texts) >= find.MIN_PAGES else len(texts)
        recurring = {line for line, n in counted.items() if n > needed}
        for text in texts:
            totals[host] += len(text)
            left[host] += len(text) - len(find.without_template(text, recurring))
    worst = sorted((left[host] / totals[host] for host in hosts), reverse=True)[:5]
    return left.total() / totals.total(), [f"{share:.1%}" for share in worst]


def train(proof: Path, out: Path, kind: str, seed: int, steps: int) -> None:
    """Train one model on one core, in the proof's shape."""
    model, config = out / f"models/{kind}-{seed}/{steps:09d}", ours.write_config(out, "build", 0, "large")
    run = out / f"{kind}/model-{seed}"
    if not model.exists():
        shape = ["--steps", steps, "--warmup-steps", steps // 20, "--checkpoint-interval", steps]
        webtext(
            "train",
            "run",
            out / kind / "tokens",
            "--out",
            run,
            "--config",
            config,
            *shape,
            "--seed",
            seed,
            "--threads",
            1,
        )
        (checkpoint,) = (run / "checkpoints").glob("step-*")
        load_model(checkpoint).to_huggingface(model, tokenizer=Tokenizer.load(out / kind / "tokenizer/tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/template"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="folder with eval/")
    arguments = parser.parse_args()
    proof, out = arguments.proof, arguments.out.resolve()
    documents = make_documents(proof, out)
    for kind in KINDS:
        webtext("clean", "run", documents[kind], "--out", out / kind, "--workers", 2)
    corpora = {kind: out / kind / "corpus" for kind in KINDS}
    print_shares(documents, corpora)
    if not arguments.steps:
        return
    for kind in KINDS:
        tokenizer = out / kind / "tokenizer/tokenizer.json"
        config = ours.write_config(out, "build", 0, "large")
        webtext("tokenizer", "train", corpora[kind], "--out", tokenizer, "--config", config)
        webtext(
            "shards",
            "pack",
            corpora[kind],
            "--tokenizer",
            tokenizer,
            "--out",
            out / kind / "tokens",
            "--config",
            config,
        )
    with ThreadPoolExecutor(2) as pool:
        for each in [
            pool.submit(train, proof, out, kind, seed, arguments.steps)
            for seed in range(arguments.seeds)
            for kind in KINDS
        ]:
            each.result()
    found = verdict.held_out_texts(proof)
    ratios = verdict.seen_ratios([text for _, text in found], list(corpora.values()))
    kept = [each for each, ratio in zip(found, ratios, strict=True) if ratio <= verdict.MAX_SEEN_RATIO]
    sets = {"documentation": kept, **verdict.public_texts(arguments.data)}
    scores, _ = verdict.score_models(out / "models", sets, 2)
    verdict.DIFFERENCES[:] = [("with minus without", "with", "without")]
    for name, texts in sets.items():
        for label, (mean, low, high) in verdict.compare(scores[name], [group for group, _ in texts]).items():
            print(f"{name}, {len(texts)} texts, {label}: {mean:.4f} ({low:.4f} to {high:.4f}) bits per byte")


if __name__ == "__main__":
    main()
