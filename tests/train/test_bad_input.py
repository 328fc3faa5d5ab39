"""Bad input of a run, an evaluation or an export: a short error with its remedy, and nothing is overwritten.

Hugging Face folders of other models and hostile safetensors are in test_huggingface.py, evaluation sets in
test_zero_shot.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import flags

from webtext.app.main import run
from webtext.base.errors import ConfigError
from webtext.base.storage import Folder
from webtext.shards.shardfile import ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint.checkpoint import list_checkpoints, load_model
from webtext.train.model.gpt2 import GPT2
from webtext.train.settings import TrainSettings

FLAGS = flags(microbatch_size=4, steps=4, checkpoint_interval=2, keep_checkpoints=None, eval_interval=4)
CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
CPU = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to …"
)
Fails = Callable[..., None]


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Fails:
    """fails(arguments, code, *lines): the command ends with this code, and its error's lines begin with these words."""

    def check(arguments: list[str], code: int, *lines: str) -> None:
        capsys.readouterr()
        assert run(arguments) == code
        shown = capsys.readouterr().err
        error = shown[shown.index("error: ") :].splitlines()
        assert len(error) == len(lines) <= 3, error
        for line, expected in zip(error, lines, strict=True):
            assert line.removeprefix("error: ").strip().startswith(expected), error

    return check


@pytest.fixture(scope="module")
def finished(tokens: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "model"
    assert run(["train", "run", tokens, "--out", str(out), *FLAGS, "--quiet"]) == 0
    return out


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run with checkpoints of steps 2 and 4."""
    return shutil.copytree(finished, tmp_path / "model")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]


def test_shards_that_are_missing_foreign_or_damaged(
    make_token_set: Callable[..., str], tmp_path: Path, fails: Fails
) -> None:
    tokens, out = make_token_set(), tmp_path / "model"
    command = ["train", "run", tokens, "--out", str(out), *FLAGS]
    shard = Path(tokens) / "train-00000.tok"
    whole = shard.read_bytes()
    nowhere = str(tmp_path / "no")
    fails(["train", "run", nowhere, *command[3:]], 3, f"the part set '{nowhere}' doesn't exist", "check the")
    shard.write_bytes(b"PK\3\4" + whole[4:])
    fails(command, 3, f"'{shard}' was altered: SHA-256", "remove that file, then rerun")
    shard.write_bytes(whole[: len(whole) // 2])
    fails(
        command,
        3,
        f"'{shard}' was altered: 5,232 bytes, the manifest says 10,464",
        "rerun the command that made the set",
    )
    foreign = Path(make_token_set("foreign", tokenizer_hash="12" * 32)) / shard.name
    shard.write_bytes(foreign.read_bytes())
    fails(command, 3, f"'{shard}' was altered: SHA-256", "remove that file, then rerun")
    shard.unlink()
    fails(command, 3, f"'{shard}' is missing", "rerun the command that made the set")
    assert not (out / "checkpoints").exists()


def test_an_id_past_the_vocabulary_is_named_by_file_and_place(
    make_token_set: Callable[..., str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    """It is written past the writer's own check, with the hash that the manifest states. On a GPU it would be a device error."""
    append = ShardWriter.append

    def careless(self: ShardWriter, document: object) -> int:
        self._header, header = replace(self._header, vocab_size=2**16), self._header
        document[40] = 777  # type: ignore[index]
        start = append(self, document)  # type: ignore[arg-type]
        self._header = header
        return start

    monkeypatch.setattr(ShardWriter, "append", careless)
    foreign = make_token_set("foreign")
    limit, remedy = "the vocabulary has 61 tokens", "make the token set again"
    out = tmp_path / "new"
    fails(["train", "run", foreign, "--out", str(out), *FLAGS], 3, f"'{foreign}/", limit, remedy)
    assert not (out / "checkpoints").exists()
    evaluation = ["train", "eval", str(model), foreign]
    fails(evaluation, 3, f"'{foreign}/validation-00000.tok': token 41 is 777", limit, remedy)


def test_a_corpus_shorter_than_the_context(tokens: str, tmp_path: Path, fails: Fails) -> None:
    arguments = ["train", "run", tokens, "--out", str(tmp_path / "model"), *FLAGS, "--context", "100000"]
    remedy = "choose a shorter context, or pack more documents"
    fails(arguments, 3, f"the train split of '{tokens}' has 9,720 tokens", remedy)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("batch", "microbatch", "processes", "remedy"),
    [
        (24, 9, 1, "choose batch_size = 18 or batch_size = 27 or microbatch_size = 8"),
        (7, 4, 1, "choose batch_size = 4 or batch_size = 8 or microbatch_size = 1"),
        (8, 8, 3, "choose batch_size = 24"),
        (64, 4, 6, "choose batch_size = 48 or batch_size = 72"),
    ],
)
def test_a_batch_that_does_not_divide_names_the_nearest_that_do(
    batch: int, microbatch: int, processes: int, remedy: str
) -> None:
    settings = TrainSettings(batch_size=batch, microbatch_size=microbatch)
    with pytest.raises(ConfigError) as caught:
        settings.accumulation(processes)
    assert caught.value.lines[1] == remedy


