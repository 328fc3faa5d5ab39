"""Whether Hugging Face tokenizers 1.0, a release candidate, reads our files and returns our ids. Run by hand:

    python -m venv build/hf && build/hf/bin/pip install --pre 'tokenizers>=1.0.0rc0'
    python tests/tokenizer/hf_1_0.py build/hf/bin/python

It can't be installed beside 0.23, the oracle of the other tests.
"""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from webtext.tokenizer import Tokenizer
from webtext.tokenizer.patterns.named import REGEXES

LETTERS = "aB 1９²Ⅷ\n\r\t.,!'s<>-_/क東ひカ한éÅ😀\u200d\x00\x1c\u00a0\u3000\u0661\u0301\u0316\u0345\u093c\u0958\u212b"
DEEPSEEK_V3 = (  # with real line ends, as in its file: 1.0 compares expressions with those that it knows
    "\\p{N}{1,3}(?#then)[一-龥\u3040-ゟ゠-ヿ]+(?#then)"
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
SPECIALS = ["<|endoftext|>", "<|e|>", "<think>"]
CHECK = """
import json, sys
import tokenizers
print("tokenizers", tokenizers.__version__)
texts = json.load(open(sys.argv[1] + "/texts.json"))
for name, wanted in json.load(open(sys.argv[1] + "/ids.json")).items():
    try:
        theirs = tokenizers.Tokenizer.from_file(f"{sys.argv[1]}/{name}.json")
        found = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    except ValueError as error:
        print(f"{name:14}rejected: {error}")
        continue
    pairs = zip(wanted["ids"], wanted["texts"])
    decoded = sum(theirs.decode(ids, skip_special_tokens=False) != text for ids, text in pairs)
    differ = [text for text, ids, ours in zip(texts, found, wanted["ids"]) if ids != ours]
    print(f"{name:14}{len(differ):5} of {len(texts):,} texts have other ids, {decoded} decode to others", *differ[:3])
"""


def tokenizers_of(texts: list[str]) -> dict[str, Tokenizer]:
    """Return a tokenizer for each pattern, and for each way to prepare a text, whose merges show a wrong cut."""
    plain = [text for text in texts if "<" not in text]
    found = {name: Tokenizer.train(plain, 1200, name, SPECIALS) for name in REGEXES}
    found["regex"] = Tokenizer.train(plain, 1200, r"\p{N}{1,3}+| ?[^\s\p{N}]++|\s+(?!\S)|\s+", SPECIALS)
    found["DeepSeek-V3"] = Tokenizer.train(plain, 1200, DEEPSEEK_V3, SPECIALS)
    vocabulary = found["gpt2"]._vocabulary
    changes: dict[str, dict[str, Any]] = {
        "NFC": {"normalizer": "NFC"},
        "prefix space": {"prefix_space": True},
        "not special": {"always": frozenset({"<think>"})},
    }
    return found | {name: Tokenizer(dataclasses.replace(vocabulary, **change)) for name, change in changes.items()}


def main(python: str) -> None:
    """Write the files, and let the other interpreter compare."""
    chance = random.Random(7)
    texts = ["".join(chance.choices(LETTERS, k=chance.randint(0, 40))) for _ in range(3000)]
    texts += [text + chance.choice(SPECIALS) + text[::-1] for text in texts[:500]]
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for name, tokenizer in tokenizers_of(texts).items():
            tokenizer.save(Path(folder, f"{name}.json"))
            ids = tokenizer.encode_batch(texts, allowed_special="all")
            expected[name] = {"ids": ids, "texts": tokenizer.decode_batch(ids)}
        Path(folder, "texts.json").write_text(json.dumps(texts))
        Path(folder, "ids.json").write_text(json.dumps(expected))
        subprocess.run([python, "-c", CHECK, folder], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
