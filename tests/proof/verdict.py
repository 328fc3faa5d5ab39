"""Judges both corpora and both trainers: bits per byte of texts that no model has seen, and what the corpora contain.

The texts are manuals of packages that were never linked, as their sources have them (`make gold`, but its test split); WCXB's
articles of domains that were never linked; WikiText-103 and PTB. Half of the packages and domains, and the validation sets,
are there to choose by; the other half and the test sets are the final verdict's.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from shape import CORPORA, OWN

from webtext.tokenizer import Tokenizer
from webtext.train import load_model
from webtext.train.data.windows import Windows, total_loss
from webtext.train.distributed import World
from webtext.train.evaluate.texts import read_running_text

Texts = list[tuple[str, str]]  # (group, text): a package and a page of it
PUBLIC = {"wikitext-103": "eval/wikitext-103/wiki.{}.tokens", "ptb": "eval/ptb/ptb.{}.txt"}
TEXTS = {"wikitext-103": r"(?ms)^= [^=\n]+ =\n\n.*?(?=^= [^=\n]+ =\n\n|\Z)", "ptb": r"(?:.*\n){1,100}"}
MIN_CHARACTERS, MAX_CHARACTERS, MAX_TEXTS, CURVE_TEXTS = 500, 5_000, 300, 30
MAX_SEEN_RATIO, N_DRAWS, BATCH_SIZE = 0.2, 2_000, 16
MAX_COMPARED = 30_000  # characters of a document in which duplicates are looked for; it bounds memory
KINDS = {  # of lines that nobody reads as text; a line counts as the first that it matches
    "menu": re.compile(
        r"(Next|Prev(ious)?|Up|Home|Top): |[|\s]*(Top|Home|Prev|Next)?[|\s]*$|(Show|Hide) (Source|table)|Table of Contents"
    ),
    "licence": re.compile(r"(?i).{0,40}(copyright|\(c\) \d{4}|licensed under|permission is (hereby )?granted)"),
    "table": re.compile(r"\|.*\|$"),
    "source indentation": re.compile(r"\t+[A-Z]\w* \w+ \w+"),
}
DIFFERENCES = [("both", "ours-ours", "theirs-theirs")]
DIFFERENCES += [(f"corpus, {same} as trainer", f"ours-{same}", f"theirs-{same}") for same in OWN]
DIFFERENCES += [(f"corpus, {x} as trainer, theirs by trafilatura 2", f"ours-{x}", f"newer-{x}") for x in OWN]
DIFFERENCES += [(f"corpus in their mix, {x} as trainer", f"mixed-{x}", f"theirs-{x}") for x in OWN]
DIFFERENCES += [("corpus, ours as trainer, equal tokens", "ours-ours@tokens", "theirs-ours@tokens")]
DIFFERENCES += [(f"trainer, {same} as corpus", f"{same}-ours", f"{same}-theirs") for same in OWN]
DIFFERENCES += [(f"trainer, {same} as corpus, equal CPU time", f"{same}-ours@cpu", f"{same}-theirs") for same in OWN]


def judge(
    out: Path, data: Path | None, gold: Path | None, served: set[str], threads: int, *, final: bool
) -> dict[str, Any]:
    """All results, as JSON values; `data` has the public sets, `served` the linked pages that exist, after redirects."""
    sets, n_seen = public_texts(data, "test" if final else "valid"), 0
    for name, texts in {"documentation": manuals(out, gold), "articles": articles(out)}.items():
        half = in_turns([(group, text) for group, text in texts if int(rank(group), 16) % 2 == final])
        ratios = seen_ratios([text for _, text in half], [out / folder for folder in CORPORA.values()])
        kept = [each for each, ratio in zip(half, ratios, strict=True) if ratio <= MAX_SEEN_RATIO]
        n_seen += len(half) - len(kept)
        sets |= {name: kept} if kept else {}
    if not sets:
        raise OSError("no text is left to judge by\nrun make gold SIZE=large, or name a folder of data with --data")
    scores, curves = score_models(out / "models", sets, threads)
    return {
        "sets": {name: [len(texts), sum(len(text.encode()) for _, text in texts)] for name, texts in sets.items()},
        "n_seen": n_seen,
        "bits_per_byte": {name: compare(scores[name], [group for group, _ in sets[name]]) for name in sets},
        "curves": curves,
        "corpora": corpus_facts(out, served),
        "duplicates_left": {name: duplicates_left(out / folder) for name, folder in CORPORA.items()},
    }


def manuals(out: Path, gold: Path | None) -> Texts:
    """English gold pages of source packages that were never linked, as their sources have them."""
    linked = {package["name"] for package in json.loads((out / "site.json").read_text())["packages"]}
    columns, texts = ["package", "source", "language", "split", "blocks"], []
    for path in sorted(gold.glob("*.parquet")) if gold else ():
        for row in pq.read_table(path, columns=columns).to_pylist():
            if (
                row["language"] == "en"
                and row["split"] != "test"
                and linked.isdisjoint((row["package"], row["source"]))
            ):
                texts.append((row["source"], "\n".join(block["text"] for block in row["blocks"])))
    return texts


def articles(out: Path) -> Texts:
    """WCXB's articles of domains that were never linked."""
    file = out / "articles.json"
    return [(domain, text) for domain, text in json.loads(file.read_text())] if file.exists() else []


