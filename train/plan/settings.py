"""The settings of a plan, `[train.plan]`: the devices, and their speed."""

from __future__ import annotations

from dataclasses import dataclass, fields

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.train.plan.cost import DATA_SHEETS
from webtext.train.settings import require


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The devices for which a run is planned, and their speed if it is known."""

    processes: int = setting(1, "processes, each with a device of its own")
    devices: int | None = setting(None, "propose a mesh of so many devices, a microbatch and what else it takes to fit")
    devices_per_node: int = setting(8, "devices that the fast links of one node join")
    data_sheet: str | None = setting(None, "device whose data sheet bounds a step's time: " + ", ".join(DATA_SHEETS))
    inside_gb_per_second: float | None = setting(
        None, "bandwidth of a device to others of its node, 10^9 bytes per second"
    )
    between_gb_per_second: float | None = setting(None, "bandwidth of a device to other nodes, 10^9 bytes per second")
    vocab_size: int = setting(50_257, "vocabulary size if no token set is given")
    memory_gib: float | None = setting(None, "memory of one device, GiB: reports whether the run fits, and what would")
    tokens_per_second: float | None = setting(None, "speed of all devices together")
    tflops: float | None = setting(None, "TFLOP/s of the model's own operations that one device reaches")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float):
                require(value > 0, field.name, value, "above 0")
        known = ", ".join(DATA_SHEETS)
        require(self.data_sheet in (None, *DATA_SHEETS), "data_sheet", f"'{self.data_sheet}'", f"one of {known}")
        if self.tokens_per_second is not None and self.tflops is not None:
            raise ConfigError("tokens_per_second and tflops both set the speed", "give one of them")
        if self.devices is not None:
            given = "if devices is set"
            require(self.memory_gib is not None, "memory_gib", None, f"a device's memory {given}: give --memory-gib")
            require(self.processes == 1, "processes", self.processes, f"1 {given}: both set the size of the mesh")
            speed = self.tokens_per_second
            require(speed is None, "tokens_per_second", speed, f"left out {given}: it is the speed of a single mesh")
