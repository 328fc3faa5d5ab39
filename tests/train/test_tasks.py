"""The paper's tasks through lm-eval on ten records of each: prompts, scores by hand, and lm-eval's own model beside ours."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from webtext.app.main import run as command
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import GPT2, GPT2Config
from webtext.train.distributed import World
from webtext.train.evaluate import harness
from webtext.train.evaluate.harness import TASK_FILES, HarnessModel, evaluate_tasks
from webtext.train.evaluate.measured import Judge, Measured
from webtext.train.evaluate.published import FILES, PAPER, TASKS, task_text
from webtext.train.evaluate.tasks.functions import first_sentences
from webtext.train.model.sample import sample_texts
from webtext.train.settings import EvalSettings, SampleSettings

STORY = "Maria runs a small bakery. It opens at six, and she bakes forty loaves of bread every day."
TURNS = {
    "When does it open?": ("At six", "six", "at six o'clock", "6"),
    "How many loaves does she bake?": ("Forty", "forty loaves", "40", "forty"),
    "Who runs it?": ("Maria", "Maria", "Maria", "she"),
    "Is it large?": ("no", "No", "no, small", "no"),
    "What does she bake?": ("bread", "loaves", "bread", "bread"),
}
ARTICLE = "A ferry with 212 people ran aground near Port Vell on day {}. Nobody was hurt."
HIGHLIGHTS = "Ferry with 212 people runs aground near Port Vell\nNobody hurt; tugboats freed the ship at high tide"
SCHEMAS = [
    ("The ladder fell on the table because it was not steady.", "it", 37, ["The ladder", "The table"], 0),
    ("Nora visited Lena in her new office, which was large.", "her", 21, ["Nora", "Lena"], 1),
]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copies of files that datasets keeps as Arrow aren't kept between runs of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tasks' files, of ten items each."""
    folder = tmp_path_factory.mktemp("sets")
    questions = [{"input_text": question, "turn_id": i} for i, question in enumerate(TURNS, 1)]
    first, *more = [[{"input_text": text} for text in column] for column in zip(*TURNS.values(), strict=True)]
    stories = [
        {
            "id": name,
            "source": "mctest",
            "story": f"{STORY} Story {name}.",
            "questions": questions,
            "answers": first,
            "additional_answers": {str(i): column for i, column in enumerate(more)},
        }
        for name in ("one", "two")
    ]
    (folder / "coqa-dev-v1.0.json").write_text(json.dumps({"version": "1.0", "data": stories}))
    asked = [{"question": f"what is the symbol of element {i}?", "answer": [f"the E{i}", f"e-{i}"]} for i in range(10)]
    (folder / "NQ-open.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    rows = [{"article": ARTICLE.format(i), "highlights": HIGHLIGHTS, "id": str(i)} for i in range(10)]
    pairs = [{"en": f"the cat sat on rug {i}", "fr": f"le chat dort sur tapis {i}"} for i in range(10)]
    schemas = [
        {"text": f"{text} {i}", "pronoun": pronoun, "pronoun_loc": at, "options": options, "label": label}
        for i in range(5)
        for text, pronoun, at, options, label in SCHEMAS
    ]
    tables = {"cnn_dailymail": rows, "wmt14-fr-en": [{"translation": pair} for pair in pairs], "wsc273": schemas}
    for name, some in tables.items():
        pq.write_table(pa.Table.from_pylist(some), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [STORY, *TURNS, ARTICLE, HIGHLIGHTS, *(text for text, *_ in SCHEMAS), "le chat dort sur tapis the cat sat"]
    return Tokenizer.train([*texts, "Q: A: 0123456789"], vocab_size=500, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def tiny(tokenizer: Tokenizer) -> GPT2:
    """A GPT-2 of random weights, large enough that its predictions are confident."""
    model = GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=32, context=512, vocab_size=tokenizer.vocab_size), 1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model


Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture
def evaluate(tiny: GPT2, tokenizer: Tokenizer, data: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """evaluate(task, table, …) measures a model that says table's values after prompts that end with its keys."""

    def evaluate(task: str, table: Mapping[str, str] | None = None, **how: Any) -> dict[str, Any]:
        def scripted(_model: Any, _tokenizer: Any, starts: Sequence[list[int]], *_: Any) -> list[list[str]]:
            prompts = map(tokenizer.decode, starts)
            return [[next((said for key, said in table.items() if text.endswith(key)), "") for text in prompts]]

        settings = EvalSettings(batch_size=how.pop("batch_size", 4), windows=how.pop("windows", None))
        measured = Measured("m", how.pop("model", tiny), tokenizer, {})
        with monkeypatch.context() as patch:
            if table is not None:
                patch.setattr(harness, "growth", scripted)
            (answer,) = evaluate_tasks(measured, [task], str(how.pop("path", data)), settings, Run.quiet(), **how)
        return answer

    return evaluate


def values(answer: Mapping[str, Any]) -> dict[str, float]:
    return {row["measure"]: row["value"] for row in answer["results"]}


def prompts(answer: Mapping[str, Any]) -> list[str]:
    return [row["arguments"][0][0] for row in answer["samples"]]


def said(answer: Mapping[str, Any]) -> list[str]:
    return [row["resps"][0][0] for row in answer["samples"]]


def test_coqa_has_the_document_the_history_and_a_final_a_and_is_judged_by_f1(evaluate: Evaluate) -> None:
    """Two of ten questions are answered, the first in full; an answer is its first line.

    "six": without the gold "six" the best is "at six" with 2/3, else it is "six" with 1. "forty loaves of": with three
    words instead of two, "forty loaves" is 2 * 2 / 5; without it "forty" is 2 * 1 / 4.
    """
    first = f"{STORY} Story one.\n\nQ: When does it open?\n\nA:"
    second = f"{first} At six\n\nQ: How many loaves does she bake?\n\nA:"
    answer = evaluate("coqa", {first: " six", second: " forty loaves of\nbread"})
    assert prompts(answer)[:2] == [first, second]
    assert prompts(answer)[5].startswith(f"{STORY} Story two.\n\nQ: When")
    scores = [(3 + 2 / 3) / 4, (3 * 4 / 5 + 2 / 4) / 4]
    assert [row["f1"] for row in answer["samples"]] == pytest.approx([*scores, *[0] * 8])
    assert values(answer) == {"f1": pytest.approx(sum(scores) / 10)}
    assert (answer["shots"], answer["contexts_cut"], answer["part"]) == (0, 0, "all")
    assert "paper's 1542M       f1  55.00%" in task_text(answer)


def test_a_summary_is_three_sentences_after_tldr_and_is_judged_by_rouge(evaluate: Evaluate) -> None:
    """By hand, for one of ten: the summary has 10 words, the highlights 18; 7 are common, also "run" and "runs".

    Of the 9 and 17 pairs 3 are common: run aground, hurt tugboats, tugboats freed. Each sentence has its words in the
    order of a highlight, so ROUGE-L is ROUGE-1.
    """
    asked = f"{ARTICLE.format(3)}\nTL;DR:"
    answer = evaluate("cnn_dm", {asked: " A ferry run aground. Nobody was hurt. Tugboats freed it. And a fourth."})
    assert prompts(answer)[3] == asked
    assert answer["samples"][3]["filtered_resps"] == ["A ferry run aground.\nNobody was hurt.\nTugboats freed it."]
    one, two = 2 * 7 / (10 + 18), 2 * 3 / (9 + 17)
    by_hand = {"rouge1": one, "rouge2": two, "rougeL": one, "rouge": (one + two + one) / 3}
    assert values(answer) == pytest.approx({name: value / 10 for name, value in by_hand.items()})


@pytest.mark.parametrize(("task", "source", "target"), [("wmt14_fr_en", "fr", "en"), ("wmt14_en_fr", "en", "fr")])
def test_a_translation_is_the_first_sentence_and_is_judged_by_bleu(
    task: str, source: str, target: str, evaluate: Evaluate
) -> None:
    """By hand, for all ten: of 6 words 5 are right, of 5 pairs 4, of 4 triples 3, of 3 fours 2: (1/3) ** (1/4)."""
    texts = {"en": "the cat sat on rug {}", "fr": "le chat dort sur tapis {}"}
    right = texts[target].removesuffix("{}")
    answer = evaluate(task, {f"{texts[source].format(i)} =": f" {right}mat. Next" for i in range(10)})
    assert answer["samples"][0]["filtered_resps"] == [f"{right}mat."]
    assert values(evaluate(task, {f"{texts[source].format(i)} =": f" {right}mat" for i in range(10)})) == {
        "bleu": pytest.approx(100 * (1 / 3) ** 0.25)
    }
    shown = "".join(f"{texts[source].format(i)} = {texts[target].format(i)}\n" for i in range(1, 6))
    assert prompts(answer)[0] == f"{shown}{texts[source].format(0)} ="


def test_open_questions_are_judged_by_the_words_of_any_answer(evaluate: Evaluate) -> None:
    """Two of ten are right, without case, punctuation and articles. The first five others are shown as examples."""
    asked = "Q: what is the symbol of element {}?\nA:"
    table = {asked.format(2): " e2.", asked.format(4): " An E-4", asked.format(6): " E 6"}
    answer = evaluate("nq", table)
    assert values(answer) == {"exact_match": pytest.approx(0.2)}
    shown = [f"{asked.format(i)} the E{i}\n" for i in range(10)]
    assert prompts(answer)[2] == "".join([*shown[:2], *shown[3:6], asked.format(2)])


def test_winograd_is_scored_by_the_complete_text_and_by_the_rest(
    evaluate: Evaluate, tiny: GPT2, tokenizer: Tokenizer
) -> None:
    """A candidate begins in small letters within a sentence, and gets 's where the pronoun is possessive."""
    answers = {how: evaluate(f"winograd_{how}") for how in ("full", "partial")}
    right = {"full": 0, "partial": 0}
    for i in range(10):
        text, pronoun, at, _, label = SCHEMAS[i % 2]
        options = [["the ladder", "the table"], ["Nora's", "Lena's"]][i % 2]
        before, rest = text[:at], f"{text[at + len(pronoun) :]} {i // 2}"
        scores = {
            "full": [log_p(tiny, tokenizer, "", before + option + rest) for option in options],
            "partial": [log_p(tiny, tokenizer, before + option, rest) for option in options],
        }
        for how, answer in answers.items():
            found = [resp[0][0] for resp in answer["samples"][i]["resps"]]
            assert found == pytest.approx(scores[how], rel=1e-5)
            right[how] += scores[how].index(max(scores[how])) == label
    assert {how: values(answer) for how, answer in answers.items()} == {
        how: {"acc": pytest.approx(n / 10)} for how, n in right.items()
    }
    assert sum(right.values()) > 0


def log_p(model: GPT2, tokenizer: Tokenizer, before: str, target: str) -> float:
    rest = tokenizer.encode(target)
    tokens = [tokenizer.eot_id, *tokenizer.encode(before), *rest]
    return float(model.log_likelihood(torch.tensor([tokens]), last=len(rest)).sum())


def test_every_task_file_belongs_to_a_name_and_has_a_published_value() -> None:
    files = {path.stem for path in TASK_FILES.glob("*.yaml")}
    assert files == {name for names in TASKS.values() for name in names} == PAPER.keys() - set(FILES)


def test_sentences_end_at_punctuation_and_line_ends_but_not_after_a_title() -> None:
    text = 'Mr. Dupont of St. Ives said "No." Then he left! It was\n3.5 miles. e.g. far'
    lines = ['Mr. Dupont of St. Ives said "No."', "Then he left!", "It was", "3.5 miles. e.g. far"]
    assert first_sentences(text, 9) == "\n".join(lines)
    assert first_sentences("\n One. Two.\nThree.", 2) == "One.\nTwo."
    assert first_sentences(" ", 1) == ""


@pytest.mark.parametrize("text", [".", " ", "\n", '."', ". ", "A. "])
def test_no_text_takes_long_to_split(text: str, linear_time: None) -> None:
    assert len(first_sentences(text * 100_000, 1)) <= len(text) * 100_000


# The interface


def test_greedy_answers_are_those_of_our_samples(evaluate: Evaluate, tiny: GPT2, tokenizer: Tokenizer) -> None:
    """Up to a stop of the task, or its number of tokens."""
    answer = evaluate("nq", windows=3)
    assert answer["part"] == "first 3 of 10 items"
    for prompt, text in zip(prompts(answer), said(answer), strict=True):
        (whole,) = sample_texts(tiny, tokenizer, [prompt], SampleSettings(max_tokens=32, temperature=0))
        assert text == whole.removeprefix(prompt).split("\n")[0]


def test_answers_depend_neither_on_batches_nor_on_processes(
    evaluate: Evaluate, tiny: GPT2, tokenizer: Tokenizer
) -> None:
    """Sampled answers, too: an item's draws come from its place by length."""

    class Other(World):
        """A process that gets the answers of another one."""

        rest: dict[int, str] = {}

        def gather(self, value: Any) -> list[Any]:
            self.rest.update(value)
            return [self.rest]

    answer = evaluate("cnn_dm", batch_size=7, windows=5)
    assert len(set(said(answer))) > 1
    assert said(evaluate("cnn_dm", batch_size=2, windows=5)) == said(answer)

    requests = [SimpleNamespace(args=row["arguments"][0]) for row in answer["samples"]]
    for rank in (1, 0):
        world = Other(rank, 2, torch.device("cpu"))
        model = HarnessModel(Judge(tiny, tokenizer, EvalSettings(batch_size=2), world, Run.quiet()))
        with pytest.raises(KeyError) if rank else nullcontext():
            found = model.generate_until(requests)
    assert found == said(answer)


def test_a_prompt_that_does_not_fit_is_cut_from_the_left_and_counted(
    evaluate: Evaluate, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    monkeypatch.setattr(harness, "growth", lambda m, t, starts, *_: [[read.append(s) or "" for s in starts]])
    small = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=4, context=64 + 60, vocab_size=tokenizer.vocab_size)).eval()
    answer = evaluate("coqa", model=small)
    whole = sorted(([tokenizer.eot_id, *tokenizer.encode(prompt)] for prompt in prompts(answer)), key=len)
    assert answer["contexts_cut"] == sum(len(tokens) > 60 for tokens in whole) > 0
    assert f"coqa (all, 0 examples before each, {answer['contexts_cut']} contexts cut), " in task_text(answer)
    assert read == [tokens[-60:] for tokens in whole]
    with pytest.raises(ConfigError, match="an answer may have 200 tokens, but the model's context is 124"):
        evaluate("wmt14_fr_en", model=small)


@pytest.mark.parametrize("task", ["coqa", "nq", "wmt14_fr_en", "winograd_full", "winograd_partial"])
def test_a_model_of_lm_evals_own_has_our_answers_and_scores(
    task: str, evaluate: Evaluate, tiny: GPT2, tokenizer: Tokenizer, data: Path, tmp_path: Path
) -> None:
    """The exported folder under lm-eval's class for Hugging Face's models, as its command line runs it."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    tiny.to_huggingface(tmp_path, tokenizer)
    how = {"pretrained": str(tmp_path), "add_bos_token": True, "device": "cpu"}
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data)
        theirs = simple_evaluate(
            model="hf", model_args=how, tasks=[task], task_manager=manager, bootstrap_iters=0, batch_size=4
        )
    ours = evaluate(task)
    for mine, other in zip(ours["samples"], theirs["samples"][task], strict=True):
        assert mine["arguments"] == other["arguments"]
        if task.startswith("winograd"):
            other["resps"], mine["resps"] = ([resp[0][0] for resp in row["resps"]] for row in (other, mine))
            assert mine["resps"] == pytest.approx(other["resps"], rel=1e-4)
        else:
            assert mine["resps"] == other["resps"]
    for measure, value in values(ours).items():
        assert value in [found for key, found in theirs["results"][task].items() if key.startswith(f"{measure},")]


# Bad input, and the verb


@pytest.mark.parametrize(
    ("task", "name", "text", "message"),
    [
        ("coqa", "coqa-dev-v1.0.json", "[]", "task 'coqa' can't read"),
        ("coqa", "coqa-dev-v1.0.json", '{"data": [{"story": "a", "id": "c"}]}', "can't read"),
        ("coqa", "coqa-dev-v1.0.json", '{"data": []}', "can't read"),
        (
            "nq",
            "NQ-open.dev.jsonl",
            '{"question": "a", "answer": ["b"]}\n{"question": "a"}\n',
            "item 2 has no 'answer'",
        ),
        ("nq", "NQ-open.dev.jsonl", '{"question": "a", "answer": []}', "item 1 has no 'answer'"),
        ("nq", "NQ-open.dev.jsonl", '{"asked": "a"}', "can't read"),
        ("nq", "NQ-open.dev.jsonl", "", "can't read"),
        ("nq", "NQ-open.dev.jsonl", "plain text", "can't read"),
        ("cnn_dm", "cnn_dailymail.parquet", "plain text", "can't read"),
        ("winograd_full", "wsc273.parquet", None, "'winograd_full' can't read '.*': Unable to find"),
    ],
)
def test_a_file_of_another_form_is_named(
    task: str, name: str, text: str | None, message: str, evaluate: Evaluate, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        evaluate(task, path=tmp_path)
    assert name in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_the_verb_writes_results_and_samples(
    tiny: GPT2,
    tokenizer: Tokenizer,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)  # only local files are read
    tiny.to_huggingface(tmp_path / "model", tokenizer)
    call = ["train", "eval", str(tmp_path / "model"), str(data), "--windows", "2"]
    for task, files in (("nq", ["nq"]), ("winograd", ["winograd_full", "winograd_partial"])):
        assert command([*call, "--task", task, "--out", str(tmp_path / "out"), "--json"]) == 0
        printed = capsys.readouterr()
        assert "it/s" not in printed.err
        answers = json.loads(printed.out)["tasks"]
        assert [answer["task"] for answer in answers] == files
        for answer in answers:
            assert answer == json.loads((tmp_path / f"out/evaluation-{answer['task']}.json").read_text())
    lines = (tmp_path / "out/samples-nq.jsonl").read_text().splitlines()
    assert [json.loads(line)["doc_id"] for line in lines] == [0, 1]
    assert json.loads(lines[0]).keys() >= {"doc", "target", "arguments", "resps", "filtered_resps", "exact_match"}
    assert command([*call, "--task", "nq"]) == 0
    assert "exact_match" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "webtext.train.evaluate.harness")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert command([*call, "--task", "nq"]) == 4
    error = capsys.readouterr().err
    assert "the package 'lm_eval' is not installed" in error
    assert "pip install '.[tasks]'" in error
