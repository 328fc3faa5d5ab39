"""Memory of a device: worked numbers, the tensors that the real model keeps, and the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from webtext.base.config import changed
from webtext.train import GPT2, footprint
from webtext.train.data.windows import documents_of
from webtext.train.footprint import Memory, block_parameters, blocks_of_rank, in_flight, memory_of
from webtext.train.mesh import MeshShape
from webtext.train.model import cross_entropy
from webtext.train.model.compilation import compile_model
from webtext.train.model.precision import cast_parameters
from webtext.train.offload import engine as offload
from webtext.train.optimizer.optimizer import make_optimizer
from webtext.train.parallel.tensor_parallel import split_tensors
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

TINY = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 16}
SMALL = TrainSettings.of(n_layer=8, n_head=4, n_embd=64, context=32, batch_size=64)
CONFIG = SMALL.config(1000)


def activations_of(config: GPT2Config, settings: TrainSettings, microbatch: int) -> int:
    """Return the estimate for one device."""
    return memory_of(config, settings, MeshShape(), microbatch).activations


def planned_on(mesh: str = "", n_microbatches: int = 8) -> Memory:
    """Return the plan of SMALL with microbatches of two sequences on a mesh."""
    shape = MeshShape.parse(mesh)
    return memory_of(CONFIG, changed(SMALL, batch_size=2 * n_microbatches * shape.n_data), shape, 2)


def kept_bytes(settings: TrainSettings, microbatch: int = 7, *, compiled: bool = False) -> int:
    """Return the bytes of all tensors that the model keeps for its backward pass, without weights and their casts.

    Seven sequences identify them, because all other sizes are powers of two.
    """
    model = GPT2(settings.config(61))
    model.activation_checkpointing = settings.machine.activation_checkpointing
    if compiled:
        compile_model(model)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    n_tokens = microbatch * settings.context
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.numel() % n_tokens == 0:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    dtype = torch.float32 if settings.dtype == "float32" else torch.bfloat16
    with cast_parameters(model, dtype), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        tokens_bt = torch.randint(61, (microbatch, settings.context))
        documents_bt = documents_of(tokens_bt, 5) if settings.data.documents == "masked" else None
        model.hidden(tokens_bt, documents_bt=documents_bt)
    return sum(n for n, _ in kept.values())


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_the_planned_activations_are_the_tensors_that_the_model_keeps(dtype: str, n_layer: int) -> None:
    settings = TrainSettings.of(**{**TINY, "n_layer": n_layer}, dtype=dtype)
    config = settings.config(61)
    of_flash = 4 * n_layer * 7 * 16 * 2 if dtype == "bfloat16" else 0  # one float32 per head
    assert activations_of(config, settings, 7) == kept_bytes(settings) + of_flash


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_the_mask_of_documents_is_planned_and_kept_once_for_all_layers(dtype: str, n_layer: int) -> None:
    """16 x 16 numbers in the run's dtype for each of seven sequences; with a mask torch's own kernel runs."""
    settings = TrainSettings.of(**{**TINY, "n_layer": n_layer}, dtype=dtype, documents="masked", device="cpu")
    config, size = settings.config(61), 2 if dtype == "bfloat16" else 4
    assert activations_of(config, settings, 7) == kept_bytes(settings)
    unmasked = activations_of(config, TrainSettings.of(**{**TINY, "n_layer": n_layer}, dtype=dtype), 7)
    assert activations_of(config, settings, 7) - unmasked == 7 * 16 * 16 * size


@pytest.mark.parametrize(("how", "has_matrix"), [("auto", False), ("off", True)])
def test_flex_attention_keeps_no_matrix_of_documents(how: str, has_matrix: bool) -> None:
    """It runs in compiled steps on a GPU, which device 'auto' counts as."""
    plain = TrainSettings.of(**TINY, compile=how)
    masked = changed(plain, documents="masked")
    config = plain.config(61)
    assert activations_of(config, masked, 7) - activations_of(config, plain, 7) == has_matrix * 7 * 16 * 16 * 2


class LargestTensors(TorchDispatchMode):
    """Notes the bytes of the largest float32 tensor that is made."""

    n_bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dtype == torch.float32:
            self.n_bytes = max(self.n_bytes, made.nbytes)
        return made


@pytest.mark.parametrize(("device", "planned_as"), [("meta", "cuda"), ("cpu", "cpu")])
def test_logits_have_a_float32_copy_where_the_loss_is_not_compiled_except_on_a_cpu(
    device: str, planned_as: str
) -> None:
    """A CPU takes 512 of 1,024 rows at once. The weight's gradient has 1,024 x 32 numbers."""
    hidden = torch.randn(1024, 32, dtype=torch.bfloat16, requires_grad=True, device=device)
    weight = torch.randn(1024, 32, dtype=torch.bfloat16, device=device)
    with LargestTensors() as largest:
        cross_entropy.linear_cross_entropy(hidden, weight, torch.zeros(1024, dtype=torch.long, device=device), 1000)
    assert largest.n_bytes == 4 * 1024 * 1024 // (2 if device == "cpu" else 1)
    settings = TrainSettings.of(**{**TINY, "context": 1024}, device=planned_as)

    def output_layer(compile: str) -> int:
        how = changed(settings, compile=compile)
        return memory_of(how.config(1000), how, MeshShape(), 1).output_layer

    assert output_layer("off") - output_layer("on") == (0 if device == "cpu" else largest.n_bytes)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("how", [False, True])
