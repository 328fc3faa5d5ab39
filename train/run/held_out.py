"""The loss on the validation splits of a run's token sets, measured during training."""

from __future__ import annotations

from collections.abc import Sequence

from webtext.train.data.sources import Source
from webtext.train.data.windows import Windows
from webtext.train.run.engine import Engine
from webtext.train.settings import TrainSettings


class HeldOut:
    """`eval_windows` held-out windows of each source. Each source weighs as much as in training."""

    def __init__(self, sources: Sequence[Source], parts: Sequence[int], settings: TrainSettings) -> None:
        self._windows: dict[str, Windows] = {}
        self._parts: dict[str, int] = {}
        for source, part in zip(sources, parts, strict=True):
            held = source.validation
            context, limit = settings.context, settings.monitor.eval_windows
            windows = Windows(held.streams(), context=context, stride=None, limit=limit)
            if len(windows):
                self._windows[source.name], self._parts[source.name] = windows, part

    def losses(self, engine: Engine, batch_size: int) -> dict[str, float]:
        """Return the mean loss per token of each source with held-out windows, the same in all processes."""
        totals = {name: engine.total_loss(windows, batch_size) for name, windows in self._windows.items()}
        return {name: loss / n_tokens for name, (loss, n_tokens) in totals.items()}

    def mean(self, losses: dict[str, float]) -> float:
        """Return the mean of the sources' losses, weighted as in the mixture."""
        return sum(self._parts[name] * loss for name, loss in losses.items()) / sum(self._parts.values())
