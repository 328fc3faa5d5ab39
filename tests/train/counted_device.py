"""What a run asks of its device, counted on meta tensors, which have shapes but no values.

    with CountedDevice() as device:
        loss = engine.forward_backward(microbatches, n)
        counts = device.take()
    assert counts.waits == []
    assert counts.n_launched <= 150

**Launched** is an operation that computes or copies on the device; views and allocations aren't. A grouped operation
(`_foreach_*`, `_fused_*`, as torch has them for CUDA) is one, whatever number of kernels it takes.

**A compiled region** is what one call of a function runs that `torch.compile` compiled: the graph that it traced, forward
or backward. It is counted apart, by the number of calls, and as the kernels that a compiler makes of it: each product,
attention, gather or scatter is one, and so are all other operations that are connected, with no such kernel in between.
A graph break makes more regions, and operations outside them.

**Moved bytes** are the distinct inputs of each kernel, read once, and its outputs, written once. A lookup reads the rows
that it returns. What stays in a cache from one kernel to the next is moved all the same.

**A wait** stops the host until the device has computed a value. `.item()`, `bool()`, `.cpu()` and indexing by a mask raise
for a meta tensor; a copy to or from the host that isn't `non_blocking` is in `waits`.

The device counts as one on which torch has fused and grouped optimizers, and flash attention.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

N_ARGUMENTS = 32  # at most
NOTHING = ("aten.empty", "aten.new_empty", "aten._unsafe_view.", "aten.promote_types.", "profiler.")
"""Operations that compute nothing, beside views."""
GATHERING = ("aten.embedding.", "aten.gather.", "aten.index.", "aten.index_select.")
"""They read as many numbers as they return."""
OVERWRITING = ("aten.copy_.", "aten._foreach_copy_.", "aten.fill_.", "aten.zero_.")
"""They don't read what they change."""
WITHOUT_META = (torch.ops.aten._fused_sgd_.default,)
"""They return nothing, and torch can't run them on meta tensors."""
KERNELS = ("mm.", "bmm.", "addmm.", "attention", "embedding", "gather.", "scatter", "cumsum.", "sort.", "c10d")
"""Parts of the names of operations in a compiled region that a compiler doesn't merge with those around them."""


@dataclass
class Counts:
    """Operations outside compiled regions by name, calls of regions and their kernels by kind, bytes, and waits."""

    operations: Counter[str] = field(default_factory=Counter)
    regions: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    n_bytes: int = 0
    waits: list[str] = field(default_factory=list)

    @property
    def n_launched(self) -> int:
        """Operations outside compiled regions; each call of a region is another launch, of one graph."""
        return self.operations.total()


class CountedDevice(TorchDispatchMode):
    """Counts until `take`. Functions compiled inside the block are regions: 'forward', 'backward', or else 'other'."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self._is_in_region = False
        self._patches = contextlib.ExitStack()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work inside the block: torch ignores it inside other dispatch modes."""
        return True

    def take(self) -> Counts:
        """Return the counts since the last time, and begin again."""
        counts, self.counts = self.counts, Counts()
        return counts

    def __enter__(self) -> Any:
        torch._dynamo.reset()  # regions compiled for an earlier device count there
        devices = ["cpu", "meta"]
        compiled = functools.partial(torch.compile, backend=self._compile)
        self._patches.enter_context(patch.object(torch, "compile", compiled))
        for place in (
            "torch.optim.optimizer._get_fused_kernels_supported_devices",
            "torch.utils._foreach_utils._get_foreach_kernels_supported_devices",
        ):
            self._patches.enter_context(patch(place, lambda: devices))
        self._patches.enter_context(patch("torch.nn.functional.scaled_dot_product_attention", flash_attention))
        # attention without dropout draws nothing, but torch would keep the generator's state to compute it again
        self._patches.enter_context(
            patch("torch._functorch.partitioners.has_recomputable_rng_ops", lambda graph: False)
        )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None if func in WITHOUT_META else func(*args, **kwargs)
        self.count(func, args, kwargs, tensors_of(result))
        return result

    def count(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        """Count a call that returned `made`, if it launches work on the device outside compiled regions."""
        tensors = (*tensors_of((args, kwargs)), *made)
        if not self._is_in_region and launches(func) and any(tensor.is_meta for tensor in tensors):
            self.counts.operations[str(func)] += 1
            self.counts.n_bytes += moved_bytes(func, args, kwargs, made)
            if is_wait(func, args, kwargs, tensors):
                self.counts.waits.append(str(func))

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        names = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "other"}
        compilers = {kind: functools.partial(self._region, name) for kind, name in names.items()}
        return aot_autograd(**compilers, keep_inference_input_mutations=True)(graph, inputs)

    def _region(self, name: str, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        kernels = fused_kernels(graph)
        n_bytes = sum(kernels)

        def run(values: list[Any]) -> Any:
            self._is_in_region = True
            try:
                result = graph(*values)
            finally:
                self._is_in_region = False
            values.clear()
            self.counts.regions[name] += 1
            self.counts.kernels[name] += len(kernels)
            self.counts.n_bytes += n_bytes
            return result

        run._boxed_call = True  # type: ignore[attr-defined]  # takes a list, so that arguments can be freed early
        return run


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, **how: Any
) -> Tensor:
    """Scaled dot product attention as one operator: torch would compute it on meta tensors by several."""
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    answer: Tensor = operator(
        q, k, v, dropout_p, how.get("is_causal", False), attn_mask=attn_mask, scale=how.get("scale")
    )[0]
    return answer


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