def test_compiled_blocks_keep_what_is_planned(how: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third block adds so much, cut out as torch's compiler does for a GPU; here nothing is compiled after that."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager_decomp_partition"))
    kept, planned = [], []
    for n_layer in (2, 3):
        torch._dynamo.reset()
        settings = TrainSettings.of(**{**TINY, "n_layer": n_layer}, dtype=dtype, activation_checkpointing=how)
        kept.append(kept_bytes(settings, compiled=True))
        planned.append(activations_of(settings.config(61), settings, 7))
    of_flash = 7 * 16 * 2 * 4 if dtype == "bfloat16" and not how else 0  # which `blocked_attention` doesn't keep
    assert planned[1] - planned[0] == kept[1] - kept[0] + of_flash


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_checkpointed_activations_are_the_blocks_inputs_and_one_block(dtype: str) -> None:
    settings = TrainSettings.of(**TINY, dtype=dtype, activation_checkpointing=True)
    config, n_tokens = settings.config(61), 7 * 16
    size = 2 if dtype == "bfloat16" else 4
    one_block = n_tokens * (2 * (size * 32 + 2 * size) + 14 * size * 32 + 4 * 2)
    assert activations_of(config, settings, 7) == kept_bytes(settings) + one_block


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_planned_parameters_gradients_and_moments_are_the_tensors_of_a_run(name: str) -> None:
    settings = TrainSettings.of(**TINY, optimizer=name)
    model = GPT2(settings.config(61))
    optimizer = make_optimizer(dict(model.named_parameters()), settings)
    model.loss(torch.randint(61, (2, 16)), torch.randint(61, (2, 16))).backward()
    optimizer.step()
    planned = memory_of(model.config, settings, MeshShape(), 2)
    assert planned.parameters == sum(p.nbytes for p in model.parameters())
    assert planned.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    moments = [moment for state in optimizer.state.values() for kind, moment in state.items() if kind != "step"]
    assert planned.optimizer == sum(moment.nbytes for moment in moments)
    assert planned.cast_parameters == sum(2 * p.numel() for p in model.parameters())
    theirs = cross_entropy.LOGITS_PER_CHUNK, cross_entropy.MOST_CHUNKS, offload.INPUTS_PER_MICROBATCH
    assert theirs == (footprint.LOGITS_PER_CHUNK, footprint.MOST_CHUNKS, footprint.INPUTS)


def test_the_plan_is_smaller_with_checkpointing_and_larger_with_float32() -> None:
    def activations(**change: Any) -> int:
        settings = TrainSettings.of(model="345M", **change)
        return activations_of(settings.config(50_257), settings, 8)

    assert activations(activation_checkpointing=True) < activations() < activations(dtype="float32")


def test_shards_divide_parameters_gradients_and_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bytes per parameter become 4 on each of four, plus what is gathered in bfloat16: of a large model the
    embeddings and two blocks.
    """
    whole = planned_on()
    shard = planned_on("fsdp=4")
    assert shard.parameters == whole.parameters // 4
    assert shard.optimizer == whole.optimizer // 4
    two_blocks = 2 * block_parameters(CONFIG, 1)
    assert shard.gradients == whole.gradients // 4 + 4 * two_blocks
    assert shard.cast_parameters == whole.cast_parameters
    monkeypatch.setattr("webtext.train.footprint.LARGEST_GATHERED", whole.cast_parameters - 1)
    shard = planned_on("fsdp=4")
    assert shard.cast_parameters == 2 * (1024 * 64 + 32 * 64 + 2 * 64 + two_blocks)
    assert planned_on("dp=4") == whole


def test_shards_in_a_pipeline_keep_complete_gradients_and_parameters() -> None:
    whole, shard = (planned_on(mesh, n_microbatches=2) for mesh in ("pp=2", "pp=2,fsdp=4"))
    assert (shard.gradients, shard.cast_parameters) == (whole.gradients, whole.cast_parameters)


def test_tensor_parallel_divides_matrices_and_their_biases_but_no_norm() -> None:
    """12 x 64^2 + 7 x 64 are split, 6 x 64 are not: two norms of 2 x 64 and the biases of two layers split by rows."""
    assert block_parameters(CONFIG, 1) == 12 * 64**2 + 13 * 64
    assert block_parameters(CONFIG, 4) == (12 * 64**2 + 7 * 64) // 4 + 6 * 64
    split = planned_on("tp=4")
    assert split.parameters == 4 * (1024 * 64 // 4 + 32 * 64 + 2 * 64 + 8 * block_parameters(CONFIG, 4))


def test_tensor_parallel_divides_activations_except_two_inputs_per_block() -> None:
    """A block has 14 + 2 widths in bfloat16. The inputs of query and of expand are gathered: 2 stay, 14 are halved.

    Each rank notes in a byte per token whether it has the token's vector.
    """
    tokens = 2 * 32
    whole = planned_on().activations
    split = planned_on("tp=2").activations
    assert 2 * split - whole == tokens * (8 * 2 * 2 * 64 + 8 + 2)


@pytest.fixture
def rank_of() -> Iterator[Callable[[int], None]]:
    """rank_of(n) makes this process the first of n, whose collectives move nothing, because only shapes count here."""

    def join(n: int) -> None:
        distributed.init_process_group("fake", rank=0, world_size=n, store=FakeStore())

    yield join
    distributed.destroy_process_group()


def own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_the_tensors_of_a_split_model_are_those_that_are_planned(
    tp: int, n_layer: int, rank_of: Callable[[int], None]
) -> None:
    rank_of(tp)
    settings = TrainSettings.of(n_layer=n_layer, n_head=4, n_embd=32, context=16, dtype="float32")
    model = GPT2(settings.config(250))
    split_tensors(model, distributed.init_device_mesh("cpu", (tp,)).get_group())
    weights = {own(p).untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = own(tensor).untyped_storage().data_ptr()
        if storage not in weights and own(tensor).numel() % 7 == 0:  # seven sequences tell activations from the rest
            kept[storage] = own(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.hidden(torch.randint(250, (7, 16)))
    planned = memory_of(model.config, changed(settings, batch_size=7), MeshShape(tp=tp), 7)
    assert planned.activations == sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert planned.parameters == sum(own(p).nbytes for p in model.parameters())


def test_the_first_rank_of_1f1b_keeps_the_activations_of_as_many_microbatches_as_there_are_stages() -> None:
    """Four stages of two blocks: 4 x 2 = 8 blocks, as many as on one device; the last rank keeps one microbatch."""
    assert [in_flight(1, 4, rank) for rank in range(4)] == [4, 3, 2, 1]
    assert [blocks_of_rank(CONFIG, SMALL, 4, rank) for rank in range(4)] == [2, 2, 2, 2]
    one = changed(SMALL, n_layer=2)
    received = 1 * 8 * 2 * 32 * 64 * 2  # gradients of 8 microbatches
    held = planned_on("pp=4")
    final_norm = 2 * 32 * (64 * 2 + 2 * 2)
    assert held.activations == 4 * (activations_of(one.config(1000), one, 2) - final_norm) + received


def test_both_ends_of_a_pipeline_have_the_embedding_and_the_middle_does_not() -> None:
    table, block = 1024 * 64, block_parameters(CONFIG, 1)
    assert planned_on("pp=4").parameters in (4 * (table + 32 * 64 + 2 * block), 4 * (table + 2 * 64 + 2 * block))


def test_interleaving_keeps_a_little_more_on_the_first_rank_but_no_more_than_there_are() -> None:
    """Narayanan et al. 2021: with two stages per rank the first of four keeps 2 x 3 + 4 + 1 = 11 half stages, 5.5."""
    assert [in_flight(2, 4, rank) for rank in range(4)] == [5.5, 4.5, 3.5, 2.5]
    assert planned_on("pp=4", n_microbatches=2).activations < planned_on("pp=4", n_microbatches=4).activations / 3
