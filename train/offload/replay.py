"""Repeat random numbers: a layer that is computed again in the backward pass has to drop the same values."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import torch


class Replay:
    """States of the device's generator, which the host knows; none with `draws` false, for a model without dropout."""

    def __init__(self, device: torch.device, *, draws: bool) -> None:
        self._generator, self._devices = (torch.cuda, [device]) if device.type == "cuda" else (torch, [])
        self._draws = draws
        self._states: dict[Hashable, torch.Tensor] = {}

    def remember(self, key: Hashable) -> None:
        """Store the generator's state under `key`."""
        if self._draws:
            self._states[key] = self._generator.get_rng_state()

    @contextlib.contextmanager
    def again(self, key: Hashable) -> Iterator[None]:
        """Draw the numbers that were drawn after `remember(key)` again; the state is restored afterwards."""
        with torch.random.fork_rng(self._devices, enabled=self._draws):
            if self._draws:
                self._generator.set_rng_state(self._states.pop(key))
            yield
