"""Measurements of a run: the losses and speed of its steps, for metrics.jsonl, its checkpoints, and the console."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from typing import IO, Any

import torch

from webtext.base.console import Console, Progress
from webtext.base.errors import RunFailed
from webtext.base.run import peak_bytes
from webtext.base.storage import strict_json
from webtext.train.checkpoint.checkpoint import Checkpoint
from webtext.train.data.windows import LARGEST_LOSS
from webtext.train.distributed import World
from webtext.train.shape import GPT2Config

PEAKS = {  # FLOP/s in dense bfloat16, from NVIDIA's data sheets; where one gives the sparse rate, half of it
    r"\bB200\b": 2250e12,
    r"\bH100 PCIe": 756e12,
    r"\bH[12]00 NVL": 835e12,
    r"\bG?H[12]00\b": 989e12,
    r"\bA100\b": 312e12,
    r"\bL40S\b": 362e12,
    r"\bL4\b": 121e12,
    r"\bA10\b": 125e12,
}


def data_sheet_peak(card: str) -> float | None:
    """Return the dense bfloat16 FLOP/s of a card, by its name in CUDA; None if it isn't in the table."""
    return next((peak for name, peak in PEAKS.items() if re.search(name, card)), None)


def full_rate(config: GPT2Config, world: World, dtype: torch.dtype) -> float | None:
    """Return the tokens per second of an MFU of 1, whose model FLOP/s are the sum of the GPUs' peaks (PaLM, appendix B).

    None on a CPU, on a GPU that isn't in PEAKS, and in other dtypes than bfloat16, which the table is of.
    """
    if world.device.type != "cuda" or dtype != torch.bfloat16:
        return None
    peak = data_sheet_peak(torch.cuda.get_device_name(world.device))
    return None if peak is None else world.size * peak / config.flops_per_token


def memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_bytes()


class Record:
    """The measurements of a run so far: its `result`, and the rows that it adds to `log`, if this process has the log."""

    def __init__(self, config: GPT2Config, world: World, console: Console, environment: Mapping[str, Any]) -> None:
        self.console, self.environment = console, environment
        self.log: IO[str] | None = None
        self.result: dict[str, Any] = dict.fromkeys(("loss", "validation_loss"))
        self.result |= {"tokens": 0, "seconds": 0.0, "skipped_steps": 0, "mfu_ratio": None, "memory_bytes": 0}
        self._device, self._full_rate = world.device, full_rate(config, world, getattr(torch, environment["dtype"]))
        self._measured_at: int | None = None

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from `checkpoint`, and say which parts of the environment have changed."""
        self.result = dict(checkpoint.state["result"])
        self.console.say(f"train: resuming from step {checkpoint.step:,} ('{checkpoint.path}')")
        was = checkpoint.state["environment"]
        for name, value in self.environment.items():
            if was.get(name) != value:
                self.console.say(f"train: {name} is {value} but was {was.get(name)}: results equal only up to rounding")

    def state_dict(self, step: int) -> dict[str, Any]:
        """Return the record's part of the checkpoint of `step`, after the log's rows are permanent."""
        if self.log is not None:  # before the checkpoint, because a resumed run doesn't write its rows again
            os.fsync(self.log.fileno())
        held_out = self.result["validation_loss"] if self._measured_at == step else None
        return {"validation_loss": held_out, "result": self.result, "environment": self.environment}

    def start_clock(self) -> None:
        self._clock = time.perf_counter()

    def add_step(
        self, progress: Progress, step: int, n_tokens: int, rate: float, loss: float, norm: float, fault: str | None
    ) -> None:
        """Add a step over `n_tokens` tokens, whose time has passed since the one before; `fault` is why it is skipped."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.result["tokens"] += n_tokens
        self.result["seconds"] += seconds
        row: dict[str, Any] = {"step": step, "tokens": self.result["tokens"], "learning_rate": rate}
        if fault is None:
            self.result["loss"] = loss
            row |= {"loss": loss, "grad_norm": norm}
        else:
            self.result["skipped_steps"] += 1
            row["skipped"] = fault
            report = self.console.warn if self.log is not None else self.console.say
            report(f"step {step:,} is skipped: {fault}")
        speed, mfu_ratio, n_bytes = n_tokens / seconds, self._mfu_ratio(n_tokens, seconds), memory_bytes(self._device)
        row |= {"tokens_per_second": round(speed, 1), "mfu_ratio": mfu_ratio, "memory_bytes": n_bytes}
        self._append(row | {"seconds": round(self.result["seconds"], 3)})
        self.result["mfu_ratio"] = self._mfu_ratio(self.result["tokens"], self.result["seconds"])
        self.result["memory_bytes"] = max(n_bytes, self.result["memory_bytes"])
        mfu = "" if mfu_ratio is None else f", MFU {mfu_ratio:.0%}"
        of_device = f"{speed:,.0f} tokens/s{mfu}, {n_bytes / 2**30:.1f} GiB"
        shown = ("loss", "grad_norm", "learning_rate", "tokens", "tokens_per_second")
        facts = {name: row[name] for name in shown if name in row}
        progress.advance(1, f"loss {loss:.3f}, rate {rate:.2e}, gradient {norm:.2f}, {of_device}", **facts)

    def _mfu_ratio(self, n_tokens: int, seconds: float) -> float | None:
        return None if self._full_rate is None else round(n_tokens / seconds / self._full_rate, 4)

    def add_held_out(self, step: int, mean: float, losses: Mapping[str, float]) -> None:
        """Add the held-out losses of the sources by name, and their mean. Raises RunFailed if that isn't finite."""
        if not math.isfinite(mean):
            raise RunFailed(
                f"step {step:,}: the held-out loss is {mean}",
                "lower learning_rate or lengthen warmup_steps, and use another --out",
            )
        self.result["validation_loss"], self._measured_at = mean, step
        perplexity = math.exp(min(mean, LARGEST_LOSS))
        of_sources = {"validation_losses": losses} if len(losses) > 1 else {}
        self._append({"step": step, "validation_loss": mean, "perplexity": perplexity, **of_sources})
        each = "".join(f"; '{name}' {loss:.4f}" for name, loss in losses.items()) if of_sources else ""
        self.console.say(f"train: step {step:,}: held-out perplexity {perplexity:,.2f} (loss {mean:.4f}{each})")

    def _append(self, row: dict[str, Any]) -> None:
        if self.log is not None:
            self.log.write(strict_json(row) + "\n")
