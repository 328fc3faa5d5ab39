"""Where verbs write: into an empty folder, or one of their own kind and settings; anything else is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.tokenizer import Tokenizer

LINKS = "url,score,created\n" + "".join(f"http://a.example/{i},{i},2015-01-01\n" for i in range(1, 9))
VERBS = {
    "crawl links": "{in}/links.csv",
    "clean extract": "{in}/page.warc",
    "clean run": "{in}/texts.jsonl",
    "clean filter": "{in}/texts.jsonl",
    "clean dedup": "{in}/texts.jsonl",
    "clean decontaminate": "{in}/texts.jsonl --against {in}/texts.jsonl",
    "tokenizer train": "{in}/texts.jsonl --vocab-size 260",
    "shards pack": "{in}/texts.jsonl --tokenizer {in}/tokenizer.json",
    "shards convert": "{in}/tokens --to nanogpt",
    "train run": "{in}/tokens",
    "train export": "{in}/model",
    "train compare": "{in}/tokens {in}/tokens",
    "train sweep": "{in}/tokens",
    "train scale": "{in}/tokens",
    "demo": "",
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and a folder of each kind."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "texts.jsonl").write_text("".join(f'{{"text": "word {i} of a text"}}\n' for i in range(40)))
    (folder / "links.csv").write_text(LINKS)
    (folder / "build.toml").write_text(f'[build]\npages = ["{folder}/page.warc"]\n')
    (folder / "page.warc").write_bytes(b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n")
    Tokenizer.train(["the words"], vocab_size=260).save(folder / "tokenizer.json")
    for kind, names in {
        "notes": ["a.txt", "deeper/b.txt", "manifest.json", "train-00000-of-00002.parquet"],
        "model": ["metrics.jsonl", "checkpoints/step-000001/state.json"],
        "export": ["config.json", "model.safetensors"],
    }.items():
        for name in names:
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / kind / name).write_text("{}")
    pack = f"shards pack {folder}/texts.jsonl --tokenizer {folder}/tokenizer.json --out {folder}/tokens"
    assert run(pack.split()) == 0
    return folder


OWN = {"train run": "model", "train export": "export", "shards pack": "tokens"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_writes_nothing_into_the_folder_of_another(
    given: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in given.rglob("*"))
    command = [*verb.split(), *VERBS[verb].format_map({"in": given}).split()]
    for kind in {"notes", "model", "export", "tokens"} - {OWN.get(verb)}:
        assert run([*command, "--out", str(given / kind)]) == 3, kind
        error = capsys.readouterr().err
        assert str(given / kind) in error
        assert "choose another --out" in error
    assert sorted((path, path.stat().st_mtime_ns) for path in given.rglob("*")) == before


def test_a_build_replaces_no_file_of_something_else(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", f"{given}/build.toml", f"--set=build.out={given}/export"]) == 3
    assert "contains 'config.json', and nothing that this command writes" in capsys.readouterr().err
    assert (given / "export/config.json").read_text() == "{}"


def test_links_documents_tokens_and_tokenizers_of_other_settings_are_kept(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"crawl links": "min-karma 5", "tokenizer train": "vocab-size 270", "shards pack": "validation-ratio .5"}
    for verb, change in changes.items():
        out = tmp_path / verb.replace(" ", "-") / "tokenizer.json"
        command = [*verb.split(), *VERBS[verb].format_map({"in": given}).split(), "--out", str(out)]
        assert run(command) == 0
        before = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
        assert run(command) == 0  # resumes
        capsys.readouterr()
        assert run([*command, *f"--{change}".split()]) == 3
        error = capsys.readouterr().err
        assert f"{change.split()[0].replace('-', '_')} " in error
        assert "was made with other settings" in error
        assert "choose another --out" in error
        assert {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()} == before


def test_an_output_folder_is_empty_or_has_a_mark(tmp_path: Path) -> None:
    Folder(tmp_path / "missing").check_output(["own"])
    (tmp_path / ".hidden").touch()
    (tmp_path / "run.log").touch()
    Folder(tmp_path).check_output(["own"])
    (tmp_path / "own").mkdir()
    with pytest.raises(InputError, match="contains 'own/', and nothing that this command writes"):
        Folder(tmp_path).check_output(["own", "part-*"])
    Folder(tmp_path).check_output(["o*/"])
