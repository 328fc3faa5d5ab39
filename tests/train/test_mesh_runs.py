"""Complete runs on meshes: saved on one mesh, resumed on another, equal to the run of one process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import rows, small, state, talking, train, train_on_ranks

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.train import TrainSettings, train_model

SETTINGS = small(
    n_layer=4, n_head=2, n_embd=32, context=32, batch_size=8, steps=6,
    learning_rate=1e-3,  # at ten times this, gradients of 12 make 1e-5 of the last bits of float32
    eval_interval=3, eval_windows=5, checkpoint_interval=3, keep_checkpoints=None, documents="masked", dtype="float32",
)  # fmt: skip
OFFLOADED = {"offload": True}
RUN = tuple[str, Path, TrainSettings]


def until(step: int, mesh: str | None, **more: Any) -> TrainSettings:
    return changed(SETTINGS, stop_at_step=step, mesh=mesh, **more)


def losses(out: Path) -> dict[str, float]:
    """The losses of each step and the held-out ones; a run that stops early measures once more than `SETTINGS` say."""
    kinds = ("loss", "grad_norm", "validation_loss")
    found = {f"{kind} {row['step']}": row[kind] for row in rows(out) for kind in kinds if kind in row}
    return {name: value for name, value in found.items() if "validation" not in name or name[-1] in "036"}


@pytest.fixture
def alone(tokens: str, tmp_path: Path) -> Path:
    """The run of one process."""
    train(tokens, tmp_path / "alone", SETTINGS)
    return tmp_path / "alone"


@pytest.mark.parametrize(
    ("optimizer", "rounding"), [("adamw", 1e-5), pytest.param("muon", 1e-4, marks=pytest.mark.dist)]
)
def test_a_run_that_goes_from_mesh_to_mesh_is_the_run_of_one_process(
    optimizer: str, rounding: float, tokens: str, tmp_path: Path
) -> None:
    """Each mesh reads another's checkpoint with its optimizer and saves one for the next; sequences keep their order.

    Muon makes last bits of a momentum larger where its singular values are small.
    """
    out, alone, how = tmp_path / "model", tmp_path / "alone", {"optimizer": optimizer}
    train(tokens, alone, changed(SETTINGS, **how))
    train(tokens, out, until(1, None, **OFFLOADED, **how))
    meshes = ["pp=2", "fsdp=2", "tp=2", "pp=2"]
    schedules = ["interleaved", "1f1b", "1f1b", "1f1b"]
    chain = [
        until(step, mesh, pipeline_schedule=schedule, **how)
        for step, mesh, schedule in zip(range(2, 6), meshes, schedules, strict=True)
    ]
    train_on_ranks(2, tmp_path / "two", [(tokens, out, settings) for settings in chain])
    train(tokens, out, changed(SETTINGS, **OFFLOADED, **how))
    assert len(losses(out)) == 6 + 6 + 3
    assert losses(out) == pytest.approx(losses(alone), rel=rounding, abs=rounding)
    whole, moved = state(alone, 6), state(out, 6)
    assert moved["recipe"] == whole["recipe"]
    assert moved["sampler"] == whole["sampler"]
    environments = [state(out, step)["environment"] for step in (1, 2, 3, 4, 5)]
    assert [each["mesh"] for each in environments] == ["one process", *meshes]
    assert [each.get("pipeline_schedule") for each in environments] == [None, "interleaved", None, None, "1f1b"]


@pytest.mark.slow
def test_offloaded_shards_make_the_run_of_one_process(tokens: str, tmp_path: Path, alone: Path) -> None:
    """With masks, and with padding that differs between ranks; each resumes from the other's checkpoint."""
    pads = changed(SETTINGS, documents="padded")
    train(tokens, tmp_path / "pads alone", pads)
    shards = [changed(pads, **OFFLOADED), *(until(step, "fsdp=2", **OFFLOADED) for step in (3, 6))]
    outs = [tmp_path / name for name in ("pads", "masks", "masks")]
    runs = [(tokens, out, settings) for out, settings in zip(outs, shards, strict=True)]
    train_on_ranks(2, tmp_path / "two", runs)
    assert losses(tmp_path / "pads") == pytest.approx(losses(tmp_path / "pads alone"), rel=1e-5, abs=1e-5)
    assert losses(tmp_path / "masks") == pytest.approx(losses(alone), rel=1e-5, abs=1e-5)


