"""Reject what a mesh can't train, before anything is written. Without torch."""

from __future__ import annotations

from webtext.base.errors import ConfigError
from webtext.train.mesh import MeshShape, check_microbatches, n_stages
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


def check_trainable(config: GPT2Config, settings: TrainSettings, n_processes: int) -> MeshShape:
    """Return the mesh of a run of `n_processes` processes.

    ConfigError if the mesh doesn't divide the model or the batch, if a setting needs what no process of the mesh has,
    or if the mesh needs another number of processes.
    """
    shape = settings.machine.mesh_shape(n_processes)
    _check_tensor_parallel(config, shape)
    stages = n_stages(settings.machine.pipeline_schedule, shape.pp)
    if config.n_layer < stages:
        raise ConfigError(
            f"{config.n_layer} layers do not fill the {stages} pipeline stages of mesh '{shape}' with schedule "
            f"'{settings.machine.pipeline_schedule}'",
            "choose a smaller pp",
        )
    check_microbatches(settings.machine.pipeline_schedule, settings.accumulation(shape.n_data)[1], shape.pp)
    if shape.size != n_processes:
        are = "is 1 process" if n_processes == 1 else f"are {n_processes} processes"
        raise ConfigError(
            f"mesh '{settings.machine.mesh}' needs {shape.size} processes, but there {are}",
            f"start it by 'torchrun --nproc-per-node {shape.size} -m webtext.app.main train run ...'",
        )
    return shape


def _check_tensor_parallel(config: GPT2Config, shape: MeshShape) -> None:
    for name in ("n_head", "context", "padded_vocab_size"):
        value = getattr(config, name)
        if value % shape.tp:
            raise ConfigError(f"tp={shape.tp} does not divide {name} = {value}", "choose a degree that does")
    if config.dropout and shape.tp > 1:
        raise ConfigError(
            f"dropout is {config.dropout}, and the ranks of tp={shape.tp} would drop different values",
            "choose dropout = 0, or a mesh without tp",
        )
