"""Refresh a links set: today's scores of its posts, and the posts that users or moderators have removed since.

    LINKS ──ask──► OUT/answers/ ──judge──► OUT/links/ + OUT/removals/

Reddit is asked for each of its posts once (`crawl/apis/post_states.py`). The rest is a function of LINKS and the files of
answers. Posts get today's score and `retrieved`; posts that now fail the rule and posts that are gone are dropped by
reason. Links that lost posts to removal are listed for `webtext clean run --remove`. Posts from other sources stay as
they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import Part, PartSet, SetName, part_name
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder, file_sha256
from webtext.base.web.urls import library_versions
from webtext.base.workers.journal import Journal
from webtext.crawl.apis.harvest import HarvestFiles
from webtext.crawl.apis.post_states import MISSING, Reading, answers_of, ask_all, full_name, read_answers
from webtext.crawl.apis.settings import ApiSettings, RefreshSettings
from webtext.crawl.links.karma import Judge
from webtext.crawl.links.link_rows import link_row
from webtext.crawl.links.score_ages import SUFFIX, ScoreAges
from webtext.crawl.links.settings import KarmaRule
from webtext.crawl.links.submission import Submission

STAGE = "crawl.refresh"
CODE_VERSION = 1
ROWS_AT_A_TIME = 1024


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The two sets that a refresh writes."""

    links: PartSet
    removals: PartSet


def refresh_links(links: str, out: str, settings: RefreshSettings, api: ApiSettings, run: Run) -> Refreshed:
    """Ask Reddit for all posts of the set `links`, and write OUT/links and OUT/removals. Rerunning it resumes.

    Raises ConfigError if the settings do not allow the requests, NetworkError if Reddit does not answer, and InputError
    if `out` contains answers for other links. A dry run prints the number of requests and minutes.
    """
    parent = PartSet.open(links, "links")
    rule = _rule_of(parent, settings)
    recipe = Recipe(
        stage=STAGE,
        code_version=CODE_VERSION,
        settings={**parent.recipe["settings"], "min_karma": rule.min_karma},
        versions=library_versions(),
    )
    outputs = {name: (Folder(out).location(name), name) for name in ("links", "removals")}
    for url, kind in outputs.values():
        SetWriter(url, kind, recipe, [parent]).check_place()
    answers = answers_of(parent, Folder(out).child("answers"))
    ask_all(parent, answers, api, STAGE, run)
    digests = run.map(_digest, answers, f"{STAGE}: hash answers")
    name = SetName.of(parent)
    tasks = [
        PartTask(
            index=part.index,
            sources=(parent.source(part),),
            payload=_Judging(name, part, tuple(files.locations), rule),
            depends=digest,
        )
        for part, files, digest in zip(parent.parts, answers, digests, strict=True)
    ]
    sets = run_parts(_judge_part, tasks, recipe=recipe, outputs=outputs, parents=[parent], run=run, label=STAGE)
    counts = sets["links"].counts
    if counts.dropped.get(MISSING, 0) * 2 > counts.records_in:
        run.console.warn(f"Reddit's answers lack most of the posts of '{links}'; check some before using the removals")
    return Refreshed(sets["links"], sets["removals"])


def _rule_of(links: PartSet, settings: RefreshSettings) -> KarmaRule:
    known = links.recipe["settings"]
    names = [field.name for field in dataclasses.fields(KarmaRule)]
    if not set(names) <= known.keys():
        raise InputError(
            f"the recipe of '{links.folder.url}' has no karma rule",
            "name a set that crawl links or crawl refresh wrote",
        )
    rule = KarmaRule(**{name: known[name] for name in names})
    return rule if settings.min_karma == "same" else dataclasses.replace(rule, min_karma=settings.min_karma)


def _digest(_: Journal, files: HarvestFiles) -> str:
    digests = []
    for location in files.locations:
        with files.folder.open(location.rpartition("/")[2]) as file:
            digests.append(file_sha256(file))
    return sha256_json(digests)


@dataclass(frozen=True, slots=True)
class _Judging:
    links: SetName
    part: Part
    answers: tuple[str, ...]
    rule: KarmaRule


def _judge_part(context: PartContext, task: PartTask) -> None:
    """Runs in a worker: turn a part of links and its answers into one part of links and one of removals."""
    judging: _Judging = task.payload
    links, removals = context.output("links"), context.output("removals")
    judge, ages = Judge(judging.rule), ScoreAges()
    answers = read_answers(judging.answers)
    for batch in judging.links.open().batches(judging.part, batch_size=ROWS_AT_A_TIME):
        kept, lost = [], []
        for row in batch.to_pylist():
            posts, removed = _reread(row, answers)
            if removed:
                lost.append(_removal(row, removed, len(posts)))
                for post in removed:
                    links.counts.drop(post["reason"])
            link = _judged(row, posts, judge, links.counts, ages)
            if link is not None:
                kept.append(link)
        links.write(kept)
        removals.write(lost)
    links.attach(part_name(task.index).removesuffix(".parquet") + SUFFIX).write_bytes(ages.to_bytes())


def _judged(
    row: Mapping[str, Any], posts: list[Submission], judge: Judge, counts: Counts, ages: ScoreAges
) -> dict[str, Any] | None:
    """Return the link with the posts that count today; None if none does, or their sum is too low."""
    counting = []
    for post in posts:
        reason = judge.judge_post(post)
        if reason is None:
            counting.append(post)
        else:
            counts.drop(reason)
    if not counting:
        return None
    link = link_row(row["link_id"], row["url"], counting, 0) | {"split": row["split"]}
    least = judge.rule.min_karma if judge.rule.sum_karma else None
    if least is not None and link["karma_sum"] < least:
        counts.drop("too_little_karma_sum", len(counting))
        return None
    counts.keep(len(counting))
    ages.add(counting)
    return link


def _removal(row: Mapping[str, Any], removed: list[dict[str, Any]], n_left: int) -> dict[str, Any]:
    return {"link_id": row["link_id"], "url": row["url"], "posts": removed, "posts_left": n_left}


def _reread(row: Mapping[str, Any], answers: Iterator[Reading]) -> tuple[list[Submission], list[dict[str, Any]]]:
    """Return (remaining posts with today's values, removed posts) of a link."""
    posts, removed = [], []
    for post in row["posts"]:
        score, retrieved, over_18 = post["score"], post["retrieved"], False
        name = full_name(post["source"], post["post_id"])
        if name is not None:
            answer = next(answers, None)
            if answer is None or answer.data.name != name:
                raise InputError(f"the answers lack '{name}'", "remove the folder 'answers' to request all posts again")
            if answer.data.removed is not None:
                gone = {"source": post["source"], "post_id": post["post_id"]}
                removed.append(gone | {"reason": answer.data.removed, "noticed": answer.retrieved})
                continue
            over_18 = answer.data.over_18
            if answer.data.score is not None:
                score, retrieved = answer.data.score, answer.retrieved
        posts.append(
            Submission(
                source=post["source"],
                post_id=post["post_id"],
                subreddit=post["subreddit"],
                url=row["url_raw"],
                score=score,
                created=post["created"],
                retrieved=retrieved,
                is_self=False,
                over_18=over_18,
            )
        )
    return posts, removed
