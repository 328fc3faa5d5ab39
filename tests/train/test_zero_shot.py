"""`train eval` on evaluation sets equals Hugging Face's model under the same protocol, in every unit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_runs import small, train

from webtext.app.main import run as command
from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer
from webtext.train import GPT2, GPT2Config, load_model
from webtext.train.distributed import World
from webtext.train.evaluate.cloze import Cloze, read_cbt, score_clozes
from webtext.train.evaluate.measured import Judge, load_measured
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.evaluate.published import FILES, FILTERED, PAPER, SIZES, UNFILTERED, task_text
from webtext.train.evaluate.zero_shot import evaluate_task
from webtext.train.settings import EvalSettings

CONTEXT, EOT = 64, 319
WIKITEXT = ' \n = A Title = \n \n The cat \'s 1 @,@ 000 " two @-@ part " <unk> , it said . \n He was here . \n' * 8
LAMBADA = [
    "The cat sat on the mat and he said to the cat",
    'He was here,\n\n"and she was there" said the cat\'s old friend Harlin',
    "It isn't what they don't",
]
CBT_QUESTION = "21 `` It was the XXXXX , '' said he , `` was n't it ? ''\tcat\t\tdog|cat|friend|old"
CBT = "\n".join([*(f"{i} The cat was n't here , said he ." for i in range(1, 21)), CBT_QUESTION, "", ""])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([WIKITEXT, *LAMBADA, CBT] * 3, vocab_size=320, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> tuple[str, Any]:
    """A random GPT2LMHeadModel of transformers and its folder; large weights make its predictions confident."""
    torch.manual_seed(1)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": CONTEXT, "vocab_size": tokenizer.vocab_size}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, initializer_range=0.2)).eval()
    folder = tmp_path_factory.mktemp("theirs")
    model.save_pretrained(folder)
    return str(folder), model


Measure = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(theirs: tuple[str, Any], tokenizer: Tokenizer, tmp_path: Path) -> Measure:
    """measure(task, text, settings) writes the text to tmp_path / "file" and evaluates transformers' model on it."""

    def measure(task: str, text: str, settings: EvalSettings | None = None, **how: Any) -> dict[str, Any]:
        (tmp_path / "file").write_text(text)
        measured = load_measured(theirs[0], tokenizer)
        return evaluate_task(measured, task, str(tmp_path / "file"), settings or EvalSettings(), Run.quiet(), **how)

    return measure


