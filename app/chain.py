"""The chain behind `webtext build` and `webtext pretrain`: each stage reads the folder the one before it wrote.

Stages skip finished work, so a first run, a resumed run and a run after a changed setting all take the same path.
"""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webtext.app.config import BuildConfig, BuildSettings
from webtext.base.errors import ConfigError, DryRun, InputError, WebtextError, noted, raise_all
from webtext.base.parts.outcomes import check_kept, check_settled
from webtext.base.parts.partset import MANIFEST, PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder

if TYPE_CHECKING:
    from webtext.clean.pipeline import CleanSettings

SETS = ("links", "pages", "documents", "signals", "corpus", "dropped", "tokens")
MARKS = [f"{name}/" for name in SETS]
"""A folder with one of these and a config.json or report is a build's, not something else's."""


def _under_root(path: str) -> Any:
    return property(lambda layout: Folder(layout.root).location(path))


@dataclass(frozen=True, slots=True)
class BuildLayout:
    """Paths of a build's SETS and other outputs in its folder; a sample shares the `whole` build's links."""

    root: str
    whole: str | None = None
    links = property(lambda layout: Folder(layout.whole or layout.root).location("links"))
    pages = _under_root("pages")
    documents = _under_root("documents")
    signals = _under_root("signals")
    corpus = _under_root("corpus")
    dropped = _under_root("dropped")
    tokens = _under_root("tokens")
    tokenizer = _under_root("tokenizer/tokenizer.json")
    model = _under_root("model")
    export = _under_root("model/export")

    @classmethod
    def of(cls, settings: BuildSettings) -> BuildLayout:
        """Return the layout of a config; a sample's folder is beside the whole build's, with the share in its name."""
        if (sample := settings.sample_of()) is None:
            return cls(settings.out)
        percent = str(sample)[:-1]
        return cls(f"{settings.out.rstrip('/')}-sample-{percent}-percent", settings.out)

    def open(self, name: str) -> PartSet | None:
        """Open the sealed set `name` of SETS; None when there isn't one yet."""
        url = getattr(self, name)
        return PartSet.open(url, name) if Folder(url).exists(MANIFEST) else None

    @classmethod
    def existing(cls, root: str) -> BuildLayout:
        """Return the layout of the build in `root`; InputError when it contains no part set of a build."""
        layout = cls(root)
        if not any(Folder(getattr(layout, name)).exists(MANIFEST) for name in SETS):
            raise InputError(f"there is no build in '{root}'", "name the folder that `webtext build` wrote")
        return layout


def build(
    config: BuildConfig, run: Run, errors: Sequence[WebtextError] = (), *, then: Callable[[], None] = lambda: None
) -> BuildLayout:
    """Run the stages from links to tokens. Errors of a stage pass through; finished parts are kept.

    Before the first stage, raises the `errors` of the config together with the errors that later stages would raise,
    and the errors of `then`, which checks the steps after the build.

    A dry run prints the work to do. It raises DryRun at the first stage that has any, because later stages depend on it.
    """
    from webtext.clean.pipeline import CleanSettings, clean_pages
    from webtext.shards.writing.pack import pack_shards
    from webtext.tokenizer.files.corpus import train_tokenizer

    layout = BuildLayout.of(config["build"])
    sections = {field.name: config[f"clean.{field.name}"] for field in dataclasses.fields(CleanSettings)}
    clean = CleanSettings(**sections)
    _check(config, layout, clean, list(errors), then)
    pages = _pages(config, layout, run)
    run.console.say("3/6 documents: extract, judge, deduplicate")
    links = PartSet.open(layout.links, "links") if config["build"].links else None
    cleaned = clean_pages(pages, layout.root, clean, run, links)
    if not run.dry_run:
        Folder(layout.root).write_object("config.json", config.to_json())  # a record of how the build was made
    check_kept(cleaned.documents, cleaned.corpus)
    run.console.say("4/6 tokenizer: learn the merges")
    train_tokenizer([layout.corpus], layout.tokenizer, config["tokenizer"], run, keeps=True)
    run.console.say("5/6 tokens: pack the shards")
    pack_shards(layout.corpus, layout.tokenizer, layout.tokens, config["shards"], run)
    return layout


