"""Writes the part set of a crawl: rolling parts, published one by one until every link has a row.

A part is published after a number of pages, bytes or seconds. The open part survives a killed run (`open_part.py`).
No link is in two parts, because a run starts from the existing rows. Each part is sealed as a new generation, so a
crawl that takes weeks is readable throughout. The last manifest marks the set as complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from webtext.base.errors import InputError
from webtext.base.parts.digest import Keys, link_keys
from webtext.base.parts.partset import ENTRIES, MANIFEST, REMAKE, PartSet, entry_name
from webtext.base.parts.recipe import Recipe, with_check
from webtext.base.parts.schemas import PAGE
from webtext.base.parts.stage import SetWriter, part_key
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.crawl.pages.link_table import LinkTable
from webtext.crawl.pages.open_part import OPEN, OpenPart, recover, remove_open
from webtext.crawl.pages.reasons import FETCHED, outcome_of
from webtext.crawl.pages.visit import QueuedLink, Visit
from webtext.crawl.user_agent import user_agent

RECIPE = "recipe.json"  # the settings that a crawl was started with, written before its first manifest
# A worker extracts one part at a time, and loses it when it is killed: about 20 seconds of work per 1,000 pages. So a
# small crawl gets enough parts for all cores. A large one has parts of 10,000, since each part costs the driver memory.
N_PARTS, LEAST_PART, LARGEST_PART = 64, 500, 10_000
PART_BYTES = 256 << 20  # of its WARC file, after which a part is published whatever it has
PART_SECONDS = 300.0  # so that readers of a slow crawl, and a set in a remote folder, are at most five minutes behind


class PagesSet:
    """Writes a pages set. `done` are the links that have a row; `held` are the URLs of pages reached by redirects."""

    def __init__(self, url: str, recipe: Recipe, links: PartSet, part_pages: int | None = None) -> None:
        self._entries = Folder(url).child(ENTRIES).names(".json")  # before the parts: another run may be at work
        self._writer = pages_writer(url, recipe, links)
        self._part_pages = part_pages or min(max(links.records // N_PARTS, LEAST_PART), LARGEST_PART)
        self._parts = self._writer.parts
        self._generation = max((part.generation for part in self._writer.sealed), default=0) + 1
        self.recovered = recover(self._writer.folder, self._parts)  # the part that a killed run left
        self.held = LinkTable()
        self.done = LinkTable(self._read_rows())
        self._about = _about(recipe)
        self._open: OpenPart | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder while pages are added, remove a killed run's leftovers, and write the recipe.

        Raises InputError if another run has locked the folder.
        """
        with self._writer.folder.held():
            self._check_unchanged()
            self._writer.folder.write_object(RECIPE, self._writer.recipe.to_json())
            self._writer.remove_leftovers()
            remove_open(self._writer.folder, but=self.recovered.index if self.recovered else None)
            if self.recovered:
                self._open = OpenPart(self._writer.folder, self.recovered.index, self._about, self.recovered)
            try:
                yield
            finally:
                if self._open:
                    self._open.close()
                    self._open = None

    def add(self, link: QueuedLink, visit: Visit) -> None:
        """Add the row of one link and its page's records, and publish the part when it is full."""
        part = self._open = self._open or OpenPart(self._writer.folder, max(self._parts, default=-1) + 1, self._about)
        with no_space_is_an_error(self._writer.folder.url):
            part.add(_row(link, visit), visit.exchange)
        if visit.exchange and visit.exchange.url != link.url:
            self.held.add_url(visit.exchange.url)
        if part.n_rows >= self._part_pages or part.n_bytes >= PART_BYTES or part.seconds >= PART_SECONDS:
            self.publish()

    def publish(self) -> None:
        """Publish the open part, if there is one, and seal all parts so far as a new generation."""
        if self._open:
            part = self._open.publish(self._writer, self._generation)
            self._open = None
            self._parts[part.index] = part
            self._generation += 1
            self.seal(None, complete=False)

    @property
    def local_folder(self) -> Path | None:
        """The set's folder, for files that later runs need; None for a remote folder."""
        folder = self._writer.folder
        return folder.local_path() if folder.is_local else None

    def scratch_path(self, name: str) -> Path:
        """Return a path for a scratch file of this run, on the folder's disk."""
        return self._writer.folder.scratch_path(name)

    def seal(self, run: Mapping[str, Any] | None, *, complete: bool) -> PartSet:
        """Write the manifest of all parts. It says that the set is not reproducible, as no crawl is."""
        return self._writer.seal(list(self._parts.values()), complete=complete, reproducible=False, run=run)

    def _check_unchanged(self) -> None:
        """Raise InputError if the folder has changed since this set was opened."""
        now, entries = recover(self._writer.folder, self._parts), self._writer.folder.child(ENTRIES).names(".json")
        if self._entries != entries or now != self.recovered:
            raise InputError(f"another run has just written to '{self._writer.folder.url}'", "rerun the command")

    def _read_rows(self) -> Iterator[Keys]:
        """Yield the keys of all rows' links, and add the pages reached by redirects to `held` on the way."""
        for rows in self._rows():
            is_redirected = pc.and_(pc.equal(rows["outcome"], FETCHED), pc.not_equal(rows["final_url"], rows["url"]))
            for url in rows["final_url"].filter(is_redirected).to_pylist():
                self.held.add_url(url)
            yield link_keys(rows["link_id"])

    def _rows(self) -> Iterator[pa.RecordBatch]:
        columns = ["link_id", "url", "outcome", "final_url"]
        for part in self._parts.values():
            content = self._writer.folder.read_bytes(part.name)  # once, also from a remote folder
            if (found := hashlib.sha256(content).hexdigest()) != part.sha256:
                says = f"SHA-256 {found[:12]}…, the manifest says {part.sha256[:12]}…"
                raise InputError(f"'{self._writer.folder.location(part.name)}' was altered: {says}", REMAKE)
            yield from pq.ParquetFile(pa.BufferReader(content)).iter_batches(columns=columns, use_threads=False)
        if self.recovered:
            rows = [{name: entry.row[name] for name in columns} for entry in self.recovered.entries]
            yield pa.RecordBatch.from_pylist(rows, pa.schema([PAGE.field(name) for name in columns]))


