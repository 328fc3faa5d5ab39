"""The settings of a plan, `[train.plan]`: the devices, and a measured speed."""

from __future__ import annotations

from dataclasses import dataclass, fields

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """A device's TFLOP/s in bfloat16 without sparsity, and 10^9 bytes per second: memory, and links of one way."""

    tflops: float
    memory: float
    inside: float
    between: float


DATA_SHEETS = {
    "a100": DataSheet(tflops=312.0, memory=2039.0, inside=300.0, between=25.0),
    "h100": DataSheet(tflops=989.0, memory=3350.0, inside=450.0, between=50.0),
    "h200": DataSheet(tflops=989.0, memory=4800.0, inside=450.0, between=50.0),
}
"""SXM modules: NVIDIA's data sheets of the A100 80GB, H100 and H200; networks of DGX A100 and H100, one adapter a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The devices for which a run is planned, and a measured speed, given in one of three ways."""

    processes: int = setting(1, "processes, each with a device of its own")
    devices: int | None = setting(None, "propose a mesh of so many devices, a microbatch and what else it takes to fit")
    devices_per_node: int = setting(8, "devices that the fast links of one node join")
    data_sheet: str | None = setting(None, "device whose data sheet bounds a step's time: " + ", ".join(DATA_SHEETS))
    inside_gb_per_second: float | None = setting(
        None, "bandwidth of a device to others of its node, 10^9 bytes per second"
    )
    between_gb_per_second: float | None = setting(None, "bandwidth of a device to other nodes, 10^9 bytes per second")
    host_gb_per_second: float | None = setting(
        None, "bandwidth between an offloaded run and its host, each way, 10^9 bytes per second"
    )
    vocab_size: int = setting(50_257, "vocabulary size if no token set is given")
    memory_gib: float | None = setting(None, "memory of one device, GiB: reports whether the run fits, and what would")
    tokens_per_second: float | None = setting(None, "speed of all devices together")
    peak_tflops: float | None = setting(None, "TFLOP/s of one device's matrix products; with mfu_ratio")
    mfu_ratio: float | None = setting(None, "share of peak_tflops that the model's own operations reach")
    measured: str | None = setting(None, "model folder of an earlier run, whose FLOP/s per process apply")
    price: float | None = setting(None, "price of one device for one hour")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not value > 0 and field.name != "price":
                raise ConfigError(f"{field.name} is {value}", "it must be above 0")
        if self.data_sheet not in (None, *DATA_SHEETS):
            raise ConfigError(
                f"data_sheet is '{self.data_sheet}'", f"choose {', '.join(DATA_SHEETS)}, or give a measured speed"
            )
        if self.mfu_ratio is not None and self.mfu_ratio > 1:
            raise ConfigError(f"mfu_ratio is {self.mfu_ratio}", "it must be at most 1")
        if self.price is not None and self.price < 0:
            raise ConfigError(f"price is {self.price}", "it must be 0 or more")
        ways = [name for name in ("tokens_per_second", "peak_tflops", "measured") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} all set the speed", "give one of them")
        if (self.peak_tflops is None) != (self.mfu_ratio is None):
            raise ConfigError("peak_tflops and mfu_ratio set a speed only together", "give both, or neither")
        if self.devices is not None:
            self._check_devices()

    def _check_devices(self) -> None:
        if self.memory_gib is None:
            raise ConfigError(f"devices is {self.devices}, but memory_gib is not set", "give --memory-gib of a device")
        if self.processes != 1:
            raise ConfigError("processes and devices are both set", "give devices for a mesh, processes for replicas")
        if self.tokens_per_second is not None:
            raise ConfigError(
                "tokens_per_second is the speed of a single mesh",
                "give peak_tflops and mfu_ratio of one device, or measured",
            )