def in_turns(texts: Texts) -> Texts:
    """At most `MAX_TEXTS` texts that are long enough, by hash; the groups take turns, so that each has a say."""
    groups = {text[:MAX_CHARACTERS]: group for group, text in texts if len(text) >= MIN_CHARACTERS}
    turns: defaultdict[str, Iterator[int]] = defaultdict(count)
    ordered = sorted((next(turns[groups[text]]), rank(text), text) for text in sorted(groups, key=rank))
    return [(groups[text], text) for _, _, text in ordered[:MAX_TEXTS]]


def seen_ratios(texts: list[str], folders: list[Path]) -> list[float]:
    """Of each text the share of its runs of eight words that occur in one of the corpora."""
    runs = [word_runs(text, 8) for text in texts]
    known = set().union(*runs)
    seen = set(chain.from_iterable(known & word_runs(text, 8) for folder in folders for _, text in documents(folder)))
    return [len(each & seen) / max(1, len(each)) for each in runs]


def public_texts(data: Path | None, split: str) -> dict[str, Texts]:
    """The public sets that are in `data`, de-tokenized, the same for all models."""
    sets: dict[str, Texts] = {}
    for name, path in PUBLIC.items():
        if data and (file := data / path.format(split)).is_file():
            text = read_running_text(name, file.read_bytes(), str(file)).text.decode()
            sets[name] = [(str(i), each) for i, each in enumerate(re.findall(TEXTS[name], text))]
    return sets


