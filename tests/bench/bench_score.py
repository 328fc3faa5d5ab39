"""Vote score: how well it tells pages of unseen domains apart, and its speed, compared with scikit-learn's bag of words.

    python tests/bench/bench_score.py [DATA]

DATA (default: WEBTEXT_TEST_DATA) has extract/, wcxb/ and crawl/reddit/gpt2_webtext_top1000_domains.txt. No page there comes
with its votes, so three things replace them: the kind of a page, which the benchmark states; whether the page's domain
is one of the 1,000 that WebText has most pages of; and, as a control, domains divided by chance. All texts are extracted as
`clean extract` does, and those not in English are left out. The peer is a HashingVectorizer of words and pairs of words
with the same regression, folds and weights of the sides, near to fastText's classifier.
Intervals are 95 % of a bootstrap over domains. Speeds are CPU seconds of one core: texts of about 600 words, medians.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from arguments import data_folder
from bench_extract import ours as extracted
from resources import cpu_seconds_in_turn, peak_mib
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.clean.language import detect_language
from webtext.clean.score import train
from webtext.clean.score.features import features_of
from webtext.clean.score.model import features, open_model
from webtext.clean.text.clean_text import clean_text

RUNS, TWIN_TEXTS, WORDS, NO_LIMIT = 5, 50, 600, 1_000_000


@dataclass(frozen=True)
class Page:
    """A page: its text, domain and kind, and whether WebText has many pages of its domain."""

    text: str
    domain: str
    kind: str
    is_frequent: bool


def read_pages(data: Path) -> list[Page]:
    lines = (data / "crawl/reddit/gpt2_webtext_top1000_domains.txt").read_text().splitlines()
    frequent = {line.split()[-1] for line in lines if len(line.split()) > 1}
    with lzma.open(data / "wcxb/gold.jsonl.xz", "rt") as file:
        about = {f"{row['id']}.html": (row["url"], row["page_type"]) for row in map(json.loads, file)}
    evaluation = json.loads((data / "extract/evaldata.json").read_text())
    about |= {page["file"]: (url, "evaluation") for url, page in evaluation.items()}
    pages = {}
    for name in ("wcxb", "extract"):
        with tarfile.open(data / name / "pages.tar.xz") as packed:
            for member in packed:
                url, kind = about.get(Path(member.name).name, ("", ""))
                file = packed.extractfile(member) if canonical_url(url) else None
                text = clean_text(extracted(file.read())) if file else ""
                if (detect_language(text) or [""])[0] == "en":
                    domain = registrable_domain(canonical_url(url) or "")
                    pages[text] = Page(text, domain, kind, domain.split(".")[0] in frequent)
    return list(pages.values())


def documents(folder: str, pages: list[Page]) -> PartSet:
    writer = SetWriter(folder, "documents", Recipe(stage="bench", code_version=1, settings={}))
    rows = []
    for page in pages:
        digest = text_digest(page.text)
        about = {"id": digest, "text": page.text, "text_digest": digest, "domain": page.domain}
        rows.append(about | {"link_ids": [], "posts": [], "split": "train"})
    with writer.part(0, key="bench") as part:
        part.write(rows)
        return writer.seal([part.publish()])


def compare(title: str, voted: list[Page], background: list[Page]) -> dict[str, Any]:
    """Print one row: areas on the same unseen domains, and the interval of their difference. Return the model's card."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [[documents(f"{folder}/{i}", pages)] for i, pages in enumerate((voted, background))]
        card: dict[str, Any] = dict(
            train.train_score(sets[0], sets[1], f"{folder}/m", per_domain=NO_LIMIT, most=NO_LIMIT).header["card"]
        )
    pages = [*voted, *background]
    is_voted = np.arange(len(pages)) < len(voted)
    names, of = np.unique([page.domain for page in pages], return_inverse=True)
    folds = np.array([int(hashlib.sha256(name.encode()).hexdigest()[:16], 16) % train.FOLDS for name in names])[of]
    scores = []
    for vectors in (FunctionTransformer(matrix), peer()):
        bag = make_pipeline(vectors, LogisticRegression(C=train.C, class_weight="balanced", max_iter=train.MAX_STEPS))
        texts = [page.text for page in pages]
        scores.append(cross_val_predict(bag, texts, is_voted, cv=PredefinedSplit(folds), method="decision_function"))
    ours, theirs = (roc_auc_score(is_voted, each) for each in scores)
    chance, differences = np.random.default_rng(0), []
    for _ in range(train.N_RESAMPLES):
        times = np.bincount(chance.integers(0, len(names), len(names)), minlength=len(names))[of]
        differences.append(np.subtract(*(roc_auc_score(is_voted, each, sample_weight=times) for each in scores)))
    (low, high), (least, most) = card["auc_interval"], np.quantile(differences, [0.025, 0.975])
    sizes = [f"{len(pages)} of {len({page.domain for page in pages})}" for pages in (voted, background)]
    print(
        f"| {title} | {sizes[0]} | {sizes[1]} | {card['auc']:.3f} [{low:.3f}, {high:.3f}] | {ours:.3f} | {theirs:.3f}"
        f" | {ours - theirs:+.3f} [{least:+.3f}, {most:+.3f}] | {card['calibration_error']:.3f} |",
        flush=True,
    )
    return card


