"""Figure 5 and table 6: what a model's texts share with the training documents, and where the longest stretches come from."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from object_store import BUCKET, object_store

from webtext.app.inspect.held_out import Sample, continue_held_out, read_samples, write_samples
from webtext.app.inspect.memorized import _search_part, find_memorized, longest_stretch, place_of
from webtext.app.main import run as webtext
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Journal
from webtext.clean._minhash import key
from webtext.clean.decontaminate.kept_filter import FilterHeader, open_filter
from webtext.tokenizer import Tokenizer
from webtext.train.evaluate.measured import Measured

from .conftest import URLS, document, link, page, write_set

GOLDEN = Path(__file__).parents[1] / "golden/files"
TOKENIZER = GOLDEN / "tokenizer.json"
ADDRESS = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, "
    "and dedicated to the proposition that all men are created equal."
)


def words(n: int, seed: int) -> str:
    return " ".join(f"w{number}" for number in random.Random(seed).choices(range(5000), k=n))


def build_of(folder: Path, parts: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A build whose corpus has documents with these texts; they are named like the links of the conftest."""
    rows = [
        [document(name) | {"text": text, "text_digest": text_digest(text), "warc_file": "part-00000.warc.gz",
         "warc_offset": 7, "posts": link(name, 12)["posts"]} for name, text in part]
        for part in parts
    ]  # fmt: skip
    every = [row for part in rows for row in part]
    names = [name for part in parts for name, _ in part]
    write_set(folder / "links", "links", [[link(name, 12) for name in names]])
    write_set(folder / "pages", "pages", [[page(name, offset=7) for name in names]])
    write_set(folder / "documents", "documents", rows)
    write_set(folder / "corpus", "corpus", rows, counts=Counts(len(every), len(every), {}, {}))
    return str(folder)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address is in two training documents in other letters, and at the end of a held-out document."""
    loud = words(50, 1) + "\n\n«" + ADDRESS.upper().replace(" ", "  ") + "» " + words(9, 2)
    parts = [
        [("short", words(60, 3)), ("kept", loud)],
        [("copy", ADDRESS + " " + words(20, 4)), ("held", words(40, 5) + " " + ADDRESS)],
    ]
    return build_of(tmp_path_factory.mktemp("planted") / "build", parts)


SAMPLES = [
    Sample("An invention:", " " + words(30, 6), None),
    Sample("The president said:", f" {words(10, 7)} {ADDRESS} {words(12, 8)}", None),
    Sample("", "too short", None),
]


def written(path: Path, samples: Sequence[Sample] = SAMPLES) -> str:
    rows = [{"prompt": each.prompt, "text": each.prompt + each.text} for each in samples]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_planted_speech_is_found_with_its_share_its_document_and_its_votes(build: str) -> None:
    found = find_memorized(build, SAMPLES, [], 10, Run.quiet())
    n_address, n_all = len(ADDRESS.split()), len(SAMPLES[1].text.split())
    assert n_address == 30
    generated = found["generated"]
    assert (generated["texts"], generated["too_short"], generated["ngrams"]) == (3, 1, 23 + n_all - 7)
    assert generated["shares"] == pytest.approx([0, (n_address - 7) / (n_all - 7)], abs=1e-7)
    assert (generated["without"], generated["median"]) == (0.5, pytest.approx(generated["shares"][1] / 2))
    assert found["held_out"]["shares"] == pytest.approx([23 / (40 + 30 - 7)], abs=1e-7)
    (match,) = found["matches"]
    assert (match["sample"], match["prompt"], match["words"]) == (1, "The president said:", 30)
    assert match["passage"] == ADDRESS.rstrip(".")
    assert match["characters"] == len(ADDRESS) - 1
    assert match["documents"] == 2  # the held-out one is not a training document
    assert match["id"] == document("kept")["id"]
    assert match["place"] == len(words(50, 1)) + 3
    assert (match["karma"], match["warc_file"], match["warc_offset"]) == (12, "part-00000.warc.gz", 7)
    assert [post["post_id"] for post in match["posts"]] == ["p-kept"]


def test_the_verb_prints_and_writes_it(build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = written(tmp_path / "samples.jsonl")
    (tmp_path / "set.txt").write_text(words(40, 9) + " " + ADDRESS)
    command = ["inspect", "memorized", build, "--samples", samples, "--against", str(tmp_path / "set.txt")]
    assert webtext([*command, "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "\nset.txt              63           36.51%\n" in out
    assert "\nsample 1: 30 words, 175 characters in 2 documents: 'Four score" in out
    assert f"\n{URLS['kept']} ended in corpus\n" in out
    assert "\n  post      reddit p-kept in r/test: 12 points, 2017-01-01\n" in out
    value = json.loads((tmp_path / "out/memorized.json").read_text())
    assert webtext([*command, "--json", "--workers", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == value


def test_references_are_the_held_out_texts_if_there_are_any(build: str) -> None:
    samples = [each._replace(reference=f"{ADDRESS} {words(20, 100 + i)}") for i, each in enumerate(SAMPLES)]
    held_out = find_memorized(build, samples, [], 0, Run.quiet())["held_out"]
    assert (held_out["texts"], held_out["shares"]) == (3, pytest.approx([23 / 43] * 3, abs=1e-7))


class Parrot:
    """A language model that begins a text after any prompt and then repeats it, token by token."""

    vocab_size, end_ids, device = 300, (), torch.device("cpu")

    def __init__(self, known: Sequence[int], context: int = 400) -> None:
        self.known, self.context = list(known), context

    def to(self, device: torch.device) -> Parrot:
        return self

    def empty_cache(self, n_texts: int) -> list[list[int]]:
        return [[] for _ in range(n_texts)]

    def next_logits(self, tokens_bt: torch.Tensor, cache: list[list[int]], places: object = None) -> torch.Tensor:
        logits_bv = torch.full((len(tokens_bt), self.vocab_size), -torch.inf)
        for row, (read, tokens) in enumerate(zip(cache, tokens_bt.tolist(), strict=True)):
            read += tokens
            n = next(n for n in range(len(self.known) - 1, -1, -1) if read[len(read) - n :] == self.known[:n])
            logits_bv[row, self.known[n]] = 0
        return logits_bv


def test_a_model_that_repeats_a_page_is_found_out_beside_what_the_documents_say(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(TOKENIZER)
    place = build_of(tmp_path / "b", [[("kept", ADDRESS)], [("held", words(90, 1)), ("short", ADDRESS)]])
    parrot: Any = Measured("parrot", Parrot(tokenizer.encode("\n" + ADDRESS)), tokenizer, {}, None)
    corpus = PartSet.open(f"{place}/corpus")
    (sample,) = continue_held_out(corpus, parrot, 5)
    text = words(90, 1)
    assert text.startswith(sample.prompt + sample.reference)
    assert len(tokenizer.encode(sample.prompt)) == pytest.approx(128, abs=2)
    assert sample.text.startswith("\n" + ADDRESS)
    assert len(tokenizer.encode(sample.text)) == pytest.approx(200, abs=40)
    assert continue_held_out(corpus, parrot, 5) == [sample]
    found = find_memorized(place, [sample], [], 1, Run.quiet())
    n = len(sample.text.split())
    assert found["generated"]["share"] == pytest.approx((n - 14) / (n - 7))  # not those that span two repetitions
    assert found["held_out"]["share"] == 0
    (match,) = found["matches"]
    assert (match["words"], [post["post_id"] for post in match["posts"]]) == (30, ["p-kept"])
    write_samples(Folder(str(tmp_path)), "samples.jsonl", [sample])
    assert read_samples(str(tmp_path / "samples.jsonl")) == [sample]
    short = PartSet.open(build_of(tmp_path / "short", [[("held", "short")]]) + "/corpus")
    with pytest.raises(InputError, match="has no held-out document of 328 tokens"):
        continue_held_out(short, parrot, 5)


def test_the_verb_lets_a_model_continue_held_out_documents(
    build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model with a context of 16 tokens, whose texts are too short for an n-gram."""
    export = str(tmp_path / "export")
    assert webtext(["train", "export", str(GOLDEN / "model"), "--tokenizer", str(TOKENIZER), "--out", export]) == 0
    command = ["inspect", "memorized", build, "--model", export, "--workers", "1"]
    assert webtext(command) == 2
    assert webtext([*command, "--samples", export, "--out", str(tmp_path / "out")]) == 2
    assert webtext(["inspect", "memorized", build]) == 2
    capsys.readouterr()
    assert webtext([*command, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert not (tmp_path / "out").exists()
    assert webtext([*command, "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["generated"]["texts"], found["generated"]["too_short"], found["generated"]["share"]) == (1, 1, None)
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"memorized.json", "samples.jsonl"}


def test_the_filter_is_made_once_and_again_for_another_corpus(tmp_path: Path) -> None:
    place = Path(build_of(tmp_path / "build", [[("kept", words(30, 1))]]))
    find_memorized(str(place), SAMPLES, [], 0, Run.quiet())
    made = (place / "corpus.filter").stat().st_mtime_ns
    find_memorized(str(place), SAMPLES, [], 0, Run.quiet())
    assert (place / "corpus.filter").stat().st_mtime_ns == made
    (place / "corpus/manifest.json").unlink()
    write_set(place / "corpus", "corpus", [[document("kept") | {"text": ADDRESS}]])
    assert find_memorized(str(place), SAMPLES, [], 0, Run.quiet())["generated"]["share"] > 0


def test_a_filter_that_was_kept_elsewhere_is_used_unless_it_is_another_corpus_s(build: str, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.bloom")
    assert webtext(["clean", "decontaminate", f"{build}/corpus", "--keep-filter", kept, "--workers", "1"]) == 0
    found = find_memorized(build, SAMPLES, [], 0, Run.quiet(), kept)
    assert found == find_memorized(build, SAMPLES, [], 0, Run.quiet())
    other = build_of(tmp_path / "other", [[("kept", ADDRESS)]])
    with pytest.raises(InputError, match="is not the filter of"):
        find_memorized(other, SAMPLES, [], 0, Run.quiet(), kept)
    find_memorized(other, SAMPLES, [], 0, Run.quiet(), str(tmp_path / "new.bloom"))
    assert (tmp_path / "new.bloom").exists()
    assert not (tmp_path / "other/corpus.filter").exists()


@pytest.mark.slow  # starts a server
def test_a_build_in_an_object_store_is_searched(build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, kept = written(tmp_path / "samples.jsonl"), str(tmp_path / "kept.bloom")
    with object_store():
        place = f"s3://{BUCKET}/build"
        for path in Path(build).rglob("*"):
            if path.is_file() and path.suffix != ".filter":
                Folder(place).child(str(path.parent.relative_to(build))).write_bytes(path.name, path.read_bytes())
        memorized = ["inspect", "memorized", place, "--samples", samples, "--filter", kept, "--out", f"{place}/out"]
        assert webtext([*memorized, "--json", "--workers", "2"]) == 0
        assert json.loads(capsys.readouterr().out)["matches"][0]["words"] == 30
        assert b"matches" in Folder(f"{place}/out").read_bytes("memorized.json")
        assert webtext(["inspect", "grep", place, "Four score", "--json", "--workers", "2"]) == 0
        assert json.loads(capsys.readouterr().out)["occurrences"] == 2


def test_a_build_s_own_overlap_is_table_6_unless_sets_are_named(tmp_path: Path) -> None:
    place = build_of(tmp_path / "build", [[("kept", ADDRESS)]])
    rows = [{"name": "ptb", "ngrams": 10, "overlap_ratio": 0.5}]
    (tmp_path / "build/overlap.json").write_text(json.dumps({"sets": rows}))
    assert find_memorized(place, SAMPLES, [], 0, Run.quiet())["sets"] == rows
    (tmp_path / "set.txt").write_text(ADDRESS)
    (row,) = find_memorized(place, SAMPLES, [str(tmp_path / "set.txt")], 0, Run.quiet())["sets"]
    assert (row["name"], row["overlap_ratio"]) == ("set.txt", 1)


def test_expected_false_positives_are_those_of_blooms_formula(build: str) -> None:
    find_memorized(build, SAMPLES, [], 0, Run.quiet())
    header, bits = open_filter(f"{build}/corpus.filter")
    set_bits = sum(int(each).bit_count() for each in bits) / header.bits
    assert set_bits**header.probes <= header.false_positives <= 1e-8
    full = FilterHeader(8, 10**6, 64, 1, "", "", 0, "")
    assert full.false_positives == pytest.approx(1)


@given(st.lists(st.sampled_from("ab"), max_size=12), st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4))
def test_the_longest_stretch_is_that_of_all_stretches(text: list[str], other: list[str], least: int) -> None:
    runs = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    shared = [run for run in runs if any(other[k : k + len(run)] == run for k in range(len(other)))]
    longest = max(map(len, shared), default=0)
    found = longest_stretch(text, range(len(text)), f" {' '.join(other)} ", least)
    assert len(found) == (longest if longest >= least else 0)
    assert not found or list(found) in shared


@given(st.text("aÉ ﬁ½猫がใ\u0301.\n", max_size=30), st.data())
def test_a_stretch_is_found_in_the_text_it_is_from(text: str, data: st.DataObject) -> None:
    units = key(text.encode()).decode().split()
    if units:
        first = data.draw(st.integers(0, len(units) - 1))
        run = units[first : data.draw(st.integers(first + 1, len(units)))]
        start, end = place_of(run, text)
        assert f" {' '.join(run)} " in f" {key(text[start:end].encode()).decode()} "
        assert 0 <= start < end <= len(text)


def test_repetitive_texts_and_documents_take_bounded_time(tmp_path: Path) -> None:
    """A model that loops, beside a page that does: each comparison settles a start or makes the stretch longer."""
    place = build_of(tmp_path / "build", [[("kept", "buy now " * 20_000)], [("copy", "buy now " * 9)]])
    (match,) = find_memorized(place, [Sample("", "buy now " * 300, None)], [], 5, Run.quiet())["matches"]
    assert (match["words"], match["documents"], match["id"]) == (600, 1, document("kept")["id"])


def test_a_script_without_spaces_is_matched_by_its_letters(tmp_path: Path) -> None:
    line = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
    place = build_of(tmp_path / "build", [[("kept", f"{words(9, 1)} {line}")]])
    found = find_memorized(place, [Sample("", f"夏目は「{line}」と", None)], [], 1, Run.quiet())
    (match,) = found["matches"]
    assert match["passage"] == line.rstrip("。")
    assert match["words"] == len([each for each in line if each != "。"])
    assert match["place"] == len(words(9, 1)) + 1
    assert 0.5 < found["generated"]["share"] < 1


def test_a_document_that_killed_a_worker_is_counted_and_the_others_are_searched(build: str) -> None:
    corpus = SetName.of(PartSet.open(f"{build}/corpus"))
    task = (corpus, 0, [ADDRESS])
    (match,), failed = _search_part(Journal(), task)
    assert (match.id, failed) == (document("kept")["id"], {})
    assert _search_part(Journal(set_aside={1: "hung"}), task) == ([], {"killed_worker": 1})


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "has no samples"),
        (b"{}\n", "line 1: no sample"),
        (b'{"text": "fine"}\n{"text": 3}\n', "line 2: no sample"),
        (b'{"text": "fine"}\n[]\n', "line 2: a list, not an object"),
        (b'{"samples": 3}\n', "line 1: no sample"),
        (b'{"samples": [{"prompt": "x"}]}\n', "line 1: no sample"),
        (b"[" * 100_000, "line 1: "),
        (b'{"text": "\xff"}', "line 1: .*can't decode"),
    ],
)
def test_a_file_without_samples_is_a_short_error(tmp_path: Path, data: bytes, cause: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(data)
    with pytest.raises(InputError, match=cause) as raised:
        read_samples(str(path))
    assert len(str(raised.value)) < 400
    with pytest.raises(InputError, match="no file"):
        read_samples(str(tmp_path / "none"))


def test_samples_are_read_as_train_sample_prints_them(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "One", "text": "One two\ud800"}, {"prompt": "", "text": "Three"}]
    (tmp_path / "printed.json").write_text(json.dumps({"samples": rows}))
    assert read_samples(str(tmp_path / "printed.json")) == [
        Sample("One", " two\ud800", None),
        Sample("", "Three", None),
    ]


def test_a_lone_surrogate_is_no_word(build: str) -> None:
    hostile = "<script>alert(1)</script> \ud800"
    found = find_memorized(build, [Sample(hostile, f"{hostile} {ADDRESS} {hostile}", None)], [], 3, Run.quiet())
    assert found["matches"][0]["words"] == 30