def score_models(models: Path, sets: dict[str, Texts], threads: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Set -> corpus-trainer -> scores by seed; and corpus-trainer -> by seed (tokens, bits per byte of some manuals)."""
    scores: dict[str, Any] = {name: defaultdict(list) for name in sets}
    curves, runs = defaultdict(list), sorted(models.iterdir())
    # A thread for each of several models: the kernels are so small that two threads of one only wait for each other.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for run, (of_sets, curve) in zip(runs, pool.map(partial(score_run, sets=sets), runs), strict=True):
            combination = run.name.rpartition("-")[0]
            curves[combination].append(curve)
            for name in sets:
                scores[name][combination].append(of_sets[name])
    return scores, curves


def score_run(run: Path, sets: dict[str, Texts]) -> tuple[dict[str, Any], list[list[float]]]:
    """The scores of a run's last model, and its curve."""
    folders, name = sorted(run.glob("[0-9]*")), "documentation" if "documentation" in sets else min(sets)
    some, last = sets[name][:CURVE_TEXTS], {name: bits_per_byte(folders[-1], texts) for name, texts in sets.items()}
    of_some = [*(bits_per_byte(folder, some) for folder in folders[:-1]), last[name][: len(some)]]
    bits, n_bytes = np.stack(of_some).sum(1).T
    return last, [[int(folder.name), ratio] for folder, ratio in zip(folders, (bits / n_bytes).tolist(), strict=True)]


def bits_per_byte(folder: Path, texts: Texts) -> NDArray[np.float64]:
    """Bits and bytes of each text, [text, 2], in float32; kept in scores.json beside the model."""
    kept, weights = folder / "scores.json", (folder / "model.safetensors").read_bytes()
    key = hashlib.sha256(json.dumps([text for _, text in texts]).encode() + weights).hexdigest()
    scores = json.loads(kept.read_text()) if kept.is_file() else {}
    if key not in scores:
        model, tokenizer, scores[key] = load_model(folder), Tokenizer.load(folder / "tokenizer.json"), []
        for _, text in texts:
            ids, context, start = tokenizer.encode_numpy(text), model.config.context, tokenizer.eot_id
            if start is None or tokenizer.decode(ids) != text:
                raise ValueError(f"'{folder}': its tokenizer loses text, or has no end-of-text")
            windows = Windows([np.insert(ids, 0, start)], context=context, stride=context)
            nats, _ = total_loss(model, windows, BATCH_SIZE, World(0, 1, torch.device("cpu")))
            scores[key].append([nats / np.log(2), len(text.encode())])
        kept.write_text(json.dumps(scores))
    return np.array(scores[key])


def compare(scores: dict[str, list[NDArray[np.float64]]], groups: list[str]) -> dict[str, list[float]]:
    """[mean, low, high] bits per byte of each corpus-trainer, and what ours changes: below 0 ours is better.

    Low to high is a bootstrap's 95 % interval: seeds are drawn again, and groups of texts, the same ones for all models.
    """
    generator = np.random.default_rng(0)

    def draws(n: int) -> NDArray[np.float64]:
        """How often each of n is drawn; in the first row once, for the mean itself."""
        return np.vstack([np.ones(n), generator.multinomial(n, np.full(n, 1 / n), N_DRAWS)])

    names, members = np.unique(groups, return_inverse=True)
    weights, values = draws(len(names))[:, members], {}
    for combination, seeds in scores.items():
        bits, n_bytes = np.stack(seeds).transpose(2, 0, 1)
        values[combination] = ((draws(len(bits)) @ bits) * weights).sum(1) / (weights @ n_bytes[0]) / len(bits)
    for name, one, other in DIFFERENCES:
        if {one, other} <= values.keys():
            values[name] = values[one] - values[other]
    return {name: [value[0].item(), *np.quantile(value[1:], (0.025, 0.975)).tolist()] for name, value in values.items()}


def documents(folder: Path) -> Iterator[tuple[str, str]]:
    """(URL, text) of a corpus; the URL unquoted, since crawlers quote differently."""
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(256, columns=["url", "text"]):
            yield from ((unquote(row["url"]), row["text"]) for row in batch.to_pylist())


def known_hosts(out: Path) -> set[str]:
    """The hosts of articles, forums and shops; packages have a role."""
    site = json.loads((out / "site.json").read_text())
    return {f"{each['address']}:{site['port']}" for each in site["packages"] if "role" not in each}


def rank(text: str) -> str:
    """What puts texts or URLs into an order that has nothing to do with them."""
    return hashlib.sha256(text.encode()).hexdigest()


def word_runs(text: str, n: int) -> set[int]:
    """Hashes of 64 bits of all runs of n words; they hold within a process."""
    words = re.findall(r"\w+", text.lower())
    return set(map(hash, zip(*(words[i:] for i in range(n)), strict=False)))


def duplicates_left(folder: Path, n_sample: int = 1000) -> dict[str, float]:
    """The share of sampled documents that have another in the corpus at these Jaccard similarities of runs of five words."""
    sample = heapq.nsmallest(n_sample, ((rank(url), i, text) for i, (url, text) in enumerate(documents(folder))))
    sampled = [(number, word_runs(text[:MAX_COMPARED], 5)) for _, number, text in sample]
    having, highest = defaultdict(list), [0.0] * len(sampled)
    for i, (_, runs) in enumerate(sampled):
        for run in runs:
            having[run].append(i)
    for number, (_, text) in enumerate(documents(folder)):
        runs = word_runs(text[:MAX_COMPARED], 5)
        for i, common in Counter(chain.from_iterable(having[run] for run in runs if run in having)).items():
            if sampled[i][0] != number:
                highest[i] = max(highest[i], common / (len(sampled[i][1]) + len(runs) - common))
    return {str(limit): sum(each >= limit for each in highest) / max(1, len(highest)) for limit in (0.8, 0.95)}


def corpus_facts(out: Path, served: set[str]) -> dict[str, Any]:
    """Sizes of both corpora, the pages that both have, and the share of `served` that a crawl never got."""
    parts = (out / "ours/build/pages").glob("*.parquet")
    rows = chain.from_iterable(pq.read_table(part, columns=["final_url", "outcome"]).to_pylist() for part in parts)
    lines = chain.from_iterable(map(gzip.open, (out / "theirs/pages").glob("*.jsonl.gz")))
    got = {"ours": {unquote(row["final_url"]) for row in rows if row["outcome"] == "fetched"}}
    got["theirs"] = {unquote(json.loads(line)["url"]) for line in lines}
    ours, theirs = ({url for url, _ in documents(out / CORPORA[name])} for name in OWN)
    facts, there = {"both": len(ours & theirs), "only_ours": len(ours - theirs)}, set(map(unquote, served))
    lost = {name: len(there - urls) / max(1, len(there)) for name, urls in got.items()}
    lost["newer"] = lost["theirs"]  # the same pages
    known = known_hosts(out)
    return facts | {name: text_facts(out / CORPORA[name], known) | {"lost_ratio": lost[name]} for name in CORPORA}


def text_facts(folder: Path, known: Set[str]) -> dict[str, Any]:
    """Facts about a corpus. Template text: lines in more than a fifth of the documents of a host with ten or more."""
    hosts, having, totals = Counter[str](), Counter[int](), Counter[str]()
    for url, text in documents(folder):
        hosts[host := urlsplit(url).netloc] += 1
        having.update({hash((host, line.strip())) for line in text.splitlines()})
        counted = {"characters": len(text), "known_documents": host in known, "known": len(text) * (host in known)}
        totals.update(counted, documents=1, pilcrow="¶" in text)
        for line in filter(None, text.splitlines()):
            kind = next((kind for kind, pattern in KINDS.items() if pattern.match(line)), "text")
            totals[kind] += len(line)
    for url, text in documents(folder):
        host = urlsplit(url).netloc
        for line in map(str.strip, text.splitlines()) if hosts[host] >= 10 else ():
            totals.update(compared=len(line), template=len(line) * (having[hash((host, line))] > hosts[host] / 5))
    facts = {name: totals[name] for name in ("documents", "characters", "known_documents")} | {"hosts": len(hosts)}
    facts["kinds"] = {kind: totals[kind] / max(1, totals["characters"]) for kind in KINDS}
    pairs = {"template": "compared", "pilcrow": "documents", "known": "characters"}
    return facts | {f"{part}_ratio": totals[part] / max(1, totals[whole]) for part, whole in pairs.items()}
