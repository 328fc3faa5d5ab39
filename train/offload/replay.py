"""Random numbers drawn twice alike: a layer that is computed once more going back must drop what it dropped before."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


class Replay:
    """States of the device's generator, on the host; with `draws` false, of a model without dropout, it keeps none."""

    def __init__(self, device: torch.device, *, draws: bool) -> None:
        self._device, self._draws = device, draws
        self._states: dict[Hashable, Tensor] = {}

    def remember(self, key: Hashable) -> None:
        """Note what would be drawn next."""
        if self._draws:
            self._states[key] = self._state()

    @contextlib.contextmanager
    def again(self, key: Hashable) -> Iterator[None]:
        """Within, what was drawn after `remember(key)` is drawn again; after it, all is as if nothing were drawn."""
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
