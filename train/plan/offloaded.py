"""What an offloaded run takes: memory of the host, and the time of a step on a link of known bandwidth."""

from __future__ import annotations

from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


def offload_text(
    config: GPT2Config, settings: TrainSettings, n: int, row_bytes: int, speed: float | None, bandwidth: float | None
) -> str:
    """Return a plan's line for each of `n` replicas: the bytes on its host, and a step's time.

    A layer takes as long as the longest of its computing, its loads and its stores; the ends' copies hide behind nothing.
    `row_bytes` is the size of parameters, gradients and moments, `speed` in model FLOP/s, `bandwidth` in bytes per
    second, each way. All microbatches are in one group. The optimizer isn't counted.
    """
    microbatch, accumulation = settings.accumulation(n)
    width, n_tokens = config.n_embd, accumulation * microbatch * config.context
    size = 4 if settings.dtype == "float32" else 2
    inputs, layer = size * n_tokens * width, size * (12 * width**2 + 13 * width)
    text = f"offloaded: {(row_bytes + config.n_layer * inputs) / 2**30:,.2f} GiB on the host"
    if speed is None or bandwidth is None:
        return f"{text}; one step: unknown; give the speed and --host-gb-per-second"
    forward = n_tokens * (24 * width**2 + 4 * width * config.context) / speed
    output = 6 * width * config.vocab_size * n_tokens / speed
    ends = 2 * size * (config.padded_vocab_size + config.context + 2) * width / bandwidth
    covering = max(layer / forward, inputs / forward, (layer + inputs) / forward / 3)  # going back takes three times it
    layers = max(forward, layer / bandwidth, inputs / bandwidth) + max(3 * forward, (layer + inputs) / bandwidth)
    return (
        f"{text}; one step: {ends + output + config.n_layer * layers:,.2f} s, of which "
        f"{output + config.n_layer * 4 * forward:,.2f} s computing, "
        f"which hides the copies on links of {covering / 1e9:,.3g} GB/s or more"
    )
