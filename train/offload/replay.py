"""Repeat random numbers: a layer that is computed again in the backward pass has to drop the same values."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


class Replay:
    """States of the device's generator, stored on the host; none with `draws` false, for a model without dropout."""

    def __init__(self, device: torch.device, *, draws: bool) -> None:
        self._device, self._draws = device, draws
        self._states: dict[Hashable, Tensor] = {}

    def remember(self, key: Hashable) -> None:
        """Store the generator's state under `key`."""
        if self._draws:
            self._states[key] = self._state()

    @contextlib.contextmanager
    def again(self, key: Hashable) -> Iterator[None]:
        """Draw the numbers that were drawn after `remember(key)` again; the state is restored afterwards."""
        if not self._draws:
            yield
            return
        before = self._state()
        self._set(self._states.pop(key))
        try:
            yield
        finally:
            self._set(before)

    def _state(self) -> Tensor:
        with _disable_current_modes():  # an arena does not count it
            return torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else torch.get_rng_state()

    def _set(self, state: Tensor) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(state, self._device)
        else:
            torch.set_rng_state(state)
