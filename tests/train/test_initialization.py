"""Initial values depend only on the seed and the parameter's name, in whichever process the parameter is."""

from __future__ import annotations

import math
import multiprocessing
import weakref
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.data.windows import WindowRules
from webtext.train.mesh import MeshShape
from webtext.train.model.initialization import drawn
from webtext.train.offload.engine import OffloadedEngine
from webtext.train.parallel.parallelize import ParallelModel

CPU = torch.device("cpu")
CONFIG = GPT2Config(n_layer=6, n_head=2, n_embd=30, context=16, vocab_size=250)


def on_meta(config: GPT2Config = CONFIG) -> GPT2:
    with torch.device("meta"):
        return GPT2(config)


def test_a_parameters_values_depend_on_the_seed_and_its_name_alone() -> None:
    torch.manual_seed(1)
    model = GPT2(CONFIG, 5)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    names = dict(model.named_parameters())
    for name in reversed(names):
        assert torch.equal(drawn(CONFIG, 5)(name, names[name].shape), names[name]), name
    assert torch.equal(torch.get_rng_state(), state), "other draws are left as they are"
    weights = [name for name in names if name.endswith("weight") and "norm" not in name]
    for name in weights:
        assert not torch.equal(drawn(CONFIG, 6)(name, names[name].shape), names[name])
    assert len({names[name].flatten()[:8].double().sum().item() for name in weights}) == len(weights), (
        "each has its own"
    )
    deeper = GPT2(GPT2Config(n_layer=7, n_head=2, n_embd=30, context=16, vocab_size=250), 5)
    assert torch.equal(deeper.blocks[3].attention.query.weight, model.blocks[3].attention.query.weight)  # type: ignore[union-attr, arg-type]


def test_each_kind_of_parameter_has_gpt2s_spread() -> None:
    """Six layers are twelve residual layers: 0.02 / sqrt(12). n numbers give it within 1 / sqrt(2 n): 4 sigma."""
    config = GPT2Config(n_layer=6, n_head=2, n_embd=128, context=64, vocab_size=1000)
    expected = {"token_embedding": 0.02, "position_embedding": 0.01}
    expected |= dict.fromkeys(("query", "key", "value", "expand"), 0.02)
    expected |= dict.fromkeys(("projection", "contract"), 0.02 / math.sqrt(12))
    kinds = set()
    for name, parameter in GPT2(config).named_parameters():
        kind, which = name.split(".")[-2:]
        kinds.add(kind)
        values = parameter[:1000] if kind == "token_embedding" else parameter
        if which == "bias" or kind.endswith("norm"):
            assert torch.equal(values, torch.full_like(values, float(which == "weight"))), name
            continue
        n = values.numel()
        assert values.std().item() == pytest.approx(expected[kind], rel=4 / math.sqrt(2 * n)), name
        assert abs(values.mean().item()) < 4 * expected[kind] / math.sqrt(n), name
        assert values.abs().max().item() > 3 * expected[kind], f"{name} is not cut off"
    assert kinds == {*expected, "attention_norm", "feed_forward_norm", "final_norm"}
    assert not GPT2(config).token_embedding.weight[1000:].any(), "padding"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_values_are_drawn_in_float32_for_any_dtype(dtype: torch.dtype) -> None:
    given = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        values = drawn(CONFIG, 0)("token_embedding.weight", (256, 30))
    finally:
        torch.set_default_dtype(given)
    assert values.dtype == torch.float32
    assert torch.equal(values, GPT2(CONFIG).token_embedding.weight)


def test_a_model_without_memory_has_no_values() -> None:
    assert {parameter.device.type for parameter in on_meta().parameters()} == {"meta"}
    with torch.device("cpu"), torch.device("meta"):
        assert on_meta().position_embedding.weight.is_meta


