"""The chain behind `webtext build` and `webtext pretrain`: each stage reads the folder the one before it wrote.

Stages skip what is done, so the chain is the same for a first run, for a resumed one, and after a changed setting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webtext.app.config import BuildConfig
from webtext.base.errors import DryRun
from webtext.base.partset import MANIFEST, PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder

STAGE_TITLES = {
    "links": "1/6 links: who voted for what",
    "pages": "2/6 pages: fetch what they voted for",
    "clean": "3/6 documents: extract, judge, deduplicate",
    "tokenizer": "4/6 tokenizer: learn the merges",
    "tokens": "5/6 tokens: pack the shards",
    "model": "6/6 model: train GPT-2",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a build lie under its folder."""

    root: str

    def __getattr__(self, name: str) -> str:
        if name in ("links", "pages", "documents", "signals", "corpus", "dropped", "tokens", "model"):
            return Folder(self.root).location(name)
        raise AttributeError(name)

    @property
    def tokenizer(self) -> str:
        """The tokenizer's file."""
        return Folder(self.root).location("tokenizer/tokenizer.json")

    @property
    def export(self) -> str:
        """The trained model as a Hugging Face GPT-2 folder."""
        return Folder(self.root).location("model/export")


def build(config: BuildConfig, run: Run) -> Layout:
    """Links to tokens. Raises what the stages raise; what is done stays.

    A dry run tells what is to do and ends with DryRun at the first stage that has work: what follows depends on it.
    """
    from webtext.clean.pipeline import CleanSettings, clean_pages
    from webtext.shards.pack import pack_shards
    from webtext.tokenizer.corpus import train_tokenizer

    layout = Layout(config["build"].out)
    if Folder(layout.root).is_local and not run.dry_run:
        config.write(Path(layout.root))
    pages = _pages(config, layout, run)
    run.console.say(STAGE_TITLES["clean"])
    sections = {field.name: config[f"clean.{field.name}"] for field in dataclasses.fields(CleanSettings)}
    clean_pages(pages, layout.root, CleanSettings(**sections), run)
    run.console.say(STAGE_TITLES["tokenizer"])
    train_tokenizer([layout.corpus], layout.tokenizer, config["tokenizer"], run)
    run.console.say(STAGE_TITLES["tokens"])
    pack_shards(layout.corpus, layout.tokenizer, layout.tokens, config["shards"], run)
    return layout


def pretrain(config: BuildConfig, run: Run) -> tuple[Layout, Mapping[str, Any]]:
    """Build, train, evaluate, export. Returns the layout and what the evaluation says; a dry run ends as in `build`."""
    from webtext.train.evaluate.perplexity import evaluate_run
    from webtext.train.loop import train_model

    layout = build(config, run)
    run.console.say(STAGE_TITLES["model"])
    train_model(layout.tokens, layout.model, config["train"], run, tokenizer=layout.tokenizer)
    if run.dry_run:
        raise DryRun
    sections = (config["train.eval"], config["train.sample"])
    return layout, evaluate_run(layout.model, layout.tokens, layout.tokenizer, layout.export, run, *sections)


def check_links(layout: Layout) -> None:
    """RunFailed when a dump of the build could not be read to its end: the rest is built, and nobody may overlook it."""
    from webtext.crawl.links.collect import check_dumps

    if Folder(layout.links).exists(MANIFEST):
        check_dumps(PartSet.open(layout.links, "links"))


def _pages(config: BuildConfig, layout: Layout, run: Run) -> list[str]:
    """The page sets to clean: those given, or the one fetched for the links."""
    from webtext.crawl.fetch.run import fetch_pages
    from webtext.crawl.links.collect import collect_links

    settings = config["build"]
    if settings.pages:
        return list(settings.pages)
    run.console.say(STAGE_TITLES["links"])
    collect_links(settings.links, layout.links, config["crawl.links"], run, config["crawl.api"])
    run.console.say(STAGE_TITLES["pages"])
    fetched = fetch_pages(layout.links, layout.pages, config["crawl.fetch"], run)
    if fetched is None and not _all_fetched(layout):
        raise DryRun
    return [layout.pages]


def _all_fetched(layout: Layout) -> bool:
    """Whether every link has its row in a sealed set: what a dry run must know, which opens no pages set."""
    pages = PartSet.open(layout.pages, "pages") if Folder(layout.pages).exists(MANIFEST) else None
    return pages is not None and pages.records == PartSet.open(layout.links, "links").records
