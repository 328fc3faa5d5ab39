"""Pages to documents: every archived response becomes a document, a counted drop or a counted failure.

Inputs are pages sets (WARC records joined with the fetch log by file and offset) and any WARC or ARC files, one task
per part or file. Quality and language don't matter here: every page with text that doesn't opt out is kept.
"""

from __future__ import annotations

import importlib.metadata
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.console import counted
from webtext.base.errors import InputError
from webtext.base.inputs.files import InputFile, find_inputs, hash_files
from webtext.base.parts.identifiers import page_document_id, split_of, text_digest
from webtext.base.parts.partset import PartSet, SetName, SourcePart
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, SetWriter
from webtext.base.run import Run
from webtext.base.warc.arc import ARC_SUFFIXES
from webtext.base.warc.reader import UNCHANGED, Response, read_responses
from webtext.base.web.content_coding import BodyError
from webtext.base.web.opt_outs import header_opt_outs, meta_opt_outs, obeyed
from webtext.base.web.urls import canonical_url, library_versions, registrable_domain
from webtext.base.workers.attempt import Attempt, Failed
from webtext.clean.extract.body import MAX_BODY_BYTES, OWN, Body, ExtractSettings, extract_body, prepare
from webtext.clean.extract.redirects import POSTS, VotedLink, find_redirects, votes_for
from webtext.clean.extract.scorer import model_digest
from webtext.clean.inputs.unique import UniqueTask, run_unique, unique_posts
from webtext.clean.language import detect_language
from webtext.clean.reasons import TOO_MANY_BYTES, Dropped, Refused
from webtext.clean.text.clean_text import is_longer
from webtext.clean.text.scrub import scrub

CODE_VERSION = 16  # 16: numbers of Markdown lists; 15: pages with status 203
WARC_SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".warc.lz4", *ARC_SUFFIXES)
DECIDING_LIBRARIES = ("htmldate", "lxml", "resiliparse", "py3langid")


@dataclass(frozen=True, slots=True)
class SetTask:
    """One part of a pages set; `votes` has the links that redirect to its pages, if any link redirects to another."""

    pages: SetName
    part: int
    votes: SetName | None
    settings: ExtractSettings


@dataclass(frozen=True, slots=True)
class FileTask:
    """One WARC or ARC file that doesn't belong to a pages set."""

    file: InputFile
    settings: ExtractSettings


@dataclass(frozen=True, slots=True)
class Page:
    """A response, the file that contains it, and the links that lead to it."""

    response: Response
    warc_file: str
    votes: tuple[VotedLink, ...]
    settings: ExtractSettings
    opt_outs: tuple[str, ...] = ()  # recorded in the fetch log


def extract_documents(pages: Sequence[str], out: str, settings: ExtractSettings, run: Run) -> PartSet:
    """Write the documents set `out` from pages sets, WARC and ARC files, in the order of the input."""
    sets, files = find_inputs(pages, "pages", WARC_SUFFIXES)
    for each in (opened for opened in sets if not opened.complete):
        run.console.warn(f"'{each.folder.url}' is an unfinished crawl, with {counted(each.records, 'row')} so far")
    recipe = extract_recipe(settings)
    SetWriter(out, "documents", recipe, sets).check_place(run.replaces)
    votes = find_redirects(sets, out, run) if sets else None
    of_sets = [SetTask(SetName.of(pages), part, votes, settings) for pages in sets for part in range(len(pages.parts))]
    digests = run.map(_digest, of_sets, "clean.extract: find votes") if votes else [_digest(None, t) for t in of_sets]
    sources = [(pages.source(part),) for pages in sets for part in range(len(pages.parts))]
    tasks: list[tuple[Any, tuple[SourcePart, ...], str]] = [*zip(of_sets, sources, digests, strict=True)]
    hashed = zip(files, hash_files(files, run), strict=True)
    tasks += [(FileTask(file, settings), (), sha256) for file, sha256 in hashed]
    return run_unique(
        _extract_part,
        [PartTask(index=i, payload=t, sources=s, depends=d) for i, (t, s, d) in enumerate(tasks)],
        recipe=recipe,
        out=out,
        parents=sets,
        run=run,
    )


def extract_recipe(settings: ExtractSettings) -> Recipe:
    """Return the recipe: the settings and versions of libraries and model that decide what a document contains."""
    versions = {name: importlib.metadata.version(name) for name in DECIDING_LIBRARIES}
    if settings.extractor in OWN:
        versions["block model"] = model_digest()
    if settings.extractor != "blocks":
        library = "trafilatura" if settings.extractor == "fused" else settings.extractor
        versions[library] = importlib.metadata.version(library)
    versions |= library_versions() | {"unicode": unicodedata.unidata_version}
    return Recipe(
        stage="clean.extract", code_version=CODE_VERSION, settings=recipe_settings(settings), versions=versions
    )


def _digest(_: Attempt | None, task: SetTask) -> str:
    """Return a digest of a part's archives and votes; reads the part, in a worker, only if there are votes."""
    pages = task.pages.open()
    fetched = _fetched(pages, task.part, ["link_id", "url", "final_url", "outcome"]) if task.votes else []
    # The part's record digest covers only its rows; the bodies are in the attached WARC files.
    archives = [(a.name, a.sha256) for a in pages.parts[task.part].attachments if a.name.endswith(WARC_SUFFIXES)]
    votes = votes_for(fetched, task.votes)
    voters = {key: [[v.link_id, v.karma, v.split, v.posts] for v in value] for key, value in votes.items()}
    return sha256_json([archives, voters])


