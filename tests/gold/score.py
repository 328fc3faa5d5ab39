"""Compare extractors on the gold pages: `python tests/gold/score.py [--size small|large|forums] [--split SPLIT]`.

Words are lower-cased and compared as multisets; neutral words are neither right nor wrong. Means are over the pages of a
source package, then over packages; the intervals are 95 %, by bootstrap over packages. The peers (extractors.txt) run in
an environment of their own, a page at a time. A page is failed and scores 0 if its extractor raises, crashes or takes 20
seconds. The test split is sealed: opened.toml lists the models that were scored on it.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rapidfuzz.distance import LCSseq

sys.path.insert(0, str(Path(__file__).parents[1]))
from gold.align import words  # noqa: E402
from gold.extractors import EXTRACTORS  # noqa: E402
from gold.truth import KINDS  # noqa: E402

from webtext.clean.extract.scorer import model_digest  # noqa: E402

HERE, DATA = Path(__file__).parent, Path(__file__).parents[2] / "build/gold"
PEERS = DATA / "extractors"
OURS, RESAMPLES = "ours", 2000
FORMAT: dict[str, Any] = {
    "tbl_formatting": "MARKDOWN", "tbl_hide_column_data_types": True, "tbl_hide_dataframe_shape": True, "tbl_rows": -1,
    "tbl_cols": -1, "tbl_width_chars": 10_000, "fmt_str_lengths": 100, "float_precision": 4,
}  # fmt: skip
Row = dict[str, Any]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    splits = ("development", "train", "test")
    parser.add_argument(
        "--size", choices=("small", "large", "forums"), default="small", help="gold set; default: %(default)s"
    )
    parser.add_argument("--split", choices=splits, default=splits[0], help="default: %(default)s")
    parser.add_argument("--pages", type=int, default=1500, metavar="N", help="most pages; default: %(default)s")
    parser.add_argument("--extractors", default=",".join(EXTRACTORS), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--python", default=sys.executable, help="the peers' Python; magic-html needs 3.12 or later")
    given = parser.parse_args()
    names = given.extractors.split(",")
    if unknown := set(names) - EXTRACTORS.keys():
        parser.error(f"unknown extractors: {', '.join(sorted(unknown))}; expected some of {', '.join(EXTRACTORS)}")
    opened = tomllib.loads((HERE / "opened.toml").read_text(encoding="utf-8")).get("opened", [])
    if given.split == "test" and all(entry["model"] != model_digest() for entry in opened):
        entry = f'[[opened]]\nmodel = "{model_digest()}"\ndate = "YYYY-MM-DD"\nwhy = "…"'
        parser.error(f"the test split is sealed for this model; to open it, add to {HERE / 'opened.toml'}:\n\n{entry}")
    pages = sample(DATA / given.size, given.split, given.pages)
    if not pages:
        parser.error(f"'{DATA / given.size}' has no {given.split} page; run `make gold SIZE={given.size}`")
    make_environment(given.python)
    rows = [{"extractor": name} | row for name in names for row in scores(name, pages)]
    print(f"### {len(pages):,} pages of the {given.size} gold set, {given.split} split; model {model_digest()[:12]}\n")
    print_tables(pl.DataFrame(rows, infer_schema_length=None))


def make_environment(python: str) -> None:
    """Install the peers if they aren't, or extractors.txt has changed."""
    wanted, installed = HERE / "extractors.txt", PEERS / "extractors.txt"
    if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
        subprocess.run([python, "-m", "venv", "--clear", "--upgrade-deps", PEERS], check=True, stdout=sys.stderr)
        subprocess.run([PEERS / "bin/python", "-m", "pip", "install", "-qqr", wanted], check=True, stdout=sys.stderr)
        installed.write_bytes(wanted.read_bytes())


def sample(folder: Path, split: str, n: int) -> list[Row]:
    """Return up to n pages of a split, as evenly from its packages as they allow; ids are hashes, and decide."""
    if not any(folder.glob("*.parquet")):
        return []
    pages = pl.scan_parquet(folder / "*.parquet").filter(split=split)
    ranked = pages.select("id", rank=pl.col("id").rank("ordinal").over("package")).sort("rank", "id").head(n)
    return pages.join(ranked, on="id", how="semi").collect().to_dicts()


