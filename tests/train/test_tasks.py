"""The tasks of the paper's sections 3.4 to 3.8: what a model reads, and how its answers are judged, by hand and by libraries."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from webtext.app.main import run as command
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import GPT2, GPT2Config
from webtext.train.evaluate.measured import Measured
from webtext.train.evaluate.report import task_text
from webtext.train.evaluate.table3 import TASKS_3_4_TO_3_8
from webtext.train.evaluate.tasks.coqa import turn_f1
from webtext.train.evaluate.tasks.run import TASKS, Judge, measure_task
from webtext.train.evaluate.tasks.sentences import first_sentences, sentences
from webtext.train.evaluate.tasks.words import exact_match, f1
from webtext.train.evaluate.zero_shot import evaluate_task
from webtext.train.resilience.distributed import World
from webtext.train.settings import EvalSettings

FIXTURES = Path(__file__).parent / "tasks"
FILES = {
    "coqa": "coqa-dev-v1.0.json",
    "cnn-dailymail": "stories",
    "wmt14-en-fr": "newstest2014-fren-src.en.sgm",
    "wmt14-fr-en": "newstest2014-fren-src.fr.sgm",
    "natural-questions": "NQ-open.dev.jsonl",
    "winograd": "WSCollection.xml",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [path.read_text() for path in sorted(FIXTURES.rglob("*")) if path.is_file()]
    return Tokenizer.train(texts, vocab_size=600, special_tokens=["<|endoftext|>"])


class Scripted:
    """A LanguageModel that continues a text by a table: after a key it says its answer, then an end-of-text.

    Of several keys in a text the last one counts. The next token of an answer has the probability `sure`.
    """

    vocab_size = 600
    device = torch.device("cpu")
    end_ids: Collection[int] = ()

    def __init__(self, tokenizer: Tokenizer, table: Mapping[str, str], context: int = 1024, sure: float = 0.9) -> None:
        self.tokenizer, self.table, self.context, self.sure = tokenizer, table, context, sure

    def to(self, device: torch.device) -> Scripted:
        return self

    def empty_cache(self, n_texts: int) -> list[list[int]]:
        return [[] for _ in range(n_texts)]

    def next_logits(self, tokens_bt: Tensor, cache: Any = None, places: Any = None) -> Tensor:
        new = tokens_bt.tolist() * (len(cache) if cache and len(tokens_bt) == 1 else 1)
        rows = [[*old, *row] for old, row in zip(cache or [[]] * len(new), new, strict=True)]
        assert max(map(len, rows)) <= self.context
        if cache is not None:
            cache[:] = rows
        ends = (
            [(i, len(row) - 1) for i, row in enumerate(rows)]
            if places is None
            else zip(*map(Tensor.tolist, places), strict=True)
        )
        back = [len(row) - len(each) for row, each in zip(rows, new, strict=True)]
        return torch.stack([self._after(rows[i][: at + 1 + (0 if places is None else back[i])]) for i, at in ends])

    def _after(self, tokens: list[int]) -> Tensor:
        text = self.tokenizer.decode_bytes(tokens)
        logits_v = torch.full((self.vocab_size,), math.log((1 - self.sure) / (self.vocab_size - 1)))
        at, key = max(((text.rfind(key.encode()) + len(key.encode()), key) for key in self.table), default=(0, ""))
        answer = self.tokenizer.encode(self.table.get(key, ""))
        token = self.tokenizer.eot_id
        for i, following in enumerate(answer if key.encode() in text else []):
            if self.tokenizer.decode_bytes(answer[:i]) == text[at:]:
                token = following
        logits_v[token] = math.log(self.sure)
        return logits_v


@pytest.fixture
def evaluate(tokenizer: Tokenizer) -> Callable[..., dict[str, Any]]:
    """evaluate(task, table, windows=…, path=…, …) measures a scripted model, or `model`, on a task's fixture."""

    def evaluate(task: str, table: Mapping[str, str] = {}, **how: Any) -> dict[str, Any]:
        model = how.pop("model", None) or Scripted(tokenizer, table)
        settings = EvalSettings(batch_size=how.pop("batch_size", 4), windows=how.pop("windows", None))
        path = str(how.pop("path", None) or FIXTURES / FILES[task])
        return evaluate_task(Measured("m", model, tokenizer, {}, None), task, path, settings, Run.quiet(), **how)

    return evaluate


def values(answer: Mapping[str, Any]) -> dict[str, float]:
    return {row["measure"]: row["value"] for row in answer["results"]}