def _fetched(pages: PartSet, part: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    return [row for row in pages.table(part, columns).to_pylist() if row["outcome"] == "fetched"]


def _extract_part(context: PartContext, task: PartTask) -> None:
    """Write one part of the documents, in a worker."""
    unique: UniqueTask[SetTask | FileTask] = task.payload
    settings = unique.task.settings
    prepare(settings)  # before the first record, so that loading libraries and models isn't charged to a record
    detect_language("a language")
    records = _pages_of_set(unique.task) if isinstance(unique.task, SetTask) else _pages_of_file(unique.task)
    writer = context.main
    seen = set(unique.taken)  # archives may contain a capture twice, but ids are unique in a set
    for _, page, result in context.apply(_document, enumerate(records), identify=_place):
        if isinstance(result, Refused):
            writer.fail(_place(page), result.reason, result.cause)
        elif isinstance(result, Dropped):
            writer.counts.drop(result.reason)
        elif isinstance(result, Failed):
            pass  # already counted
        elif result["id"] in seen:
            writer.counts.drop("repeated_record")
        else:
            seen.add(result["id"])
            writer.counts.keep()
            writer.write([result])


def _pages_of_set(task: SetTask) -> Iterator[Page]:
    """Yield the responses of the part's fetched rows, in the order of the WARC files; skip records without a row."""
    pages = task.pages.open()
    urls, places = ["link_id", "url", "final_url"], ["warc_file", "warc_offset"]
    rows = _fetched(pages, task.part, [*urls, "outcome", "karma", "split", *places, "opt_outs", POSTS])
    linked = votes_for(rows, task.votes)
    by_file: dict[str, dict[int, dict[str, Any]]] = {}
    for fetched in rows:
        by_file.setdefault(fetched["warc_file"], {})[fetched["warc_offset"]] = fetched
    for name, by_offset in sorted(by_file.items()):
        for response in read_responses(pages.folder, pages.attachment(task.part, name)):
            row = by_offset.pop(response.offset, None) if response.offset is not None else None
            if row is not None:
                own = VotedLink.of(row)
                others = (vote for vote in linked.get(own.link_id, ()) if vote.link_id != own.link_id)
                yield Page(response, name, (own, *others), task.settings, tuple(row["opt_outs"]))
        if by_offset:
            offset, row = next(iter(by_offset.items()))
            raise InputError(
                f"'{pages.folder.location(name)}' has no response at offset {offset}, where link {row['link_id']} points",
                "fetch the pages again, or restore the file",
            )


def _pages_of_file(task: FileTask) -> Iterator[Page]:
    for response in read_responses(task.file.folder, task.file.name):
        yield Page(response, task.file.name, (), task.settings)


def _place(page: Page) -> str:
    """Return the name of a response in the list of failures."""
    return f"{page.warc_file}:{page.response.offset} {page.response.url}".strip()


def _document(page: Page) -> dict[str, Any] | Dropped | Refused:
    """Return the document of a response, or why there is none; a pure function."""
    response = page.response
    if response.damage == UNCHANGED:
        return Dropped(UNCHANGED)
    if response.damage is None and response.status not in (200, 203):  # as `crawl fetch`
        return Dropped("status_not_ok")
    headers = [(name.lower(), value) for name, value in response.http_headers.fields]
    opted_out = obeyed([*page.opt_outs, *header_opt_outs(headers)], page.settings)
    if opted_out is not None:
        return Dropped(f"opt_out_{opted_out}")
    try:
        body = response.body(MAX_BODY_BYTES)
    except BodyError as error:
        return Refused(error.reason, str(error))
    opted_out = obeyed(meta_opt_outs(body, response.content_type), page.settings)
    if opted_out is not None:
        return Dropped(f"opt_out_{opted_out}")
    extracted = extract_body(body, response.http_headers.get("Content-Type"), page.settings)
    if not isinstance(extracted, Body):
        return extracted
    stated: list[str | None] = [extracted.title, extracted.author]
    text, n_scrubbed = extracted.text, None
    if page.settings.scrub:  # first, because digest and language must be those of the scrubbed text
        (text, *stated), counts = zip(*(scrub(each or "") for each in (text, *stated)), strict=True)
        n_scrubbed = sum(counts)
    if is_longer(text):
        return Dropped(TOO_MANY_BYTES)
    identifier = page_document_id(response.url, response.date, body)
    canonical = canonical_url(response.url)
    language, score = detect_language(text) or (None, None)
    splits = {vote.split for vote in page.votes} or {split_of(identifier)}
    return {
        "id": identifier,
        "link_ids": [vote.link_id for vote in page.votes],
        "url": response.url,
        "text": text,
        "text_digest": text_digest(text),
        "title": stated[0] or None,
        "author": stated[1] or None,
        "published": extracted.published,
        "date": response.captured,
        "domain": registrable_domain(canonical) if canonical else None,
        "page_kind": extracted.kind,
        "extractor_agreement": extracted.agreement,
        "language": language,
        "language_score": score,
        "karma": max((vote.karma for vote in page.votes), default=None),
        # a page that any train link leads to belongs to train
        "split": "train" if "train" in splits else "validation",
        "warc_file": page.warc_file,
        "warc_offset": response.offset,
        "warc_length": response.length,
        "n_scrubbed": n_scrubbed,
        POSTS: unique_posts(post for vote in page.votes for post in json.loads(vote.posts)),
    }