def scores(name: str, pages: list[Row]) -> list[Row]:
    """Return an extractor's scores on each page; none if it isn't installed."""
    child, first = start(name)
    if "ModuleNotFoundError" in (first.get("error") or ""):
        print(f"{name} is left out: {first['error']}", file=sys.stderr)
        return []
    rows = []
    for page in pages:
        answer = ask(child, page)
        if not answer:
            child.wait()
            child, _ = start(name)
        if answer.get("text") is None:
            print(f"{name} failed on {page['id']}: {answer.get('error', 'crashed or took too long')}", file=sys.stderr)
        rows.append({key: page[key] for key in ("id", "source", "language", "generator")} | score(page, **answer))
    child.communicate()
    return rows


def start(name: str) -> tuple[subprocess.Popen[str], Row]:
    """Return a process of extractors.py and its answer to a first page, for which it imports."""
    command = [sys.executable if name == OURS else PEERS / "bin/python", HERE / "extractors.py", name]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8")
    return child, ask(child, {"html": b"<html><body><p>A page with some text.</p></body></html>", "language": "en"})


def ask(child: subprocess.Popen[str], page: Row) -> Row:
    """Return the answer to a page; empty if the process ended."""
    print(json.dumps({"html": base64.b64encode(page["html"]).decode(), "language": page["language"]}), file=child.stdin)
    child.stdin.flush()
    return json.loads(child.stdout.readline() or "{}")


def score(page: Row, text: str | None = None, seconds: float | None = None, **_: Any) -> Row:
    """Return a text's measures, and the share of each kind's words that it has, in order; None for an absent kind."""
    gold = [(word, block["kind"]) for block in page["blocks"] for word in words(block["text"])]
    true, found = [word for word, _ in gold], words(text or "")
    n_right = (Counter(true) & Counter(found)).total()
    n_wrong = (Counter(found) - Counter(true) - Counter(page["neutral"])).total()
    matched = [gold[edit.src_start : edit.src_end] for edit in LCSseq.opcodes(true, found) if edit.tag == "equal"]
    n_found, n_of_kind = Counter(kind for run in matched for _, kind in run), Counter(kind for _, kind in gold)
    return {
        "F1": 2 * n_right / (n_right + n_wrong + len(gold)),
        "precision": n_right / max(n_right + n_wrong, 1),
        "recall": n_right / len(gold),
        "failed": text is None,
        "empty": text is not None and not found,
        "seconds": seconds,
        **{kind: n_found[kind] / n_of_kind[kind] if n_of_kind[kind] else None for kind in KINDS},
    }


def print_tables(rows: pl.DataFrame) -> None:
    """Print scores of every extractor: all, by language, by generator, by kind of block, and what parts it from ours."""
    measures, all_pages = ["extractor", "F1", "precision", "recall"], means(rows, "extractor")
    speed = (pl.count("seconds") / pl.sum("seconds")).round().cast(int).alias("pages per CPU second")
    total = rows.group_by("extractor").agg(pl.sum("failed", "empty"), speed)
    tables = [all_pages.select(measures).join(total, on="extractor", maintain_order="left")]
    for key in ("language", "generator"):
        groups = rows.group_by(key).agg(pl.n_unique("id").alias("pages"), pl.n_unique("source").alias("packages"))
        found = means(rows, "extractor", key).pivot("extractor", index=key, values="F1")
        tables.append(groups.sort(key).join(found, on=key, maintain_order="left"))
    present = [kind for kind in KINDS if rows[kind].count()]
    kinds = all_pages.unpivot(present, index="extractor", variable_name="recall of")
    tables.append(kinds.pivot("extractor", index="recall of", values="value"))
    if (rows["extractor"] == OURS).any():
        tables.append(differences(means(rows, "source", "extractor").pivot("extractor", index="source", values="F1")))
    with pl.Config(**FORMAT):
        print(*tables, sep="\n\n")


def means(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return means over the pages of a source package, then over packages."""
    by_source = rows.group_by(*dict.fromkeys([*keys, "source"]), maintain_order=True).agg(pl.selectors.numeric().mean())
    return by_source.group_by(*keys, maintain_order=True).agg(pl.selectors.numeric().mean())


def differences(by_source: pl.DataFrame) -> pl.DataFrame:
    """Return how much higher our F1 is than each peer's, from those of each source package."""
    found = []
    for name in by_source.drop("source", OURS).columns:
        each = (by_source[OURS] - by_source[name]).to_numpy()
        drawn = np.random.default_rng(0).choice(each, (RESAMPLES, len(each))).mean(axis=1)
        found.append((name, each.mean(), *np.percentile(drawn, [2.5, 97.5])))
    return pl.DataFrame(found, schema=[f"F1 of {OURS} minus that of", "difference", "from", "to"], orient="row")


if __name__ == "__main__":
    main()
