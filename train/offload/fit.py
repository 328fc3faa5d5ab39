"""Choose how much of a model is on the device at once, by a trial step and by timing one layer's copies and computing.

The group affects numbers, so it depends on memory alone, and a resumed run has the same one. The window affects only
time, so it depends on measured times too (STRONGHOLD, section 3.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from webtext.train.offload.device_memory import DeviceMemory
from webtext.train.offload.offloaded import OffloadedModel, add_gradients
from webtext.train.offload.window import Costs, choose_window

REPEATS = 5
INPUTS_PER_MICROBATCH = 3
"""Tensors [b, t, c] in a backward pass: this layer's input, the one before's, and the gradient of the output."""


def fit(model: OffloadedModel, tokens_bt: Tensor, n_microbatches: int, memory: DeviceMemory) -> Costs:
    """Set `model.group` and its window so that `n_microbatches` like `tokens_bt`, [b, t + 1], fit into `memory`.

    Draws random numbers and sets gradients. Raises torch.OutOfMemoryError if two layers and one microbatch don't fit.
    """
    model.group = 1
    model.resize_window(2)
    model.forward_backward([tokens_bt] * min(2, n_microbatches))  # the second arrives while gradients leave
    free = memory.capacity - memory.peak_bytes
    more = INPUTS_PER_MICROBATCH * input_bytes(model, tokens_bt)
    most = min(n_microbatches, 1 + max(0, free) // more)
    model.group = math.ceil(n_microbatches / math.ceil(n_microbatches / most))
    costs = measure_costs(model, tokens_bt)
    free += min(2, costs.n_layer) * costs.layer_bytes - (model.group - 1) * more
    model.resize_window(choose_window(costs, free))
    return costs


def input_bytes(model: OffloadedModel, tokens_bt: Tensor) -> int:
    """Return the bytes of a layer's input for one microbatch [b, t + 1]."""
    return tokens_bt.shape[0] * (tokens_bt.shape[1] - 1) * model.model.config.n_embd * model.dtype.itemsize


def measure_costs(model: OffloadedModel, tokens_bt: Tensor) -> Costs:
    """Measure times of this device and link, each the median of REPEATS, and count bytes; draws random numbers."""
    layers, link, row = model.layers, model.link, model.layers.copies[0]
    model.window.begin()
    parameters = model.window.parameters(0)
    x_btc = torch.randn(
        *model.inputs_shape(tokens_bt[:, :-1]), dtype=model.dtype, device=model.device, requires_grad=True
    )

    sums = layers.views(torch.zeros(layers.n_elements, dtype=layers.parameters.dtype, device=model.device))

    def seconds(work: Callable[[], object]) -> float:
        times = []
        for _ in range(REPEATS):
            began = link.seconds()
            work()
            times.append(link.seconds() - began)
        return statistics.median(times)

    def copy(n: int) -> None:
        link.load(torch.empty(n, dtype=row.dtype, device=model.device), row[:n]).done()

    def forward() -> None:
        with torch.no_grad():
            model.layer(parameters, x_btc, None)
        link.computed("forward")

    def backward() -> None:
        y_btc = model.layer(parameters, x_btc, None)
        add_gradients(y_btc, torch.zeros_like(y_btc), x_btc, parameters, sums)
        link.computed("backward")

    forward_seconds = seconds(forward)
    for tensor in parameters.values():
        tensor.requires_grad_()
    few, many = len(row) // 8, len(row)
    few_seconds, many_seconds = seconds(lambda: copy(few)), seconds(lambda: copy(many))
    is_clear = many_seconds > few_seconds  # otherwise the copies are too small for this clock
    per_element = (many_seconds - few_seconds) / (many - few) if is_clear else many_seconds / many
    return Costs(
        n_layer=layers.n_layers,
        group=model.group,
        layer_bytes=row.nbytes,
        input_bytes=input_bytes(model, tokens_bt),
        gradient_bytes=layers.gradients[0].nbytes,
        ends_bytes=model.ends.copies[0].nbytes,
        ends_gradient_bytes=model.ends.gradients[0].nbytes,
        forward_seconds=forward_seconds,
        backward_seconds=seconds(backward),
        bandwidth=row.dtype.itemsize / per_element,
        latency=max(0.0, many_seconds - many * per_element),
    )
