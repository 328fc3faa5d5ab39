"""Making the model: from small made sets to a file of equal bytes."""

from __future__ import annotations

import io
import json
import lzma
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learn import extractor as module
from learn.examples import PAGE_WEIGHTS, SCRIPTS, Example, _example, read_examples, read_fixtures
from learn.extractor import by_script, learn, main, texts

from webtext.clean.extract.kinds import KINDS
from webtext.clean.extract.scorer import MAX_LEAVES, read_scorer

WORDS = ["harbour", "granite", "evening", "walk", "town", "pilot", "gate", "ship", "dawn", "noon", "tide", "crane"]
LEFT = "Menu of ours"
SMALL = {"min_data_in_leaf": 2, "num_threads": 1, "learning_rate": 0.5}


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=14)).capitalize() + "."


def page(kind: str, chance: random.Random, passages: list[str]) -> bytes:
    menu = "".join(f"<li class=menu-item><a href=/>{LEFT} {i}</a></li>" for i in range(4))
    text = "".join(f"<p>{passage}</p>" for passage in passages)
    meta = f'<meta property="og:type" content="{kind}">'
    source = f"<html><head><title>Of the harbour</title>{meta}</head><body><ul>{menu}</ul><div class=post>{text}</div>"
    return f"{source}<p class=footer>{LEFT} {sentence(chance)}</p></body></html>".encode()


def folds(domain: str) -> tuple[int, int]:
    example = Example("", "", domain, None, None, set(), None)  # type: ignore[arg-type]
    return tuple(next(f for f in range(n) if example.is_in(f, n)) for n in (2, 3))  # type: ignore[return-value]


def pages_of(domains_of: int) -> list[tuple[str, str]]:
    """(kind, domain) such that each kind has a page outside each pair of an outer and an inner fold."""
    found = []
    for kind in KINDS:
        wanted = {(a, b) for a in range(2) for b in range(3)}
        for i in range(1000):
            domain = f"{kind}{domains_of}{i}.example"
            if folds(domain) in wanted:
                wanted.remove(folds(domain))
                found.append((kind, domain))
    return found


def archive(path: Path, bodies: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:xz") as tar:
        for name, body in bodies.items():
            member = tarfile.TarInfo(f"pages/{name}")
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))


def gold_row(name: str, url: str, kind: str, text: str) -> dict[str, object]:
    return {"id": name, "url": url, "page_type": kind, "text": text, "with": [], "without": []}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """42 pages of every kind, one of them without blocks, and 4 of which passages are known, one without its file."""
    monkeypatch.setattr(module, "FOLDS", 2)
    monkeypatch.setattr(module, "TREES", (12, 8))
    monkeypatch.setattr(module, "LEARNING", module.LEARNING | SMALL)
    chance = random.Random(0)
    (tmp_path / "wcxb").mkdir()
    (tmp_path / "extract").mkdir()
    bodies, gold = {}, []
    for i, (kind, domain) in enumerate(pages_of(0)):
        passages = [sentence(chance) for _ in range(3)]
        bodies[f"{i}.html"] = page(kind, chance, passages)
        gold.append(gold_row(f"{i}", f"https://{domain}/{i}", kind, "\n".join(passages)))
    bodies["none.html"] = b"<html><body><script>1</script></body></html>"
    gold.append(gold_row("none", "https://none.example/", "article", "Nothing."))
    archive(tmp_path / "wcxb" / "pages.tar.xz", bodies)
    (tmp_path / "wcxb" / "gold.jsonl.xz").write_bytes(lzma.compress("\n".join(map(json.dumps, gold)).encode()))
    known = {f"{i}.html": [sentence(chance) for _ in range(3)] for i in range(3)}
    evaluated = {
        f"https://of{name}/": {"file": name, "with": passages[:1], "without": [f"{LEFT} 2"]}
        for name, passages in known.items()
    }
    evaluated["https://gone.example/"] = {"file": "gone.html", "with": [], "without": []}
    (tmp_path / "extract" / "evaldata.json").write_text(json.dumps(evaluated))
    archive(
        tmp_path / "extract" / "pages.tar.xz", {name: page("article", chance, each) for name, each in known.items()}
    )
    return tmp_path