@pytest.fixture
def tiny(tokenizer: Tokenizer) -> GPT2:
    """A GPT-2 of random weights, large enough that its predictions are confident."""
    torch.manual_seed(1)
    model = GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=32, context=1024, vocab_size=tokenizer.vocab_size)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model


def test_answers_are_compared_by_words_without_case_punctuation_and_articles() -> None:
    """Of two words and one, one is common: precision 1/2, recall 1, so F1 is 2/3."""
    assert f1("The cat sat.", "a Cat") == pytest.approx(2 / 3)
    assert f1("the", "a") == 1
    assert f1("the", "cat") == f1("", "cat") == 0
    assert f1("no no", "no") == pytest.approx(2 / 3)
    assert exact_match("The U.S.", "us") == 1
    assert exact_match("cat sat", "sat cat") == 0


def test_an_answer_is_compared_with_all_human_answers_but_one_in_turn() -> None:
    """Without "six" the best is "at six": 2/3; without "at six" it is "six": 1. So (2/3 + 1) / 2."""
    assert turn_f1("Six", ["six", "at six"]) == pytest.approx(5 / 6)
    assert turn_f1("Six", ["at six"]) == pytest.approx(2 / 3)


def test_sentences_end_at_punctuation_and_line_ends_but_not_after_a_title() -> None:
    text = 'Mr. Dupont of St. Ives said "No." Then he left! It was\n3.5 miles. e.g. far'
    assert [each.strip() for each in sentences(text)] == [
        'Mr. Dupont of St. Ives said "No."',
        "Then he left!",
        "It was",
        "3.5 miles. e.g. far",
    ]
    assert first_sentences("\n One. Two.\nThree.", 2) == "One.\nTwo."
    assert first_sentences(" ", 1) == ""


@given(st.text("aA.!? \n\"'M", max_size=60))
def test_sentences_together_are_the_text(text: str) -> None:
    assert "".join(sentences(text)) == text


@pytest.mark.parametrize("text", [".", " ", "\n", '."', ". ", "A. "])
def test_no_text_takes_long_to_split(text: str, linear_time: None) -> None:
    assert "".join(sentences(text * 100_000)) == text * 100_000


def test_coqa_reads_the_document_the_history_and_a_final_a(evaluate: Callable[..., Any], tokenizer: Tokenizer) -> None:
    """Two questions are answered, the first in full; an answer ends before "Q:" and is its first line.

    The first has the golds "At six", "six", "at six o'clock" and "6". Without "six" the best is "at six" with 2/3, else
    "six" with 1. The second has "Forty", "forty loaves", "40" and "forty". With three words instead of two, "forty
    loaves" is 2 * 2 / 5; without it "forty" is 2 * 1 / 4.
    """
    table = {"When does the bakery open?\n\nA:": " six\n\nQ: And", "does she bake?\n\nA:": " forty loaves of\nbread"}
    answer = evaluate("coqa", table)
    found, rows = values(answer), answer["predictions"]
    assert [row["answer"] for row in rows[:3]] == ["six", "forty loaves of", ""]
    first, second = (3 + 2 / 3) / 4, (3 * 4 / 5 + 2 / 4) / 4
    assert [row["score"] for row in rows[:3]] == pytest.approx([first, second, 0])
    assert found["F1"] == pytest.approx(100 * (first + second) / 20)
    assert found["F1, mctest"] == pytest.approx(100 * (first + second) / 5)
    assert found["F1, cnn"] == 0
    story = json.loads((FIXTURES / FILES["coqa"]).read_text())["data"][0]["story"]
    history = "Q: When does the bakery open?\n\nA: At six\n\nQ: How many loaves does she bake?\n\nA:"
    assert rows[1]["prompt"] == f"{story}\n\n{history}"
    assert rows[1]["gold"] == ["Forty", "forty loaves", "40", "forty"]
    assert answer["shots"] == answer["contexts_cut"] == 0
    assert "paper's 1542M" in task_text(answer)


