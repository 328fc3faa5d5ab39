"""The estimate of a run: by worked numbers, the tensors that the real model keeps, and real files."""

from __future__ import annotations

import json

import pytest
from small_runs import flags

from webtext.app.main import run
from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.train.footprint import GIB, advice, memory_of, plan_training
from webtext.train.mesh import MeshShape
from webtext.train.settings import TrainSettings

SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 16}


def test_what_would_fit_is_the_largest_microbatch_that_divides_and_fits() -> None:
    settings = TrainSettings(batch_size=96, microbatch_size=12)
    config, mesh = settings.config(50_257), MeshShape(dp=8)
    sizes = {size: memory_of(config, settings, MeshShape(), size).total for size in (1, 2, 3, 4, 6, 12)}
    chosen = {limit: advice(config, settings, mesh, limit).partition(" or ")[0] for limit in (sizes[4], sizes[6] - 1)}
    assert set(chosen.values()) == {"microbatch_size = 4"}
    assert advice(config, settings, mesh, 10**15).startswith("microbatch_size = 6")
    _, text = plan_training(settings, processes=8, memory_gib=(sizes[12] - 1) / GIB)
    assert text.endswith(": choose microbatch_size = 6 or activation_checkpointing = true")
    _, text = plan_training(settings, processes=8, memory_gib=sizes[12] / GIB)
    assert text.endswith(f"  fits in {sizes[12] / GIB:,g} GiB")


def test_a_mesh_that_is_set_is_planned() -> None:
    """Each of two pairs of shards takes 128 of 512 sequences; parameters are halved."""
    settings = TrainSettings.of(mesh="dp=2,fsdp=2", microbatch_size=16)
    answer, text = plan_training(settings)
    assert (answer["layout"]["microbatch"], answer["layout"]["n_microbatches"]) == (16, 8)
    whole = memory_of(settings.config(50_257), settings, MeshShape(), 16)
    assert answer["memory"]["parameters"] == whole.parameters // 2
    assert "processes: 4, each 8 x 16 sequences" in text
    with pytest.raises(ConfigError, match="tp=5 does not divide n_head"):
        plan_training(TrainSettings.of(mesh="tp=5"))


def test_a_batch_that_does_not_divide_is_rejected() -> None:
    with pytest.raises(ConfigError, match="is not a multiple of 3 x"):
        plan_training(TrainSettings(), processes=3)


def test_the_verb_plans_with_a_token_set(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "plan", tokens, *flags(steps=5), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["config"]["vocab_size"] == 61
    assert answer["tokens"] == 5 * 4 * 16
    assert answer["sources"] == [
        {"name": tokens, "tokens": 9720, "held_out_tokens": 972, "share": 1, "passes": 5 * 4 * 16 / 9720}
    ]
    for option, value in (("--processes", "0"), ("--memory-gib", "0")):
        assert run(["train", "plan", option, value]) == 2
        assert option in capsys.readouterr().err
    assert run(["train", "plan", "--model", "1542M"]) == 0
    assert capsys.readouterr().out.startswith("1,557,611,200 parameters")
    assert run(["train", "plan", "--model", "1542m"]) == 2
    assert "did you mean '1542M'?" in capsys.readouterr().err


def test_a_text_that_is_repeated_to_no_use_is_told(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    """64 tokens per step of 9,720: 40 passes are 6,075 steps."""
    for steps, told in ((6_000, False), (405_000, True)):
        assert run(["train", "plan", tokens, *flags(steps=steps)]) == 0
        answer = capsys.readouterr().out
        warning = (
            f"warning: 2,667 passes over '{tokens}': more than 40 teach nothing new; choose fewer steps (6,075 make"
        )
        assert (warning in answer) == told


def test_offloaded_shards_have_only_gathered_blocks_gradients_and_activations_on_the_device() -> None:
    """The embeddings and two blocks are gathered in bfloat16, and gradients are as of other shards."""
    settings = TrainSettings.of(model="1542M", mesh="fsdp=8", offload=True)
    (answer, text), (plain, _) = map(plan_training, (settings, changed(settings, offload=False)))
    table, block = (50_304 + 1024 + 2) * 1600, 12 * 1600**2 + 13 * 1600
    on_device = {"parameters": 0, "optimizer": 0, "cast_parameters": 2 * (table + 2 * block), "total": 0}
    assert answer["memory"] | {"total": 0} == plain["memory"] | on_device
    assert text.endswith(f"\noffloaded: {16 * (table + 48 * block) / 8 / GIB:,.2f} GiB on the host, for each process")
    least = advice(settings.config(50_257), settings, MeshShape(fsdp=8), 0)
    assert least == "microbatch_size = 1 or activation_checkpointing = true"


def test_an_offloaded_run_is_planned_by_its_host_memory() -> None:
    """16 bytes per parameter in float32, and each layer's input, by hand."""
    settings = TrainSettings.of(**SMALL, batch_size=4, microbatch_size=2, offload=True, dtype="float32")
    n = 50_304 * 32 + 16 * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    expected = (16 * n + 2 * 2 * 2 * 16 * 32 * 4) / GIB
    assert plan_training(settings)[1].endswith(f"\noffloaded: {expected:,.2f} GiB on the host, for each process")