def test_targets_are_the_share_of_a_block_s_words_in_the_known_text(data: Path) -> None:
    first = read_examples(data)[0]
    assert first.kind == KINDS[0]
    assert [block.text.split()[0] == "Menu" for block in first.found.blocks] == [True] * 4 + [False] * 3 + [True]
    assert first.target[4:7].tolist() == [1.0] * 3
    assert first.target[:4].max() < 0.4


def test_of_pages_with_passages_blocks_are_known_that_have_one(data: Path) -> None:
    """'Menu of ours 2' is the third block, the wanted passage the fifth."""
    examples = [example for example in read_examples(data) if example.set_name == "trafilatura"]
    assert [example.identifier for example in examples] == ["0.html", "1.html", "2.html"]
    for example in examples:
        assert example.kind is None
        assert example.target[[2, 4]].tolist() == [0.0, 1.0]


def test_pages_of_a_sort_weigh_the_same_and_unknown_blocks_nothing(data: Path) -> None:
    examples = [example for example in read_examples(data) if example.found.blocks]
    for example in examples:
        if not np.isnan(example.target).all():
            kind = example.kind and example.kind == "article"
            assert example.weights.sum() == pytest.approx(PAGE_WEIGHTS[kind])
        assert not example.weights[np.isnan(example.target)].any()


def test_pages_of_a_domain_are_in_the_same_fold_and_every_page_is_in_one(data: Path) -> None:
    examples = read_examples(data)
    for n in (2, 3):
        assert all(sum(example.is_in(fold, n) for fold in range(n)) == 1 for example in examples)
    one, other = (Example("", name, "a.example", None, None, set(), None) for name in "ab")  # type: ignore[arg-type]
    assert [one.is_in(fold, 4) for fold in range(4)] == [other.is_in(fold, 4) for fold in range(4)]


def test_learning_twice_gives_equal_bytes_of_a_model_that_tells_text_from_menu(data: Path) -> None:
    examples = read_examples(data)
    model = learn(examples)
    assert learn(read_examples(data)) == model
    assert len(model.encode()) <= 200_000
    read = {row["page"]: row["text"] for row in texts(model, (example for example in examples if example.kind))}
    assert read["none"] == ""
    for example in examples:
        if example.kind and example.found.blocks:
            wanted = [block.text for block in example.found.blocks[4:7]]
            assert read[example.identifier].split("\n") == wanted
    lost = np.array(list(by_script(model, examples)))
    assert lost.shape == (len(read) - 1, len(SCRIPTS))
    assert abs(lost).max() < 0.05


def test_exported_trees_predict_what_the_learned_ones_do() -> None:
    """Values are rounded to three digits: at most 5 · 0.0005 / 4 in the probability by five trees."""
    import lightgbm

    chance = np.random.default_rng(0)
    rows = chance.integers(0, 50, (400, 5)).astype(np.float32)  # far enough from thresholds of five digits
    learned = lightgbm.train(module.LEARNING | SMALL, lightgbm.Dataset(rows, (rows[:, 0] > rows[:, 1]) * 1.0), 5)
    stage = module._exported(learned)
    assert {len(values) for values in stage["value"]} == {MAX_LEAVES}
    model = {"names": {}, "words": {}, "facts": {}, "sizes": [], "stages": [stage, stage]}
    exported = read_scorer(json.dumps(model)).stages[0].probabilities(rows)
    assert exported == pytest.approx(np.asarray(learned.predict(rows)), abs=7e-4)


