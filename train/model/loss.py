"""The training loss of a window: which tokens attend to which, and which targets count.

A window contains several documents, each opened by an end-of-text, or one document and padding (`shards/sampling/windows.py`).
With document masks a token attends only to its own document, including the end-of-text that opens it. That end-of-text
is also the target after the last token of the document before. Positions count through the window, masked or not:
GPT-2's are absolute, and each is trained on all of a corpus. In windows that don't cross documents, the first
end-of-text after the start is the target that ends the document. What follows is padding and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from webtext.train.model.gpt2 import GPT2
from webtext.train.settings import TrainSettings


def documents_of(tokens_bt: Tensor, eot_id: int) -> Tensor:
    """Return the number of each token's document in its window, [b, t], on the tokens' device.

    It equals `document_numbers` in shards.
    """
    numbers_bt = (tokens_bt == eot_id).cumsum(1)
    return numbers_bt - numbers_bt[:, :1]


def counted_targets(tokens_bt: Tensor, eot_id: int) -> Tensor:
    """Return whether the target after each input token counts, [b, t]: false in padding. Windows have one document."""
    return documents_of(tokens_bt, eot_id) == 0


@dataclass(frozen=True, slots=True)
class WindowRules:
    """How a run uses windows: whether documents are masked from one another, and whether short windows are padded."""

    masks: bool = False
    pads: bool = False
    eot_id: int = -1

    @classmethod
    def of(cls, settings: TrainSettings, eot_id: int) -> WindowRules:
        """Return the rules of a run on tokens with this end-of-text."""
        return cls(settings.data.document_masks, not settings.data.crosses_documents, eot_id)

    def documents(self, tokens_bt: Tensor) -> Tensor | None:
        """Return `documents_of` the input tokens, or None without document masks."""
        return documents_of(tokens_bt, self.eot_id) if self.masks else None

    def counted(self, tokens_bt: Tensor) -> Tensor | None:
        """Return `counted_targets` of the input tokens, or None if all count."""
        return counted_targets(tokens_bt, self.eot_id) if self.pads else None

    def counted_share(self, tokens_bt: Tensor) -> Tensor:
        """Return the share of a microbatch's targets that count, a scalar on its device."""
        counted_bt = self.counted(tokens_bt)
        return torch.ones((), device=tokens_bt.device) if counted_bt is None else counted_bt.float().mean()

    def mean_over_counted(self, loss: Tensor, share: Tensor, gradients: Iterable[Tensor | None]) -> Tensor:
        """Return the mean loss of a step over the counted targets, a `share` of all targets.

        `loss` is their sum divided by the number of all targets. Scales the gradients (None if missing) in place too.
        """
        share, slopes = share.to(loss.dtype), [gradient for gradient in gradients if gradient is not None]
        if self.pads and slopes:  # a mean over the targets of the entire step, not of each microbatch
            torch._foreach_mul_(slopes, (1 / share).to(slopes[0].dtype))
        return loss / share


class TrainingLoss:
    """Sum of the counted targets' losses in nats, divided by the number of all targets, including padding.

    This divisor is the same for all microbatches. `mean_over_counted` corrects it for the sum over a step.
    """

    def __init__(self, model: GPT2, rules: WindowRules) -> None:
        self.model, self.rules = model, rules

    def __call__(self, tokens_bt: Tensor, targets_bt: Tensor) -> Tensor:
        """Return the loss of one microbatch, a scalar."""
        documents_bt, counted_bt = self.rules.documents(tokens_bt), self.rules.counted(tokens_bt)
        loss = self.model.loss(tokens_bt, targets_bt, documents_bt, counted_bt)
        return loss if counted_bt is None else loss * counted_bt.float().mean()


class Masked(Protocol):
    """GPT2, or a module that contains one."""

    def log_likelihood(
        self, tokens_bt: Tensor, documents_bt: Tensor | None = None, *, last: int | None = None
    ) -> Tensor:
        """See `GPT2.log_likelihood`."""


class MaskedLikelihood:
    """A model that is evaluated as it was trained: with document masks."""

    def __init__(self, model: Masked, eot_id: int) -> None:
        self._model = model
        self._eot_id = eot_id

    def log_likelihood(self, tokens_bt: Tensor, *, last: int | None = None) -> Tensor:
        """Return `GPT2.log_likelihood`, where a token sees only its own document."""
        return self._model.log_likelihood(tokens_bt, documents_of(tokens_bt[:, :-1], self._eot_id), last=last)