@pytest.mark.parametrize("change", [flip, lambda data: data[: len(data) // 2], lambda data: b""])
def test_if_all_checkpoints_are_damaged_no_run_replaces_them(
    change: Callable[[bytes], bytes], tokens: str, model: Path, fails: Fails
) -> None:
    """A damaged one is skipped with a warning (test_loop.py), but nothing is deleted if it is the last one."""
    for checkpoint in list_checkpoints(model):
        for file in checkpoint.iterdir():
            if file.name != "state.json":
                edit(file, change)
    before = contents(model)
    remedy = "remove the folder to start over, or choose another --out"
    damaged = f"every checkpoint in '{model}' is damaged"
    fails(["train", "run", tokens, "--out", str(model), *FLAGS], 3, damaged, "the newest: '", remedy)
    fails(["train", "eval", str(model), tokens], 3, damaged, "the newest: '", remedy)
    assert contents(model) == before


@pytest.mark.parametrize("verb", ["eval", "export"])
def test_if_the_newest_checkpoint_is_damaged_the_one_before_is_used_with_a_warning(
    verb: str, tokens: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes once, also among the events of --json, and has the paths of both."""
    older, newest = list_checkpoints(model)
    edit(newest / "model-00000.safetensors", flip)
    arguments = {"eval": [tokens], "export": ["--out", str(tmp_path / "export")]}[verb]
    capsys.readouterr()
    assert run(["train", verb, str(model), *arguments, "--json"]) == 0
    shown = capsys.readouterr()
    warning = (
        f"skipping a checkpoint: '{newest}/model-00000.safetensors' has changed since it was written; using '{older}'"
    )
    assert [line for line in shown.err.splitlines() if not line.startswith("{")] == [f"warning: {warning}"]
    if verb == "eval":
        assert json.loads(shown.out)["step"] == 2


def test_whoever_loads_a_model_in_python_is_warned_of_a_damaged_checkpoint(model: Path) -> None:
    edit(list_checkpoints(model)[-1] / "model-00000.safetensors", flip)
    with pytest.warns(
        UserWarning, match="model-00000.safetensors' has changed since it was written; using .*step-000002'"
    ):
        load_model(model)


def test_rows_of_metrics_that_cannot_be_read_are_counted(
    tokens: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A last row that a kill left half written doesn't count: that is normal."""
    shutil.rmtree(list_checkpoints(model)[-1])
    rows = (model / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    strange = [b"\xff\n", b"[]\n", b'{"step": "1"}\n', b'{"loss": 1}\n']
    capsys.readouterr()
    for planted, warnings in ([*strange, b'{"st'], 1), ([b'{"st'], 0):
        (model / "metrics.jsonl").write_bytes(b"".join([rows[0], *planted[:-1], *rows[1:], planted[-1]]))
        assert run(["train", "run", tokens, "--out", str(model), *FLAGS, "--quiet"]) == 0
        err = capsys.readouterr().err.splitlines()
        message = f"warning: 4 of {len(rows) + 4} rows of '{model}/metrics.jsonl' cannot be read and are dropped"
        assert err == [message][:warnings]
        steps = [json.loads(row)["step"] for row in (model / "metrics.jsonl").read_bytes().splitlines()]
        assert steps == [json.loads(row)["step"] for row in rows]
        shutil.rmtree(list_checkpoints(model)[-1])


def test_no_space_for_a_checkpoint_or_an_export(
    model: Path, tokens: str, tmp_path: Path, fails: Fails, small_files: None
) -> None:
    out = tmp_path / "large"
    command = ["train", "run", tokens, "--out", str(out), *FLAGS, "--n-embd", "64", "--quiet"]
    remedy = "raise the limit (ulimit -f), or choose another --out"
    fails(command, 4, f"'{out}/checkpoints/", remedy)
    assert list_checkpoints(out) == []
    export, command = tmp_path / "export", ["train", "export", str(model), "--out"]
    fails([*command, str(export)], 4, f"'{export}/model.safetensors' exceeds the limit on file sizes", remedy)
    assert list(export.iterdir()) == []


def test_a_config_or_a_tokenizer_for_another_model(
    model: Path, tokens: str, make_token_set: Callable[..., str], tmp_path: Path, fails: Fails
) -> None:
    before, remedy = contents(model), "choose another --out, or remove the folder"
    config = tmp_path / "build.toml"
    config.write_text("[train.shape]\nn_embd = 32\n")
    flags = FLAGS[:4] + FLAGS[6:]  # without --n-embd
    other_shape = ["train", "run", tokens, "--out", str(model), "--config", str(config), *flags]
    fails(other_shape, 3, f"'{model}' was trained with other settings: n_embd is 32 here and 16", "use the same, or ")
    other = make_token_set("other", tokenizer_hash="b" * 64)
    another = f"'{model}' was trained with another tokenizer"
    fails(["train", "run", other, "--out", str(model), *FLAGS], 3, another, remedy)
    fails(["train", "eval", str(model), other], 3, f"{another} than the one of '{other}'", "")
    file = tmp_path / "tokenizer.json"
    Tokenizer.train(["a b"], vocab_size=258).save(file)
    for arguments in (["sample", str(model)], ["export", str(model), "--out", str(tmp_path / "export")]):
        command = ["train", *arguments, "--tokenizer", str(file)]
        fails(command, 3, f"'{model}' has a vocabulary of 61, '{file}' one of 25", "")
    assert not (tmp_path / "export").exists()
    assert contents(model) == before


def test_a_model_folder_in_use(model: Path, tokens: str, fails: Fails) -> None:
    shutil.rmtree(list_checkpoints(model)[-1])
    before = contents(model)
    with Folder(model).held():
        command = ["train", "run", tokens, "--out", str(model), *FLAGS]
        fails(command, 3, f"another run is writing '{model}'", "process ", "wait for it, or choose another --out")
    assert contents(model) == before


@pytest.mark.parametrize("error", [CUDA, CPU, MemoryError()], ids=["cuda", "cpu", "python"])
def test_too_little_memory(
    error: Exception, model: Path, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    """Raise it where a device would: in the loss, in a measurement of the run, when the model is made, in an evaluation."""

    def raising(*_: object, **__: object) -> None:
        raise error

    too_large = "microbatches of 4 sequences do not fit the device's memory"
    fewer = "choose microbatch_size = 2 or activation_checkpointing = true; 'webtext train plan'"
    command = ["train", "run", tokens, "--out", str(tmp_path / "new"), *FLAGS]
    for name in ("loss", "log_likelihood", "__init__"):
        with monkeypatch.context() as patch:
            patch.setattr(GPT2, name, raising)
            fails(command, 4, too_large, fewer)
            assert not (tmp_path / "new/checkpoints").exists()
    monkeypatch.setattr(GPT2, "log_likelihood", raising)
    evaluation = ["train", "eval", str(model), tokens]
    fails(evaluation, 4, "the model and batches of 8 do not fit the device's memory", "give --batch-size 4")
    smaller = "use a smaller model, or a device with more memory"
    fails([*evaluation, "--batch-size", "1"], 4, "the model and batches of 1 do not fit", smaller)


def test_another_error_of_torch_does_not_count_as_out_of_memory(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    def raising(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(GPT2, "loss", raising)
    command = ["train", "run", tokens, "--out", str(tmp_path / "new"), *FLAGS]
    fails(command, 1, "unexpected RuntimeError: mat1 and mat2 shapes cannot", "to see where")


@pytest.mark.parametrize("data", [{}, {"config": {"n_layer": 10**9}}])
def test_a_folder_whose_config_is_not_of_a_model(data: dict[str, object], tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "config.json").write_text(json.dumps(data))
    command = ["train", "export", str(tmp_path), "--out", str(tmp_path / "x")]
    fails(command, 3, f"'{tmp_path}/config.json' has no 'n_layer'", "")