def test_the_command_writes_the_model_and_every_page_once_by_a_model_that_has_not_seen_its_domain(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(
        module, "learn", lambda examples: seen.append({example.domain for example in examples}) or learn(examples)
    )
    written: list[set[str]] = []
    monkeypatch.setattr(
        module,
        "texts",
        lambda model, examples: texts(model, [written.append({each.domain}) or each for each in examples]),  # type: ignore[func-returns-value]
    )
    out, rows = tmp_path / "model.json", tmp_path / "texts.jsonl"
    monkeypatch.setattr(sys, "argv", ["learn", str(data), str(out), "--texts", str(rows)])
    main()
    assert [line.partition(": F1 lost ")[0] for line in capsys.readouterr().out.splitlines()] == list(SCRIPTS)
    pages = [(row["set"], row["page"]) for row in map(json.loads, rows.read_text("utf-8").splitlines())]
    assert sorted(pages) == sorted((example.set_name, example.identifier) for example in read_examples(data))
    assert len(set(pages)) == len(pages) == 46
    assert len(seen) == 3
    held_out = [set.union(*(domains for domains in written if not domains & seen[fold])) for fold in range(2)]
    assert held_out[0] | held_out[1] == seen[2]
    model = json.loads(out.read_text("utf-8"))
    about = model.pop("learned from")
    assert model == json.loads(learn(read_examples(data)))
    assert about["pages"] == 46
    assert about["cross-validated F1"].keys() == {"trafilatura", "wcxb"}
    changed = read_examples(data)
    changed[0].digest = "of another body"
    assert about["sha256"] == module._digest(read_examples(data)) != module._digest(changed)


def test_a_page_in_another_script_has_the_same_blocks_and_equal_words_stay_equal() -> None:
    """Numbers and signs stay, too. The identifiers choose five scripts."""
    page = "<html><title>The harbour</title><body><p>The harbour, built in <a href=a>1887</a>.</p><h2>The Harbour</h2>"
    lengths = set()
    for name in "abcdefgh":
        example = _example("fixtures", name, "https://a.example/", page.encode(), None)
        rewritten = example.rewritten()
        first, second = (block.text for block in rewritten.found.blocks)
        assert second.split() == rewritten.metadata.title.split()  # type: ignore[union-attr]
        assert first.endswith("1887.")
        assert not set("Tharbou") & set(first + second)
        assert [block.n_links for block in rewritten.found.blocks] == [1, 0]
        lengths.add(len(first))
    assert len(lengths) > 2


def test_paragraphs_of_fixtures_with_their_whole_text_teach_and_headings_and_short_lines_do_not(tmp_path: Path) -> None:
    sentence = "It was built of granite, which came by ship from an island in the north."
    menu = "A sentence about another page of the site, which nobody needs to read now."
    page = f"<html><body><h2>{sentence}</h2><p>{sentence}</p><p>Menu</p><nav><p>{menu}</p></nav></body></html>"
    row = {"source": "fhgr/harvest", "id": "1", "url": "https://a.example/", "html": page.encode()}
    row |= {"text": sentence, "is_whole": True}
    pq.write_table(pa.Table.from_pylist([row, row | {"id": "2", "is_whole": False}]), tmp_path / "fixtures.parquet")
    (example,) = read_fixtures(tmp_path / "fixtures.parquet")
    assert (example.identifier, example.kind, example.domain) == ("1", "forum", "a.example")
    assert np.isnan(example.target).tolist() == [True, False, True, False]
    assert (example.target[1] > 0.9, example.target[3] < 0.1) == (True, True)


def refusal(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["learn", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_folder_without_the_sets_is_refused_by_the_name_of_the_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal([str(tmp_path), str(tmp_path / "model.json")], monkeypatch, capsys)
    assert f"'{tmp_path}/wcxb/pages.tar.xz' is missing" in told
    assert not (tmp_path / "model.json").exists()


def test_pages_without_one_of_the_kinds_are_refused_by_its_name(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = data / "wcxb" / "gold.jsonl.xz"
    rows = [json.loads(line) for line in lzma.decompress(gold.read_bytes()).splitlines()]
    without = [row for row in rows if row["page_type"] != "forum"]
    gold.write_bytes(lzma.compress("\n".join(map(json.dumps, without)).encode()))
    assert "no page of the kind 'forum'" in refusal([str(data), str(data / "model.json")], monkeypatch, capsys)
