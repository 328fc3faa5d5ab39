"""Meshes that are proposed for known models and devices, the reasons, and the errors if nothing fits."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import astuple
from typing import Any

import pytest

from webtext.app.main import run
from webtext.base.errors import ConfigError
from webtext.train.mesh import MeshShape
from webtext.train.plan.cost import StepTime, step_time
from webtext.train.plan.footprint import GIB, memory_of_layout
from webtext.train.plan.layout import layouts, meshes
from webtext.train.plan.plan import USABLE_RATIO, TrainPlan, plan_text, plan_training
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import TrainSettings

MT_NLG = {"n_layer": 105, "n_head": 128, "n_embd": 20480, "context": 2048, "batch_size": 1920}


def planned(devices: int, memory_gib: float, plan: dict[str, Any] | None = None, **train: Any) -> TrainPlan:
    settings = TrainSettings.of(**train)
    return plan_training(settings, PlanSettings(devices=devices, memory_gib=memory_gib, **(plan or {})))


def time_of(*how: Any, **train: Any) -> StepTime:
    time = planned(*how, **train).time
    assert time is not None
    return time


def test_one_device_takes_no_mesh_and_as_large_a_microbatch_as_fits() -> None:
    best = planned(1, 80)
    assert best.layout.shape == MeshShape()
    assert best.layout.activation_checkpointing == "none"
    assert best.layout.flags == f"--microbatch-size {best.layout.microbatch}"
    assert best.memory.total <= 0.9 * 80 * GIB


def test_replicas_are_proposed_where_they_fit() -> None:
    """1,558M parameters take 18 bytes each, 28 GB, of 80: nothing needs to be sharded."""
    assert str(planned(8, 80, model="1542M").layout.shape) == "dp=8"


def test_shards_are_proposed_where_replicas_do_not_fit() -> None:
    assert str(planned(64, 16, model="1542M").layout.shape) == "fsdp=64"
    reasons = planned(64, 16, model="1542M").simpler
    assert list(reasons) == ["dp"]
    assert reasons["dp"].endswith("GiB at least: dp=64")


def test_a_model_of_530_billion_takes_tensor_parallel_in_a_node_and_a_pipeline() -> None:
    """As Megatron-Turing NLG did on 2,240 A100s, tp=8 and pp=35 (Smith et al. 2022, section 2.3)."""
    best = planned(2240, 80, **MT_NLG)
    assert best.layout.shape.tp == 8
    assert best.layout.shape.pp > 1
    assert best.layout.shape.size == 2240


def test_the_proposal_fits_and_is_within_three_percent_of_the_fastest_of_all_that_fit() -> None:
    settings, found = TrainSettings(model="1542M"), planned(16, 24, model="1542M")
    assert found.time is not None
    usable, machine, config = USABLE_RATIO * 24 * GIB, found.machine, settings.config(50_257)
    assert memory_of_layout(config, settings, found.layout).total <= usable
    of_all = [one for shape in meshes(config, 512, 16, 8) for one in layouts(config, settings, shape)]
    seconds = {
        one: step_time(config, settings, one, machine).total
        for one in of_all
        if memory_of_layout(config, settings, one).total <= usable
    }
    assert 10 < len(seconds) < len(of_all)
    assert seconds[found.layout] == found.time.total <= 1.03 * min(seconds.values())


def test_blocks_are_computed_twice_only_where_memory_binds() -> None:
    assert planned(1, 80, context=4096, batch_size=8).layout.activation_checkpointing == "none"
    tight = planned(1, 3.6, context=4096, batch_size=8)
    assert tight.layout.activation_checkpointing == "full"
    assert "--activation-checkpointing full" in plan_text(tight)
    assert tight.time is not None
    assert tight.time.recompute > 0


def test_a_step_names_its_longest_part_first() -> None:
    """On slow links that is what they send."""
    slow = {"inside_gb_per_second": 0.01, "between_gb_per_second": 0.01}
    found = planned(8, 80, slow, batch_size=8)
    assert found.time is not None
    longest = max(found.time.messages, found.time.data_parallel, found.time.tensor_parallel)
    assert longest == max(astuple(found.time))
    assert f" {longest:.3g}" in plan_text(found).partition(" s (")[2].partition(",")[0]
    assert " s (compute " in plan_text(planned(1, 80))


def test_if_nothing_fits_the_error_says_what_would() -> None:
    with pytest.raises(ConfigError, match="no mesh of 8 devices of 2 GiB fits 1,557,611,200 parameters") as caught:
        planned(8, 2, model="1542M")
    advice = str(caught.value)
    enough = float(advice.split("--memory-gib ")[1].split()[0])
    assert planned(8, enough, model="1542M").memory.total <= enough * GIB
    devices = int(advice.split("--devices ")[1].split()[0])
    assert planned(devices, 2, model="1542M").memory.total <= 2 * GIB


def test_memory_for_less_than_one_layer_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="--memory-gib"):
        planned(2, 0.001, batch_size=8)


def test_devices_that_nothing_divides_over_are_an_error_with_the_nearest_that_do() -> None:
    with pytest.raises(ConfigError, match=r"no mesh of 97 devices divides 512 sequences") as caught:
        planned(97, 80, model="1542M")
    assert "--devices 96 or --batch-size 582" in str(caught.value)
    assert planned(97, 80, model="1542M", batch_size=582).layout.shape.size == 97


def test_a_faster_memory_shortens_what_is_between_the_products() -> None:
    """An H200 is an H100 with a memory of 4.8 instead of 3.35 TB/s."""
    times = [time_of(1, 80, {"data_sheet": name}) for name in ("h100", "h200")]
    assert times[0].between / times[1].between == pytest.approx(4.8 / 3.35)
    assert times[0].compute == times[1].compute
    assert times[0].total > times[1].total


def test_a_run_as_it_is_set_takes_as_long_as_the_data_sheet_allows() -> None:
    settings = TrainSettings(microbatch_size=16)
    plan = plan_training(settings, PlanSettings(data_sheet="h100"))
    assert plan.time is not None
    assert plan.seconds == pytest.approx(settings.steps * plan.time.total)
    assert plan.seconds > plan.flops / 989e12
    with pytest.raises(ConfigError, match="data_sheet is 'b52'\nit must be one of a100, h100, h200"):
        PlanSettings(data_sheet="b52")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devices": 0, "memory_gib": 80.0}, "devices is 0"),
        ({"devices": 8}, "give --memory-gib"),
        ({"devices": 8, "memory_gib": 80.0, "devices_per_node": 0}, "devices_per_node is 0"),
        ({"devices": 8, "memory_gib": 80.0, "processes": 2}, "both set"),
        ({"devices": 8, "memory_gib": 80.0, "tokens_per_second": 1.0}, "the speed of a single mesh"),
        ({"devices": 8, "memory_gib": 80.0, "between_gb_per_second": 0.0}, "between_gb_per_second is 0"),
    ],
)
def test_an_impossible_request_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PlanSettings(**given)


def test_the_verb_prints_the_mesh_its_reasons_and_the_data_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["train", "plan", "--model", "1542M", "--devices", "64", "--memory-gib", "16"]
    assert run(flags) == 0
    out = capsys.readouterr().out
    assert "  --mesh fsdp=64 --microbatch-size " in out
    assert "simpler: dp: " in out
    assert "h100's data sheet: no step is faster" in out
    assert run([*flags, "--tflops", "156", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["layout"]["shape"] == {"pp": 1, "dp": 1, "fsdp": 64, "tp": 1}
    assert answer["machine"]["flops"] == 156e12
    assert answer["memory"]["total"] == sum(n for name, n in answer["memory"].items() if name != "total")
    assert answer["seconds"] == pytest.approx(answer["settings"]["steps"] * answer["time"]["total"])


def test_a_mesh_is_proposed_without_torch(real_processes: None) -> None:
    code = (
        "import sys; from webtext.app.main import run; "
        "code = run(['train', 'plan', '--devices', '8', '--memory-gib', '80']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