def pages_writer(url: str, recipe: Recipe, *links: PartSet) -> SetWriter:
    """Return a writer that has looked at the folder.

    Raises InputError if pages must not be written there, or if the folder has some that were fetched under other
    settings, which must not be mixed.
    """
    writer = SetWriter(url, "pages", recipe, links)
    writer.check_place()
    _check_same_settings(writer.folder, recipe)
    return writer


def _check_same_settings(folder: Folder, recipe: Recipe) -> None:
    try:
        if folder.exists(MANIFEST):
            begun = json.loads(folder.read_bytes(MANIFEST))["recipe"]
        elif folder.exists(RECIPE) and any(map(folder.exists, (OPEN, ENTRIES))):  # else no row has them yet
            begun = json.loads(folder.read_bytes(RECIPE))
        else:
            return
        differences = _differences(begun, recipe.to_json())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"'{folder.url}' is damaged: its recipe cannot be read", _ELSEWHERE) from None
    if differences:
        raise InputError(
            f"'{folder.url}' was started with other settings: {'; '.join(differences)}",
            f"restore the setting, or {_ELSEWHERE}",
        )


_ELSEWHERE = "write to another folder: another --out, or another `out` in [build]"


def _row(link: QueuedLink, visit: Visit) -> dict[str, Any]:
    return {
        "link_id": link.link_id,
        "url": link.url,
        "final_url": visit.final_url,
        "redirects": visit.redirects,
        "outcome": FETCHED if visit.reason is None else outcome_of(visit.reason),
        "reason": visit.reason,
        "status": visit.status,
        "source": visit.source,
        "voted": link.voted,
        "karma": link.karma,
        "split": link.split,
        "milliseconds": None if visit.seconds is None else round(visit.seconds * 1000),
        "requests": link.requests + visit.requests,
        "cause": "; ".join(filter(None, [visit.cause, link.tried]))[:200] or None,
        "opt_outs": visit.opt_outs,
        "opt_out_evidence": [each._asdict() for each in visit.evidence],
        "posts": link.posts,
    }


def _about(recipe: Recipe) -> dict[str, str]:
    """Return the fields of the warcinfo record."""
    settings = recipe.settings
    return {
        "software": user_agent(None),
        "format": "WARC File Format 1.1",
        "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "http-header-user-agent": user_agent(settings["contact"]),
        "robots": "obey" if settings["obey_robots"] else "ignore",
    }


def _differences(begun: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = begun["settings"], now["settings"]
    found = [
        f"{name} was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted({*new, "sample"})  # a setting that only an earlier version had in its recipe may change now
        if old.get(name) != new.get(name)
    ]
    if not found and (begun["stage"], begun["code_version"]) != (now["stage"], now["code_version"]):
        found = [f"code version was {begun['code_version']}, is {now['code_version']}"]
    return found


def take_over(sample: PartSet, out: str, recipe: Recipe, links: PartSet) -> bool:
    """Put the parts of a smaller sample's pages set into the folder `out`, sealed as an incomplete crawl.

    A crawl of all links would write the same rows for the sample's links, so its parts fit unchanged.

    Returns False and does nothing if `out` is not empty, if one of the two is remote, or if the sample was fetched
    under other settings. Files are hard-linked if the disk allows it, else copied. A kill leaves complete parts.
    """
    folder = Folder(out)
    of_any_share = [
        {**each, "settings": {**each["settings"], "sample": None}} for each in (sample.recipe, recipe.to_json())
    ]
    if not (folder.is_local and sample.folder.is_local) or of_any_share[0] != of_any_share[1]:
        return False
    if folder.exists("") and os.listdir(folder.local_path()):
        return False
    writer = SetWriter(out, "pages", recipe, [links])
    parts = []
    with folder.held():
        for part in sample.parts:
            for name in (part.name, *(attachment.name for attachment in part.attachments)):
                with folder.scratch(name) as path:
                    _link_file(sample.folder.local_path(name), path)
            mine = dataclasses.replace(part, key=part_key(recipe, (), f"{part.generation}.{part.index}"))
            folder.write_object(entry_name(part.index), with_check(mine.to_json()))
            parts.append(mine)
        writer.seal(parts, complete=False, reproducible=False)
    return True


def _link_file(source: os.PathLike[str], target: os.PathLike[str]) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk, or on a disk without hard links
        shutil.copyfile(source, target)
