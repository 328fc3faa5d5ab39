"""Texts to measure: a model's continuations of held-out documents, beside how these documents continue themselves."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from webtext.app.inspect.lookup import find_rows
from webtext.base.errors import InputError
from webtext.base.inputs.files import InputFile, Refused
from webtext.base.inputs.identity import HELD_OUT
from webtext.base.inputs.records import objects
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.train.settings import SampleSettings

if TYPE_CHECKING:
    from webtext.train.evaluate.measured import Measured

EXPECTED = 'expected {"prompt": TEXT, "text": TEXT} on each line, or what `train sample --json` prints'
PROMPT_TOKENS, TOGETHER = 128, 16


class Sample(NamedTuple):
    """A prompt, what a model generated after it, and the text that follows the prompt in its document, if known."""

    prompt: str
    text: str
    reference: str | None


def read_samples(location: str) -> list[Sample]:
    """Read a file of samples; raises InputError that names the first line that isn't one, or says that there is none."""
    folder, name = Folder.split(location)
    if not folder.is_file(name):
        raise InputError(f"no file '{location}'", EXPECTED)
    samples = []
    with InputFile(folder, name).open() as stream:
        for number, line in enumerate(objects(stream), 1):
            rows = [line] if isinstance(line, Refused) or "samples" not in line else line["samples"]
            for row in rows if isinstance(rows, list) else [rows]:
                prompt, text, reference = map(row.get, Sample._fields) if isinstance(row, dict) else (None,) * 3
                if not isinstance(text, str) or not all(isinstance(each, str | None) for each in (prompt, reference)):
                    cause = line.cause if isinstance(line, Refused) else "no sample"
                    raise InputError(f"'{location}', line {number}: {cause}", EXPECTED)
                samples.append(Sample(prompt or "", text.removeprefix(prompt or ""), reference or None))
    if not samples:
        raise InputError(f"'{location}' has no samples", EXPECTED)
    return samples


def write_samples(folder: Folder, name: str, samples: Sequence[Sample]) -> None:
    """Write the samples in the form that `read_samples` reads."""
    rows = (each._asdict() | {"text": each.prompt + each.text} for each in samples)
    folder.write_bytes(name, "".join(json.dumps(row) + "\n" for row in rows).encode())


def continue_held_out(corpus: PartSet, measured: Measured, n: int) -> list[Sample]:
    """Continue the beginnings of up to `n` held-out documents as Radford et al. (2019) did in section 8.2: top-k 40.

    A beginning has 128 tokens, or half the model's context if that is less; a continuation has 200, or what the context
    has left. Only documents with as many tokens are used; InputError if there is none. The seed is fixed.
    """
    from webtext.train.model.sample import sample_texts
    from webtext.train.resilience.distributed import join_world

    n_prompt = min(PROMPT_TOKENS, measured.model.context // 2)
    settings = SampleSettings(max_tokens=min(SampleSettings().max_tokens, measured.model.context - n_prompt - 1))
    begins: list[tuple[str, str]] = []
    tokenizer, n_all = measured.text_tokenizer(), n_prompt + settings.max_tokens
    for text in held_out_texts(corpus, 4 * n):
        tokens = tokenizer.encode(text[: 16 * n_all])
        prompt, whole = ("".join(map(tokenizer.decode_stream().push, tokens[:end])) for end in (n_prompt, n_all))
        if len(tokens) >= n_all and len(begins) < n:
            begins.append((prompt, whole.removeprefix(prompt)))
    if not begins:
        raise InputError(f"'{corpus.folder.url}' has no held-out document of {n_all:,} tokens", "use --samples FILE")
    samples = []
    with join_world(settings.device) as world:
        model = measured.model.to(world.device)
        for first in range(0, len(begins), TOGETHER):
            some, seeded = begins[first : first + TOGETHER], dataclasses.replace(settings, seed=first)
            texts = sample_texts(model, tokenizer, [prompt for prompt, _ in some], seeded)
            samples += [Sample(p, text.removeprefix(p), ref) for (p, ref), text in zip(some, texts, strict=True)]
    return samples


def held_out_texts(corpus: PartSet, n: int) -> list[str]:
    """Return the texts of the held-out documents with the smallest ids: random, but repeatable."""
    tables = (corpus.table(part, ["id", "split"]) for part in range(len(corpus.parts)))
    ids = (identifier for table in tables for identifier in of_split(table, HELD_OUT)["id"].to_pylist())
    rows = find_rows(corpus, "id", heapq.nsmallest(n, ids), ["id", "text"], whole_text=True)
    return [text for _, text in sorted((row["id"], row["text"]) for row in rows)]


def of_split(rows: Any, split: str) -> Any:
    """Return a table's or batch's rows of the split."""
    return rows.filter(pc.equal(rows["split"], split))