def matrix(texts: list[str]) -> csr_matrix:
    """Return our features of texts as the trainer weighs them."""
    found, ends = features(pa.array(texts, pa.large_string()), train.BITS)
    n = np.diff(ends)
    return csr_matrix((np.repeat(1 / np.sqrt(n), n), found, ends), (len(texts), 1 << train.BITS))


def peer() -> HashingVectorizer:
    return HashingVectorizer(ngram_range=(1, 2), n_features=1 << train.BITS, alternate_sign=False)


def speed(pages: list[Page]) -> None:
    """Print texts per CPU second; first check that our scores are those of the readable twin."""
    texts = [" ".join(page.text.split(" ")[:WORDS]) for page in pages if page.text.count(" ") > WORDS / 2]
    with tempfile.TemporaryDirectory() as folder:
        sets = [documents(f"{folder}/{i}", [page for page in pages if (page.kind == "article") == i]) for i in (0, 1)]
        train.train_score([sets[1]], [sets[0]], f"{folder}/m", per_domain=10, most=1000)
        model = open_model(f"{folder}/m")
    array = pa.array(texts, pa.large_string())
    found = model.scores(array).to_pylist()
    header = model.header

    def twin() -> list[float]:
        return [score_of(features_of(text, header["bits"])) for text in texts[:TWIN_TEXTS]]

    def score_of(found: list[int]) -> float:
        power = header["factor"] * int(model.weights[found].sum(dtype=np.int64)) / np.sqrt(len(found))
        return float(np.round(1 / (1 + np.exp(-power - header["offset"])), 6))

    assert twin() == found[:TWIN_TEXTS]
    bag = peer()
    weights = np.zeros(1 << train.BITS)
    works: dict[str, Callable[[], object]] = {
        "webtext": lambda: model.scores(array), "the readable twin": twin, "the peer": lambda: bag.transform(texts) @ weights
    }  # fmt: skip
    seconds = cpu_seconds_in_turn(works, RUNS)
    words, characters = (sum(map(count, texts)) / len(texts) for count in (lambda text: len(text.split()), len))
    print(
        f"\n{len(texts)} texts of {words:.0f} words, {characters:,.0f} characters; model of {model.weights.nbytes >> 10} KiB"
    )
    for name, taken in seconds.items():
        n = TWIN_TEXTS if "twin" in name else len(texts)
        print(f"{name:18} {n / taken:8,.0f} texts per CPU second, {n / taken * characters / 1e6:6.1f} MB")


def main(data: Path) -> None:
    pages = read_pages(data)
    typed = [page for page in pages if page.kind != "evaluation"]
    articles = [page for page in typed if page.kind == "article"]
    print(
        "| voted, background | pages of domains | background | AUC | uncalibrated | peer | difference | calibration error |"
    )
    print("|" + "---|" * 8)
    card = compare("articles, other kinds", articles, [page for page in typed if page.kind != "article"])
    for title, some in (
        ("pages", pages),
        ("articles", [page for page in pages if page.kind in ("article", "evaluation")]),
    ):
        sides = [[page for page in some if page.is_frequent == side] for side in (True, False)]
        compare(f"{title} of WebText's frequent domains, others", *sides)
    halves = [[page for page in articles if half_of(page.domain) == half] for half in (0, 1)]
    compare("control: articles of half of the domains, others", *halves)
    print("\nthe first row's curve: threshold, articles that reach it, others that do")
    print("\n".join(f"| {at:.1f} | {100 * a:.1f} % | {100 * b:.1f} % |" for at, a, b in card["curve"]))
    print("its tenths: share of the weight, mean score, share of articles")
    print("\n".join(f"| {n:.3f} | {mean:.3f} | {share:.3f} |" for n, mean, share in card["reliability"]))
    for side, means in card["domain_means"].items():
        print(
            f"mean score of the domains, {side}: "
            + ", ".join(f"{100 * q:.0f} %: {x:.2f}" for q, x in zip(train.LEVELS, means, strict=True))
        )
    speed(typed)
    print(f"peak memory {peak_mib():,.0f} MiB")


def half_of(domain: str) -> int:
    return int(text_digest(domain)[-1], 16) % 2


if __name__ == "__main__":
    main(data_folder(__doc__))
