"""The estimate of a run: by worked numbers, the tensors that the real model keeps, and real files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_runs import flags

from webtext.app.main import run
from webtext.base.errors import ConfigError
from webtext.train.mesh import MeshShape
from webtext.train.model.flops import flops_per_token
from webtext.train.plan.footprint import GIB, memory_of_layout
from webtext.train.plan.layout import Layout
from webtext.train.plan.plan import advice, plan_text, plan_training
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import TrainSettings

SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 16}


def test_time_follows_from_the_speed_that_is_given() -> None:
    """1,000 steps of 512 x 1,024 tokens at 524,288 tokens/s are 1,000 seconds."""
    settings = TrainSettings(steps=1000)
    by_tokens = plan_training(settings, PlanSettings(processes=8, tokens_per_second=524_288.0))
    assert by_tokens.seconds == pytest.approx(1000)
    tflops = 524_288 * flops_per_token(by_tokens.config) / 8 / 1e12
    assert plan_training(settings, PlanSettings(processes=8, tflops=tflops)).seconds == pytest.approx(1000)
    unknown = plan_training(settings, PlanSettings())
    assert unknown.seconds is None
    assert "time: unknown" in plan_text(unknown)


def test_a_batch_ramp_takes_fewer_tokens() -> None:
    """1,000 steps each of 64, 128 and 256 sequences, then 1,000 of 512: 960,000 sequences of 1,024 tokens."""
    settings = TrainSettings.of(steps=4000, batch_ramp_start=64, batch_ramp_steps=3000)
    plan = plan_training(settings, PlanSettings(processes=8))
    assert plan.tokens == 960_000 * 1024
    assert plan.flops == 960_000 * 1024 * flops_per_token(plan.config)
    assert (plan.layout.microbatch, plan.layout.n_microbatches) == (8, 8)
    assert "4,000 steps of 64 to 512 sequences, 983,040,000 tokens" in plan_text(plan)


def test_what_would_fit_is_the_largest_microbatch_that_divides_and_fits() -> None:
    settings = TrainSettings(batch_size=96, microbatch_size=12)
    config, mesh = settings.config(50_257), MeshShape(dp=8)
    sizes = {
        size: memory_of_layout(config, settings, Layout.of(settings, MeshShape(), size)).total
        for size in (1, 2, 3, 4, 6, 12)
    }
    chosen = {
        limit: advice(config, settings, mesh, limit, 12).partition(" or ")[0] for limit in (sizes[4], sizes[6] - 1)
    }
    assert set(chosen.values()) == {"microbatch_size = 4"}
    assert advice(config, settings, mesh, 10**15, 12).startswith("microbatch_size = 12")
    assert advice(config, settings, mesh, 10**15, 11).startswith("microbatch_size = 6")
    plan = plan_training(settings, PlanSettings(processes=8, memory_gib=(sizes[12] - 1) / GIB))
    assert ": choose microbatch_size = 6 or activation_checkpointing = 'selective'" in plan_text(plan)
    plan = plan_training(settings, PlanSettings(processes=8, memory_gib=sizes[12] / GIB))
    assert f"  fits in {sizes[12] / GIB:.1f} GiB\n" in plan_text(plan)


def test_a_mesh_that_is_set_is_planned() -> None:
    """Each of two pairs of shards takes 128 of 512 sequences; parameters are halved."""
    settings = TrainSettings.of(mesh="dp=2,fsdp=2", microbatch_size=16)
    plan = plan_training(settings, PlanSettings(memory_gib=80.0))
    assert (plan.layout.shape.size, plan.layout.microbatch, plan.layout.n_microbatches) == (4, 16, 8)
    whole = memory_of_layout(plan.config, settings, Layout.of(settings, MeshShape(), 16))
    assert plan.memory.parameters == whole.parameters // 2
    assert "processes: 4, each 8 x 16 sequences" in plan_text(plan)
    with pytest.raises(ConfigError, match="tp=5 does not divide n_head"):
        plan_training(TrainSettings.of(mesh="tp=5"), PlanSettings())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"processes": 0}, "processes is 0"),
        ({"tflops": 0.0}, "tflops is 0.0"),
        ({"tokens_per_second": 1.0, "tflops": 1.0}, "tokens_per_second and tflops both set the speed"),
    ],
)
def test_an_impossible_plan_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PlanSettings(**given)


def test_a_batch_that_does_not_divide_is_rejected() -> None:
    with pytest.raises(ConfigError, match="does not divide into 3 processes"):
        plan_training(TrainSettings(), PlanSettings(processes=3))


def test_the_verb_plans_with_a_token_set(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "plan", tokens, *flags(steps=5), "--tokens-per-second", "64", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["config"]["vocab_size"] == 61
    assert answer["tokens"] == 5 * 4 * 16
    assert answer["sources"] == [
        {"name": tokens, "tokens": 9720, "held_out_tokens": 972, "share": 1, "passes": 5 * 4 * 16 / 9720}
    ]
    assert answer["seconds"] == 5
    assert run(["train", "plan", "--model", "1542M"]) == 0
    assert capsys.readouterr().out.startswith("1,557,611,200 parameters")
    assert run(["train", "plan", "--model", "1542m"]) == 2
    assert "did you mean '1542M'?" in capsys.readouterr().err


def test_an_offloaded_run_is_planned_by_its_host_memory() -> None:
    """16 bytes per parameter in float32, and each layer's input, by hand."""
    settings = TrainSettings.of(**SMALL, batch_size=4, microbatch_size=2, offload="host", dtype="float32")
    n = 128 * 32 + 16 * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    expected = (16 * n + 2 * 2 * 2 * 16 * 32 * 4) / GIB
    assert f"\noffloaded: {expected:,.2f} GiB on the host\n" in plan_text(
        plan_training(settings, PlanSettings(vocab_size=128))
    )
