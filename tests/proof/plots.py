"""Draws run.json as SVG: `plots.py run.json FOLDER` writes loss.svg and funnel.svg, the same bytes for the same figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import EngFormatter

COLOURS = {"ours": "#1f6fb4", "theirs": "#d2691e", "newer": "#7a7a7a", "mixed": "#2e8b57"}
LINES = {"ours": "o-", "theirs": "s--"}
STYLE = {"svg.hashsalt": "proof", "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False}


def loss(curves: dict[str, list[Any]], path: Path) -> None:
    """Bits per byte over tokens seen: the mean of the seeds as a line, from the best to the worst seed as a band."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, seeds in sorted((name, seeds) for name, seeds in curves.items() if "@" not in name):
        corpus, trainer = name.split("-")
        tokens, bits = np.array(seeds)[0, :, 0], np.array(seeds)[:, :, 1]
        label = f"{corpus.removesuffix('s')} corpus, {trainer.removesuffix('s')} trainer"
        axes.semilogx(tokens, bits.mean(0), LINES[trainer], color=COLOURS[corpus], markersize=4, label=label)
        axes.fill_between(tokens, bits.min(0), bits.max(0), color=COLOURS[corpus], alpha=0.18, linewidth=0)
        axes.set_xticks(tokens)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(EngFormatter(places=1))
    axes.set(xlabel="tokens seen", ylabel="bits per byte", title="Held-out manuals (lower is better)")
    axes.grid(axis="y", color="#dddddd")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def funnel(stages: dict[str, list[tuple[str, int]]], path: Path) -> None:
    """How much is left after each stage, both ways one above the other, on one scale."""
    figure, rows = plt.subplots(len(stages), figsize=(7, 4.2), sharex=True, layout="constrained")
    for axes, (name, stage) in zip(rows, stages.items(), strict=True):
        labels, counts = zip(*stage, strict=True)
        bars = axes.barh(range(len(labels)), counts, color=COLOURS[name], tick_label=labels)
        axes.bar_label(bars, [f"{n:,} ({n / max(1, counts[0]):.0%})" for n in counts], padding=4)
        axes.set_title(name, loc="left", fontweight="bold")
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.spines["bottom"].set_visible(False)
        axes.invert_yaxis()
        axes.margins(x=0.22)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    plt.switch_backend("svg")
    plt.rcParams.update(STYLE)
    run, folder = json.loads(arguments.run.read_text()), arguments.folder
    loss((run.get("final verdict") or run["verdict"])["curves"], folder / "loss.svg")
    funnel(run["funnel"], folder / "funnel.svg")
