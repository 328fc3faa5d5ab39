"""Runs the demo: start the web, write the dump, go the whole way, check every planted fate, say what happened."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from webtext.app.chain import Layout, pretrain
from webtext.app.config import BuildConfig
from webtext.app.demo.dump import write_dump
from webtext.app.demo.pages import NAMES
from webtext.app.demo.plan import CANARY, HOSTS, Plan, Planted, make_plan
from webtext.app.report import write_report
from webtext.app.trace import Trace, Tracer
from webtext.base.errors import EnvironmentError_, RunFailed
from webtext.base.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import no_space_is_an_error

CONFIG = """\
# What the demo ran. The same again: webtext pretrain {config}
[build]
links = [{dump}]
out = {out}

[crawl.fetch]
contact = "the demo on this machine"
allow_address = ["127.0.0.0/28:{port}"]
delay = 0.1
max_bytes = 8_388_608

[tokenizer]
vocab_size = 4096

[train]
{train}
"""
PREFERRED_PORT = 8420
TRAIN = """\
n_layer = 2
n_head = 2
n_embd = 128
context = 128
batch_size = 8
microbatch_size = 8
steps = 1800
warmup_steps = 90
learning_rate = 6e-3
min_learning_rate_ratio = 0.05
eval_interval = 200
checkpoint_interval = 200
"""


def run_demo(out: str, run: Run, *, train: str = TRAIN, modules: Sequence[str] = ()) -> dict[str, Any]:
    """Everything, into the folder `out`. RunFailed when a planted page missed its fate.

    `train` is the body of [train]; `modules` are those whose pages make up the web, the whole standard library when none
    is named.
    """
    started = time.monotonic()
    folder = Path(out).resolve()
    web = folder / "web"
    if not (web / NAMES).is_file():
        run.console.say("making a small web of Python's own documentation")
        command = [sys.executable, "-W", "ignore", "-m", "webtext.app.demo.pages", str(web), *modules]
        with no_space_is_an_error(str(web)):
            web.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    port = _port(folder)
    plan = make_plan(json.loads((web / NAMES).read_text(encoding="utf-8")), port)
    dump = folder / "RS_2017-01.zst"
    write_dump(plan, dump)
    config_path = folder / "build.toml"
    quoted = {"config": config_path, "dump": dump, "out": folder / "build"}  # a JSON string is a TOML string
    text = CONFIG.format(port=port, train=train, **{key: json.dumps(str(path)) for key, path in quoted.items()})
    config_path.write_text(text, encoding="utf-8")
    config = BuildConfig.read(str(config_path))
    with web_running(web, port):
        run.console.say(f"a web of {len(plan.all):,} pages on {HOSTS[0]} … {HOSTS[-1]}, port {port}")
        layout, evaluation = pretrain(config, run)
    report = write_report(layout.root)
    fates = check_fates(plan, layout)
    result = {
        "fates": fates,
        "evaluation": dict(evaluation),
        "report": report,
        "build": layout.root,
        "seconds": time.monotonic() - started,
    }
    run.console.result(result, summary(result, layout))
    missed = [fate for fate in fates if not fate["met"]]
    if missed:
        raise RunFailed(
            f"{len(missed)} planted pages missed their fate, the first: {missed[0]['label']}", f"see {report}"
        )
    return result


def check_fates(plan: Plan, layout: Layout) -> list[dict[str, Any]]:
    """Where each planted thing ended, beside where it should; and that the canary and every document's posts are right."""
    link_reasons = PartSet.open(layout.links, "links").counts.dropped
    traces = Tracer(layout.root).trace_all(page.url for page in plan.all)
    fates = [_fate(page, traces[page.url], link_reasons) for page in plan.planted]
    voted = {page.url for page in plan.all}
    arrived = [traces[page.url] for page in plan.plain if traces[page.url].document]
    traced = [t for t in arrived if t.link and t.link["posts"] and t.link["url"] in voted]
    fates.append(
        _statement("every document traces to its post", f"{len(arrived)} documents", f"{len(traced)} documents")
    )
    fates.append(_statement("the canary reached no training token", "0 shards", f"{_canary_shards(layout)} shards"))
    return fates


def _fate(page: Planted, trace: Trace, link_reasons: dict[str, int]) -> dict[str, Any]:
    stage, reason = trace.stage, trace.reason
    if stage == "links" and page.reason in link_reasons:
        reason = page.reason  # links that are not kept are counts by reason, no rows
    return _statement(
        page.label,
        f"{page.stage}{': ' + page.reason if page.reason else ''}",
        f"{stage}{': ' + reason if reason else ''}",
    )


def _statement(label: str, expected: str, found: str) -> dict[str, Any]:
    return {"label": label, "expected": expected, "found": found, "met": expected == found}


def _canary_shards(layout: Layout) -> int:
    """Training shards and tokenizers that hold the canary, decoded and looked through."""
    from webtext.shards import TokenShards
    from webtext.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(layout.tokenizer)
    shards = TokenShards(layout.tokens, split="train")
    texts = (tokenizer.decode_bytes(shards.tokens(i)) for i in range(len(shards)))
    rare_word = CANARY.split()[0].encode()
    learned = any(rare_word in tokenizer.decode_bytes([rank]) for rank in range(tokenizer.vocab_size))
    return sum(rare_word in text for text in texts) + learned


def summary(result: dict[str, Any], layout: Layout) -> str:
    """What happened and where everything lies, for people."""
    from webtext.train.evaluate.perplexity import perplexity_text

    lines = ["", "What was planted, and where it ended:"]
    for fate in result["fates"]:
        lines.append(f"  {'met   ' if fate['met'] else 'MISSED'}  {fate['label']:<40} {fate['found']}")
        if not fate["met"]:
            lines.append(f"{'':<10}expected {fate['expected']}")
    evaluation = result["evaluation"]
    lines += ["", perplexity_text(evaluation)]
    if evaluation.get("sample"):
        lines += ["", "The model says:", *(f"  | {line}" for line in str(evaluation["sample"]).splitlines()[:12])]
    lines += [
        "",
        f"Everything lies in   {layout.root}",
        f"The report           {result['report']}",
        f"The model            {layout.export}   (a Hugging Face GPT-2 folder)",
        f"Took                 {result['seconds']:.0f} s",
    ]
    return "\n".join(lines)


def _port(folder: Path) -> int:
    """The port of the demo's web: chosen once, kept, since the addresses are part of the dump.

    The same one wherever it is free, so that two demos have the same links and the same split.
    """
    stored = folder / "port"
    if not stored.is_file():
        stored.write_text(str(_free_port(PREFERRED_PORT) or _free_port(0)))
    return int(stored.read_text())


def _free_port(port: int) -> int | None:
    """`port` (any, when it is 0) if nobody listens there on any of the demo's addresses."""
    with contextlib.ExitStack() as stack:
        for host in HOSTS:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind((host, port))
            except OSError:
                return None
            port = int(probe.getsockname()[1])
    return port


@contextlib.contextmanager
def web_running(folder: Path, port: int) -> Iterator[None]:
    """The web as a process of its own, ended with the block."""
    command = [sys.executable, "-m", "webtext.app.demo.web", str(folder), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise EnvironmentError_(
                f"the demo's web could not listen on {HOSTS[0]} … {HOSTS[-1]}, port {port}",
                f"free the port, or remove '{folder.parent}' and try again",
            )
        yield
    finally:
        process.kill()
        process.wait()
