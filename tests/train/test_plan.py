"""The estimate of a run: by worked numbers, the tensors that the real model keeps, and real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_runs import flags, rows

from webtext.app.main import run
from webtext.base.errors import ConfigError, InputError
from webtext.train.mesh import MeshShape
from webtext.train.model.flops import flops_per_token
from webtext.train.plan.footprint import GIB, memory_on
from webtext.train.plan.plan import max_microbatch, plan_text, plan_training
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import TrainSettings

SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 16}


def test_time_and_cost_follow_from_the_speed_that_is_given() -> None:
    """1,000 steps of 512 x 1,024 tokens at 524,288 tokens/s are 1,000 seconds, and 8 devices at 3.6 per hour cost 8."""
    settings = TrainSettings(steps=1000)
    by_tokens = plan_training(settings, PlanSettings(processes=8, tokens_per_second=524_288.0, price=3.6))
    assert by_tokens.seconds == pytest.approx(1000)
    assert by_tokens.cost == pytest.approx(8.0)
    peak = 524_288 * flops_per_token(by_tokens.config) / 8 / 0.5 / 1e12
    by_peak = plan_training(settings, PlanSettings(processes=8, peak_tflops=peak, mfu_ratio=0.5))
    assert by_peak.seconds == pytest.approx(1000)
    unknown = plan_training(settings, PlanSettings(price=3.6))
    assert (unknown.seconds, unknown.cost) == (None, None)
    assert "time: unknown" in plan_text(unknown)


def test_a_batch_ramp_takes_fewer_tokens() -> None:
    """1,000 steps each of 64, 128 and 256 sequences, then 1,000 of 512: 960,000 sequences of 1,024 tokens."""
    settings = TrainSettings.of(steps=4000, batch_ramp_start=64, batch_ramp_steps=3000)
    plan = plan_training(settings, PlanSettings(processes=8))
    assert plan.tokens == 960_000 * 1024
    assert plan.flops == 960_000 * 1024 * flops_per_token(plan.config)
    assert (plan.layout.microbatch, plan.layout.n_microbatches) == (8, 8)
    assert "4,000 steps of 64 to 512 sequences, 983,040,000 tokens" in plan_text(plan)
    assert max_microbatch(plan.config, settings, MeshShape(dp=8), 10**15) == 8


def test_what_would_fit_is_the_largest_microbatch_that_divides_and_fits() -> None:
    settings = TrainSettings(batch_size=96, microbatch_size=12)
    config = settings.config(50_257)
    sizes = {size: memory_on(config, settings, MeshShape(), size).total for size in (1, 2, 3, 4, 6, 12)}
    assert max_microbatch(config, settings, MeshShape(dp=8), sizes[4]) == 4
    assert max_microbatch(config, settings, MeshShape(dp=8), sizes[6] - 1) == 4
    assert max_microbatch(config, settings, MeshShape(dp=8), 10**15) == 12
    assert max_microbatch(config, settings, MeshShape(dp=8), sizes[1] - 1) is None
    plan = plan_training(settings, PlanSettings(processes=8, memory_gib=(sizes[1] - 1) / GIB))
    assert "does not fit in" in plan_text(plan)
    assert "choose a smaller model or context or activation_checkpointing = 'selective'" in plan_text(plan)


def test_a_mesh_that_is_set_is_planned() -> None:
    """Each of two pairs of shards takes 128 of 512 sequences; parameters are halved."""
    settings = TrainSettings.of(mesh="dp=2,fsdp=2", microbatch_size=16)
    plan = plan_training(settings, PlanSettings(memory_gib=80.0))
    assert (plan.layout.shape.size, plan.layout.microbatch, plan.layout.n_microbatches) == (4, 16, 8)
    whole = memory_on(plan.config, settings, MeshShape(), 16)
    assert plan.memory.parameters == whole.parameters // 2
    assert plan.max_microbatch == 128
    assert "processes: 4, each 8 x 16 sequences" in plan_text(plan)
    with pytest.raises(ConfigError, match="tp=5 does not divide n_head"):
        plan_training(TrainSettings.of(mesh="tp=5"), PlanSettings())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"processes": 0}, "processes is 0"),
        ({"mfu_ratio": 1.5, "peak_tflops": 1.0}, "mfu_ratio is 1.5"),
        ({"mfu_ratio": 0.5}, "only together"),
        ({"tokens_per_second": 1.0, "measured": "x"}, "tokens_per_second and measured all set the speed"),
        ({"price": -1.0}, "price is -1.0"),
    ],
)
def test_an_impossible_plan_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PlanSettings(**given)


def test_a_batch_that_does_not_divide_is_rejected() -> None:
    with pytest.raises(ConfigError, match="does not divide into 3 processes"):
        plan_training(TrainSettings(), PlanSettings(processes=3))


def test_the_verb_plans_with_a_token_set_and_with_the_speed_of_an_earlier_run(
    tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "model")
    how = flags(steps=5)
    assert run(["train", "run", tokens, "--out", model, *how, "--quiet"]) == 0
    assert run(["train", "plan", tokens, *how, "--measured", model, "--processes", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["config"]["vocab_size"] == 61
    assert answer["tokens"] == 5 * 4 * 16
    assert answer["sources"] == [
        {"name": tokens, "tokens": 9720, "held_out_tokens": 972, "share": 1, "passes": 5 * 4 * 16 / 9720}
    ]
    speeds = sorted(row["tokens_per_second"] for row in rows(tmp_path / "model") if "loss" in row)
    assert answer["tokens_per_second"] == pytest.approx(2 * speeds[2])
    assert answer["seconds"] == pytest.approx(5 * 4 * 16 / (2 * speeds[2]))
    assert run(["train", "plan", "--model", "1542M"]) == 0
    assert capsys.readouterr().out.startswith("1,557,611,200 parameters")
    assert run(["train", "plan", "--model", "1542m"]) == 2
    assert "did you mean '1542M'?" in capsys.readouterr().err
    (tmp_path / "model/metrics.jsonl").write_text("")
    with pytest.raises(InputError, match="contains no speed"):
        plan_training(TrainSettings(), PlanSettings(measured=model))


def test_an_offloaded_run_is_planned_by_its_host_memory_and_the_link_that_hides_its_copies() -> None:
    """16 bytes per parameter in float32, and each layer's input; at 1,000 FLOP/s, by hand."""
    settings = TrainSettings.of(**SMALL, batch_size=4, microbatch_size=2, offload="host", dtype="float32")
    n = 128 * 32 + 16 * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    expected = (16 * n + 2 * 2 * 2 * 16 * 32 * 4) / GIB
    on_host = f"offloaded: {expected:,.2f} GiB on the host"
    assert plan_text(plan_training(settings, PlanSettings(vocab_size=128))).splitlines()[-1] == on_host
    speed = PlanSettings(vocab_size=128, peak_tflops=1e-9, mfu_ratio=1.0)
    forward = 4 * 16 * (24 * 32**2 + 4 * 32 * 16) / 1e3  # a layer's, in seconds
    covering = 4 * (12 * 32**2 + 13 * 32) / forward / 1e9  # its parameters are copied while another computes
    assert plan_text(plan_training(settings, speed)).splitlines()[-1] == (
        f"{on_host}; computing hides its copies on links of {covering:,.3g} GB/s or more, each way"
    )
