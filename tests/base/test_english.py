"""Phrases that read like a translation stay out of docstrings, comments, messages and pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {  # pattern -> what to write instead
    r"(?<![Tt]here )\b(is|are|was|were) no (?!(longer|more|less|matter|need|way|such|point)\b)[a-z]": "is not a …",
    r"\banew\b": "again",
    r"\bbeforehand\b": "before",
    r"\bat hand\b": "available, or the current …",
    r"\breckon(s|ed|ing)?\b": "estimate",
    r"\bheld (against|to)\b": "compared with, must equal",
    r"\b(refused?|rejected|named|ended|told) by name\b": "rejected with an error that names it",
    r"\b(go|goes|went|going) on\b": "continue, resume",
    r"\b(is|are|was|were|be|been) told\b|\btells? of\b|\btold of\b": "printed, reported",
    r"\bstrangers\b": "untrusted",
    r"\bfates?\b": "decision",
    r"\bwishes\b": "opt-outs",
    r"\bfor want of\b": "without",
    r"\bwhat was taken back\b": "deleted or retracted",
    r"\b(lies?|lay) (in|on|at|under|beside|below|above|behind|between|there|one)\b": "is in …",
    r"\b(stands?|stood) (in|on|at|for|under|beside|there|where)\b": "is, appears, means",
    r"\b\d[\d.,]* [a-zA-Z]+ an? (GB|MB|page|document|token|part|second|step|worker|row|core|link|piece|byte|line)\b": "per …",
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
        (m.start(), m[0], instead) for pattern, instead in PHRASES.items() for m in re.finditer(pattern, text)
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
