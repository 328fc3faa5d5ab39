"""What `webtext train compare` found of the models of two builds: which is better, or whether chance alone speaks."""

from __future__ import annotations

import statistics
from typing import Any

from webtext.app.diff_recipes import Built
from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.train.experiments.compare import BETTER, COMPARISON, OVERALL, WORSE

TURNED = {BETTER: WORSE, WORSE: BETTER}


def read_comparison(url: str, a: Built, b: Built) -> dict[str, Any]:
    """{folder, verdict, p, bits_per_byte of A and B} of the comparison in folder `url`, B judged against A.

    InputError where there is none, or where it is not of these builds' tokens.
    """
    folder = Folder(url)
    if not folder.exists(COMPARISON):
        raise InputError(f"there is no {COMPARISON} in '{url}'", "name the folder that `webtext train compare` wrote")
    found = folder.read_object(COMPARISON, "compare the models again")
    try:
        return {"folder": url} | _verdict(found, _names(found, url, a, b))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InputError(f"'{folder.location(COMPARISON)}' is no comparison", "compare the models again") from None


def _names(found: dict[str, Any], url: str, a: Built, b: Built) -> tuple[str, str]:
    """What the comparison calls the corpora of A and of B: those of the same tokens."""
    by_hash = {corpus["tokens_hash"]: str(corpus["name"]) for corpus in found["corpora"]}
    names = []
    for built in (a, b):
        tokens = built.sets.get("tokens")
        if tokens is None or tokens.hash not in by_hash:
            raise InputError(
                f"'{url}' compares no model that was trained on the tokens of '{built.root}'",
                "give `webtext train compare` these two builds",
            )
        names.append(by_hash[tokens.hash])
    return names[0], names[1]


def _verdict(found: dict[str, Any], names: tuple[str, str]) -> dict[str, Any]:
    """The judgement over all sets; all are against the first corpus, so that of A against B is turned round."""
    first = found["corpora"][0]["name"]
    of = {each["corpus"]: each for each in found["judgements"] if each["set"] == OVERALL}
    means = [statistics.fmean(found["bits_per_byte"][OVERALL][name]) for name in names]
    judgement = of[names[1]] if names[0] == first else of[names[0]] if names[1] == first else None
    verdict, p = "not judged against each other", None
    if judgement is not None:
        verdict, p = str(judgement["verdict"]), judgement["p"]
        verdict = verdict if names[0] == first else TURNED.get(verdict, verdict)
    return {"verdict": verdict, "p": p, "bits_per_byte": {"a": means[0], "b": means[1]}}
