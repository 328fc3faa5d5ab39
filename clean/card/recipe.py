"""A set's recipe in words, from its manifest: the rules and their thresholds, what counted as a duplicate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from webtext.base.config import from_table
from webtext.base.parts.partset import PartSet
from webtext.clean.card.markdown import code, escaped
from webtext.clean.dedup.settings import PERMUTATIONS, SHINGLE_WORDS, DedupSettings
from webtext.clean.language import ALL
from webtext.clean.rules.thresholds import RULES, RuleSettings
from webtext.clean.settings import VoteSettings


def recipe_lines(sets: Sequence[PartSet]) -> Iterator[str]:
    """Yield Markdown: a list with each step's code version, library versions and settings.

    For a crawl only the versions are listed: its opt-outs have a section of their own, and its settings name a person.
    """
    for opened in sets:
        recipe = opened.recipe
        about = f"{recipe['stage']}, code version {recipe['code_version']}"
        versions = ", ".join(f"{name} {version}" for name, version in sorted(recipe["versions"].items()))
        yield f"- **{opened.kind}** by `{about}`" + (f" with {versions}" if versions else "")
        lists = sum(parent["kind"] == "removal_list" for parent in opened.manifest["parents"])
        if lists:
            yield f"  - removal lists that named documents: {lists:,}"
        indexes = sum(parent["kind"] == "signatures" for parent in opened.manifest["parents"])
        if indexes:
            yield f"  - earlier builds compared with: {indexes:,}"
        if opened.kind == "pages" and "sample" in recipe["settings"]:
            yield f"  - **a sample**: {recipe['settings']['sample']} of the links, chosen by a keyed hash"
        if opened.kind not in ("links", "pages"):
            for name, settings in _sections(recipe["settings"]):
                yield from (f"  {line}" for line in _WORDS.get(name, _others(name))(settings))


def link_lines(links: PartSet) -> Iterator[str]:
    """Yield Markdown: a list of which votes counted when the links were collected, and which links were left out."""
    settings = links.recipe["settings"]
    karma, before, age = (settings.get(name) for name in ("min_karma", "before", "min_score_age"))
    what = "the scores of a link's posts add up to" if settings.get("sum_karma") else "a post counts if its score is"
    yield "- karma: any score counts" if karma is None else f"- karma: {what} at least {karma:,}"
    yield f"- dates: posts made before {escaped(before)}" if before else "- dates: posts of any date"
    if age:
        yield f"- scores: only those read at least {age:,} seconds after the post was made"
    for name, kind in _KINDS.items():
        yield f"- {kind}: {'kept' if settings.get(name) else 'left out'}"
    for kind in ("subreddit", "domain"):
        lists = [
            f"{code(each['name'])} ({each['entries']:,} entries, {escaped(each['licence'] or 'no licence named')}, "
            f"SHA-256 `{each['sha256']}`)"
            for each in settings.get(f"{kind}_blocklists") or []
        ]
        yield f"- blocklists of {kind}s: {', '.join(lists) or 'none'}"


_KINDS = {
    "keep_wikipedia": "links to Wikipedia and its mirrors",
    "keep_links_back": "links to Reddit itself",
    "keep_media": "links to image, audio and video files",
    "keep_over_18": "posts marked over 18",
    "keep_self_posts": "text posts",
}


def _sections(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the sections of a recipe; settings outside a section form one section together."""
    plain = {name: value for name, value in settings.items() if name not in _WORDS and not isinstance(value, dict)}
    if plain:
        yield "settings", plain
    order = [*_WORDS, *sorted(settings.keys() - _WORDS.keys() - plain.keys())]
    yield from ((name, settings[name]) for name in order if name in settings)


def _votes(settings: Mapping[str, Any]) -> Iterator[str]:
    votes = from_table(VoteSettings, settings, "clean.votes")
    if votes.min_karma is not None:
        yield f"- votes: {'a sum of scores' if votes.sum_karma else 'a post with a score'} of at least {votes.min_karma:,}"
    if votes.before is not None:
        yield f"- votes: posts made before {escaped(votes.before)}"
    if votes.communities:
        yield f"- votes: posts in communities ('-': not in them): {', '.join(map(code, votes.communities))}"


def _language(settings: Mapping[str, Any]) -> Iterator[str]:
    if ALL in settings["language"]:
        yield "- language: all languages are kept"
    else:
        wanted = ", ".join(settings["language"])
        yield f"- language: {wanted}, with a probability of at least {settings['min_language_score']}"


def _rules(settings: Mapping[str, Any]) -> Iterator[str]:
    yield f"- rules of the profile `{settings['profile']}`" + (", changed" if settings["rule"] else "") + "; drops:"
    for reason, threshold in from_table(RuleSettings, settings, "clean.rules").thresholds().items():
        rule = RULES[reason]
        yield f"  - `{reason}`: `{rule.column}` {'below' if rule.bound == 'min' else 'above'} {threshold:,g}"


def _dedup(settings: Mapping[str, Any]) -> Iterator[str]:
    dedup = from_table(DedupSettings, settings, "clean.dedup")
    yield "- exact duplicates: equal texts; the one of highest karma is kept, then the earliest, then the smallest id"
    yield (
        f"- near duplicates: a Jaccard similarity of at least {dedup.threshold} over {SHINGLE_WORDS} consecutive "
        f"words, verified exactly; found by MinHash of {PERMUTATIONS} permutations in {dedup.bands} bands of "
        f"{dedup.rows}"
    )


def _others(name: str) -> Callable[[Any], Iterator[str]]:
    def lines(settings: Any) -> Iterator[str]:
        values = settings if isinstance(settings, dict) else {name: settings}
        shown = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in sorted(values.items()))
        yield f"- {name}: {shown}"

    return lines


_WORDS: dict[str, Callable[[Any], Iterator[str]]] = {
    "votes": _votes,
    "language": _language,
    "rules": _rules,
    "dedup": _dedup,
}
"""Section -> the function that puts it in words, in the order in which the sections are applied."""
