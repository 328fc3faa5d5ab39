"""What of a window attends to what, and which targets count: the model as a function from windows to its loss.

A window may hold several documents, each opened by an end-of-text, or one and then padding (`shards/windows.py`). With
document masks a token attends to its own document alone, with the end-of-text that opens it; the end-of-text is also the
target after the last token of the document before. Positions run on through the window, masked or not: GPT-2's are absolute,
and each is trained on all of a corpus. In windows that do not cross documents the first end-of-text after the start is the
target that ends the document; what follows is padding and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from webtext.train.model import GPT2
from webtext.train.settings import TrainSettings


def documents_of(tokens_bt: Tensor, eot_id: int) -> Tensor:
    """Which document of its window each token belongs to, [b, t]: `document_numbers` of shards, on the tokens' device."""
    numbers_bt = (tokens_bt == eot_id).cumsum(1)
    return numbers_bt - numbers_bt[:, :1]


def counted_targets(tokens_bt: Tensor, eot_id: int) -> Tensor:
    """Whether the target after each input token counts, [b, t], in windows of one document each: the input is no padding."""
    return documents_of(tokens_bt, eot_id) == 0


@dataclass(frozen=True, slots=True)
class WindowRules:
    """What a run's windows are: whether documents are masked from one another, and whether short ones are filled up."""

    masks: bool = False
    pads: bool = False
    eot_id: int = -1

    @classmethod
    def of(cls, settings: TrainSettings, eot_id: int) -> WindowRules:
        """Those of a run on tokens with this end-of-text."""
        return cls(settings.document_masks, not settings.crosses_documents, eot_id)

    def documents(self, tokens_bt: Tensor) -> Tensor | None:
        """`documents_of` the input tokens, where they are masked."""
        return documents_of(tokens_bt, self.eot_id) if self.masks else None

    def counted(self, tokens_bt: Tensor) -> Tensor | None:
        """`counted_targets` of the input tokens, where not all count."""
        return counted_targets(tokens_bt, self.eot_id) if self.pads else None

    def counted_share(self, tokens_bt: Tensor) -> Tensor:
        """The share of a microbatch's targets that count, a scalar on its device."""
        counted_bt = self.counted(tokens_bt)
        return torch.ones((), device=tokens_bt.device) if counted_bt is None else counted_bt.float().mean()

    def mean_over_counted(self, loss: Tensor, share: Tensor, gradients: Iterable[Tensor | None]) -> Tensor:
        """The loss of a step over the targets that count, where `loss` is over all of them and `share` of them count.

        The gradients, of which some may be missing, are made those of that mean in place.
        """
        share = share.to(loss.dtype)
        if self.pads:  # a mean over the targets of the whole step, not of each microbatch
            found = [gradient for gradient in gradients if gradient is not None]
            torch._foreach_mul_(found, (1 / share).to(found[0].device))
        return loss / share


class TrainingLoss:
    """Sum of the counted targets' losses in nats, divided by the number of all targets, padding too.

    That divisor is the same for all microbatches; `counted_share` times it is the right one for what they sum up to.
    """

    def __init__(self, model: GPT2, rules: WindowRules) -> None:
        self.model, self.rules = model, rules

    def __call__(self, tokens_bt: Tensor, targets_bt: Tensor) -> Tensor:
        """The loss of one microbatch, a scalar."""
        documents_bt, counted_bt = self.rules.documents(tokens_bt), self.rules.counted(tokens_bt)
        loss = self.model.loss(tokens_bt, targets_bt, documents_bt, counted_bt)
        return loss if counted_bt is None else loss * counted_bt.float().mean()


class Masked(Protocol):
    """GPT2, or what holds one."""

    def log_likelihood(
        self, tokens_bt: Tensor, documents_bt: Tensor | None = None, *, last: int | None = None
    ) -> Tensor:
        """As GPT2's."""


class MaskedLikelihood:
    """A model that is judged as it was trained: with document masks."""

    def __init__(self, model: Masked, eot_id: int) -> None:
        self._model = model
        self._eot_id = eot_id

    def log_likelihood(self, tokens_bt: Tensor, *, last: int | None = None) -> Tensor:
        """As GPT2's, where a token sees its own document alone."""
        return self._model.log_likelihood(tokens_bt, documents_of(tokens_bt[:, :-1], self._eot_id), last=last)
