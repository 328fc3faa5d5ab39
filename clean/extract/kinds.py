"""The kind of a page, estimated from what its markup states about it and from the sizes of its blocks.

Facts are read from `<meta>` (Open Graph, the generator), schema.org's types, the canonical URL's path, and the names of
`<html>` and `<body>`. Their weights are learned (multinomial logistic regression), like those of the page's sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from lxml import etree

from webtext.clean.extract.features import name_parts

KINDS = ("article", "forum", "documentation", "product", "listing", "collection", "service")
"""WCXB's kinds: a listing shows teasers of articles, a collection shows products, a service is a firm's or project's page."""
MAX_FACTS = 400

_SCHEMA_TYPE = re.compile(r'"@type"\s*:\s*"([A-Za-z]{1,40})"')
_ITEM_TYPES = etree.XPath("//@itemtype", smart_strings=False)
_LETTERS = re.compile("[a-z]+")


def page_facts(tree: Any, html: str) -> set[str]:
    """Return the statements of a page (source `html`, tree `tree`) about itself, as short strings."""
    facts = {f"type {each[1]}" for each in islice(_SCHEMA_TYPE.finditer(html), MAX_FACTS)}
    urls = [link.get("href") or "" for link in tree.iter("link") if link.get("rel") == "canonical"]
    for meta in islice(tree.iter("meta"), MAX_FACTS):
        name = (meta.get("property") or meta.get("name") or "").lower()
        content = (meta.get("content") or "")[:1000]
        facts.add(f"meta {name[:40]}")
        if name == "og:type":
            facts.add(f"og {content.strip().lower()[:40]}")
        elif name == "generator":
            facts.update(f"generator {word}" for word in _LETTERS.findall(content.lower())[:2])
        elif name == "og:url":
            urls.append(content)
    for url in urls[:2]:
        try:
            path = urlsplit(url[:1000]).path
        except ValueError:
            continue
        facts.update(f"path {part}" for part in name_parts(path))
        facts.add(f"depth {path.strip('/').count('/')}")
    facts.update(f"item {each.rsplit('/', 1)[-1][:40]}" for each in _ITEM_TYPES(tree)[:MAX_FACTS])
    for element in (tree, *islice(tree.iter("body"), 1)):
        names = f"{element.get('class') or ''} {element.get('id') or ''}"
        facts.update(f"{element.tag} {part}" for part in name_parts(names))
    return facts


def kind_probabilities(
    facts: set[str], sizes: npt.NDArray[Any], weights: Mapping[str, Sequence[float]], of_sizes: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the probability of each of KINDS; `of_sizes` is [n_sizes + 1, n_kinds], its last row the intercept."""
    total = np.append(sizes, 1.0) @ of_sizes
    for fact in sorted(facts & weights.keys()):
        total += np.array(weights[fact])
    powers = np.exp(total - total.max())
    return np.asarray(powers / powers.sum())
