"""The corpora that `bench_corpora.py` compares, made from the data folder by webtext's own stages.

Each experiment is a function from `Making` to `Made`: builds (tokens/ and tokenizer/) by name, of which the first is
the baseline, the validation set if it isn't the held-out documents, and notes for the reader. All builds of an experiment
hold out the same documents, and none trains on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_extract
from corpora_texts import (
    COPIES,
    DOCUMENT_CHARACTERS,
    EDITED_SHARE,
    cut,
    pieces,
    shuffled,
    texts_of,
    unextracted,
    with_copies,
)
from extraction_sets import read_evaluation

from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import dedup_documents, filter_documents, read_documents
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.text.clean_text import clean_text
from webtext.shards.settings import PackSettings
from webtext.shards.writing.pack import pack_shards
from webtext.tokenizer import Tokenizer

HELD_OUT_CHARACTERS = 100_000
VOCAB_SIZE = 2048
RULES = RuleSettings(profile="gopher", rule=("too_few_alphabetic_words=off",))
"""The disabled rule drops three quarters of this documentation, which is full of code."""
HELD_OUT_PAGES = 4
"""One in this many pages is held out; its wanted passages are validation text."""


@dataclass(frozen=True, slots=True)
class Making:
    """The data folder, the folder for corpora, and roughly how many characters a run reads."""

    data: Path
    out: Path
    n_characters: int
    run: Run

    def prose(self) -> list[str]:
        """Return documents of English documentation."""
        return pieces(self.data / "corpora/en.txt.xz")

    def write(self, name: str, train: Iterable[str], held_out: Iterable[str]) -> str:
        """Write a file of documents, which any verb can read; return its path."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{name}.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for split, texts in (("train", train), ("validation", held_out)):
                for i, text in enumerate(texts):
                    row = {"id": f"{split}-{i:06d}", "text": text, "split": split}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return str(path)

    def documents(self, name: str, train: Iterable[str], held_out: Iterable[str]) -> PartSet:
        """Write a documents set without dropping anything."""
        return read_documents([self.write(name, train, held_out)], str(self.out / name), self.run)

    def pack(self, sets: Mapping[str, PartSet], vocab_size: int = VOCAB_SIZE) -> dict[str, str]:
        """Pack the sets as builds with one tokenizer, which is trained on the training documents of all of them."""
        tokenizer = Tokenizer.train([text for each in sets.values() for text in texts_of(each)], vocab_size)
        return {name: self.build(name, documents, tokenizer) for name, documents in sets.items()}

    def build(self, name: str, documents: PartSet, tokenizer: Tokenizer) -> str:
        """Pack one build; return its folder."""
        folder = self.out / "builds" / name
        place = folder / "tokenizer/tokenizer.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(place)
        pack_shards(documents.folder.url, str(place), str(folder / "tokens"), PackSettings(), self.run)
        return str(folder)


@dataclass(frozen=True, slots=True)
class Made:
    """An experiment's builds by name, notes on what was done, and the validation set's file; None: what is held out."""

    builds: Mapping[str, str]
    notes: Sequence[str]
    validation: str | None = None


def duplicates(making: Making) -> Made:
    """A corpus in which a third of the documents have three to ten edited copies, and the same corpus after dedup."""
    whole = making.prose()[: 2 * (making.n_characters + HELD_OUT_CHARACTERS) // DOCUMENT_CHARACTERS]
    plain = dedup_documents(
        [making.write("plain", whole, ())], str(making.out / "plain"), DedupSettings(), making.run
    ).corpus
    held_out, originals = cut(texts_of(plain), HELD_OUT_CHARACTERS)
    originals = cut(originals, making.n_characters)[0]
    planted = with_copies(originals)
    file = making.write("planted", planted, held_out)
    result = dedup_documents([file], str(making.out / "planted"), DedupSettings(), making.run)
    return Made(
        making.pack({"planted": result.documents, "deduplicated": result.corpus}),
        [
            f"{len(originals):,} documents without near-duplicates, of which a third were copied {COPIES[0]} to {COPIES[1]} "
            f"times, {EDITED_SHARE:.1%} of the words of a copy replaced: {len(planted):,}; dedup left "
            f"{sum(1 for _ in texts_of(result.corpus)):,}",
            f"held out: {len(held_out)} other documents, which have no near-duplicates in either",
        ],
    )


def rules(making: Making) -> Made:
    """A corpus of documents and as much rubbish (all text of real pages, not extracted), and what the rules keep."""
    held_out, prose = cut(making.prose(), HELD_OUT_CHARACTERS)
    prose = cut(prose, 1.2 * making.n_characters)[0]
    rubbish = cut(shuffled(unextracted(making.data)), 1.2 * making.n_characters)[0]
    file = making.write("mixed", shuffled([*prose, *rubbish]), held_out)
    result = filter_documents([file], str(making.out / "mixed"), RULES, LanguageSettings(), making.run)
    kept = texts_of(result.corpus)
    n_rubbish = len(set(kept) & {clean_text(text) for text in rubbish})
    return Made(
        making.pack({"rules off": result.documents, "rules on": result.corpus}),
        [
            f"{len(prose):,} documents of documentation and {len(rubbish):,} pieces of unextracted pages, all text nodes but "
            f"scripts and styles; the rules keep {len(kept) - n_rubbish:,} and {n_rubbish:,}",
            f"rules: profile {RULES.profile}, {' '.join(RULES.rule)}; held out: documentation that the rules keep",
        ],
    )


def extractors(making: Making) -> Made:
    """The evaluation pages, extracted by both extractors, each filled up with the same documentation."""
    pages = read_evaluation(making.data)
    judges, rest = pages[::HELD_OUT_PAGES], [page for i, page in enumerate(pages) if i % HELD_OUT_PAGES]
    held_out, prose = cut(making.prose(), HELD_OUT_CHARACTERS)
    texts = {
        name: [text for text in bench_extract.by_clean_extract(rest, extractor=name) if text]
        for name in ("blocks", "resiliparse")
    }
    n_missing = max(0, making.n_characters - sum(map(len, texts["blocks"])))
    base = cut(prose, n_missing)[0]
    passages = making.write("wanted-passages", (), ("\n".join(page.wanted) for page in judges))
    told = ", ".join(f"{name} {sum(map(len, of)):,} characters of {len(of)}" for name, of in texts.items())
    sets = {name: making.documents(name, shuffled([*of, *base]), held_out) for name, of in texts.items()}
    return Made(
        making.pack(sets),
        [
            f"{len(rest)} pages: {told}; both with the same {sum(map(len, base)):,} characters of documentation",
            f"judged by the wanted passages of {len(judges)} other pages",
        ],
        passages,
    )


EXPERIMENTS: Mapping[str, Callable[[Making], Made]] = {
    "dedup": duplicates,
    "quality": rules,
    "extractors": extractors,
}
