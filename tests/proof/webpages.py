"""Articles, forums and shops whose text is known, as hosts of their own, and an extractor's model that never saw them.

WCXB's and trafilatura's pages are halved by domain. One half is served. From the other, and from gold's training split, a
model is learned as tests/learn/extractor.py learns the package's, which saw both. WCXB's articles of that half are texts to
judge by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "bench")]
from extraction_sets import read_set  # noqa: E402
from learn.examples import SCORED, read_examples, read_gold  # noqa: E402
from learn.extractor import learn  # noqa: E402

SERVED, HALVES = 0, 2
HOOK = """\
# Every Python that has this folder in PYTHONPATH takes the model beside this file for the package's.
import importlib.resources
import pathlib

plain = importlib.resources.files
here = pathlib.Path(__file__).parent
importlib.resources.files = lambda name: here if name == "webtext.clean.extract" else plain(name)
"""


def take(data: Path, gold: Path | None, out: Path) -> list[str]:
    """Write the served pages as site/DOMAIN/*.html, the model under extractor/ and articles.json; return the domains."""
    examples = read_examples(data)
    domains = {(each.set_name, each.identifier): each.domain for each in examples}
    served = {(each.set_name, each.identifier) for each in examples if each.is_in(SERVED, HALVES)}
    articles = []
    for page in (page for name in SCORED for page in read_set(name, data)):
        domain = domains[page.set, page.name]
        if (page.set, page.name) in served:
            target = out / "site" / domain.replace("/", "_") / page.set / f"{Path(page.name).stem}.html"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(page.body)
        elif page.kind == "article" and page.text:
            articles.append((domain, page.text))
    others = [each for each in examples if (each.set_name, each.identifier) not in served]
    hook = out / "extractor/sitecustomize.py"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.with_name("model.json").write_text(learn(others + (read_gold(gold) if gold else [])), encoding="utf-8")
    (out / "articles.json").write_text(json.dumps(articles))
    return sorted({domains[each].replace("/", "_") for each in served})
