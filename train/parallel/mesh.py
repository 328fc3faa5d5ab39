"""The mesh of a run: so many devices for each kind of parallelism, `pp=2,dp=2,tp=2`. Known without torch.

The order is from the slowest links to the fastest: pipeline stages send one activation, replicas one gradient a step, shards
every parameter twice or three times, tensor parallel ranks four activations a layer (Narayanan et al. 2021, section 3).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from webtext.base.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AXES = {
    "pp": "pipeline stages",
    "dp": "replicas",
    "fsdp": "shards of parameters, gradients and moments (FSDP2); with dp: HSDP",
    "tp": "tensor parallel ranks, sequence parallel between the layers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshShape:
    """Devices along each axis; their product is the number of processes."""

    pp: int = 1
    dp: int = 1
    fsdp: int = 1
    tp: int = 1

    @classmethod
    def parse(cls, text: str) -> MeshShape:
        """The shape that a user writes, as "pp=2,tp=4"; axes not named are 1. ConfigError for any other text.

        >>> MeshShape.parse("pp=2,tp=4").size
        8
        """
        degrees: dict[str, int] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            axis, _, degree = part.partition("=")
            if axis not in AXES:
                raise ConfigError(f"mesh '{text}' has an axis '{axis}'", did_you_mean(axis, list(AXES)))
            if axis in degrees:
                raise ConfigError(f"mesh '{text}' names {axis} twice", "give each axis once")
            if not degree.isascii() or not degree.isdigit() or int(degree) < 1:
                raise ConfigError(f"mesh '{text}' says {axis} is '{degree}'", "it must be a whole number, at least 1")
            degrees[axis] = int(degree)
        return cls(**degrees)

    @property
    def size(self) -> int:
        """Processes that the mesh takes."""
        return math.prod(asdict(self).values())

    @property
    def n_data(self) -> int:
        """Processes, or groups of them, that read sequences of their own."""
        return self.dp * self.fsdp

    def __str__(self) -> str:
        return ",".join(f"{axis}={degree}" for axis, degree in asdict(self).items() if degree > 1) or "one process"

    @property
    def processes(self) -> str:
        """As a run's messages tell it.

        >>> MeshShape.parse("pp=2,tp=2").processes, MeshShape().processes
        ('processes: 4 (pp=2,tp=2)', 'processes: 1')
        """
        return f"processes: {self.size}" + (f" ({self})" if self.size > 1 else "")

    def build(self, device_type: str) -> DeviceMesh:
        """The processes of the run as a mesh with all four axes, in their order."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(device_type, tuple(asdict(self).values()), mesh_dim_names=tuple(AXES))
