"""Run the demo: start the web, write the dump, run all stages, check every planted page, and print a summary."""

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

from webtext.app.chain import BuildLayout, pretrain
from webtext.app.config import BuildConfig
from webtext.app.demo.pages import NAMES
from webtext.app.demo.plan import CANARY, HOSTS, Plan, Planted, make_plan, write_dump
from webtext.app.inspect.trace import Trace, Tracer
from webtext.app.reports.report import write_report
from webtext.base.errors import MachineError, RunFailed
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import no_space_is_an_error

CONFIG = """\
# The configuration of the demo. To run it again: webtext pretrain {config}
[build]
links = [{dump}]
out = {out}

[crawl.fetch]
contact = "http://127.0.0.1/"
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
context = 128
batch_size = 8
microbatch_size = 8
steps = 1800
warmup_steps = 90
learning_rate = 8e-3

[train.shape]
n_layer = 2
n_head = 2
n_embd = 128

[train.optimizer]
optimizer = "muon"
muon_learning_rate = 8e-3

[train.schedule]
schedule = "wsd"
decay_ratio = 0.4

[train.monitor]
eval_interval = 200

[train.checkpoint]
checkpoint_interval = 200

[train.sample]
temperature = 0.8
"""


def run_demo(out: str, run: Run, *, train: str = TRAIN, modules: Sequence[str] = ()) -> dict[str, Any]:
    """Run all stages into the folder `out`; raises RunFailed if a planted page doesn't end as expected.

    `train` is the body of [train], with its sections. `modules` are the modules whose pages make up the web (default:
    the standard library).
    """
    started = time.monotonic()
    folder = Path(out).resolve()
    web = folder / "web"
    if not (web / NAMES).is_file():
        run.console.say("making a small web from the documentation of Python and of installed libraries")
        command = [sys.executable, "-P", "-W", "ignore", "-m", "webtext.app.demo.pages", str(web), *modules]
        with no_space_is_an_error(str(web)):
            web.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    port = _port(folder)
    plan = make_plan(json.loads((web / NAMES).read_text(encoding="utf-8")), port)
    dump = folder / "RS_2017-01.zst"
    write_dump(plan, dump)
    config_path = folder / "build.toml"
    quoted = {"config": config_path, "dump": dump, "out": folder / "build"}  # a JSON string is a TOML string
    text = CONFIG.format(
        port=port, train=train, **{key: json.dumps(str(path), ensure_ascii=False) for key, path in quoted.items()}
    )
    config_path.write_text(text, encoding="utf-8")
    config = BuildConfig.read(str(config_path))
    with web_running(web, port):
        run.console.say(f"a web of {len(plan.all):,} pages on {HOSTS[0]} … {HOSTS[-1]}, port {port}")
        layout, evaluation = pretrain(config, run)
    report = write_report(layout.root)
    outcomes = check_outcomes(plan, layout)
    result = {
        "outcomes": outcomes,
        "evaluation": dict(evaluation),
        "report": report,
        "build": layout.root,
        "seconds": time.monotonic() - started,
    }
    run.console.result(result, summary(result, layout))
    missed = [outcome for outcome in outcomes if not outcome["met"]]
    if missed:
        raise RunFailed(
            f"{len(missed)} planted pages didn't end as expected, first: {missed[0]['label']}", f"see {report}"
        )
    return result


def check_outcomes(plan: Plan, layout: BuildLayout) -> list[dict[str, Any]]:
    """Compare where each planted page ended with where it should; also check the canary and the documents' posts."""
    link_reasons = PartSet.open(layout.links, "links").counts.dropped
    traces = Tracer(layout.root).trace_all(page.url for page in plan.all)
    outcomes = [_outcome(page, traces[page.url], link_reasons) for page in plan.planted]
    voted = {page.url for page in plan.all}
    arrived = [traces[page.url] for page in plan.plain if traces[page.url].document]
    traced = [t for t in arrived if t.link and t.link["posts"] and t.link["url"] in voted]
    outcomes.append(
        _statement("every document traces to its post", f"{len(arrived)} documents", f"{len(traced)} documents")
    )
    outcomes.append(_statement("the canary reached no training token", "0 shards", f"{_canary_shards(layout)} shards"))
    return outcomes


