"""The readable twin of `webtext.crawl._sift` (crawl/native/): which lines of a dump count, drop or need another look.

A line is *plain* if it can be read in one way only: valid JSON in valid UTF-8, one object, with each of our fields at
most once and of its usual type. Plain lines are judged here. All others are left to `RedditDump.parse`, which decides
what a line means. So a line that is not recognized as plain costs time, but never a vote.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from webtext.crawl.links.settings import PostRule

LONGEST_LINE = 1 << 20
DEEPEST = 60
LONGEST_NUMBER = 18
STRINGS = ("url", "subreddit", "name", "domain")
FIELDS = (
    *("_meta", "created_utc", "domain", "id", "is_self", "name", "over_18"),
    *("retrieved_on", "retrieved_utc", "score", "subreddit", "url"),
)

Sifted = tuple[dict[str, int], bytes, list[tuple[int, int]]]


def sift(rule: PostRule, lines: bytes) -> Sifted:
    """Return (dropped lines by reason, a JSON line of FIELDS per post that counts, (begin, end) of each other line)."""
    dropped: dict[str, int] = {}
    posts = b""
    others = []
    begin = 0
    for line in lines.split(b"\n"):
        end = begin + len(line)
        row = _plain_row(line, needs_subreddit=bool(rule.blocked_subreddits)) if line else None
        if row is not None:
            reason = _reason(row, rule)
            if reason is None:
                posts += json.dumps({name: row[name] for name in FIELDS if name in row}).encode() + b"\n"
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        elif line:
            others.append((begin, end))
        begin = end + 1
    return dropped, posts, others


class _NotPlain(ValueError):
    """The line needs another look."""


def _plain_row(line: bytes, needs_subreddit: bool) -> dict[str, Any] | None:
    """Return the fields of a plain line, else None. `needs_subreddit`: the subreddit must be ASCII (safe to lower)."""
    if len(line) > LONGEST_LINE or any(byte < 0x20 for byte in line) or _nesting(line) > DEEPEST:
        return None
    try:
        text = line.decode()
        row = json.loads(text, object_pairs_hook=_Pairs, parse_int=_whole, parse_float=_broken, parse_constant=_refuse)
        json.dumps(_plainly(row), ensure_ascii=False).encode()  # raises for half a surrogate pair
    except ValueError:
        return None
    as_they_stand = ("created_utc", "subreddit") if needs_subreddit else ("created_utc",)
    if not isinstance(row, _Pairs) or _has_escapes(text, as_they_stand):
        return None
    fields = dict(row)
    if needs_subreddit and not str(fields.get("subreddit")).isascii():
        return None
    meta = fields.get("_meta")
    if isinstance(meta, _Pairs):
        if _is_twice(meta, ("retrieved_2nd_on",)) or not _is_number_or_null(dict(meta).get("retrieved_2nd_on")):
            return None
        fields["_meta"] = dict(_plainly(meta))
    elif meta is not None:
        return None
    return None if _is_twice(row, FIELDS) or not _is_usual(fields) else fields


def _is_usual(row: dict[str, Any]) -> bool:
    """Whether all required fields are there and every field has its usual type."""
    created = row.get("created_utc")
    return (
        {"id", "score", "url", "created_utc"} <= row.keys()
        and isinstance(row["id"], str)
        and row["id"] != ""
        and row["url"] != ""
        and all(row.get(name) is None or isinstance(row[name], str) for name in STRINGS)
        and isinstance(row.get("is_self"), bool)
        and (row.get("over_18") is None or isinstance(row["over_18"], bool))
        and all(_is_number_or_null(row.get(name)) for name in ("score", "retrieved_on", "retrieved_utc"))
        and (_is_number_or_null(created) or (isinstance(created, str) and bool(_SECONDS.fullmatch(created))))
    )


def _reason(row: dict[str, Any], rule: PostRule) -> str | None:
    """Return the reason that `Judge.judge_post` returns."""
    score, url = row["score"], row["url"]
    created = None if row["created_utc"] is None else int(row["created_utc"])
    later = (row.get("_meta") or {}).get("retrieved_2nd_on")
    retrieved = later or row.get("retrieved_on") or row.get("retrieved_utc")
    if score is None:
        return "null_score"
    if url is None:
        return "null_url"
    if created is None:
        return "null_created"
    if rule.end is not None and created >= rule.end:
        return "too_late"
    if row.get("over_18") and not rule.keep_over_18:
        return "over_18"
    if row["is_self"] and not rule.keep_self_posts:
        return "self_post"
    if (row.get("subreddit") or "").lower() in rule.blocked_subreddits:
        return "blocked_subreddit"
    if rule.min_karma is not None and score < rule.min_karma:
        return "too_little_karma"
    is_fresh = rule.min_score_age is not None and retrieved is not None and retrieved - created < rule.min_score_age
    return "score_too_fresh" if is_fresh else None


class _Pairs(list[tuple[str, Any]]):
    """An object as (name, value) pairs, so that a repeated name is seen."""


def _plainly(value: Any) -> Any:
    """Return the value with all objects as dictionaries."""
    if isinstance(value, _Pairs):
        return {name: _plainly(each) for name, each in value}
    return [_plainly(each) for each in value] if isinstance(value, list) else value


def _is_twice(pairs: _Pairs, names: Sequence[str]) -> bool:
    found = [name for name, _ in pairs if name in names]
    return len(found) > len(set(found))


def _has_escapes(text: str, as_they_stand: Sequence[str]) -> bool:
    """Whether a key of the first two levels contains `\\u`, or one of these fields a backslash.

    A key with `\\u` could spell the name of one of our fields. In a line without this escape, `\\\\u` is harmless.
    """
    depth, key = 0, ""
    has_unicode = "\\u" in text.replace("\\\\", "")
    for match in _STRING_OR_BRACKET.finditer(text):
        if match["key"] is not None:
            key = match["key"]
            if has_unicode and depth <= 2 and "\\u" in key:
                return True
        elif depth == 1 and key in as_they_stand and "\\" in match[0]:
            return True
        depth += _STEPS.get(match[0], 0)
    return False


def _nesting(line: bytes) -> int:
    """Return how deep the objects and arrays of a line are nested."""
    steps = (_STEPS.get(match[0], 0) for match in _STRING_OR_BRACKET.finditer(line.decode("latin-1")))
    return max(itertools.accumulate(steps), default=0)


def _whole(digits: str) -> int:
    return int(digits) if len(digits) <= LONGEST_NUMBER else _refuse(digits)


def _broken(digits: str) -> float:
    return float(digits) if len(digits) <= LONGEST_NUMBER and "e" not in digits.lower() else _refuse(digits)


def _refuse(text: str) -> Any:
    raise _NotPlain(text)


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"(?! *:)|"(?P<key>(?:[^"\\]|\\.)*)"|[{}\[\]]')
_STEPS = {"{": 1, "[": 1, "}": -1, "]": -1}
_SECONDS = re.compile(rf"(?=.{{1,{LONGEST_NUMBER}}}$)-?[0-9]+")
