"""The corpora that `bench_corpora.py` compares, made of the data folder by webtext's own stages.

Each experiment is a function from `Making` to `Made`: builds (tokens/ beside tokenizer/) by name, the first of them what the
others are judged against, the evaluation texts, and what a reader must know. Within an experiment all builds hold out the
same documents, and none of them trains on one.
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

from webtext.base.partset import PartSet
from webtext.base.run import Run
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import dedup_documents, filter_documents, read_documents
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.text import clean_text
from webtext.shards.pack import pack_shards
from webtext.shards.settings import PackSettings
from webtext.tokenizer import Tokenizer

HELD_OUT_CHARACTERS = 100_000
VOCAB_SIZE, LARGE_VOCAB_SIZE = 2048, 8192
CODE_SHARES = (0.0, 0.2, 0.5)
RULES = RuleSettings(profile="gopher", rule=("too_few_alphabetic_words=off",))
"""The rule that is off drops three of four pieces of this documentation, which is full of code."""
HELD_OUT_PAGES = 4
"""Every so many-th page is held out: of it the wanted passages are the evaluation text."""


@dataclass(frozen=True, slots=True)
class Making:
    """Where the data lies, where corpora are written, and about how many characters a run reads."""

    data: Path
    out: Path
    n_characters: int
    run: Run

    def prose(self) -> list[str]:
        """Documents of English documentation."""
        return pieces(self.data / "corpora/en.txt.xz")

    def code(self) -> list[str]:
        """Documents of C and Python."""
        return pieces(self.data / "corpora/code.txt.xz")

    def write(self, name: str, train: Iterable[str], held_out: Iterable[str]) -> str:
        """A file of documents, as any verb reads them; its path."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{name}.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for split, texts in (("train", train), ("validation", held_out)):
                for i, text in enumerate(texts):
                    row = {"id": f"{split}-{i:06d}", "text": text, "split": split}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return str(path)

    def documents(self, name: str, train: Iterable[str], held_out: Iterable[str]) -> PartSet:
        """A set of documents with nothing left out."""
        return read_documents([self.write(name, train, held_out)], str(self.out / name), self.run)

    def pack(self, sets: Mapping[str, PartSet], vocab_size: int = VOCAB_SIZE) -> dict[str, str]:
        """The sets as builds of one tokenizer, learned from what all of them train on together."""
        tokenizer = Tokenizer.train([text for each in sets.values() for text in texts_of(each)], vocab_size)
        return {name: self.build(name, documents, tokenizer) for name, documents in sets.items()}

    def build(self, name: str, documents: PartSet, tokenizer: Tokenizer) -> str:
        """One build; its folder."""
        folder = self.out / "builds" / name
        place = folder / "tokenizer/tokenizer.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(place)
        pack_shards(documents.folder.url, str(place), str(folder / "tokens"), PackSettings(), self.run)
        return str(folder)


@dataclass(frozen=True, slots=True)
class Made:
    """An experiment's builds by name, its evaluation texts, and what was done, in lines."""

    builds: Mapping[str, str]
    notes: Sequence[str]
    evaluation: Sequence[str] = ()


def duplicates(making: Making) -> Made:
    """A third of the documents planted three to ten times, a few words of each copy exchanged; and that after dedup."""
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
            f"{len(originals):,} documents without near-duplicates, of which a third were planted {COPIES[0]} to {COPIES[1]} "
            f"times, {EDITED_SHARE:.1%} of the words of a copy exchanged: {len(planted):,}; dedup left "
            f"{sum(1 for _ in texts_of(result.corpus)):,}",
            f"held out: {len(held_out)} other documents, which have no near-duplicate in either",
        ],
    )


def rules(making: Making) -> Made:
    """Documents and as much rubbish, all text of real pages unextracted; and what the rules leave of both."""
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
            f"scripts and styles; rules keep {len(kept) - n_rubbish:,} and {n_rubbish:,}",
            f"rules: profile {RULES.profile}, {' '.join(RULES.rule)}; held out: documentation that the rules keep",
        ],
    )


def extractors(making: Making) -> Made:
    """The evaluation pages by both extractors, each with the same documentation to fill it up."""
    pages = bench_extract.read_pages(making.data / "extract")
    judges, rest = pages[::HELD_OUT_PAGES], [page for i, page in enumerate(pages) if i % HELD_OUT_PAGES]
    held_out, prose = cut(making.prose(), HELD_OUT_CHARACTERS)
    texts = {
        name: [text for text in bench_extract.by_clean_extract(rest, extractor=name) if text]
        for name in ("trafilatura", "resiliparse")
    }
    n_missing = max(0, making.n_characters - sum(map(len, texts["trafilatura"])))
    base = cut(prose, n_missing)[0]
    passages = making.out / "wanted-passages.txt"
    making.out.mkdir(parents=True, exist_ok=True)
    passages.write_text("\n".join(passage for page in judges for passage in page.truth["with"]) + "\n", "utf-8")
    told = ", ".join(f"{name} {sum(map(len, of)):,} characters of {len(of)}" for name, of in texts.items())
    sets = {name: making.documents(name, shuffled([*of, *base]), held_out) for name, of in texts.items()}
    return Made(
        making.pack(sets),
        [
            f"{len(rest)} pages: {told}; beside them in both the same {sum(map(len, base)):,} characters of documentation",
            f"judged by the wanted passages of {len(judges)} other pages; validation set: documentation",
        ],
        [str(passages)],
    )


def tokenizers(making: Making) -> Made:
    """The same documents by two vocabularies."""
    held_out, prose = cut(making.prose(), HELD_OUT_CHARACTERS)
    documents = making.documents("prose", cut(prose, making.n_characters)[0], held_out)
    builds = {
        f"{size} tokens": making.build(f"{size}", documents, Tokenizer.train(texts_of(documents), size))
        for size in (VOCAB_SIZE, LARGE_VOCAB_SIZE)
    }
    return Made(builds, ["equal bytes of text; the embedding grows with the vocabulary, the blocks are the same"])


def mixture(making: Making) -> Made:
    """Prose with code by several weights."""
    (held_prose, prose), (held_code, code) = (
        cut(texts, HELD_OUT_CHARACTERS) for texts in (making.prose(), making.code())
    )
    evaluation = []
    for name, texts in (("prose", held_prose), ("code", held_code)):
        making.out.mkdir(parents=True, exist_ok=True)
        (making.out / f"{name}.txt").write_text("".join(texts), "utf-8")
        evaluation.append(str(making.out / f"{name}.txt"))
    sets = {}
    for share in CODE_SHARES:
        texts = [
            *cut(prose, (1 - share) * making.n_characters)[0],
            *cut(code, share * making.n_characters)[0],
        ]
        sets[f"{1 - share:g} to {share:g}"] = making.documents(
            f"code-{share:g}", shuffled(texts), [*held_prose[:10], *held_code[:10]]
        )
    return Made(making.pack(sets), ["prose to code by characters; overall: the mean of both"], evaluation)


EXPERIMENTS: Mapping[str, Callable[[Making], Made]] = {
    "tokenizers": tokenizers,
    "dedup": duplicates,
    "quality": rules,
    "extractors": extractors,
    "mixture": mixture,
}
