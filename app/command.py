"""The verbs above the stages: build, pretrain, inspect, report, demo."""

from __future__ import annotations

import json
from typing import Any

import click

from webtext.base.command import verb
from webtext.base.errors import InputError
from webtext.base.run import Run

DEMO_FOLDER = "demo"
_commands = click.Group("app")


@verb(_commands, "build", config_argument=True)
def build(run: Run, config_path: str, overrides: tuple[str, ...]) -> None:
    """Links to tokens: run every stage that CONFIG asks for, skipping what is done.

    \b
      webtext build build.toml
      webtext build build.toml --set crawl.links.min_karma=5 --workers 8

    Reads the dumps (or pages) named in [build]; writes one folder per stage into its `out`.
    """
    from webtext.app.chain import build as run_build
    from webtext.app.config import BuildConfig
    from webtext.app.report import write_report

    layout = run_build(BuildConfig.read(config_path, overrides), run)
    path = write_report(layout.root)
    run.console.result({"build": layout.root, "report": str(path)}, f"built '{layout.root}'; the report: {path}")


@verb(_commands, "pretrain", config_argument=True)
def pretrain(run: Run, config_path: str, overrides: tuple[str, ...]) -> None:
    """The whole way: build, then train a GPT-2 on it and evaluate it.

    \b
      webtext pretrain build.toml
      torchrun --nproc-per-node 8 -m webtext.app.main train run build/tokens --out build/model --config build.toml

    Reads and writes what `build` does, and the model's folder.
    """
    from webtext.app.chain import pretrain as run_pretrain
    from webtext.app.config import BuildConfig
    from webtext.app.report import write_report

    layout, evaluation = run_pretrain(BuildConfig.read(config_path, overrides), run)
    path = write_report(layout.root)
    text = "\n".join(
        f"{key.replace('_', ' ')}: {value:,.1f}" for key, value in evaluation.items() if "perplexity" in key
    )
    value = {"build": layout.root, "report": str(path), "evaluation": dict(evaluation)}
    run.console.result(value, f"{text}\nbuilt and trained '{layout.root}'; the report: {path}")


@verb(_commands, "report")
@click.argument("folder")
def report(run: Run, folder: str) -> None:
    """Write report.html and report.json of the build in FOLDER: funnel, samples, curves; one page, no network."""
    from webtext.app.report import write_report

    path = write_report(folder)
    run.console.result({"report": str(path)}, str(path))


@verb(_commands, "demo")
@click.option("--out", default=DEMO_FOLDER, show_default=True, help="Folder for everything the demo makes.")
def demo(run: Run, out: str) -> None:
    """The whole way on a small web of this machine's own: voted links, pages, corpus, tokens, a trained GPT-2, a report.

    A few hundred real pages (the documentation that Python carries) are served on 127.0.0.1 to 127.0.0.8, with mirrors,
    near-duplicates, redirects, forbidden and hostile pages planted among them; each must meet its planned fate.
    """
    from webtext.app.demo.run import run_demo

    run_demo(out, run)


@click.group("inspect")
def inspect() -> None:
    """Why a record is here, or is not."""


@verb(inspect, "set")
@click.argument("folder")
def inspect_set(run: Run, folder: str) -> None:
    """The funnel, recipe and size of the part set in FOLDER; every byte is verified."""
    from webtext.base.console import funnel_text
    from webtext.base.partset import PartSet

    opened = PartSet.open(folder)
    opened.verify()
    counts = opened.counts.to_json()
    text = funnel_text(
        f"{opened.kind}: {opened.records:,} records in {len(opened.parts):,} parts, all bytes as written", counts
    )
    run.console.result({key: value for key, value in opened.manifest.items() if key != "parts"}, text)


@verb(inspect, "doc")
@click.argument("build_folder")
@click.argument("url_or_id")
def inspect_doc(run: Run, build_folder: str, url_or_id: str) -> None:
    """Follow one URL or document id of a build: posts, page, document, decision, tokens."""
    from webtext.app.trace import Tracer
    from webtext.base.urls import canonical_url

    tracer = Tracer(build_folder)
    found = (
        tracer.trace(canonical_url(url_or_id) or url_or_id) if ":" in url_or_id else tracer.trace_document(url_or_id)
    )
    if found is None:
        raise InputError(
            f"no document '{url_or_id}' in '{build_folder}'", "name a URL, or an id from the documents set"
        )
    value: dict[str, Any] = {
        name: getattr(found, name)
        for name in ("url", "stage", "reason", "link", "page", "document", "decision", "tokens")
    }
    lines = [f"{found.url} ended in {found.stage}{f': {found.reason}' if found.reason else ''}"]
    for name in ("link", "page", "document", "decision", "tokens"):
        if value[name]:
            lines.append(f"{name}: {json.dumps(value[name], indent=1, ensure_ascii=False)}")
    run.console.result(value, "\n".join(lines))


@verb(inspect, "drop")
@click.argument("build_folder")
@click.option("--reason", default=None, help="Only documents dropped for this reason.")
@click.option("-n", "limit", default=5, show_default=True, help="How many to show.")
def inspect_drop(run: Run, build_folder: str, reason: str | None, limit: int) -> None:
    """Dropped documents of a build, with reason, value and threshold."""
    from webtext.app.chain import Layout
    from webtext.base.partset import PartSet

    opened = PartSet.open(Layout(build_folder).dropped, "dropped")
    rows: list[dict[str, Any]] = []
    for part in opened.parts:
        rows += [row for row in opened.table(part).to_pylist() if reason in (None, row["reason"])]
        if len(rows) >= limit:
            break
    shown = rows[:limit]
    text = "\n\n".join(
        f"{row['reason']} ({row['value']} against {row['threshold']})  {row['url'] or row['id']}"
        + (f"\n  duplicate of {row['duplicate_of']}" if row["duplicate_of"] else "")
        + f"\n  {row['text_start']!r}"
        for row in shown
    )
    run.console.result({"dropped": shown}, text or "nothing was dropped for that reason")
