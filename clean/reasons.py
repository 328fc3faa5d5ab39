"""Why a page or a record did not become a document: all reasons of extraction and import.

The reasons of rules are in `rules/thresholds.py`, `rules/decide.py` and `rules/votes.py`, those of removals in
`removals.py`, of dedup in `dedup/settle.py`, of decontamination in `decontaminate/comparison.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webtext.base.inputs.files import Refused as Refused  # also a name of this module
from webtext.base.web.opt_outs import PAGE_OPT_OUTS

TOO_MANY_BYTES = "too_many_bytes"

DROPPED: Mapping[str, str] = {
    "status_not_ok": "an archived answer whose HTTP status is neither 200 nor 203",
    "not_html": "neither HTML nor text by its Content-Type or first bytes",
    "empty_text": "no text is left",
    "unchanged_revisit": "a WARC revisit of the same URL whose earlier capture is not in the input",
    TOO_MANY_BYTES: "the text, or another string of an imported record, has more than 10 MB in UTF-8",
    "repeated_record": "the same capture as an earlier one",
    **{f"opt_out_{reason}": each.meaning for reason, each in PAGE_OPT_OUTS.items()},
}
"""Reason -> meaning. A rule dropped the record."""

FAILED: Mapping[str, str] = {
    "body_too_large": "the decoded body has more than 10 MB",
    "too_many_nodes": "more than 250,000 tags, or tens of thousands of attributes, empty tags or list items in one place",
    "too_deep": "elements nested deeper than 250",
    "too_large_for_trafilatura": "more than 10,000 elements or 300,000 characters with `--extractor trafilatura`",
    "undecodable": "no charset that was tried decodes nine tenths of the body",
    "damaged_body": "the body's content coding is broken from the start",
    "unknown_content_coding": "a content coding other than gzip, deflate, br and zstd",
    "too_many_content_codings": "more than two content codings",
    "too_many_chunks": "more than 500,000 chunks of HTTP's chunked coding",
    "damaged_record": "bytes in a WARC or ARC file that are not a record",
    "original_not_found": "a WARC revisit of another URL whose capture is not in the input",
    "damaged_http": "the record doesn't contain an HTTP response",
    "record_cut_short": "the WARC file ends inside the record",
    "record_too_large": "the WARC record is above 64 MiB",
    "not_json": "an imported line that is not a JSON object",
    "line_too_long": "an imported line of more than 64 MiB",
    "text_too_long": "an imported text file of more than 128 MiB",
    "not_utf8": "an imported row or line with a string that is not UTF-8",
    "value_out_of_range": "an imported Parquet row with a time after the year 9999",
    "expands_too_much": "an imported Parquet file that decodes to more than 128 times its size",
    "no_text": "an imported record without text",
    "karma_not_integer": "an imported record whose karma is not a whole number of 64 bits",
    "split_not_text": "an imported record whose split is not a string",
    "repeated_id": "an imported record with the id of an earlier one",
    "raised": "the extractor raised an error",
    "killed_worker": "its worker crashed, hung or exceeded its memory twice",
}
"""Reason -> meaning. The record could not be processed; the part's `.failures.jsonl` lists it with its cause."""


class TooMuch(ValueError):
    """A page exceeds a bound; `reason` is the key under which it is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A body or record that doesn't become a document, and the drop reason."""

    reason: str
