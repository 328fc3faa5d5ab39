"""Make `clean/extract/model.json`: learn from pages with known text which blocks are a page's text, and of which kind a page is.

    python tests/learn/extractor.py DATA OUT [--gold DIR] [--forums DIR] [--fixtures FILE] [--texts FILE]

DATA has the folders `wcxb` (pages with their text and kind) and `extract` (trafilatura's pages, with some passages that
are wanted and some that aren't). DIR has pages whose sources are known (`make gold`), of which the training split is read,
a few pages of each source package. `fixtures.py` makes the file of fixtures; only pages of which the whole text is known
are read. `--texts` writes each page's text by a model that hasn't seen the page's domain, as JSON
lines, and its scores into the model, and prints what F1 such a model loses on a third of WCXB's pages with other letters in their
words. The result depends on the data and on the versions of the libraries alone.

A part of the pages is also learned from with other letters in its words (`examples.py`), so that the model doesn't rely on
words that it knows or on capitals.

A name, a word, and a first stage's estimate seem better than they are on the pages they were learned from. So for
training, each is learned from other domains (INNER folds) than those of the page that it describes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from webtext.base.errors import InputError
from webtext.clean.extract.features import WORD, PageFeatures, name_parts, words_of
from webtext.clean.extract.kinds import KINDS
from webtext.clean.extract.layout import layout
from webtext.clean.extract.opinion import ASKED_FROM, WEIGHT, in_recipe, shares
from webtext.clean.extract.scorer import MAX_LEAVES, ScoredPage, Scorer, matrix, read_scorer, sizes_of
from webtext.clean.text.clean_text import clean_text

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "bench")]
from extraction_sets import F1, rates, read_set, scores  # noqa: E402
from learn.examples import FORUM_PAGES, SCORED, SCRIPTS, Example, read_examples, read_fixtures, read_gold  # noqa: E402

Array = npt.NDArray[Any]

FOLDS, INNER, TREES = 4, 3, (140, 110)
LEARNING: dict[str, Any] = {
    "objective": "cross_entropy",
    "num_leaves": MAX_LEAVES,
    "learning_rate": 0.06,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5,
    "max_bin": 63,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "num_threads": 2,
    "verbose": -1,
}
REWRITTEN = 4  # every fourth page
KEPT = 0.45  # a block is text from this share of its words
MAX_BLOCKS = 300  # of a page, drawn by chance, that a stage learns from
FACT_PAGES, NAME_DOMAINS, WORD_DOMAINS, MAX_LEARNED_WORDS = 4, 4, 8, 1500
REGULARISATION = 0.3


def learn(examples: Sequence[Example]) -> str:
    """Return the text of a model file that is learned from the examples."""
    given = [example for example in examples if example.found.blocks]
    given += [e.rewritten() for e in given if zlib.crc32(e.identifier.encode()) // 7 % REWRITTEN == 0]
    columns: list[dict[str, Array]] = [{} for _ in given]
    for inside, outside in _inner(given):
        model = _weights([given[i] for i in outside])
        for i in inside:
            columns[i] = _columns(model, given[i])
    first = [matrix(each) for each in columns]
    second: list[Array] = [np.zeros(0)] * len(given)
    names: list[str] = []
    for inside, outside in _inner(given):
        booster = _boosted([given[i] for i in outside], [first[i] for i in outside], TREES[0])
        for i in inside:
            page = PageFeatures(given[i].found)
            judged = columns[i] | page.judged(np.asarray(booster.predict(first[i])))
            second[i], names = matrix(judged), list(judged)
    stages = [_exported(_boosted(given, each, n)) for each, n in zip((first, second), TREES, strict=True)]
    return _file(_weights(given) | {"features": names, "stages": stages})


def _inner(given: Sequence[Example]) -> Iterable[tuple[list[int], list[int]]]:
    for fold in range(INNER):
        inside = [i for i, example in enumerate(given) if example.is_in(fold, INNER)]
        yield inside, [i for i, example in enumerate(given) if not example.is_in(fold, INNER)]


_NO_STAGES = [{"feature": [[0]], "threshold": [[0]], "remaining": [[0xFFFF]], "value": [[0] * MAX_LEAVES]}] * 2


def _columns(weights: dict[str, Any], example: Example) -> dict[str, Array]:
    model: Scorer = read_scorer(json.dumps(weights | {"stages": _NO_STAGES}))
    metadata = example.metadata
    return model.columns(PageFeatures(example.found), metadata.title or "", metadata.descriptions, example.facts)


def _weights(given: Sequence[Example]) -> dict[str, Any]:
    """Return the weights of names, words, facts and sizes."""
    given = [example for example in given if example.weight == 1]  # not those rewritten
    names = _log_odds(given, _names_around, NAME_DOMAINS, power=1.0, smoothing=1)
    words = _log_odds(given, _own_words, WORD_DOMAINS, power=-0.5, smoothing=3)
    ranked = sorted(words, key=lambda word: (-abs(words[word]), word))[:MAX_LEARNED_WORDS]
    weights = {"names": names, "words": {word: words[word] for word in sorted(ranked)}, "facts": {}}
    known = [example for example in given if example.kind]
    for kind in KINDS:
        if not any(example.kind == kind for example in known):
            raise InputError(
                f"a fold of the pages has no page of the kind '{kind}' outside it",
                "give more pages of this kind, from several domains",
            )
    sizes = np.array([sizes_of(PageFeatures(example.found).described("", (), {}, {})) for example in known])
    counts: dict[str, int] = defaultdict(int)
    for example in known:
        for fact in example.facts:
            counts[fact] += 1
    facts = sorted(fact for fact, n in counts.items() if n >= FACT_PAGES)
    table = np.array([[fact in example.facts for fact in facts] for example in known], float)
    spread = np.maximum(sizes.std(axis=0), 1e-6)
    means = sizes.mean(axis=0)
    regression = LogisticRegression(C=REGULARISATION, max_iter=300)
    described, of_page = np.hstack([table, (sizes - means) / spread]), [example.kind or "" for example in known]
    # Fixtures are of two kinds; weighed, each kind stays as frequent as WCXB has it.
    usual = Counter(example.kind for example in known if example.set_name == "wcxb")
    share = {kind: usual[kind] / n for kind, n in Counter(of_page).items()}
    regression.fit(described, [KINDS.index(kind) for kind in of_page], [share[kind] for kind in of_page])
    of_kind = regression.coef_.T
    of_sizes = of_kind[len(facts) :] / spread[:, None]
    weights["facts"] = {fact: _rounded(each, 3) for fact, each in zip(facts, of_kind, strict=False)}
    weights["sizes"] = _rounded(np.vstack([of_sizes, regression.intercept_ - means @ of_sizes]), 5)
    return weights


def _names_around(example: Example, block: int) -> set[str]:
    around: set[str] = set()
    place = example.found.blocks[block].container
    while place >= 0:
        container = example.found.containers[place]
        around.update(name_parts(container.names))
        place = container.parent
    return around


def _own_words(example: Example, block: int) -> set[str]:
    return {word for word in words_of(example.found.blocks[block].text) if not word.isdigit() and len(word) <= 20}


def _log_odds(
    given: Sequence[Example],
    keys_of: Callable[[Example, int], set[str]],
    min_domains: int,
    *,
    power: float,
    smoothing: float,
) -> dict[str, float]:
    """Return the log odds of each key that text with it is kept. A page counts once per key, in it blocks by words**power."""
    odds: dict[str, list[float]] = defaultdict(lambda: [smoothing, smoothing])
    domains: dict[str, set[str]] = defaultdict(set)
    for example in given:
        of_page: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for i, (block, target) in enumerate(zip(example.found.blocks, example.target, strict=True)):
            size = len(WORD.findall(block.text))
            if size and not np.isnan(target):
                for key in keys_of(example, i):
                    of_page[key][int(target > KEPT)] += size**power
        for key, (no, yes) in of_page.items():
            odds[key][0] += no / (no + yes)
            odds[key][1] += yes / (no + yes)
            domains[key].add(example.domain)
    return {key: round(log(yes / no), 2) for key, (no, yes) in sorted(odds.items()) if len(domains[key]) >= min_domains}


def _boosted(given: Sequence[Example], features: Sequence[Array], n_trees: int) -> lightgbm.Booster:
    chance = np.random.default_rng(0)
    rows, targets, weights = [], [], []
    for example, of_page in zip(given, features, strict=True):
        share = min(1.0, MAX_BLOCKS / len(of_page))
        chosen = (example.weights > 0) & (chance.random(len(of_page)) < share)
        rows.append(of_page[chosen])
        targets.append(example.target[chosen])
        weights.append(example.weights[chosen] / share)
    weight = np.concatenate(weights)
    given_rows = lightgbm.Dataset(np.concatenate(rows), np.concatenate(targets), weight=weight / weight.mean())
    return lightgbm.train(LEARNING, given_rows, n_trees)


def _exported(booster: lightgbm.Booster) -> dict[str, list[list[float]]]:
    """Return the trees as `scorer.Trees` describes them."""
    stage: dict[str, list[list[float]]] = {"feature": [], "threshold": [], "remaining": [], "value": []}
    for tree in booster.dump_model()["tree_info"]:
        splits: list[tuple[int, float, int]] = []
        values: list[float] = []
        _export(tree["tree_structure"], splits, values)
        splits += [(0, 0.0, 0xFFFF)] * (MAX_LEAVES - 1 - len(splits))
        for name, column in zip(("feature", "threshold", "remaining"), zip(*splits, strict=True), strict=True):
            stage[name].append(list(column))
        stage["value"].append([*values, *[0.0] * (MAX_LEAVES - len(values))])
    return stage


def _export(node: dict[str, Any], splits: list[tuple[int, float, int]], values: list[float]) -> None:
    if "leaf_value" in node:
        values.append(round(node["leaf_value"], 3))
        return
    first = len(values)
    _export(node["left_child"], splits, values)
    on_left = (1 << len(values)) - (1 << first)
    splits.append((node["split_feature"], float(f"{node['threshold']:.4g}"), 0xFFFF & ~on_left))
    _export(node["right_child"], splits, values)


def _rounded(values: Array, digits: int) -> Any:
    return np.round(values, digits).tolist()


def _file(model: dict[str, Any]) -> str:
    """Return the JSON with one line per key of the model."""
    lines = [f'"{key}": {json.dumps(value, separators=(",", ":"), ensure_ascii=False)}' for key, value in model.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def texts(model: str, examples: Iterable[Example]) -> Iterable[dict[str, Any]]:
    """Yield each page's text by a model, as `bench_extract.py --texts` reads it."""
    scorer = read_scorer(model)
    for example in examples:
        row: dict[str, Any] = {"set": example.set_name, "page": example.identifier, "text": "", "kind": None}
        if example.found.blocks:
            judged = _judged(scorer, example)
            if example.opinion is not None and judged.undecided(WEIGHT) >= ASKED_FROM:
                judged = judged.with_opinion(shares(example.found.blocks, example.opinion), WEIGHT)
            kept = judged.kept | in_recipe(example.found.blocks, example.metadata.recipe)
            row |= {"text": clean_text(layout(example.found, kept)), "kind": judged.kind}
        yield row


