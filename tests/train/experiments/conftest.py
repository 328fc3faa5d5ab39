"""Settings of runs that take a second."""

from __future__ import annotations

import pytest

from webtext.train.settings import TrainSettings

SETTINGS = TrainSettings(
    n_layer=2,
    n_head=2,
    n_embd=32,
    context=32,
    batch_size=4,
    microbatch_size=4,
    steps=12,
    warmup_steps=2,
    learning_rate=1e-2,
    dtype="float32",
    device="cpu",
    threads=1,
    eval_interval=None,
    eval_windows=4,
    checkpoint_interval=4,
)


@pytest.fixture
def settings() -> TrainSettings:
    """Twelve steps of two layers of 32."""
    return SETTINGS