def test_the_first_three_sentences_after_tldr_are_judged_by_rouge(
    evaluate: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    """By hand, for one story: its summary has 10 words, its highlights 18, and 7 are common, also "run" and "runs"."""
    names = sorted(path.name for path in (FIXTURES / "stories").iterdir())
    stories = {name: (FIXTURES / "stories" / name).read_text() for name in names}
    (name,) = [name for name, text in stories.items() if "Port Vell" in text]
    said = " A ferry run aground. Nobody was hurt. Tugboats freed it. And a fourth sentence."
    table = {"has opened an inquiry.\nTL;DR:": said}
    answer = evaluate("cnn-dailymail", model=Scripted(tokenizer, table, sure=1 - 1e-9))  # the likeliest of the two
    (mine,) = [row for row in answer["predictions"] if row["id"] == name.removesuffix(".story")]
    assert mine["answer"] == "A ferry run aground.\nNobody was hurt.\nTugboats freed it."
    assert mine["gold"] == [
        "Ferry with 212 people runs aground near Port Vell\nNobody hurt; tugboats freed the ship at high tide"
    ]
    common, ours, theirs = 7, 10, 18  # ferry, run, aground, nobody, hurt, tugboats, freed
    assert mine["score"]["ROUGE-1"] == pytest.approx(2 * common / (ours + theirs))
    assert mine["score"]["ROUGE-2"] == pytest.approx(
        2 * 3 / (ours - 1 + theirs - 1)
    )  # run aground, hurt tugboats, tugboats freed
    assert mine["score"]["ROUGE-L"] == mine["score"]["ROUGE-1"], (
        "each sentence has its words in the order of a highlight"
    )
    found = values(answer)
    assert found["ROUGE-1"] == pytest.approx(100 * mine["score"]["ROUGE-1"] / 20)
    assert found["ROUGE-1, lead-3"] > found["ROUGE-1, random-3"] > 10
    assert values(evaluate("cnn-dailymail"))["ROUGE-1, random-3"] == found["ROUGE-1, random-3"]
    assert answer["paper"]["ROUGE-1, lead-3"] == {"lead-3": 40.38}


def test_a_translation_is_the_first_sentence_and_is_judged_by_bleu(
    evaluate: Callable[..., Any], tmp_path: Path
) -> None:
    """By hand, for one pair: of 6 words 5 are right, of 5 pairs 4, of 4 triples 3, of 3 fours 2: (1/3) ** (1/4).

    Both ways of splitting words agree on it.
    """
    for side, text in (("src.fr", "Le chat"), ("ref.en", "the cat sat on the rug")):
        (tmp_path / f"newstest2014-fren-{side}.sgm").write_text(
            f'<doc sysid="ref" docid="a">\n<seg id="1"> {text} </seg>\n<seg id="2"> un &amp; deux </seg></doc>'
        )
    table = {"Le chat =": " the cat sat on the mat\nNext", "un & deux =": "deux"}
    answer = evaluate("wmt14-fr-en", table, path=tmp_path / "newstest2014-fren-src.fr.sgm", windows=1, shots=1)
    assert [row["value"] for row in answer["results"]] == pytest.approx([100 * (1 / 3) ** 0.25] * 2)
    (row,) = answer["predictions"]
    assert row["prompt"] == "un & deux = un & deux\nLe chat ="
    assert row["answer"] == "the cat sat on the mat"
    assert [row["unit"] for row in answer["results"]] == ["13a words", "international words, lower case"]


@pytest.mark.parametrize("direction", ["en-fr", "fr-en"])
def test_perfect_translations_have_a_bleu_of_100(direction: str, evaluate: Callable[..., Any]) -> None:
    answer = evaluate(f"wmt14-{direction}", windows=2)
    table = {row["prompt"].rpartition("\n")[2]: f" {row['gold'][0]}\n" for row in answer["predictions"]}
    assert values(answer)["BLEU"] == 0
    again = evaluate(f"wmt14-{direction}", table, windows=2)
    assert values(again)["BLEU"] == pytest.approx(100)
    assert evaluate(f"wmt14-{direction}", table)["predictions"][19]["score"] == pytest.approx(100), (
        "M. does not end one"
    )


def test_open_questions_are_judged_by_exact_match_and_by_confidence(
    evaluate: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    """Two of 20 are right. The longer an answer, the less likely: "Au" is the surest, and is right.

    Its probability is that of its tokens and of a line end, .9 each.
    """
    table = {
        "symbol of gold?\nA:": " Au\nQ: what",
        "capital of france?\nA:": " the Paris.\n",
        "bees make?\nA:": " Mercury and honey from flowers\n",
    }
    answer = evaluate("natural-questions", table, shots=0)
    assert values(answer) == {"accuracy, exact match": 0.1, "accuracy, most confident 1 %": 1.0}
    listed = answer["most_confident"]
    assert len(listed) == 20
    assert listed[0] == {
        "id": "line 6",
        "question": "what is the chemical symbol of gold?",
        "answer": "Au",
        "right": True,
        "probability": pytest.approx(0.9 ** len(tokenizer.encode(" Au\n")), rel=1e-4),
    }
    assert [row["answer"] for row in listed[1:3]] == ["the Paris.", "Mercury and honey from flowers"]
    assert not listed[2]["right"]


def test_winograd_is_scored_by_the_complete_text_and_by_the_rest(
    evaluate: Callable[..., Any], tiny: GPT2, tokenizer: Tokenizer
) -> None:
    answer = evaluate("winograd", model=tiny)
    first, *_ = rows = answer["predictions"]
    before, rest = "The ladder fell on the table because ", " was not steady."
    assert (first["prompt"], first["gold"]) == (before, ["the ladder"])
    for choice, losses in zip(("the ladder", "the table"), first["answer"], strict=True):
        complete = loss_of(tiny, tokenizer, "", before + choice + rest)
        assert losses == pytest.approx([complete, loss_of(tiny, tokenizer, before + choice, rest)], rel=1e-5)
    right = {"full": 0, "partial": 0}
    for row, letter in zip(rows, "ABBABABABABABABABBAA", strict=True):
        for column, how in enumerate(right):
            a, b = (losses[column] for losses in row["answer"])
            assert row["score"][how] == ((a < b) == (letter == "A"))
            right[how] += (a < b) == (letter == "A")
    assert values(answer) == {f"accuracy, {how}": n / 20 for how, n in right.items()}
    assert 0 < right["partial"] < 20


def loss_of(model: GPT2, tokenizer: Tokenizer, before: str, target: str) -> float:
    rest = tokenizer.encode(target)
    tokens = [tokenizer.eot_id, *tokenizer.encode(before), *rest]
    return -float(model.log_likelihood(torch.tensor([tokens]), last=len(rest)).sum())


def test_a_candidate_fits_its_place() -> None:
    """It begins in small letters within a sentence, and gets 's where the pronoun is possessive."""
    items = {item.units[0]: item for item in TASKS["winograd"].read(str(FIXTURES / "WSCollection.xml"))}
    assert items["We put the butter in the fridge. "].choices == ("The butter", "The fridge")
    nora = items["Nora visited Lena in "]
    assert nora.choices == ("Nora's", "Lena's")
    assert nora.example == "Nora visited Lena in Lena's new office, which Lena showed with pride.\n"


def test_only_the_273_schemas_of_the_challenge_are_read(tmp_path: Path) -> None:
    text = (FIXTURES / "WSCollection.xml").read_text()
    head, schemas, tail = (
        text.partition("<collection>")[0],
        text[text.index("<schema") : text.rindex("</coll")],
        "</collection>",
    )
    (tmp_path / "w.xml").write_text(f"{head}<collection>{schemas * 15}{tail}")
    assert len(TASKS["winograd"].read(str(tmp_path / "w.xml"))) == 273


@pytest.mark.parametrize("task", FILES)
def test_examples_are_the_first_of_the_file_and_never_the_items_own(task: str, evaluate: Callable[..., Any]) -> None:
    """CoQA's examples are other conversations, of which its fixture has three for each item."""
    answer = evaluate(task, windows=3, shots=2, model=None)
    items = TASKS[task].read(str(FIXTURES / FILES[task]))
    examples = list(dict.fromkeys(item.example for item in items))
    by_id = {item.id: item for item in items}
    assert answer["shots"] == 2
    assert answer["part"] == "3 of 20 items"
    for row in answer["predictions"]:
        item = by_id[row["id"]]
        shown = [example for example in examples if example != item.example][:2]
        assert row["prompt"] == "".join([*shown, *item.units]).lstrip()
        assert item.example not in row["prompt"]


def test_examples_may_come_from_another_file(evaluate: Callable[..., Any], tmp_path: Path) -> None:
    other = tmp_path / "train.jsonl"
    other.write_text('{"question": "who is it?", "answer": ["me", "I"]}\n')
    answer = evaluate("natural-questions", shots=1, shots_from=str(other), windows=1)
    assert answer["shots_from"] == str(other)
    assert answer["predictions"][0]["prompt"].startswith("Q: who is it?\nA: me\nQ: who wrote")


def test_pairs_are_the_default_where_the_paper_has_them() -> None:
    assert {name for name, task in TASKS.items() if task.shots} == {"wmt14-en-fr", "wmt14-fr-en", "natural-questions"}
    assert TASKS.keys() == TASKS_3_4_TO_3_8.keys()


def test_a_context_that_does_not_fit_is_cut_from_the_left_at_a_word_and_counted(
    evaluate: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    """A document loses words, never its question; the longest end that leaves room for the answer is read."""
    full = evaluate("coqa")["predictions"]
    context = 64 + 60
    answer = evaluate("coqa", model=Scripted(tokenizer, {}, context))
    assert answer["contexts_cut"] == sum(row["units_cut"] > 0 for row in answer["predictions"]) > 0
    assert f"coqa (all, 0 examples before each, {answer['contexts_cut']} contexts cut), " in task_text(answer)
    for row, whole in zip(answer["predictions"], full, strict=True):
        assert whole["prompt"].endswith(row["prompt"])
        assert len(tokenizer.encode(row["prompt"])) <= 60
        if row["units_cut"]:
            rest = whole["prompt"].removesuffix(row["prompt"])
            assert rest[-1].isspace(), "cut between two units"
            longer = rest.split(" ")[-2] + " " + row["prompt"] if not rest.endswith("\n") else None
            assert longer is None or len(tokenizer.encode(longer)) > 60


def test_examples_are_cut_before_the_item(tokenizer: Tokenizer, evaluate: Callable[..., Any]) -> None:
    item = "Q: who wrote the play romeo and juliet?\nA:"
    model = Scripted(tokenizer, {}, context=32 + len(tokenizer.encode(item)))
    (row,) = evaluate("natural-questions", windows=1, shots=3, model=model)["predictions"]
    assert (row["prompt"], row["units_cut"]) == (item, 3)


@pytest.mark.parametrize("task", FILES)
def test_a_question_longer_than_the_context_is_an_error(
    task: str, evaluate: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    with pytest.raises(
        InputError, match=r"item '.*' asks in [\d,]+ tokens, but beside the answer the context has room"
    ):
        evaluate(task, shots=0, model=Scripted(tokenizer, {}, context=3))


@pytest.mark.parametrize("task", ["cnn-dailymail", "coqa"])
def test_answers_depend_neither_on_batches_nor_on_processes(
    task: str, evaluate: Callable[..., Any], tiny: GPT2, tokenizer: Tokenizer
) -> None:
    """Sampled answers, too: an item's draws come from its place by length."""

    class Other(World):
        """A process that gets the answers of another one."""

        rest: dict[int, str] = {}

        def gather(self, value: Any) -> list[Any]:
            self.rest.update(value)
            return [self.rest]

    answers = [row["answer"] for row in evaluate(task, model=tiny, batch_size=7, windows=5)["predictions"]]
    assert len(set(answers)) > 1
    assert [row["answer"] for row in evaluate(task, model=tiny, batch_size=2, windows=5)["predictions"]] == answers
    settings = EvalSettings(batch_size=2, windows=5)
    for rank in (1, 0):
        judge = Judge(tiny, tokenizer, settings, Other(rank, 2, torch.device("cpu")), Run.quiet())
        with pytest.raises(KeyError) if rank else nullcontext():
            found = measure_task(judge, task, str(FIXTURES / FILES[task]), None, None)
    assert [row["answer"] for row in found["predictions"]] == answers


WRONG = {
    "coqa": [
        ("[]", "expected coqa-dev-v1.0.json"),
        ('{"data": [1]}', "data[0]: "),
        ('{"data": \n[}', "line 2 column 2"),
        ('{"data": [{"story": "a", "source": "b"}]}', "data[0]: there is no 'id'"),
        (
            '{"data": [{"story": "a", "source": "b", "id": "c", "questions": [{"input_text": "d"}], "answers": []}]}',
            "data[0]: the list of answers is empty",
        ),
        (
            '{"data": [{"story": " ", "source": "b", "id": "c", "questions": [{"input_text": "d"}], "answers": []}]}',
            "data[0]: ' ' is not a text",
        ),
        ('{"data": []}', "has no items"),
    ],
    "natural-questions": [
        ('{"question": "a", "answer": ["b"]}\n{"question": "a"}\n', "line 2: there is no 'answer'"),
        ('{"question": "a", "answer": []}', "line 1: the list of answers is empty"),
        ('{"question": "a", "answer": "b"}', "line 1: 'b' is not a list of texts"),
        ('{"question": 1, "answer": ["b"]}', "line 1: 1 is not a text"),
        ("{}\n", "line 1: there is no 'question'"),
        ("", "line 1: "),
        ("[" * 100_000, "line 1: "),
    ],
    "winograd": [
        ("<collection>", "no element found"),
        ("<collection></collection>", "has no items"),
        ("<collection><schema/></collection>", "schema 1: "),
        ('<!DOCTYPE a [<!ENTITY b "c">]><collection>&b;</collection>', "defines XML entities"),
        ("{}", "not well-formed (invalid token): line 1"),
    ],
    "wmt14-fr-en": [
        ("plain text", "has no segments"),
        ('<doc docid="a">\n<seg id="1"></seg>', "line 2: '' is not a text"),
        ('<doc docid="a">\n<seg id="1">a</seg><seg id="2">a</seg>', "lacks the segment 'a 2'"),
    ],
    "cnn-dailymail": [
        ("An article without highlights.", "the list of answers is empty"),
        ("\n@highlight\n\nA summary without an article", "'\\n' is not a text"),
        ("An article.\n\n@highlight\n\n", "'' is not a text"),
    ],
}


@pytest.mark.parametrize(("task", "text", "message"), [(task, *each) for task, some in WRONG.items() for each in some])
def test_a_set_in_another_format_is_refused(
    task: str, text: str, message: str, evaluate: Callable[..., Any], tmp_path: Path
) -> None:
    name = {"wmt14-fr-en": "a-src.fr.sgm", "cnn-dailymail": "a.story"}.get(task, "file")
    (tmp_path / name).write_text(text)
    (tmp_path / "a-ref.en.sgm").write_text('<doc docid="a"><seg id="1">b</seg></doc>')
    with pytest.raises(InputError) as caught:
        evaluate(task, path=tmp_path if task == "cnn-dailymail" else tmp_path / name, shots=0)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_a_file_of_another_name_has_no_references(evaluate: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not named newstest2014-fren-src.en.sgm"):
        evaluate("wmt14-en-fr", path=FIXTURES / "newstest2014-fren-src.fr.sgm")
    with pytest.raises(InputError, match="has no .story files"):
        evaluate("cnn-dailymail", path=tmp_path)


@pytest.mark.parametrize(
    ("task", "how", "message"),
    [
        ("natural-questions", {"shots": 20}, "has 20 examples, and an item is not its own"),
        ("coqa", {"shots": 4}, "has 4 examples"),
        ("coqa", {"shots": -1}, "--shots is -1, but"),
        ("text", {"shots": 1}, "--shots is given and the task is 'text'"),
        ("text", {"shots_from": "x"}, "--shots is given and the task is 'text'"),
        ("coqa", {"stop_words": "x"}, "only --task lambada takes it"),
    ],
)
def test_options_that_a_task_cannot_follow_are_errors(
    task: str, how: dict[str, Any], message: str, evaluate: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate(task, path=FIXTURES / FILES.get(task, FILES["coqa"]), **how)
    assert message in str(caught.value)


def test_the_verb_writes_each_answer_beside_the_result(
    tiny: GPT2, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.to_huggingface(tmp_path / "model", tokenizer)
    call = ["train", "eval", str(tmp_path / "model"), str(FIXTURES / FILES["natural-questions"])]
    call += ["--task", "natural-questions", "--shots", "1", "--windows", "4"]
    assert command([*call, "--out", str(tmp_path / "out"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads((tmp_path / "out/evaluation-natural-questions.json").read_text())
    assert "predictions" not in answer
    rows = [
        json.loads(line) for line in (tmp_path / "out/predictions-natural-questions.jsonl").read_text().splitlines()
    ]
    assert [row["id"] for row in rows] == ["line 1", "line 7", "line 14", "line 20"]
    assert rows[0].keys() == {"id", "prompt", "units_cut", "answer", "gold", "score"}
    assert command(call) == 0
    assert "accuracy, exact match" in capsys.readouterr().out
    for path in (tmp_path / "model").iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    assert command(call) == 2
    assert "contains no tokenizer.json" in capsys.readouterr().err


def test_a_missing_library_is_named_before_the_model_answers(
    tiny: GPT2,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny.to_huggingface(tmp_path, tokenizer)
    for package, task in (("sacrebleu", "wmt14-fr-en"), ("rouge_score", "cnn-dailymail")):
        monkeypatch.setitem(sys.modules, package, None)
        assert command(["train", "eval", str(tmp_path), str(FIXTURES / FILES[task]), "--task", task]) == 1
        error = capsys.readouterr().err
        assert f"the package '{package}' is not installed" in error
        assert "pip install 'webtext[tasks]'" in error