def jsonl(texts: list[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def their_loss(model: Any, tokens: list[int], n_scored: int) -> tuple[float, torch.Tensor]:
    """Return -log p of the last tokens by transformers' logits, and the likeliest token at each position."""
    with torch.no_grad():
        logits_tv = model(torch.tensor([tokens[:-1]])).logits[0, -n_scored:]
    loss = torch.nn.functional.cross_entropy(logits_tv, torch.tensor(tokens[-n_scored:]), reduction="sum")
    return loss.item(), logits_tv.argmax(-1)


def their_stride_loss(model: Any, tokens: list[int], stride: int, eot: int = EOT, context: int = CONTEXT) -> float:
    """The sliding window of transformers' documentation on perplexity: each window scores its new tokens."""
    stream, total = [eot, *tokens], 0.0
    for start in range(0, len(tokens), stride):
        end = min(start + stride, len(tokens))
        total += their_loss(model, stream[max(0, end - context) : end + 1], end - start)[0]
    return total


def values(answer: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(row["measure"], row["unit"]): row["value"] for row in answer["results"]}


@pytest.mark.parametrize("stride", [None, 7])
@pytest.mark.parametrize("task", ["wikitext-2", "text"])
def test_running_text_is_scored_as_transformers_does(
    task: str, stride: int | None, theirs: tuple[str, Any], tokenizer: Tokenizer, measure: Measure
) -> None:
    """The paragraphs eight times over; the units of a de-tokenized text are those of the original."""
    answer = measure(task, WIKITEXT, EvalSettings(stride=stride))
    read = '\n= A Title =\n\nThe cat\'s 1,000 "two-part" <unk>, it said.\nHe was here.\n' * 8
    tokens = tokenizer.encode(WIKITEXT if task == "text" else read)
    assert len(tokens) > 2 * CONTEXT
    loss = their_stride_loss(theirs[1], tokens, stride or CONTEXT)
    assert tokenizer.eot_id == EOT
    found = values(answer)
    n_words, n_lines = 8 * 24, 8 * 5
    assert found["perplexity", "token"] == pytest.approx(math.exp(loss / len(tokens)), rel=1e-5)
    assert found["perplexity", "word"] == pytest.approx(math.exp(loss / n_words), rel=1e-5)
    assert found["perplexity", "word or line end"] == pytest.approx(math.exp(loss / (n_words + n_lines)), rel=1e-5)
    assert found["bits", "byte"] == pytest.approx(loss / math.log(2) / len(WIKITEXT.encode()), rel=1e-5)
    assert answer["detokenizer"] == ("wikitext" if task != "text" else None)
    assert answer["stride"] == (stride or CONTEXT)
    assert ("paper" in answer) == (task != "text")


def test_the_last_word_is_scored_as_transformers_does(
    theirs: tuple[str, Any], tokenizer: Tokenizer, measure: Measure
) -> None:
    """Some passages end in the word that the model itself predicts: these are right, the others are not."""
    starts = [text[:n] for text in LAMBADA for n in range(8, len(text)) if text[n] == " "]
    said = [(start, their_next_token(theirs[1], tokenizer, start)) for start in starts]
    passages = LAMBADA + [start + token for start, token in said if token.startswith(" ") and token.strip()]
    answer = measure("lambada", jsonl(passages), EvalSettings(batch_size=3))
    total, n_tokens, whole, last = 0.0, 0, 0, 0
    for text in passages:
        before, _, word = text.rpartition(" ")
        target = tokenizer.encode(f" {word}")
        loss, likeliest = their_loss(theirs[1], [EOT, *tokenizer.encode(before), *target], len(target))
        total, n_tokens = total + loss, n_tokens + len(target)
        whole += likeliest.tolist() == target
        last += likeliest.tolist()[-1] == target[-1]
    found, n = values(answer), len(passages)
    assert found["perplexity", "word"] == pytest.approx(math.exp(total / n), rel=1e-5)
    assert found["perplexity", "token"] == pytest.approx(math.exp(total / n_tokens), rel=1e-5)
    assert found[UNFILTERED, "word"] == whole / n
    assert 0 < whole < n
    assert found[UNFILTERED, "last token"] == last / n


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ([], {" he", " heq"}),
        (["HE", "zq"], {" said", " heq"}),
        (["he", "said"], {" cat", " heq"}),
        (["cat", "heq"], {" he"}),
    ],
)
def test_a_stop_word_filter_allows_no_stop_word_as_the_last_word(
    words: list[str], right: set[str], theirs: tuple[str, Any], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that begins each word with ' he', or else ' said', ' cat', and continues with 'q', or else 'z'.

    ' heq' begins with the stop word 'he' and is another word. As a stop word it leaves 'z' to follow ' he'.
    """
    firsts, nexts = torch.zeros(2, tokenizer.vocab_size)
    for texts, logits_v in (((" cat", " said", " he"), firsts), (("z", "q"), nexts)):
        for logit, text in enumerate(texts, 1):
            logits_v[tokenizer.encode(text)] = logit
    model, here = load_model(theirs[0]), World(0, 1, torch.device("cpu"))
    monkeypatch.setattr(model, "logits", lambda hidden_nc: torch.stack([firsts, *[nexts] * (len(hidden_nc) - 1)]))
    judge = Judge(model, tokenizer, EvalSettings(), here, Run.quiet())
    found, plain = set(), set()
    for word in (" he", " He", " said", " cat", " heq", " zq"):
        scores = score_clozes(judge, [Cloze("The cat sat", word)], words)
        found |= {word} if scores.all_filtered[0] else set()
        plain |= {word} if scores.all_likeliest[0] else set()
        assert scores.last_filtered[0] or not scores.all_filtered[0]
    assert (found, plain) == (right, {" he", " heq"})


def test_each_accuracy_of_lambada_stands_beside_the_papers_under_the_same_filter(
    measure: Measure, tmp_path: Path
) -> None:
    (tmp_path / "stop-words.txt").write_text("the\r\n\nof\n")
    for stops, ours in ((None, {UNFILTERED}), (str(tmp_path / "stop-words.txt"), {UNFILTERED, FILTERED})):
        answer = measure("lambada", jsonl(LAMBADA), stop_words=stops)
        lines = [line.split("  ") for line in task_text(answer).splitlines()]
        shown = [tuple(filter(None, map(str.strip, line)))[:3] for line in lines]
        of_largest = {(kind, value) for who, kind, value in shown[1:-1] if who == "paper's 1542M"}
        assert of_largest == {("perplexity", "8.630"), (UNFILTERED, "52.66%"), (FILTERED, "63.24%")}
        assert {kind for who, kind, _ in shown[1:-1] if who == "this model"} == {"perplexity", *ours}
        assert answer.get("stop_words") == (stops and {"file": stops, "words": 2})


def their_next_token(model: Any, tokenizer: Tokenizer, before: str) -> str:
    with torch.no_grad():
        token = int(model(torch.tensor([[EOT, *tokenizer.encode(before)]])).logits[0, -1].argmax())
    return tokenizer.decode([token])


def test_choices_are_scored_as_transformers_does(
    theirs: tuple[str, Any], tokenizer: Tokenizer, measure: Measure
) -> None:
    others = ["dog", "friend", "old"]
    answer = measure("cbt-cn", CBT + "".join(CBT.replace("\tcat\t", f"\t{word}\t") for word in others))
    assert values(answer) == {("accuracy", "choice"): 0.25}  # the same question four times, each choice once right
    losses = []
    story = "The cat wasn't here, said he.\n" * 20
    for word in ("dog", "cat", "friend", "old"):
        target = tokenizer.encode(f' {word}," said he, "wasn\'t it?"')
        tokens = [EOT, *tokenizer.encode(f'{story}"It was the'), *target]
        losses.append(their_loss(theirs[1], tokens[-CONTEXT - 1 :], len(target)))
    best = ("dog", "cat", "friend", "old")[min(range(4), key=lambda i: losses[i][0])]
    answer = measure("cbt-ne", CBT.replace("\tcat\t", f"\t{best}\t"))
    assert values(answer) == {("accuracy", "choice"): 1.0}
    assert answer["detokenizer"] == "treebank"


def test_two_processes_score_what_one_does(theirs: tuple[str, Any], tokenizer: Tokenizer) -> None:
    """Each scores its own clozes, with zeros for the other's; the sum is complete."""

    class Apart(World):
        def sum(self, value: torch.Tensor) -> torch.Tensor:
            return value

    clozes = [Cloze(before, after) for before in ("He", "The cat sat on", "it") for after in (" was", " here .", " it")]
    model, device = load_model(theirs[0]), torch.device("cpu")
    whole, *parts = (
        score_clozes(
            Judge(model, tokenizer, EvalSettings(batch_size=2), Apart(rank, size, device), Run.quiet()), clozes
        )
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    assert (parts[0].loss + parts[1].loss).tolist() == pytest.approx(whole.loss.tolist(), rel=1e-6)
    assert (parts[0].n_tokens + parts[1].n_tokens).equal(whole.n_tokens)
    assert (parts[0].last_likeliest | parts[1].last_likeliest).equal(whole.last_likeliest)
    assert (parts[0].n_tokens > 0).tolist() == [*[True, False] * 4, True]
    assert (parts[1].n_tokens > 0).tolist() == [*[False, True] * 4, False]


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_ends_score_in_a_batch_as_each_does_alone(batch_size: int, tokenizer: Tokenizer) -> None:
    """Ends of one token and of many, that fill the context or exceed it."""
    torch.manual_seed(2)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": CONTEXT, "vocab_size": tokenizer.vocab_size}
    model = GPT2(GPT2Config(**shape)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    ends = [" q", " cat sat on the mat", " he", " it was not here, said he"]
    longest = max(len(tokenizer.encode(end)) for end in ends)
    fits = "q" * (CONTEXT - longest)
    texts = ["the cat", fits, fits + "q", "q" * 200]
    assert len(tokenizer.encode(fits)) == CONTEXT - longest
    clozes = [Cloze(text, end) for text in texts for end in ends]
    settings, here = EvalSettings(batch_size=batch_size), World(0, 1, torch.device("cpu"))
    found = score_clozes(Judge(model, tokenizer, settings, here, Run.quiet()), clozes)
    for i, cloze in enumerate(clozes):
        target = tokenizer.encode(cloze.target)
        tokens = [EOT, *tokenizer.encode(cloze.before)][-(CONTEXT + 1 - len(target)) :] + target
        with torch.no_grad():
            logits_tv = model(torch.tensor([tokens[:-1]]))[0, -len(target) :]
        losses_t = -logits_tv.log_softmax(-1)[range(len(target)), target]
        assert float(found.loss[i]) == pytest.approx(float(losses_t.sum()), rel=1e-12)
        assert found.n_tokens[i] == len(target)
        assert bool(found.all_likeliest[i]) == (logits_tv.argmax(-1).tolist() == target)
        assert bool(found.last_likeliest[i]) == (logits_tv.argmax(-1).tolist()[-1] == target[-1])


def test_a_loss_in_bfloat16_is_not_rounded_to_bfloat16(tokenizer: Tokenizer) -> None:
    """Near endings of a choice would be equal, and the first of them would win."""
    config = GPT2Config(n_layer=1, n_head=1, n_embd=16, context=CONTEXT, vocab_size=tokenizer.vocab_size)
    model, here = GPT2(config).bfloat16().eval(), World(0, 1, torch.device("cpu"))
    scores = score_clozes(Judge(model, tokenizer, EvalSettings(), here, Run.quiet()), [Cloze("he", " cat sat")])
    tokens_bt = torch.tensor([[EOT, *tokenizer.encode("he"), *tokenizer.encode(" cat sat")]])
    expected = model.log_likelihood(tokens_bt, last=int(scores.n_tokens)).double().sum()
    assert scores.loss.tolist() == pytest.approx([-float(expected)], rel=1e-6)


def test_a_choice_is_split_before_the_word_left_out() -> None:
    (choice,) = read_cbt(CBT.encode(), "f")
    assert choice.answer == 1
    assert [cloze.target for cloze in choice.clozes][:2] == [
        ' dog," said he, "wasn\'t it?"',
        ' cat," said he, "wasn\'t it?"',
    ]
    assert choice.clozes[0].before.endswith('he.\n"It was the')


def test_a_part_of_a_set_is_reported_as_a_part(tokenizer: Tokenizer, measure: Measure) -> None:
    """Two of the windows: their number of words is estimated from their share of the tokens."""
    how = EvalSettings(windows=2, stride=20)
    answer = measure("text", WIKITEXT, how)
    n_tokens = len(tokenizer.encode(WIKITEXT))
    units = {row["unit"]: row["units"] for row in answer["results"]}
    assert units["token"] == 20 + ((n_tokens - 1) % 20 + 1)
    assert answer["scored_ratio"] == units["token"] / n_tokens
    assert units["word"] == round(8 * 24 * answer["scored_ratio"])
    assert answer["detokenizer"] is None
    assert f"{answer['scored_ratio']:.2%} of its tokens scored" in task_text(answer)
    answer = measure("lambada", jsonl(LAMBADA), how)
    assert answer["part"] == "2 of 3 passages"
    assert answer["results"][0]["units"] == 2


def test_contexts_that_do_not_fit_are_counted(measure: Measure) -> None:
    assert measure("cbt-cn", CBT)["contexts_cut"] == 1
    assert measure("lambada", jsonl(LAMBADA))["contexts_cut"] == 0


def test_a_perplexity_past_all_floats_is_none(measure: Measure) -> None:
    """One word of 2,000 letters: e to its loss is past the largest float, which JSON has no number for either."""
    answer = measure("text", "zq" * 1000)
    assert values(answer)["perplexity", "word"] is None
    assert "inf" in task_text(answer)
    json.dumps(answer, allow_nan=False)


def test_table_3_has_every_task_of_the_paper() -> None:
    """Ten columns over nine sets: LAMBADA has two. Larger models are better, except CBT-CN from 762M to 1542M."""
    columns = [(task, measure, row) for task in FILES[1:] for measure, row in PAPER[task].items() if len(row) > 1]
    assert len(columns) == 10
    assert all(len(row) == len(SIZES) for _, _, row in columns)
    worse = [task for task, measure, row in columns if list(row) != sorted(row, reverse="accuracy" not in measure)]
    assert worse == ["cbt-cn"]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("wikitext-2", "no margin\n", "line 1 is not in the tokenised form wikitext"),
        ("text", "", "the file has no text"),
        ("text8", "Upper", "is not text8: it contains b'U'"),
        ("lambada", '{"text": "word"}\n', "line 1: not a passage"),
        ("lambada", '{"text": "two words"}\n[1]\n', "line 2: not a passage"),
        ("lambada", '{"text": "a ' + "zq" * 100 + '"}', "tokens have to be predicted together, but the model's"),
        ("lambada", "", "line 1: not a passage"),
        ("cbt-cn", "1 a\n3 b\n", "the question from line 1: sentence 2 is '3 b'"),
        ("cbt-ne", "1 a\n", "its last line is '1 a'"),
        ("cbt-ne", CBT.replace("\tcat\t", "\tcow\t"), "the answer 'cow' is not one of 'dog|cat"),
        ("cbt-ne", "", "has no questions"),
    ],
)
def test_a_file_that_is_not_such_a_set_is_refused(task: str, text: str, message: str, measure: Measure) -> None:
    with pytest.raises(InputError) as caught:
        measure(task, text)
    assert message in str(caught.value)


def test_a_model_trained_here_has_transformers_perplexity(tokens: str, trained_model: str, tmp_path: Path) -> None:
    """Held-out perplexity of a token set's validation split: two shards, each opened by an end-of-text."""
    answer = evaluate_model(load_measured(trained_model), tokens, EvalSettings(), Run.quiet())
    load_model(trained_model).to_huggingface(tmp_path)
    network = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    shards = TokenShards(tokens, split="validation")
    streams = [shards.tokens(i).tolist()[1:] for i in range(len(shards))]
    total = sum(their_stride_loss(network, stream, 32, shards.eot_id, 32) for stream in streams)
    n = sum(map(len, streams))
    assert n == answer["tokens"] == shards.n_tokens - len(shards)
    assert answer["perplexity"] == pytest.approx(math.exp(total / n), rel=1e-5)


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> str:
    folder = str(tmp_path_factory.mktemp("trained") / "model")
    train(tokens, folder, small(n_head=2, context=32, steps=20, warmup_steps=2, learning_rate=1e-2))
    return folder


def test_the_verb_measures_files_and_names_options_that_exclude_each_other(
    theirs: tuple[str, Any], tokenizer: Tokenizer, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, saved = tmp_path / "wiki.test.tokens", str(tmp_path / "tokenizer.json")
    file.write_text(WIKITEXT)
    tokenizer.save(saved)
    call = ["train", "eval", theirs[0], str(file), "--tokenizer", saved]
    assert command([*call, "--task", "wikitext-2", "--out", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "evaluation-wikitext-2.json").read_text()) == answer
    for arguments, message in (
        ([*call, "--out", ""], "no --out given"),
        ([*call, "--task", "wiki"], "wikitext-2"),
        (["train", "eval", theirs[0], str(file)], "contains no tokenizer.json"),
        (["train", "sample", theirs[0]], "contains no tokenizer.json"),
        (["train", "eval", theirs[0], tokens, "--task", "ptb"], "--task is given for the token set"),
        ([*call, "--task", "ptb", "--stop-words", "x"], "only --task lambada takes it"),
        ([*call, "--stride", str(10**20)], "at most 64 bits"),
        (["train", "sample", theirs[0], "--max-tokens", str(10**20)], "at most 64 bits"),
    ):
        assert command(arguments) == 2, arguments
        assert message in capsys.readouterr().err


def test_a_tokenizer_without_an_end_of_text_is_refused(theirs: tuple[str, Any], tmp_path: Path) -> None:
    bare = Tokenizer.train([WIKITEXT, *LAMBADA, CBT] * 3, vocab_size=320, special_tokens=[])
    with pytest.raises(ConfigError, match="has no '<|endoftext|>'".replace("|", "[|]")):
        evaluate_task(load_measured(theirs[0], bare), "text", "file", EvalSettings(), Run.quiet())
