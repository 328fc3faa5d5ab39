"""Private copies of trafilatura's modules, in which some functions are replaced by faster, equivalent ones.

Replaced are expressions over names (`expressions.py`), boilerplate removal by link density, tree cleaning,
readability's first step, and justext's paragraphs (`paragraphs.py`). Everything else is trafilatura's code, and the
modules that others import are unchanged. The copies don't support precision mode, or images and links in the text.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from lxml import etree
from trafilatura import htmlprocessing as _html
from trafilatura import xpaths as _xpaths
from trafilatura.readability_lxml import FRAME_TAGS, REGEXES, Document
from trafilatura.settings import BASIC_CLEAN_XPATH, MANUALLY_CLEANED, MANUALLY_STRIPPED, MIN_DUPLICATE_LENGTH, Extractor
from trafilatura.utils import SPACING_PROTECTED, trim
from trafilatura.xml import delete_element

from webtext.clean.extract.expressions import expression
from webtext.clean.extract.paragraphs import justext_body

MAX_SHORT, MIN_PARTS = 100, 3
"""A short `div` with links is removed below this length and from this number of children; trafilatura's values."""


def _expressions(paths: Sequence[Any], *, first: bool = False) -> list[Any]:
    return [expression(path, first=first) for path in paths]


REMOVE_COMMENTS_AND_LISTS = _expressions(_xpaths.REMOVE_COMMENTS_AND_LISTS_XPATH)
_OVERALL = _expressions(_xpaths.OVERALL_DISCARD_XPATH)
_CAPTIONS = _expressions(_xpaths.DISCARD_IMAGE_ELEMENTS)
_TEASERS = _expressions(_xpaths.TEASER_DISCARD_XPATH)
_UNLIKELY, _MAYBE = REGEXES["unlikelyCandidatesRe"], REGEXES["okMaybeItsACandidateRe"]


def tree_cleaning(tree: Any, options: Extractor) -> Any:
    """Remove elements whose tag marks them as non-text, searching only for tags that occur in the tree."""
    if options.focus == "recall":
        return _html.tree_cleaning(tree, options)
    _html.recover_math(tree)
    for element in tree.iter("figure", "table"):
        if element.tag == "figure":
            is_layout = element.find(".//table") is not None
        else:
            is_layout = element.get("role") in ("presentation", "none")
        if is_layout:
            element.tag = "div"
    etree.strip_tags(tree, MANUALLY_STRIPPED)
    there = {element.tag for element in tree.iter(*MANUALLY_CLEANED)}
    for tag in MANUALLY_CLEANED:  # one walk per tag, because a walk ends if its current element is removed
        if tag in there and tag != "form":
            for element in tree.iter(tag):
                delete_element(element)
    if "form" in MANUALLY_CLEANED:
        _html._handle_forms(tree)
    return _html.prune_html(tree, options.focus)


def extract_content(cleaned: Callable[[], Any], options: Extractor) -> tuple[Any, str]:
    """Return the main text's body element and text by trafilatura's rules; `cleaned` makes the cleaned tree.

    If the rules find too little, `cleaned` is called again and the entire page is searched, on one page in nine.
    trafilatura copies every tree in case that happens.
    """
    body, text, _ = _main._extract(cleaned(), options)
    if len(body) == 0 or len(text) < options.min_extracted_size:
        found: tuple[Any, str] = _main.extract_content(cleaned(), options)
        return found
    previous = None
    for element in list(body):
        own = trim("".join(element.itertext()))
        if own and own == previous and len(own) > MIN_DUPLICATE_LENGTH:
            delete_element(element, keep_tail=False)
        else:
            previous = own
    etree.strip_elements(body, "done")
    etree.strip_tags(body, "div")
    for element in body.iter("lb"):
        if element.tail and element.tail.isspace() and next(element.iterancestors(*SPACING_PROTECTED), None) is None:
            element.tail = None
    return body, text


def _prune_unwanted_sections(tree: Any, tags: set[str], options: Extractor, keep_teasers: bool = False) -> Any:
    """Remove elements that are boilerplate by their names or by their link density."""
    tree = _html.prune_unwanted_nodes(tree, _OVERALL, with_backup=True)
    _html.prune_unwanted_nodes(tree, _CAPTIONS)
    if options.focus != "recall" and not keep_teasers:
        _html.prune_unwanted_nodes(tree, _TEASERS)
    for _ in range(2):
        removed = [_delete_by_link_density(tree, tag) for tag in ("div", "list", "p")]
        if not any(removed):
            break
    if "table" in tags:
        for table in [each for each in tree.iter("table") if _html.link_density_test_tables(each)]:
            delete_element(table, keep_tail=False)
    etree.strip_tags(tree, "span", "ref")
    return tree


def _delete_by_link_density(tree: Any, tag: str) -> bool:
    """Remove elements of this tag by link density; return whether any was removed."""
    removed = []
    for element in tree.iter(tag):
        if next(element.iter("ref"), None) is None:
            continue
        is_farm, is_short = _html.link_density_test(element)
        if not is_farm and tag == "div" and is_short and len(element) >= MIN_PARTS:
            is_farm = len(trim(element.text_content())) < MAX_SHORT
        if is_farm and not (tag == "p" and _is_in_item(element)):
            removed.append(element)
    for element in removed:
        delete_element(element)
    return bool(removed)


def _is_in_item(element: Any) -> bool:
    parent = element.getparent()
    return parent is not None and parent.tag in ("item", "td", "th")


def remove_unlikely_candidates(tree: Any) -> None:
    """Remove elements whose class and id mark them, by readability's rules, as not part of an article."""
    verdicts: dict[str, bool] = {}
    for element in list(tree.iterdescendants("*")):
        class_name, identifier = element.get("class"), element.get("id")
        named = f"{class_name} {identifier}" if class_name and identifier else class_name or identifier
        if not named or len(named) < 2:
            continue
        verdict = verdicts.get(named)
        if verdict is None:
            lower = named.lower()
            verdict = verdicts[named] = bool(_UNLIKELY.search(lower)) and not _MAYBE.search(lower)
        if verdict and element.tag not in FRAME_TAGS:
            delete_element(element)


class Readability(Document):
    """readability with a faster first step."""

    def remove_unlikely_candidates(self) -> None:
        remove_unlikely_candidates(self.doc)


def _twin(name: str, **exchanged: Any) -> Any:
    """Load a private copy of a trafilatura module, with some of its names replaced."""
    spec = importlib.util.find_spec(f"trafilatura.{name}")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert vars(module).keys() >= exchanged.keys(), exchanged.keys() - vars(module).keys()
    vars(module).update(exchanged)
    return module


_main = _twin(
    "main_extractor",
    BODY_XPATH=_expressions(_xpaths.BODY_XPATH, first=True),
    prune_unwanted_sections=_prune_unwanted_sections,
)
_base = _twin("baseline", BASIC_CLEAN_XPATH=expression(BASIC_CLEAN_XPATH))
_external = _twin(
    "external",
    ReadabilityDocument=Readability,
    basic_cleaning=_base.basic_cleaning,
    try_justext=justext_body,
    tree_cleaning=tree_cleaning,
)
baseline: Callable[[Any], tuple[Any, str, int]] = _base.baseline
html2txt: Callable[[Any], str] = _base.html2txt
compare_extraction: Callable[[Any, Any, Any, str, Extractor], tuple[Any, str]] = _external.compare_extraction
justext_rescue: Callable[[Any, Extractor], tuple[Any, str]] = _external.justext_rescue
