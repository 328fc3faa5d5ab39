"""Token sets in a store: the same samples, and each file is copied to this machine once, when it is first used."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from webtext.base.errors import InputError
from webtext.base.parts.recipe import with_check
from webtext.base.storage import Folder
from webtext.shards import Sampler, TokenShards
from webtext.shards.trace import trace

from .conftest import document, make_set, pack_here, upload, write_corpus

OPTIONS: dict[str, Any] = {"context": 16, "batch_size": 4, "seed": 1, "block_bytes": 8192, "group_blocks": 3}
URL = "memory://bucket/tokens"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of three shards on this machine, which is also at URL."""
    folder = make_set(tmp_path / "set", 3)
    upload(folder)
    return Path(folder)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the token files that are read from a store from now on."""
    names: list[str] = []
    reader = Folder.open

    def reading(self: Folder, name: str) -> Any:
        if not self.is_local and name.endswith(".tok"):
            names.append(name)
        return reader(self, name)

    monkeypatch.setattr(Folder, "open", reading)
    return names


@pytest.mark.parametrize("options", [{}, {"group_blocks": None}, {"crosses_documents": False}])
def test_the_samples_are_those_of_the_local_set(folder: Path, options: dict[str, Any]) -> None:
    near, far = Sampler(TokenShards(folder), **OPTIONS | options), Sampler(TokenShards(URL), **OPTIONS | options)
    for ours, theirs in itertools.islice(zip(near, far, strict=True), near.n_windows // 4 + 50):
        assert np.array_equal(ours, theirs)


def test_opening_copies_nothing_and_each_file_is_copied_once(folder: Path, cache: Path, opened: list[str]) -> None:
    far = TokenShards(URL)
    assert far.n_tokens == TokenShards(folder).n_tokens
    assert not cache.exists()
    assert np.array_equal(far.read(20_000, 10), TokenShards(folder).read(20_000, 10))
    assert opened == ["train-00001.tok"]
    for _ in range(2):
        TokenShards(URL).streams()
    assert sorted(opened) == far.names
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock"] * 3 + [".tok"] * 3


def test_documents_traces_and_arrays_are_those_of_the_local_set(folder: Path) -> None:
    near, far = TokenShards(folder), TokenShards(URL)
    assert np.array_equal(near.tokens(1), far.tokens(1))
    assert far.document(250).id == near.document(250).id == "1-50"
    assert trace(far, 1, 6950) == trace(near, 1, 6950)


def test_a_damaged_copy_is_copied_again(folder: Path, cache: Path) -> None:
    TokenShards(URL).tokens(0)
    (copy,) = cache.glob("*.tok")
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    assert np.array_equal(TokenShards(URL).tokens(0), TokenShards(folder).tokens(0))


@pytest.mark.parametrize("alter", [lambda data: data[:-9] + b"x" + data[-8:], lambda data: data[:300]])
def test_a_file_altered_in_the_store_is_rejected_and_no_copy_is_kept(
    folder: Path, cache: Path, alter: Callable[[bytes], bytes]
) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/tokens/train-00000.tok", alter(files.cat("/bucket/tokens/train-00000.tok")))
    for use in (lambda shards: shards.read(0, 10), lambda shards: next(Sampler(shards, **OPTIONS)), TokenShards.verify):
        with pytest.raises(InputError, match=r"train-00000\.tok' was altered, in the store or on its way: its SHA-256"):
            use(TokenShards(URL))
    assert not [path for path in cache.iterdir() if path.stem.startswith(TokenShards(URL).names[0])]
    assert TokenShards(URL).read(20_000, 5).tolist() == TokenShards(folder).read(20_000, 5).tolist()


def test_a_manifest_names_no_place_outside_the_cache(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["check"]
    manifest["parts"][0]["attachments"][0]["sha256"] = "../theirs"
    (folder / "manifest.json").write_text(json.dumps(with_check(manifest)))
    upload(str(folder))
    (tmp_path / "theirs.lock").write_text("kept")
    with pytest.raises(InputError, match="was altered"):
        TokenShards(URL).tokens(0)
    assert (tmp_path / "theirs.lock").read_text() == "kept"


def test_a_missing_file_is_named(folder: Path) -> None:
    del fsspec.filesystem("memory").store["/bucket/tokens/train-00001.tok"]
    with pytest.raises(InputError, match=r"no file 'memory://bucket/tokens/train-00001\.tok'"):
        TokenShards(URL).tokens(1)


def _first_tokens(answer: Any) -> None:
    answer.put(TokenShards(URL).read(0, 20).tolist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_that_need_a_file_at_once_copy_it_once(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked processes share the store in memory; each read of a token file appends a byte to a file."""
    log, reader = folder / "reads", Folder.open

    def reading(self: Folder, name: str) -> Any:
        if self.is_local:
            return reader(self, name)
        with open(log, "ab") as file:
            file.write(b".")
        return io.BytesIO(reader(self, name).read())

    monkeypatch.setattr(Folder, "open", reading)
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    processes = [context.Process(target=_first_tokens, args=(answer,)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [answer.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(timeout=30)
    assert found == [TokenShards(folder).read(0, 20).tolist()] * 4
    assert log.read_bytes() == b"."


@pytest.mark.slow
def test_a_set_in_a_store_trains_to_the_same_loss_and_measures_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from webtext.base.run import Run
    from webtext.train import TrainSettings, train_model
    from webtext.train.evaluate.measured import load_measured
    from webtext.train.evaluate.perplexity import evaluate_model
    from webtext.train.settings import EvalSettings

    folder = make_set(tmp_path / "set", 2, splits=("train", "validation"))
    upload(folder)
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context": 16, "batch_size": 2, "steps": 2, "warmup_steps": 1}
    settings = TrainSettings.of(**shape, eval_interval=1, eval_windows=5)
    losses, answers = [], []
    for name, tokens in (("near", folder), ("far", URL)):
        model = str(tmp_path / name)
        losses.append(train_model(tokens, model, settings, Run.quiet(1)).validation_loss)
        answers.append(evaluate_model(load_measured(model), tokens, EvalSettings(windows=40), Run.quiet(1)))
    assert losses[0] == losses[1]
    near, far = ({k: v for k, v in answer.items() if k not in ("model", "data")} for answer in answers)
    assert near == far
    assert far["perplexity"] > 1


@pytest.mark.slow
def test_a_set_in_an_object_store_gives_the_same_samples_and_may_be_packed_there(
    tmp_path: Path, byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    store.start()
    try:
        host, port = store.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        files, folder = s3fs.S3FileSystem(skip_instance_cache=True), make_set(tmp_path / "set", 3)
        files.mkdir("bucket")
        files.put(folder, "bucket/tokens", recursive=True)
        near, far = Sampler(TokenShards(folder), **OPTIONS), Sampler(TokenShards("s3://bucket/tokens"), **OPTIONS)
        for ours, theirs in itertools.islice(zip(near, far, strict=True), 50):
            assert np.array_equal(ours, theirs)
        corpus = write_corpus(tmp_path / "corpus", [[document("a", "one"), document("b", "two", "validation")]])
        pack_here(corpus, "s3://bucket/packed")
        packed = TokenShards("s3://bucket/packed")
        packed.verify()
        assert bytes(packed.tokens(0)[1:].astype(np.uint8)) == b"one"
    finally:
        store.stop()
