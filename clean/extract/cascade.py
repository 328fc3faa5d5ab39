"""trafilatura's sequence of extractors, without the steps that can't change the result.

trafilatura extracts the main text by rules and compares it with readability's and, if it is short or unclean, with
justext's. A text that is still short is replaced by a plain dump. If the text covers little of the page, extraction is
repeated in recall mode (`trafilatura.core`, with comments off). Each step works on a copy of the entire tree. Here a
step is skipped

- if nothing in the page can match what it prunes, because the name doesn't occur in the source;
- if it wins only with more text than the page has, because no extractor finds more text than there is.

The text equals that of trafilatura 2.3.1 on all evaluation pages whose charset both decode alike (`tests/bench/
bench_extract.py` counts them), except on a page whose source writes a class name in character references.
"""

from __future__ import annotations

import functools
import logging
import re
from copy import copy
from typing import Any

from lxml import etree
from trafilatura.core import (
    ESCALATION_ACCEPT_RATIO,
    ESCALATION_JUSTEXT_RATIO,
    ESCALATION_MAX_LENGTH,
    ESCALATION_PAGE_SHARE,
)
from trafilatura.external import SANITIZED_XPATH
from trafilatura.htmlprocessing import convert_tags, prune_unwanted_nodes
from trafilatura.settings import Extractor
from trafilatura.xml import delete_element, xmltotxt
from trafilatura.xpaths import RAW_TREE_PRUNE_XPATH

from webtext.clean.extract.trafilatura_twin import (
    REMOVE_COMMENTS_AND_LISTS,
    baseline,
    compare_extraction,
    extract_content,
    html2txt,
    justext_rescue,
    remove_unlikely_candidates,
    tree_cleaning,
)

_FORUM = "DiscussionForumPosting"  # schema.org: on such a page the comments are the content
_PRUNED_FIRST = ("mvp-post-add", "infinite-scroll", "infinitescroll", "elementor-share-buttons")
_COMMENTS = ("article-comments", "post-comments", "comol", "disqus_thread", "dsq-comments")
_COMMENT = re.compile(r"""omment(?!ary)(?<=["'=][Cc]omment)""")  # letters first: a literal prefix is found fastest
_UNCLEAN = etree.XPath(SANITIZED_XPATH)
_PARAGRAPH_TEXT = etree.XPath("boolean(.//p//text())")
_N_TABLES = etree.XPath("count(.//table)")
_N_PARAGRAPHS = etree.XPath("count(.//p)")
_N_ELEMENTS = etree.XPath("count(//*)")


def main_text(tree: Any, html: str, *, fast: bool = False) -> str:
    """Return the main text of the page with source `html` and tree `tree` (changed in place); empty if there is none.

    `fast` skips readability and justext.
    """
    options = _options(fast=fast)
    if any(name in html for name in _PRUNED_FIRST):
        tree = prune_unwanted_nodes(tree, RAW_TREE_PRUNE_XPATH)
    if _FORUM not in html and (_COMMENT.search(html) or any(name in html for name in _COMMENTS)):
        tree = prune_unwanted_nodes(tree, REMOVE_COMMENTS_AND_LISTS)
    for element in list(tree.iter("script", "style")):  # here, not in each copy; keep JSON-LD, which `baseline` reads
        if element.tag == "style" or element.get("type") != "application/ld+json":
            delete_element(element)
    body, text = extract_content(lambda: convert_tags(tree_cleaning(copy(tree), options), options), options)
    n_page = _n_characters(tree)
    if not fast:
        body, text = _compared(tree, body, text, n_page, options)
    if len(text) < options.min_extracted_size:
        dump, dump_text, length = baseline(tree)
        if length > len(text):
            body, text = dump, dump_text
    if len(text) < ESCALATION_MAX_LENGTH and len(text) < ESCALATION_PAGE_SHARE * (n_page + 2 * int(_N_ELEMENTS(tree))):
        body, text = _retried(tree, body, text, options)
    return xmltotxt(body, False) if len(text) >= options.min_output_size else ""


def _compared(tree: Any, body: Any, text: str, n_page: int, options: Extractor) -> tuple[Any, str]:
    """Return the text, or readability's or justext's if one of them is better; the page has `n_page` characters."""
    if (
        len(text) < options.min_extracted_size
        or not _PARAGRAPH_TEXT(body)
        or _N_TABLES(body) > _N_PARAGRAPHS(body)
        or _UNCLEAN(body)
    ):
        return compare_extraction(tree_cleaning(copy(tree), options), copy(tree), body, text, options)
    if n_page <= 2 * len(text):  # readability wins only with more than twice the text
        return body, text
    raw = copy(tree)
    etree.strip_elements(raw, "script", with_tail=False)
    remove_unlikely_candidates(raw)  # readability's own first step; repeating it later is harmless
    if _n_characters(raw) <= 2 * len(text):
        return body, text
    return compare_extraction(tree_cleaning(copy(tree), options), raw, body, text, options)


def _n_characters(tree: Any) -> int:
    """Return an upper bound on the characters of the page's text without scripts, each run of whitespace as one."""
    scripts = sum(_n_of_text(element.text or "") for element in tree.iter("script"))
    return _n_of_text(tree.text_content()) - scripts


def _n_of_text(text: str) -> int:
    return len(" ".join(text.split()))


def _retried(tree: Any, body: Any, text: str, options: Extractor) -> tuple[Any, str]:
    """Return the text, or a much longer one (in recall mode, or justext's) if it covers little of the page."""
    if not 0 < len(text) < ESCALATION_PAGE_SHARE * len(html2txt(tree)):
        return body, text
    recall = _options(fast=options.fast, recall=True)
    cleaned = tree_cleaning(copy(tree), recall)
    found, found_text = extract_content(lambda: convert_tags(copy(cleaned), recall), recall)
    if not options.fast:
        found, found_text = compare_extraction(cleaned, copy(tree), found, found_text, recall)
        by_justext, justext_text = justext_rescue(copy(tree), options)
        if len(justext_text) > max(len(found_text), ESCALATION_JUSTEXT_RATIO * len(text)):
            return by_justext, justext_text
    if len(found_text) >= options.min_extracted_size and len(found_text) > ESCALATION_ACCEPT_RATIO * len(text):
        return found, found_text
    return body, text


@functools.cache
def _options(*, fast: bool, recall: bool = False) -> Extractor:
    """Return trafilatura's options; `tests/bench/bench_extract.py` compares them with others."""
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it logs every page without text
    return Extractor(
        output_format="python", comments=False, tables=True, formatting=False, dedup=False, fast=fast, recall=recall
    )