def test_an_offloaded_model_has_the_values_of_the_plain_one() -> None:
    settings = TrainSettings.of(n_layer=6, n_head=2, n_embd=30, context=16, batch_size=2, offload=True, seed=3)
    values = drawn(CONFIG, settings.seed)
    engine = OffloadedEngine(on_meta(), settings, WindowRules(), CPU, torch.bfloat16, values)
    for (name, ours), theirs in zip(engine.parameters.items(), GPT2(CONFIG, 3).parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    tokens_bt = torch.zeros(1, 17, dtype=torch.long)
    likelihoods = engine.offloaded.log_likelihood(tokens_bt)  # by the bfloat16 copies
    torch.testing.assert_close(likelihoods.float(), GPT2(CONFIG, 3).log_likelihood(tokens_bt), rtol=1e-2, atol=0)


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the bytes of live tensors and their peak; a DTensor counts with its own piece."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, int] = {}
        self.peak_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                own = leaf._local_tensor if isinstance(leaf, DTensor) else leaf
                storage = own.untyped_storage()
                if own.device.type != "meta" and storage._cdata not in self._live:
                    self._live[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self._live.pop, storage._cdata).atexit = False
        self.peak_bytes = max(self.peak_bytes, sum(self._live.values()))
        return result


def pieces_of_rank(mesh: str, schedule: str, rank: int) -> tuple[dict[str, np.ndarray[Any, Any]], int, int]:
    """Return what one rank of a mesh has under each name, the bytes, and the peak bytes that creating it took.

    Copies of a tied weight share one name.
    """
    shape = MeshShape.parse(mesh)
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=shape.size)
    with Allocations() as allocations:
        settings = TrainSettings.of(mesh=mesh, pipeline_schedule=schedule)
        engine = ParallelModel(on_meta(), settings, WindowRules(), CPU, torch.float32, drawn(CONFIG, 7))
    found: dict[str, np.ndarray[Any, Any]] = {}
    held = 0
    for stage in engine.stages.values():
        for name, parameter in stage.model.named_parameters():
            own = parameter._local_tensor if isinstance(parameter, DTensor) else parameter
            held += own.untyped_storage().nbytes()  # padded to the size of the largest
            piece = own.detach().numpy()
            assert np.array_equal(found.setdefault(name, piece), piece)
    return found, held, allocations.peak_bytes


def together(pieces: dict[tuple[int, int], Any], whole: Any) -> Any:
    """Join a parameter from pieces by (shard, tensor parallel rank): matrices are cut over ranks, then over shards."""
    shards, ranks = (sorted({place[i] for place in pieces}) for i in (0, 1))
    of_ranks = [np.concatenate([pieces[shard, rank] for shard in shards]) for rank in ranks]
    if of_ranks[0].shape == whole.shape:
        assert all(np.array_equal(part, of_ranks[0]) for part in of_ranks)
        return of_ranks[0]
    return np.concatenate(of_ranks, axis=next(i for i, n in enumerate(of_ranks[0].shape) if n != whole.shape[i]))


@pytest.mark.parametrize(
    ("mesh", "schedule"),
    [
        ("fsdp=2,tp=2", "1f1b"),  # rows of 15 in pieces of 8 and 7
        pytest.param("fsdp=4", "1f1b", marks=pytest.mark.slow),  # rows of 30 in pieces of 8, 8, 8 and 6
        pytest.param("dp=2,fsdp=2,tp=2", "1f1b", marks=pytest.mark.slow),
        ("pp=2", "1f1b"),  # both ranks have a copy of the tied weight
        pytest.param("pp=2,fsdp=3", "interleaved", marks=pytest.mark.slow),
    ],
)
def test_all_pieces_on_a_mesh_make_the_models_values_and_a_rank_draws_only_its_own(mesh: str, schedule: str) -> None:
    """A rank's peak is its pieces and one complete parameter, of which the token embedding is the largest.

    Each rank is a separate process, because torch keeps what it once knew about a mesh.
    """
    shape, whole = MeshShape.parse(mesh), GPT2(CONFIG, 7)
    found: dict[str, dict[tuple[int, int], Any]] = defaultdict(dict)
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as processes:
        told = processes.starmap(pieces_of_rank, [(mesh, schedule, rank) for rank in range(shape.size)], chunksize=1)
    for rank, (pieces, held, peak) in enumerate(told):
        numbers_of_meshes = 4096
        assert peak <= held + whole.token_embedding.weight.nbytes + numbers_of_meshes
        assert held < 0.7 * sum(parameter.nbytes for parameter in whole.parameters())
        place = (rank // shape.tp % shape.fsdp, rank % shape.tp)
        for name, piece in pieces.items():
            assert np.array_equal(found[name].setdefault(place, piece), piece), f"{name} is one on all that hold it"
    assert found.keys() == dict(whole.named_parameters()).keys()
    for name, parameter in whole.named_parameters():
        assert np.array_equal(together(found[name], parameter), parameter.detach().numpy()), name