def _outcome(page: Planted, trace: Trace, link_reasons: dict[str, int]) -> dict[str, Any]:
    stage, reason = trace.stage, trace.reason
    if stage == "links" and page.reason in link_reasons:
        reason = page.reason  # links that are not kept have no rows, only counts by reason
    return _statement(
        page.label,
        f"{page.stage}{': ' + page.reason if page.reason else ''}",
        f"{stage}{': ' + reason if reason else ''}",
    )


def _statement(label: str, expected: str, found: str) -> dict[str, Any]:
    return {"label": label, "expected": expected, "found": found, "met": expected == found}


def _canary_shards(layout: BuildLayout) -> int:
    """Return how many training shards (decoded) contain the canary, plus 1 if the tokenizer has learned it."""
    from webtext.shards import TokenShards
    from webtext.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(layout.tokenizer)
    shards = TokenShards(layout.tokens, split="train")
    texts = (tokenizer.decode_bytes(shards.tokens(i)) for i in range(len(shards)))
    rare_word = CANARY.split()[0].encode()
    learned = any(rare_word in tokenizer.decode_bytes([rank]) for rank in range(tokenizer.vocab_size))
    return sum(rare_word in text for text in texts) + learned


def summary(result: dict[str, Any], layout: BuildLayout) -> str:
    """Format the outcome of each planted page, the evaluation and the output paths as text."""
    from webtext.train.evaluate.perplexity import perplexity_text

    lines = ["", "Planted pages, and where they ended:"]
    for outcome in result["outcomes"]:
        lines.append(f"  {'met   ' if outcome['met'] else 'MISSED'}  {outcome['label']:<40} {outcome['found']}")
        if not outcome["met"]:
            lines.append(f"{'':<10}expected {outcome['expected']}")
    evaluation = result["evaluation"]
    lines += ["", perplexity_text(evaluation)]
    if evaluation.get("sample"):
        lines += ["", "Model sample:", *(f"  | {line}" for line in str(evaluation["sample"]).splitlines()[:12])]
    lines += [
        "",
        f"Build folder   {layout.root}",
        f"Report         {result['report']}",
        f"Model          {layout.export}   (a Hugging Face GPT-2 folder)",
        f"Time           {result['seconds']:.0f} s",
    ]
    return "\n".join(lines)


def _port(folder: Path) -> int:
    """Return the port of the demo's web. It is chosen once and stored, because the addresses are part of the dump.

    PREFERRED_PORT is used if it is free, so that two demos have equal links and splits, or if none is.
    """
    stored = folder / "port"
    if not stored.is_file():
        stored.write_text(str(_free_port(PREFERRED_PORT) or _free_port(0) or PREFERRED_PORT))
    return int(stored.read_text())


def _free_port(port: int) -> int | None:
    """Return `port` (0: any) if it is free on all of the demo's addresses, else None."""
    with contextlib.ExitStack() as stack:
        for host in HOSTS:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind((host, port))
            except OSError:
                return None
            _, port = probe.getsockname()
    return port


@contextlib.contextmanager
def web_running(folder: Path, port: int) -> Iterator[None]:
    """Run the web in a separate process, which is killed at the end of the block."""
    command = [sys.executable, "-P", "-m", "webtext.app.demo.web", str(folder), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise MachineError(
                f"the demo's web could not listen on {HOSTS[0]} … {HOSTS[-1]}, port {port}",
                f"free the port, or remove '{folder.parent}', and try again",
            )
        yield
    finally:
        process.kill()
        process.wait()
