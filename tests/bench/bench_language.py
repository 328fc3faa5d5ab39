"""Language identification: accuracy on paragraphs in 25 languages, and speed, compared with py3langid.

    python tests/bench/bench_language.py [DATA]

Reads DATA/langid/manpages_paras.jsonl.xz (DATA defaults to WEBTEXT_TEST_DATA). The labels are the languages of the
packages that the paragraphs come from. Some paragraphs are English nevertheless, so 100 % can't be reached.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Callable
from pathlib import Path

from arguments import data_folder
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from webtext.clean.language import detect_language


def folded(code: str) -> str:
    """Return a label without its country; both written forms of Norwegian are one language."""
    code = code.replace("-", "_").split("_")[0]
    return "no" if code in ("nb", "nn") else code


def main(folder: Path) -> None:
    with lzma.open(folder / "langid" / "manpages_paras.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    detectors: dict[str, Callable[[str], str]] = {
        "webtext": lambda text: (detect_language(text) or ("", 0.0))[0],
        "py3langid": lambda text: str(identifier.classify(text)[0]),
    }
    answers: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    for name, detect in detectors.items():
        detect("the first call loads the model")
        start = time.process_time()
        answers[name] = [detect(row["text"]) for row in rows]
        seconds[name] = time.process_time() - start
        right = sum(folded(code) == folded(row["lang"]) for code, row in zip(answers[name], rows, strict=True))
        rate, ratio = len(rows) / seconds[name], seconds[name] / seconds["webtext"]
        print(
            f"{name:10} {right / len(rows):.4f} right, {rate:6,.0f} paragraphs per CPU second, webtext {ratio:.2f} times as fast"
        )
    same = sum(ours == theirs for ours, theirs in zip(*answers.values(), strict=True))
    print(f"the same answer for {same:,} of {len(rows):,}")


if __name__ == "__main__":
    main(data_folder(__doc__))