@functools.cache
def launches(func: Any) -> bool:
    """Whether an operation launches work: not if it only makes a view, or allocates."""
    return not is_view(func) and not str(func).startswith(NOTHING)


@functools.cache
def is_view(func: Any) -> bool:
    """Whether an operation returns the memory of an argument, unchanged."""
    returns = func._schema.returns if hasattr(func, "_schema") else []  # an operator that calls another has no schema
    return any(one.alias_info is not None and not one.alias_info.is_write for one in returns)


@functools.cache
def changed_arguments(func: Any) -> list[tuple[int, str]]:
    """The positions and names of the arguments that an operation changes."""
    arguments = enumerate(func._schema.arguments)
    return [(i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]


def written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the arguments of a call that it changes."""
    values = [*args, *(None for _ in range(N_ARGUMENTS - len(args)))]
    return tensors_of([kwargs.get(name, values[i]) for i, name in changed_arguments(func)])


def moved_bytes(func: Any, args: Any, kwargs: Any, made: Iterable[Tensor]) -> int:
    """Return the bytes that a call reads and writes."""
    name, changed = str(func), written(func, args, kwargs)
    outputs = {id(tensor): tensor for tensor in (*changed, *made)}
    not_read = {id(tensor) for tensor in changed} if name.startswith(OVERWRITING) or "out" in kwargs else set()
    inputs = {id(tensor): tensor for tensor in tensors_of((args, kwargs)) if id(tensor) not in not_read}
    n_written = sum(map(size_of, outputs.values()))
    if name.startswith(GATHERING):
        return 2 * n_written
    if "scatter" in name and changed:  # touches as many numbers as there are indices
        return 3 * size_of(args[3]) if isinstance(args[3], Tensor) else size_of(args[2])
    return n_written + sum(map(size_of, inputs.values()))


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's numbers; those that an expanded tensor repeats count once."""
    n = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        n *= size if stride else min(size, 1)
    return int(n) * tensor.itemsize


def is_wait(func: Any, args: Any, kwargs: Any, tensors: Iterable[Tensor]) -> bool:
    """Whether a call copies between host and device and returns only when that is done."""
    is_copy = func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
    between = len({tensor.is_meta for tensor in tensors}) == 2
    return is_copy and between and not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))


def fused_kernels(graph: fx.GraphModule) -> list[int]:
    """Return the bytes that each kernel of a compiled region moves."""
    source, kernel = kernels_of(graph)
    reads: defaultdict[fx.Node, dict[fx.Node, int]] = defaultdict(dict)
    writes: defaultdict[fx.Node, set[fx.Node]] = defaultdict(set)
    edges = [(node, one) for node in graph.graph.nodes for one in node.all_input_nodes if source[node] is node]
    for node, one in edges:
        made, mine = source[one], kernel.get(node)
        if mine is not None and kernel.get(made) is mine:
            continue
        if made in kernel:
            writes[kernel[made]].add(made)
        if mine is not None:
            of_rows = str(node.target).startswith(GATHERING)
            reads[mine][made] = max(reads[mine].get(made, 0), size_of_node(node if of_rows else one))
    return [
        sum(reads[first].values()) + sum(map(size_of_node, writes[first])) for first in dict.fromkeys(kernel.values())
    ]


def kernels_of(graph: fx.GraphModule) -> tuple[dict[fx.Node, fx.Node], dict[fx.Node, fx.Node]]:
    """Return, for each node, the one that computed what it shows; and for those that compute, their kernel's first node."""
    source: dict[fx.Node, fx.Node] = {}
    kernel: dict[fx.Node, fx.Node] = {}
    level: dict[fx.Node, int] = {}  # kernels that have to end before
    for node in graph.graph.nodes:
        inputs = list(dict.fromkeys(source[one] for one in node.all_input_nodes))
        source[node], level[node] = node, max((level[one] for one in inputs), default=0)
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            kernel[node] = kernel[inputs[0]]
            continue
        if not launches(node.target):
            source[node] = inputs[0] if inputs else node
            continue
        kernel[node] = node
        level[node] += is_kernel(node)
        merged = [one for one in inputs if one in kernel and level[one] == level[node] and not is_kernel(kernel[one])]
        for one in [] if is_kernel(node) else merged:
            old, new = kernel[one], kernel[node]
            kernel = {member: new if first is old else first for member, first in kernel.items()}
    return source, kernel


def is_kernel(node: fx.Node) -> bool:
    """Whether a compiler makes a kernel of its own of an operation."""
    name = str(node.target if hasattr(node.target, "_schema") else node.args[0])
    return any(part in name for part in KERNELS)


def size_of_node(node: fx.Node) -> int:
    value = node.meta.get("val")
    return size_of(value) if isinstance(value, Tensor) else 0
