"""The oldest torch that is supported, 2.11: its names are enough, and a run on one device works in it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BENCH = REPOSITORY / "tests" / "bench"
sys.path.append(str(BENCH))
import bench_gpu  # noqa: E402

# Found by comparing the modules of torch 2.11.0 and 2.13.0 that train/ uses, with the parameters of what is in them.
NEWER_NAMES = (
    "LinearCrossEntropyLoss LinearCrossEntropyOptions linear_cross_entropy DataParallelMeshDims _StridedShard InferenceMode "
    "all_gather_single all_gather_single_coalesced reduce_scatter_single reduce_scatter_single_coalesced empty_host_cache "
    "is_capturing suspend python_native set_separate_reduce_scatter_group set_reduce_scatter_max_input_buffers "
    "set_reduce_scatter_unused_params enforce_grad_layout_policy swap_in_optimizer_params_and_state thread_safe_generator "
    "trace_activities use_pg_for_symm_mem_rendezvous load_metallib is_ck_sdpa_available _foreach_clone _foreach_mm"
)
NEWER_PARAMETERS = (
    "recompile_limit isolate_recompiles shapes_spec dp_mesh_dims loss_kwargs grad_placements sort_ranks defer_pp_recv "
    "check_input_liveness enable_annotations separate_full_blocks compute_dq_write_order dq_kv_order op_output"
)
RUN = """
import os, sys, torch
from pathlib import Path
from gpu_rows import Place, evaluation, resumed, sampling, training
assert torch.__version__.startswith("2.11."), torch.__version__
place = Place(Path(sys.argv[1]), True, "", "")
assert training(place, "124M", compile="on")["compiled"]
assert resumed(place)["resumed_bit_for_bit"]
evaluation(place), sampling(place)
"""


def newer_names(source: str) -> set[str]:
    """Return what a module uses that torch 2.11 lacks: attributes, imports from torch, and names of arguments."""
    names, parameters, found = set(NEWER_NAMES.split()), set(NEWER_PARAMETERS.split()), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} & names
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found |= {alias.name for alias in node.names} & names
        elif isinstance(node, ast.keyword):
            found |= {node.arg or ""} & parameters
    return found


def test_train_uses_no_name_that_torch_2_11_lacks_unless_it_asks_for_it() -> None:
    """A name is asked for by getattr with a default, as `tensor_parallel.py` does."""
    assert newer_names("from torch.nn.functional import linear_cross_entropy") == {"linear_cross_entropy"}
    assert newer_names("distributed.all_gather_single(a, b); fully_shard(m, dp_mesh_dims=None)") == {
        "all_gather_single",
        "dp_mesh_dims",
    }
    used = {path.name: newer_names(path.read_text()) for path in (REPOSITORY / "train").rglob("*.py")}
    assert {name: names for name, names in used.items() if names} == {}


def test_one_device_trains_compiled_and_resumes_and_is_evaluated_and_sampled_in_torch_2_11(tmp_path: Path) -> None:
    python = os.environ.get("WEBTEXT_TORCH_2_11")
    if not python:
        pytest.skip(
            "needs torch 2.11: set WEBTEXT_TORCH_2_11 to a Python with it, numpy, safetensors, click and msgspec"
        )
    places = f"{bench_gpu.link_tree(tmp_path)}:{BENCH}"
    command = [python, "-c", RUN, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
