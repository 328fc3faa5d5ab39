"""The verbs above the stages: build, pretrain, inspect, report, demo."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from webtext.base.command import GIVEN, need_out, verb
from webtext.base.errors import DryRun, InputError, WebtextError, did_you_mean
from webtext.base.run import Run

if TYPE_CHECKING:
    from webtext.app.chain import BuildLayout
    from webtext.app.config import BuildConfig

DEMO_FOLDER = "demo"
REASONS_TOLD = 3  # of a stage, at the end of a build
_commands = click.Group("app")
_SAMPLE = click.option("--sample", metavar="PERCENT", help="Build a share of the links, e.g. 0.1%, in a folder beside.")


@verb(_commands, "build", workers=True, config_argument=True)
@_SAMPLE
def build(run: Run, config_path: str, overrides: tuple[str, ...], sample: str | None) -> None:
    """Build from links to tokens: run every stage that CONFIG asks for, and skip what is done.

    \b
      webtext build build.toml
      webtext build build.toml --set crawl.links.min_karma=5 --workers 8
      webtext build build.toml --sample 0.1%

    \b
    Reads:  the dumps (or pages) that CONFIG names in [build]
    Writes: one folder per stage into its `out`, and report.html. A sample goes into a folder beside it, OUT-sample-0.1-percent
            (except links/)
    """
    config, errors = _config(config_path, overrides, sample)
    from webtext.app.chain import build as run_build

    layout = run_build(config, run, errors)
    if run.dry_run:
        run.console.say(f"all parts of '{layout.root}' are done")
        raise DryRun
    _report(run, layout)


def _config(path: str, overrides: tuple[str, ...], sample: str | None) -> tuple[BuildConfig, list[WebtextError]]:
    from webtext.app.config import BuildConfig

    errors: list[WebtextError] = []
    more = [] if sample is None else [f"build.sample={json.dumps(sample)}"]
    return BuildConfig.read(path, (*overrides, *more), errors), errors


def _report(run: Run, layout: BuildLayout, text: str = "", **about: Any) -> None:
    """Write the report. Print what the build made and left out, and why; where the report is; what to do next."""
    from webtext.app.chain import check_failures
    from webtext.app.reports.report import UNITS, write_report
    from webtext.base.console import counted

    path, lines = write_report(layout.root), []
    for name, unit in UNITS.items():
        if made := layout.open(name):
            reasons = (Counter(made.counts.dropped) + Counter(made.counts.failed)).most_common()
            out = [f"{n:,} {reason}" for reason, n in reasons[:REASONS_TOLD]]
            out += [counted(len(reasons) - REASONS_TOLD, "other reason")] if len(reasons) > REASONS_TOLD else []
            left = f"; left out: {', '.join(out)}" if out else ""
            lines.append(f"{name:<10} {made.counts.kept:>12,} of {made.counts.records_in:,} {unit}{left}")
    lines += [f"report     {path}", f"next       webtext view {shlex.quote(layout.root)}"]
    run.console.result({"build": layout.root, "report": path} | about, text + "\n".join(lines))
    check_failures(layout, click.get_current_context().meta[GIVEN])


@verb(_commands, "pretrain", workers=True, config_argument=True)
@_SAMPLE
def pretrain(run: Run, config_path: str, overrides: tuple[str, ...], sample: str | None) -> None:
    """Build, then train a GPT-2 on the tokens, evaluate and export it.

    \b
      webtext pretrain build.toml
      torchrun --nproc-per-node 8 -m webtext.app.main train run build/tokens --out build/model --config build.toml

    \b
    Reads:  what `build` reads
    Writes: what `build` writes, and model/ with the export to Hugging Face
    """
    config, errors = _config(config_path, overrides, sample)
    from webtext.app.chain import pretrain as run_pretrain
    from webtext.train.evaluate.perplexity import perplexity_text

    layout, evaluation = run_pretrain(config, run, errors)
    _report(run, layout, f"{perplexity_text(dict(evaluation))}\n\n", evaluation=dict(evaluation))


@verb(_commands, "report")
@click.argument("folder")
def report(run: Run, folder: str) -> None:
    """Write report.html and report.json for the build in FOLDER: funnel, samples and curves on one self-contained page.

    \b
      webtext report build

    \b
    Reads:  the folder of a build
    Writes: FOLDER/report.html and FOLDER/report.json
    """
    from webtext.app.reports.report import make_report, write_report

    if run.dry_run:
        make_report(folder)
    run.would_write(f"{folder}/report.html")
    path = write_report(folder)
    run.console.result({"report": path}, path)


@verb(_commands, "view")
@click.argument("folder", metavar="BUILD")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of 127.0.0.1; 0 takes a free one.")
def view(run: Run, folder: str, port: int) -> None:
    """Show BUILD in a browser, until Ctrl-C: search its documents, and see why each is kept or dropped.

    Only this machine can open the address that is printed, and only with the token in it. Nothing is written.

    \b
      webtext view build
      webtext view build --port 8800

    \b
    Reads:  the folder of a build, finished or not
    Writes: nothing
    """
    from webtext.app.view.server import Viewer

    with Viewer(folder, port) as server:
        run.console.result({"url": server.url}, server.url)
        if run.dry_run:
            return
        run.console.say("open this address in a browser on this machine; Ctrl-C ends the viewer")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@verb(_commands, "demo", workers=True)
@click.option("--out", default=DEMO_FOLDER, show_default=True, help="Folder for everything the demo writes.")
def demo(run: Run, out: str) -> None:
    """Run the whole pipeline on a small web served by this machine: links, pages, corpus, tokens, a trained GPT-2, a report.

    Some 600 pages made from the documentation of Python and of installed libraries are served on 127.0.0.1 to 127.0.0.8.
    Mirrors, near-duplicates, redirects, forbidden and hostile pages are planted among them, and the demo checks the outcome
    of each.

    \b
      webtext demo
      webtext demo --out /tmp/demo

    \b
    Reads:  docstrings of Python and of the libraries that webtext needs
    Writes: DIR/web, the dump DIR/RS_2017-01.zst, DIR/build.toml, and the build in DIR/build
    """
    from webtext.app.demo.run import run_demo

    run.would_write(need_out(out, ("web/", "build/")))
    run_demo(out, run)


@click.group("inspect")
def inspect() -> None:
    """Show why a record is kept or dropped."""


@verb(inspect, "set", workers=True, resumes=False)
@click.argument("folder")
@click.option("--verify", is_flag=True, help="Read every byte of every file, with all workers.")
def inspect_set(run: Run, folder: str, verify: bool) -> None:
    """Print the funnel, recipe and size of the part set in FOLDER.

    Every file must have its size. With --verify every byte is read: this finds bytes that a disk has lost.

    \b
      webtext inspect set build/corpus
      webtext inspect set build/corpus --verify --workers 8

    \b
    Reads:  a part set of any kind
    Writes: nothing
    """
    from webtext.base.console import counted, funnel_text
    from webtext.base.parts.partset import PartSet

    opened = PartSet.open(folder)
    if verify:
        opened.verify(run)
    size = f"{counted(opened.records, 'record')} in {counted(len(opened.parts), 'part')}"
    checked = "all bytes as written" if verify else "all files in their sizes"
    text = funnel_text(f"{opened.kind}: {size}, {checked}", opened.counts.to_json())
    run.console.result({key: value for key, value in opened.manifest.items() if key != "parts"}, text)


@verb(inspect, "doc")
@click.argument("build_folder", metavar="BUILD")
@click.argument("url_or_id", metavar="URL|ID")
@click.option("--text", "with_text", is_flag=True, help="Also print the document's full text.")
def inspect_doc(run: Run, build_folder: str, url_or_id: str, with_text: bool) -> None:
    """Follow one URL or document id of BUILD through all stages.

    Prints its posts, page, document, each rule's value, the decision, and tokens.

    \b
      webtext inspect doc build http://example.com/
      webtext inspect doc build 0f115db062b7c0dd030b16878c99dea5 --text

    \b
    Reads:  the folder of a build
    Writes: nothing
    """
    from webtext.app.inspect.trace import Tracer
    from webtext.app.inspect.trace_text import trace_text

    tracer = Tracer(build_folder)
    found = tracer.why(url_or_id)
    value, text = asdict(found), trace_text(found)
    if with_text and found.document is not None:
        value["text"] = tracer.text(found)
        text += f"\n\n{value['text']}"
    run.console.result(value, text)


@verb(inspect, "token")
@click.argument("build_folder", metavar="BUILD")
@click.argument("place", metavar="SHARD:OFFSET")
def inspect_token(run: Run, build_folder: str, place: str) -> None:
    """Follow one token of BUILD back: document, page, links, posts.

    \b
      webtext inspect token build train-00000.tok:4096

    \b
    Reads:  the folder of a build
    Writes: nothing
    """
    from webtext.app.inspect.trace import TokenTrace
    from webtext.app.inspect.trace_text import token_text

    found = TokenTrace.at(build_folder, place)
    run.console.result(asdict(found), token_text(found))


@verb(inspect, "cluster")
@click.argument("build_folder", metavar="BUILD")
@click.argument("url_or_id", metavar="URL|ID")
def inspect_cluster(run: Run, build_folder: str, url_or_id: str) -> None:
    """Show a document of BUILD beside its dropped duplicates.

    Each has its Jaccard similarity. URL or ID may name any document of the cluster.

    \b
      webtext inspect cluster build 0f115db062b7c0dd030b16878c99dea5
      webtext inspect cluster build http://example.com/

    \b
    Reads:  the folder of a build
    Writes: nothing
    """
    from webtext.app.inspect.trace import Tracer, find_cluster
    from webtext.app.inspect.trace_text import cluster_text

    trace = Tracer(build_folder).find(url_or_id)
    found = find_cluster(build_folder, trace.document["id"]) if trace and trace.document else None
    if found is None:
        raise InputError(
            f"no document '{url_or_id}' in '{build_folder}' has duplicates",
            "name a document that was dropped as a duplicate (see 'webtext inspect drop'), or one that was kept",
        )
    run.console.result(asdict(found), cluster_text(found))


@verb(inspect, "drop")
@click.argument("build_folder", metavar="BUILD")
@click.option("--reason", default=None, help="Show only documents dropped for this reason.")
@click.option("-n", "limit", type=click.IntRange(1), default=5, show_default=True, help="Number of documents to show.")
def inspect_drop(run: Run, build_folder: str, reason: str | None, limit: int) -> None:
    """Print dropped documents of BUILD with reason, value and threshold.

    \b
      webtext inspect drop build
      webtext inspect drop build --reason too_few_words -n 20

    \b
    Reads:  the folder of a build
    Writes: nothing
    """
    from webtext.app.chain import BuildLayout
    from webtext.app.inspect.trace_text import dropped_text
    from webtext.base.parts.partset import PartSet

    opened = PartSet.open(BuildLayout.existing(build_folder).dropped, "dropped")
    known, shown = set[str](), list[dict[str, Any]]()
    for index in range(len(opened.parts)):
        for batch in opened.batches(index):
            rows = batch.to_pylist()
            known |= {row["reason"] for row in rows}
            shown += [row for row in rows if reason in (None, row["reason"])]
        if len(shown) >= limit:
            break
    if reason is not None and not shown:
        raise InputError(f"nothing in '{opened.folder.url}' was dropped for '{reason}'", did_you_mean(reason, known))
    run.console.result({"dropped": shown[:limit]}, dropped_text(shown[:limit]))
