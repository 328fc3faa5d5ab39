"""Phrases that read like a translation stay out of docstrings, comments, messages and pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {  # pattern of complete words -> what to write instead
    r"(?<![Tt]here )(is|are|was|were) no (?!(longer|more|less|matter|need|way|such|point)\b)[a-z]\w*": "is not a …",
    r"anew": "again",
    r"beforehand": "before",
    r"at hand": "available, or the current …",
    r"reckon(s|ed|ing)?": "estimate",
    r"held (against|to)": "compared with, must equal",
    r"(refused?|rejected|named|ended|told) by name": "rejected with an error that names it",
    r"(go|goes|went|going) on": "continue, resume",
    r"(is|are|was|were|be|been) told|tells? of|told of": "printed, reported",
    r"strangers": "untrusted",
    r"fates?": "decision",
    r"wishes": "opt-outs",
    r"for want of": "without",
    r"what was taken back": "deleted or retracted",
    r"(lies?|lay) (in|on|at|under|beside|below|above|behind|between|there|one)": "is in …",
    r"(stands?|stood) (in|on|at|for|under|beside|there|where)": "is, appears, means",
    r"\d[\d.,]* [a-zA-Z]+ an? (GB|MB|page|document|token|part|second|step|worker|row|core|link|piece|byte|line)": "per …",
}
TEXTS = ("*.py", "*.pyi", "*.md", "*.toml", "*.hpp", "*.cpp")


def texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *TEXTS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        ROOT / name for name in listed.splitlines() if (ROOT / name).is_file() and name != "tests/base/test_english.py"
    ]


def found(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    places = sorted(
        (m.start(), m[0], instead)
        for pattern, instead in PHRASES.items()
        for m in re.finditer(rf"(?:{pattern})\b", text)
        if not re.match(r"\w", text[m.start() - 1 : m.start()])  # a leading \b would take four times as long
    )
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}: '{phrase}', write: {instead}"
        for at, phrase, instead in places
    ]


def test_no_text_of_the_project_reads_like_a_translation() -> None:
    listed = texts()
    if not listed:
        pytest.skip("not a git checkout")
    assert not (bad := [line for path in listed for line in found(path)]), "\n".join(bad)


if __name__ == "__main__":  # python tests/base/test_english.py FOLDER...
    wanted = tuple(sys.argv[1:])
    print("\n".join(line for path in texts() if str(path.relative_to(ROOT)).startswith(wanted) for line in found(path)))