def pretrain(
    config: BuildConfig, run: Run, errors: Sequence[WebtextError] = ()
) -> tuple[BuildLayout, Mapping[str, Any]]:
    """Build, train, evaluate and export. Returns the layout and the evaluation; a dry run ends as in `build`."""
    from webtext.train.evaluate.perplexity import evaluate_run
    from webtext.train.run.loop import check_machine, train_model

    def check_training() -> None:
        check_machine(config["train"], config["tokenizer"].vocab_size, run.console)

    layout = build(config, run, errors, then=check_training)
    run.console.say("6/6 model: train GPT-2")
    train_model(layout.tokens, layout.model, config["train"], run, tokenizer=layout.tokenizer)
    if run.dry_run:
        raise DryRun
    sections = (config["train.eval"], config["train.sample"])
    return layout, evaluate_run(layout.model, layout.tokens, layout.tokenizer, layout.export, run, *sections)


def check_failures(layout: BuildLayout, command: str) -> None:
    """Raise RunFailed when records failed that another run could recover, so that a finished build doesn't hide them."""
    from webtext.crawl.links.collect import check_dumps

    sets = list(filter(None, map(layout.open, ("links", "pages", "documents", "corpus", "tokens"))))
    for made in sets:
        if made.kind == "links":
            check_dumps(made)
    check_settled(*sets, command=command)


def _check(
    config: BuildConfig,
    layout: BuildLayout,
    clean: CleanSettings,
    errors: list[WebtextError],
    then: Callable[[], None],
) -> None:
    from webtext.clean.pipeline import check_settings
    from webtext.crawl.fetch.run import check_pages
    from webtext.tokenizer.files.corpus import check_tokenizer

    settings = config["build"]
    with noted(errors):
        out = Path(layout.root)
        if file := next(filter(Path.is_file, (out, *out.parents)), None):
            raise ConfigError(f"[build] out = '{out}': '{file}' is a file", "name a folder")
        if any(map(Folder(layout.root).exists, ("config.json", "report.html", "report.json"))):
            Folder(layout.root).check_output(MARKS)
    with noted(errors):
        check_settings(clean, layout.root)
    with noted(errors):
        if settings.links:
            check_pages(layout.pages, config["crawl.fetch"], settings.sample_of())
    with noted(errors):
        if len(config["train"].data.weights) > 1:
            raise ConfigError("weights has several values, but a build has one token set", "leave out weights")
    with noted(errors):
        check_tokenizer([layout.corpus], config["tokenizer"])
    with noted(errors):
        then()
    raise_all(errors)


def _pages(config: BuildConfig, layout: BuildLayout, run: Run) -> list[str]:
    """Return the page sets to clean: those in the config, or the one fetched for the links."""
    from webtext.crawl.command import collect, crawl

    settings = config["build"]
    if settings.pages:
        return list(settings.pages)
    run.console.say("1/6 links: who voted for what")
    check_kept(collect(settings.links, layout.links, config["crawl.links"], run, config["crawl.api"]))
    run.console.say("2/6 pages: fetch what they voted for")
    sample = settings.sample_of()
    check_kept(crawl(layout.links, layout.pages, config["crawl.fetch"], run, sample, smaller_sample(config)))
    return [layout.pages]


def smaller_sample(config: BuildConfig) -> PartSet | None:
    """Return the pages of the largest sample beside the build that is smaller than it; None if it has pages already."""
    out, wanted = Path(config["build"].out), config["build"].sample_of()
    if not Folder(config["build"].out).is_local or Folder(BuildLayout.of(config["build"]).pages).names():
        return None
    found = {}
    for place in out.parent.glob(f"{glob.escape(out.name)}-sample-*-percent/pages/{MANIFEST}"):
        percent = place.parent.parent.name[len(f"{out.name}-sample-") : -len("-percent")]
        if percent.replace(".", "", 1).isdigit() and float(percent) < (100.0 if wanted is None else wanted.percent):
            found[float(percent)] = str(place.parent)
    return PartSet.open(found[max(found)], "pages") if found else None
