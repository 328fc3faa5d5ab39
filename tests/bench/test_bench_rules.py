"""The models of bench_rules.py, n-grams and GPT-2, learn from the text that they are given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from bench_rules import TOY, Gpt2, Model

from webtext.base.config import changed
from webtext.tokenizer import Tokenizer

READ, OTHER = b"The cat sat on the mat. " * 300, b"Whose dog, if any, barked? " * 30


@pytest.mark.parametrize("kind", ["n-grams", "GPT-2"])
def test_a_model_predicts_the_text_that_it_read_and_not_another(kind: str) -> None:
    settings = changed(TOY, context=32, n_layer=1, n_embd=32, n_head=2, batch_size=4, steps=25)
    tokenizer = Tokenizer.train([READ + OTHER], 300)
    model = Model(READ) if kind == "n-grams" else Gpt2(READ, tokenizer, settings)
    assert model.bits_per_byte(READ) < 1 < 2 < model.bits_per_byte(OTHER)