MESHES = ["fsdp=2", "tp=2", "pp=2", "dp=2"]
ALONE = {"one": {}, "offloaded": OFFLOADED}


@pytest.mark.dist
@pytest.mark.parametrize(
    "how", [{}, {"pipeline_schedule": "interleaved", "documents": "padded"}], ids=["masks", "pads"]
)
def test_any_mesh_resumes_from_any_others_checkpoint(tokens: str, tmp_path: Path, how: dict[str, Any]) -> None:
    """So does a single process, whether its model is on the device or on the host."""

    def run_of(place: str, step: int) -> tuple[str, Path, TrainSettings]:
        saved = until(step, None if place in ALONE else place, **how, **ALONE.get(place, {}))
        return tokens, tmp_path / place, saved

    def make(folder: str, runs: list[tuple[str, RUN]]) -> None:
        train_on_ranks(2, tmp_path / folder, [run for place, run in runs if place not in ALONE])
        for place, (_, out, settings) in runs:
            if place in ALONE:
                train(tokens, out, settings)

    places = [*ALONE, *MESHES]
    train(tokens, tmp_path / "alone", changed(SETTINGS, **how))
    make("first", [(place, run_of(place, 3)) for place in places])
    pairs = [(saved, place) for saved in places for place in places if saved != place]
    for saved, place in pairs:
        shutil.copytree(tmp_path / saved, tmp_path / f"{saved} {place}")
    make("again", [(place, (tokens, tmp_path / f"{saved} {place}", run_of(place, 6)[2])) for saved, place in pairs])
    expected = losses(tmp_path / "alone")
    for saved, place in pairs:
        assert losses(tmp_path / f"{saved} {place}") == pytest.approx(expected, rel=1e-5, abs=1e-5), (saved, place)


@pytest.mark.dist
def test_compiled_blocks_on_a_mesh_give_the_losses_of_one_process(tokens: str, tmp_path: Path, alone: Path) -> None:
    hows = [*({"mesh": mesh} for mesh in MESHES[:3]), {"mesh": "pp=2", "pipeline_schedule": "interleaved"}]
    runs = [(tokens, tmp_path / str(i), changed(SETTINGS, **how, compile="on")) for i, how in enumerate(hows)]
    train_on_ranks(2, tmp_path / "two", runs)
    for _, out, _ in runs:
        assert state(out, 6)["environment"]["compiled"] is True
        assert losses(out) == pytest.approx(losses(alone), rel=1e-4, abs=1e-4), out.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mesh": "tp=3"}, "tp=3 does not divide n_head = 2"),
        ({"mesh": "pp=8"}, "4 layers do not fill the 8 pipeline stages of mesh 'pp=8' with schedule '1f1b'"),
        ({"mesh": "pp=4", "pipeline_schedule": "interleaved"}, "4 layers do not fill the 8 pipeline stages of mesh 'pp=4'"),
        ({"mesh": "dp=3"}, "batch_size 8 is not a multiple of 3 x 2 "),
        ({"mesh": "pp=4", "microbatch_size": 4}, "2 microbatches per step do not fill 4 pipeline stages of schedule '1f1b'"),
        ({"mesh": "pp=2"}, "mesh 'pp=2' needs 2 processes, but there is 1 process"),
    ],
)  # fmt: skip
def test_a_run_that_a_mesh_cannot_train_is_rejected_before_anything_is_written(
    tokens: str, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = changed(SETTINGS, **changes)
    for dry_run in (False, True):
        with pytest.raises(ConfigError) as caught:
            train_model(tokens, str(tmp_path / "model"), settings, talking("quiet", dry_run=dry_run))
        assert caught.value.lines[0].startswith(message)
    assert not (tmp_path / "model").exists()


def test_a_mesh_that_is_not_one_is_rejected_by_the_settings() -> None:
    with pytest.raises(ConfigError, match="mesh 'pq=2' has an axis 'pq'"):
        changed(SETTINGS, mesh="pq=2")
    with pytest.raises(ConfigError, match="pipeline_schedule is 'gpipe'"):
        changed(SETTINGS, pipeline_schedule="gpipe")
