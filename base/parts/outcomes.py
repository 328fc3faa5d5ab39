"""The exit code that follows from the counts of finished sets, and likely causes of an empty set.

A failed record is either an outcome that another run would only repeat (a dead link, a page nested too deep), or it is
unsettled: another run could change it. Only unsettled records cause exit code 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from webtext.base.console import Console, counted
from webtext.base.errors import InputError, RunFailed
from webtext.base.parts.counts import Counts, failed_lines
from webtext.base.parts.partset import FILE, PartSet

_COPY = "download the damaged files again, then rerun the same command"
_HOST = "crawl fetch with another --out asks the hosts again"
_ANEW = "; a crawl with other settings needs another --out"
_OURS = "rerun with a newer version, or look at the causes with: webtext inspect set"

UNSETTLED: Mapping[str, str] = {
    **dict.fromkeys(
        ("truncated_stream", "damaged_stream", "damaged_record", "record_cut_short", "archive_damaged"), _COPY
    ),
    **dict.fromkeys(("timed_out", "connection_failed", "dns_unanswered", "robots_unreachable"), _HOST),
    **dict.fromkeys(("host_kept_failing", "host_asked_to_wait", "archive_unavailable"), _HOST),
    **dict.fromkeys((f"http_{status}" for status in (408, 429, 500, 502, 503, 504)), _HOST),
    **dict.fromkeys(("raised", "fetcher_raised", "killed_worker"), _OURS),
}
"""Reason that another run could change -> what to do. Lines and rows that don't contain a record are outcomes."""

LIKELY_CAUSES: Mapping[str, str] = {
    "null_url": "a list's links must be in its column 'url'",
    "null_score": "--default-score sets the score of a list's rows" + _ANEW,
    "null_created": "--default-created sets the time of a list's rows" + _ANEW,
    "too_late": "--before none ([crawl.links] before) accepts posts of any time",
    "too_little_karma": "--min-karma ([crawl.links] and [clean.votes]) sets the minimum karma",
    "too_little_karma_sum": "--min-karma ([crawl.links] min_karma) sets the minimum karma",
    "address_not_public": "--allow-address HOST:PORT ([crawl.fetch] allow_address) allows an address in your network"
    + _ANEW,
    "contact_missing": "--contact ([crawl.fetch] contact) is the address that a site can write to" + _ANEW,
    "robots_disallowed": "the sites' robots.txt forbids it; use --from to get pages from archives",
    "dns_failed": "check the network and the name server of this machine",
    "other_language": "--language ([clean.language] language) names the languages to keep, 'all' for any",
    "uncertain_language": "--language all ([clean.language] language) keeps every language",
    "too_few_words": "--rule too_few_words=N ([clean.rules]) sets the minimum number of words",
    "not_http": "a list contains one http(s) URL per line",
    "no_text": "the text is read from the field 'text'; --text-field of shards pack and tokenizer train names another",
    "not_utf8": "--encoding names the encoding of the files, e.g. windows-1252; 'auto' detects it",
    "text_too_long": "shards pack --separator divides a text file into documents",
    "not_html": "the pages are neither HTML nor text",
    "duplicate_of_index": "an index named by --index contains all of them already",
}


def unsettled(counts: Counts) -> dict[str, int]:
    """Return reason -> number of records that another run could change, sorted by reason."""
    both = sorted((counts.dropped | counts.failed).items())
    return {reason: n for reason, n in both if reason in UNSETTLED}


def check_settled(*sets: PartSet, command: str = "") -> None:
    """Raise RunFailed (exit code 1) if another run could change failed records or fetch more links.

    The finished parts are kept.
    """
    check_counts({each.folder.url: each.counts for each in sets}, command)
    for each in sets:
        if not each.complete:
            raise RunFailed(
                f"'{each.folder.url}' is not complete: some links have no row yet",
                f"rerun the same command on a later day{f': {command}' if command else ''}",
            )


def check_counts(outputs: Mapping[str, Counts], command: str = "") -> None:
    """Raise RunFailed if another run could change records that failed; `outputs` are names of outputs and their counts."""
    found = {name: reasons for name, counts in outputs.items() if (reasons := unsettled(counts))}
    if not found:
        return
    total = sum(sum(reasons.values()) for reasons in found.values())
    listed = "; ".join(
        f"'{name}': " + ", ".join(f"{n:,} {reason}" for reason, n in reasons.items()) for name, reasons in found.items()
    )
    remedies = dict.fromkeys(UNSETTLED[reason] for reasons in found.values() for reason in reasons)
    raise RunFailed(
        f"{counted(total, 'record')} failed; another run could change their outcome ({listed})",
        "; ".join(remedies) + (f": {command}" if command else ""),
        "all other records are written",
    )


def why_empty(made: PartSet) -> tuple[str, ...] | None:
    """Return a message for a set that kept no record: its most frequent reason, an example and a remedy; else None."""
    counts = made.counts
    if made.records and counts.kept:
        return None
    if not counts.records_in:
        return f"kept 0 records in '{made.folder.url}': the input contains none", "check the input"
    reasons = counts.dropped | counts.failed
    most = max(sorted(reasons), key=lambda reason: reasons[reason])
    are = "is" if reasons[most] == 1 else "are"
    said = f"kept 0 of {counted(counts.records_in, 'record')} in '{made.folder.url}': {reasons[most]:,} {are} '{most}'"
    default = "a setting named obey_* turns the rule off" if most.startswith("opt_out_") else "see --help"
    example = next((f"{each.id}: {each.cause}"[:300] for each in made.failures() if each.reason == most), None)
    return tuple(filter(None, (said, example, LIKELY_CAUSES.get(most, default))))


def warn_of_failures(made: PartSet, console: Console) -> None:
    """Warn about the failed records of input files, by file."""
    by_file: dict[str, Counter[str]] = {}
    for part in made.parts if made.counts.failed else ():
        names = [source.part for source in part.sources if source.set == FILE]
        for failure in made.failures(part):
            place = failure.id if failure.id in names else failure.id.rpartition(":")[0]
            file = names[0] if len(names) == 1 else place if place in names else ""
            by_file.setdefault(file, Counter())[failure.reason] += 1
    by_file.pop("", None)
    if n_failed := sum(sum(reasons.values()) for reasons in by_file.values()):
        where = f"'{made.folder.location('part-*.failures.jsonl')}' has their causes"
        console.warn(f"{counted(n_failed, 'record')} failed; {where}\n{failed_lines(by_file)}")


def check_kept(*sets: PartSet) -> None:
    """Raise InputError (exit code 3) for the first set that kept no record, with the likely cause."""
    for made in sets:
        if said := why_empty(made):
            raise InputError(*said)