def by_script(model: str, examples: Iterable[Example]) -> Iterator[list[float]]:
    """Yield, of each page of WCXB, what the words of the kept blocks lose of F1 if they are in each of SCRIPTS."""
    scorer = read_scorer(model)
    for example in examples:
        if example.found.blocks and example.set_name == "wcxb":
            own, n_words = np.nan_to_num(example.target), PageFeatures(example.found).n_words
            pages = [example, *map(example.rewritten, SCRIPTS)]
            kept = np.array([_judged(scorer, page).kept for page in pages]) * n_words
            f1 = 2 * kept @ own / np.maximum(kept.sum(1) + n_words @ own, 1e-9)
            yield (f1[0] - f1[1:]).tolist()


def _judged(scorer: Scorer, example: Example) -> ScoredPage:
    metadata = example.metadata
    return scorer.judge(example.found, metadata.title or "", metadata.descriptions, example.facts)


def main() -> None:
    """Write the model, and cross-validated texts if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gold", type=Path, metavar="DIR", help="also learn from a gold set, as build/gold/large")
    parser.add_argument("--forums", type=Path, metavar="DIR", help="also learn from forum pages, as build/gold/forums")
    parser.add_argument("--fixtures", type=Path, metavar="FILE", help="also learn from fixtures")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="also write cross-validated texts")
    arguments = parser.parse_args()
    try:
        _learn_files(arguments)
    except InputError as error:
        parser.error(str(error))


def _learn_files(arguments: argparse.Namespace) -> None:
    examples = read_examples(arguments.data)
    examples += read_gold(arguments.gold) if arguments.gold else []
    examples += read_gold(arguments.forums, FORUM_PAGES) if arguments.forums else []
    examples += read_fixtures(arguments.fixtures) if arguments.fixtures else []
    about: dict[str, Any] = {"pages": len(examples), "sha256": _digest(examples)}
    if arguments.texts:
        rows, lost = [], []
        for fold in range(FOLDS):
            model = learn([example for example in examples if not example.is_in(fold, FOLDS)])
            others = [example for example in examples if example.is_in(fold, FOLDS)]
            rows += texts(model, others)
            lost += by_script(model, others[::3])
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        arguments.texts.write_text("".join(lines), encoding="utf-8")
        about["cross-validated F1"] = _scored(arguments.data, rows)
        for name, of_script in zip(SCRIPTS, np.transpose(lost), strict=True):
            print(f"{name}: F1 lost {of_script.mean():.4f} ± {1.96 * of_script.std() / len(of_script) ** 0.5:.4f}")
    arguments.out.write_text(_file({"learned from": about} | json.loads(learn(examples))), encoding="utf-8")


def _digest(examples: Iterable[Example]) -> str:
    names = sorted(f"{example.set_name} {example.identifier} {example.digest}" for example in examples)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _scored(data: Path, rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    found = {(row["set"], row["page"]): row["text"] for row in rows}
    f1 = {}
    for name in SCORED:
        pages = read_set(name, data)
        of_set = scores(pages, [found[name, page.name] for page in pages])
        f1[name] = round(float(rates(name, of_set.sum(0))[F1]), 4)
    return f1


if __name__ == "__main__":
    main()
