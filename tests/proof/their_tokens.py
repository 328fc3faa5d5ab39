"""Tokens as nanoGPT reads them, by Hugging Face tokenizers in the environment of the peers.

`train CORPUS TOKENIZER` trains byte-level BPE on the texts of CORPUS/*.parquet. `pack CORPUS TOKENIZER OUT` writes train.bin,
val.bin and meta.pkl as nanoGPT's data/openwebtext/prepare.py does.
"""

import argparse
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from shape import END_OF_TEXT, VOCAB_SIZE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VALIDATION_EVERY = 200  # documents; prepare.py takes one of 2,000, of eight million


def texts(corpus: str) -> Iterator[list[str]]:
    for path in sorted(Path(corpus).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(1000, columns=["text"]):
            yield batch.column("text").to_pylist()


def train(corpus: str, path: str) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts(corpus), trainer)
    tokenizer.save(path)


def pack(corpus: str, path: str, out: str) -> None:
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True  # a document that spells the token out does not end there
    encodings = (encoding for batch in texts(corpus) for encoding in tokenizer.encode_batch(batch))
    with open(f"{out}/train.bin", "wb") as train_file, open(f"{out}/val.bin", "wb") as validation_file:
        for number, encoding in enumerate(encodings):
            file = train_file if number % VALIDATION_EVERY else validation_file
            np.array([*encoding.ids, tokenizer.token_to_id(END_OF_TEXT)], dtype=np.uint16).tofile(file)
    Path(out, "meta.pkl").write_bytes(pickle.dumps({"vocab_size": VOCAB_SIZE}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("train", "pack"))
    parser.add_argument("paths", nargs="+")
    arguments = parser.parse_args()
    {"train": train, "pack": pack}[arguments.task](*arguments.paths)
