"""Changed thresholds: wall seconds to decide again, for documents whose signals exist.

    python tests/bench/bench_redecide.py [DOCUMENTS]

Generates short documents (JSON lines of about 20 words), imports and measures them once, and then runs the command with
other rules: as a dry run, which reads only signals, and with two workers writing corpus and dropped again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arguments import positional

N_DOCUMENTS = 100_000


def filter_(*arguments: str) -> float:
    """Run `webtext clean filter` once; return its seconds."""
    begun = time.perf_counter()
    command = [str(Path(sys.executable).with_name("webtext")), "clean", "filter", *arguments, "--language", "all"]
    subprocess.run([*command, "--workers", "2", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main(n_documents: int) -> None:
    chance = random.Random(1)
    words = [f"word{i}" for i in range(5000)]
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "texts.jsonl")
        with texts.open("w") as file:
            for number in range(n_documents):
                text = " ".join(chance.choices(words, k=chance.randrange(5, 35)))
                file.write(json.dumps({"id": str(number), "text": text}) + "\n")
        first = filter_(str(texts), "--out", folder)
        print(f"{n_documents:,} documents: imported, measured and decided in {first:.1f} s; decided again:")
        documents = f"{folder}/documents"
        for profile in ("webtext", "fineweb"):
            seconds = filter_(documents, "--out", folder, "--profile", profile, "--dry-run")
            print(f"  dry run, {profile}: {seconds:.1f} s")
        again = filter_(documents, "--out", folder, "--rule", "too_few_words=20")
        print(f"  corpus and dropped with another threshold: {again:.1f} s")


if __name__ == "__main__":
    main(*positional(__doc__, documents=N_DOCUMENTS))
