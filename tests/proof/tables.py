"""Prints run.json as the tables of docs/proof.md: `python tests/proof/tables.py docs/measurements/proof/run.json`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

Values = dict[str, Any]
STEPS = {  # step: the names of our rows and of theirs, whose seconds and CPU seconds are summed
    "crawl": (["pages"], ["scrapy"]),
    "extract, judge, deduplicate": (["documents"], ["datatrove"]),
    "the same, theirs by trafilatura 2": (["documents"], ["datatrove-newer"]),
    "train a tokenizer on our corpus, pack it": (["tokenizer", "tokens"], ["tokenizer-ours", "pack-ours"]),
    "the same with their corpus": (["tokenizer of theirs", "shards of theirs"], ["tokenizer-theirs", "pack-theirs"]),
    "train a model, one core, median": (["webtext"], ["nanogpt"]),
}
OWNER = {"ours": "our", "theirs": "their", "newer": "their trafilatura-2"}
COUNTS = {"known_documents": "documents of articles, forums and shops"}
SETS = {"documentation": "held-out documentation", "articles": "articles", "wikitext-103": "WikiText-103", "ptb": "PTB"}


def tables(values: Values) -> str:
    """All tables, in the order of the page."""
    judged = values.get("final verdict") or values["verdict"]
    parts = [our_way(values), costs(values), verdict(judged), corpora(judged)]
    return "\n\n".join("\n".join(part) for part in parts)


def table(*rows: Iterable[object]) -> Iterator[str]:
    for number, row in enumerate(rows):
        cells = list(map(str, row))
        yield f"| {' | '.join(cells)} |"
        if not number:
            yield "|---" * len(cells) + "|"


def our_way(values: Values) -> Iterator[str]:
    """Each stage's counts."""
    rows = [["stage", "records in", "kept", "dropped and failed"]]
    for row in values["ledger"]:
        reasons = sorted({**row["dropped"], **row["failed"]}.items(), key=lambda each: -each[1])
        others = ", ".join(f"{n:,} `{reason}`" for reason, n in reasons) or "0"
        rows.append([row["stage"], f"{row['records_in']:,}", f"{row['kept']:,}", others])
    return table(*rows)


def costs(values: Values) -> Iterator[str]:
    """Seconds, CPU seconds and peak memory of each step, both ways."""
    found = {row["name"]: row for row in values["our build"]}
    found |= {row["name"]: row for row in values["our crawl"] + values["their corpus"]}
    found |= {row["name"]: row for row in values.get("their newer corpus", [])}
    found |= {row["name"]: row for corpus in ("ours", "theirs") for row in values[f"their tokens of {corpus}"]}
    packed = values["our tokens of theirs"]
    found |= {f"{row['name']} of theirs": row for row in (packed if isinstance(packed, list) else packed["rows"])}
    for trainer in ("webtext", "nanogpt"):
        runs = [r for r in values["training"] if r["name"].startswith(f"{trainer}-") and "-mixed-" not in r["name"]]
        if runs:
            found[trainer] = {key: median(run[key] for run in runs) for key in ("seconds", "cpu_seconds", "peak_mib")}
    rows = [["step", "ours: s", "CPU s", "MiB", "theirs: s", "CPU s", "MiB", "CPU, theirs / ours"]]
    for step, sides in STEPS.items():
        if all(name in found for side in sides for name in side):
            both = [[found[name] for name in side] for side in sides]
            sums = [[sum(row[key] for row in side) for key in ("seconds", "cpu_seconds")] for side in both]
            peaks = [max(row["peak_mib"] for row in side) for side in both]
            cells = [f"{figure:,.0f}" for each, peak in zip(sums, peaks, strict=True) for figure in (*each, peak)]
            rows.append([step, *cells, f"{sums[1][1] / max(sums[0][1], 0.01):.1f}"])
    return table(*rows)


def verdict(found: Values) -> Iterator[str]:
    """Bits per byte with their intervals: one row for each combination, one for each difference."""
    names = [name for name in SETS if name in found["bits_per_byte"]]
    heads = [f"{SETS[name]} ({found['sets'][name][0]} texts)" for name in names]
    rows = [["bits per byte", *heads]]
    labels = found["bits_per_byte"][names[0]]
    owners = [*OWNER, "mixed"]
    plain = (label for label in labels if "-" in label and "@" not in label)
    combinations = sorted(plain, key=lambda label: owners.index(label.partition("-")[0]))
    for label in [*combinations, *(label for label in labels if "-" not in label)]:
        cells = ["{:.3f} ({:.3f} to {:.3f})".format(*found["bits_per_byte"][name][label]) for name in names]
        rows.append([named(label), *cells])
    return table(*rows)


def named(label: str) -> str:
    """The words for a combination of corpus and trainer, or for a difference of two."""
    corpus, is_combination, trainer = label.partition("-")
    if not is_combination:
        return f"ours minus theirs: {label}"
    owner = "our re-mixed" if corpus == "mixed" else OWNER[corpus]
    return f"{owner} corpus, {OWNER[trainer]} trainer"


def corpora(found: Values) -> Iterator[str]:
    """What the corpora contain."""
    names = [name for name in OWNER if name in found["corpora"]]
    sides, lefts = ([found[of][name] for name in names] for of in ("corpora", "duplicates_left"))
    rows = [["", *names]]
    for name in ("documents", "known_documents", "characters", "hosts"):
        rows.append([COUNTS.get(name, name), *(f"{side[name]:,}" for side in sides)])
    shares = {
        "linked pages that were never fetched": [side["lost_ratio"] for side in sides],
        "sampled documents with another of Jaccard .8 or more": [left["0.8"] for left in lefts],
        "the same at .95 or more": [left["0.95"] for left in lefts],
        "characters in lines that a fifth of the host's documents share": [side["template_ratio"] for side in sides],
        "characters in documents of articles, forums and shops": [side["known_ratio"] for side in sides],
        "documents with a ¶ of a heading's link": [side["pilcrow_ratio"] for side in sides],
    }
    shares |= {
        f"characters in lines of kind: {kind}": [side["kinds"][kind] for side in sides] for kind in sides[0]["kinds"]
    }
    rows += [[name, *(f"{share:.2%}" for share in each)] for name, each in shares.items()]
    both = f"{found['corpora']['both']:,}"
    return table(*rows, ["documents of the same page", both, both, *[""] * (len(names) - 2)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    print(tables(json.loads(parser.parse_args().run.read_text())))
