"""Document masks and padding: which tokens attend to which, which targets count, and a step's mean over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import rows, small, train
from torch.nn import functional

from webtext.base.config import changed
from webtext.base.run import Run
from webtext.shards import Sampler, TokenShards, document_numbers
from webtext.train import GPT2, GPT2Config, load_model
from webtext.train.data.windows import WindowRules, Windows, documents_of, total_loss
from webtext.train.distributed import World
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.model.cross_entropy import linear_cross_entropy
from webtext.train.settings import EvalSettings

EOT = 60
CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=16, context=24, vocab_size=61)
SETTINGS = small(n_head=2, context=32, batch_size=8, microbatch_size=4, steps=5, eval_interval=None, dtype="float32")


@pytest.fixture
def model() -> GPT2:
    torch.manual_seed(0)
    made = GPT2(CONFIG)
    for parameter in made.parameters():  # far from the small initial values, so that a leak would show
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def packed(*lengths: int) -> torch.Tensor:
    """Return one window [1, t] of documents of these lengths, including their end-of-text."""
    random = np.random.default_rng(1)
    return torch.tensor([[token for n in lengths for token in (EOT, *random.integers(0, EOT, n - 1))]])


def masked_logits(model: GPT2, tokens_bt: torch.Tensor) -> torch.Tensor:
    hidden_btc = model.hidden(tokens_bt, documents_bt=documents_of(tokens_bt, EOT))
    return functional.linear(hidden_btc, model.token_embedding.weight)[..., : CONFIG.vocab_size]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_documents_are_numbered_as_the_shards_number_them(tokens: list[int]) -> None:
    window = np.array([tokens])
    numbers = documents_of(torch.from_numpy(window), eot_id=3)
    assert numbers.tolist() == document_numbers(window, eot_id=3).tolist()
    counted = WindowRules(pads=True, eot_id=3).counted(torch.from_numpy(window[:, :-1]))
    assert counted is not None
    assert counted.tolist() == (document_numbers(window, eot_id=3)[:, :-1] == 0).tolist()


@pytest.mark.parametrize("context", [1, 3, 7, 8, 9, 49])
@pytest.mark.parametrize("crosses_documents", [True, False])
def test_every_token_of_every_document_is_a_target_once_per_epoch(
    crosses_documents: bool, context: int, tmp_path: Path, token_set_of: Callable[..., str]
) -> None:
    """Each token and each end of a document has its own id, so it can be seen which targets occur.

    With windows that cross documents the epoch omits N mod context targets.
    """
    lengths = [7, 1, 8, 0, 9, 16, 2]
    bounds = np.cumsum([0, *lengths])
    documents = [np.arange(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    shards = TokenShards(token_set_of(tmp_path / "tokens", documents, vocab_size=61))
    sampler = Sampler(shards, context=context, batch_size=1, crosses_documents=crosses_documents)
    rules = WindowRules.of(changed(SETTINGS, documents="joined" if crosses_documents else "padded"), EOT)
    targets: Counter[int] = Counter()
    for _ in range(sampler.n_windows):
        window_bt = torch.from_numpy(next(sampler))
        tokens_bt, targets_bt = window_bt[:, :-1], window_bt[:, 1:]
        counted_bt = rules.counted(tokens_bt)
        counted_bt = torch.ones_like(tokens_bt, dtype=torch.bool) if counted_bt is None else counted_bt
        targets.update(targets_bt[counted_bt].tolist())
    expected = Counter(range(sum(lengths))) + Counter({EOT: len(lengths)})
    left_out = expected - targets
    assert targets - expected == Counter()
    assert left_out.total() == (shards.n_tokens % context if crosses_documents else 0)


def test_the_first_token_of_a_document_sees_its_end_of_text_and_nothing_before_it(model: GPT2) -> None:
    """So the logits from which `train sample` draws first tokens, and which `train eval` measures, are trained."""
    text = torch.tensor([[EOT, 3, 1, 4, 1, 5]])
    other = torch.tensor([[9, 2, 6]])
    with torch.no_grad():
        model.position_embedding.weight.zero_()  # so that a text is the same at any position
        alone = model(text)
        for before in (other, other.flip(1)):
            window = torch.cat([before, text], 1)
            assert torch.allclose(masked_logits(model, window)[:, 3:], alone, atol=1e-5)
        no_start = masked_logits(model, torch.cat([other, text[:, 1:]], 1))
    assert not torch.allclose(no_start[:, 3:], alone[:, 1:], atol=1e-2)


def test_the_first_document_of_a_window_has_the_logits_that_it_has_alone(model: GPT2) -> None:
    tokens_bt = packed(7, 5, 12)
    whole = masked_logits(model, tokens_bt)
    assert torch.allclose(whole[:, :7], model(tokens_bt[:, :7]), atol=1e-5)
    assert not torch.allclose(whole[:, 7:], model(tokens_bt)[:, 7:], atol=1e-2)


def test_a_later_document_has_the_logits_of_a_model_whose_positions_begin_there(model: GPT2) -> None:
    tokens_bt = packed(7, 5, 12)
    whole = masked_logits(model, tokens_bt)
    for start, stop in ((7, 12), (12, 24)):
        shifted = GPT2(CONFIG).eval()
        shifted.load_state_dict(model.state_dict())
        with torch.no_grad():
            shifted.position_embedding.weight.copy_(model.position_embedding.weight.roll(-start, 0))
        assert torch.allclose(whole[:, start:stop], shifted(tokens_bt[:, start:stop]), atol=1e-5)


def test_masked_gradients_are_those_of_the_documents_one_by_one(model: GPT2) -> None:
    """The loss of a window is the mean of its documents' losses, each at its positions in the window."""
    tokens_bt, targets_bt = packed(7, 5, 12), packed(7, 5, 12).roll(-1, 1)
    model.loss(tokens_bt, targets_bt, documents_of(tokens_bt, EOT)).backward()  # type: ignore[no-untyped-call]
    together = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    for start, stop in ((0, 7), (7, 12), (12, 24)):
        alone = torch.full_like(tokens_bt, -1)
        alone[:, start:stop] = 0  # the rest is irrelevant: only this stretch is checked
        counted = alone == 0
        loss = model.loss(tokens_bt, targets_bt, alone, counted)
        loss.backward()  # type: ignore[no-untyped-call]
    apart = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(together, apart, strict=True))


def test_activation_checkpointing_gives_the_same_masked_gradients(model: GPT2) -> None:
    tokens_bt = packed(7, 5, 12)
    gradients = []
    for how in (False, True):
        model.train().activation_checkpointing = how
        model.zero_grad()
        loss = model.loss(tokens_bt, tokens_bt.roll(-1, 1), documents_of(tokens_bt, EOT))
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for other in gradients[1:]:
        assert all(torch.equal(one, again) for one, again in zip(gradients[0], other, strict=True))


def test_a_masked_likelihood_is_that_of_the_masked_logits(model: GPT2) -> None:
    tokens_bt = packed(7, 5, 12)
    logits = masked_logits(model, tokens_bt)[:, :-1]
    expected = torch.log_softmax(logits, -1).gather(2, tokens_bt[:, 1:, None])[..., 0]
    windows, world = Windows([tokens_bt[0].numpy()], context=23, stride=None), World(0, 1, model.device)
    loss, n_tokens = total_loss(model, windows, 1, world, rules=WindowRules(masks=True, eot_id=EOT))
    assert n_tokens == 23
    assert loss == pytest.approx(-expected.sum().item(), rel=1e-5)


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_uncounted_targets_change_neither_loss_nor_gradient(counted: list[bool]) -> None:
    """Compared with torch's cross-entropy with ignore_index, which divides by those that count."""
    n, torch_generator = len(counted), torch.Generator().manual_seed(0)
    hidden = torch.randn(n, 8, generator=torch_generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(20, 8, generator=torch_generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 17, (n,), generator=torch_generator)
    counted_n = torch.tensor(counted)
    ours = linear_cross_entropy(hidden, weight, targets, 17, counted_n)
    ours_grad = torch.autograd.grad(ours, (hidden, weight))
    theirs = (
        functional.cross_entropy((hidden @ weight.T)[:, :17], targets.where(counted_n, -100), ignore_index=-100)
        * counted_n.double().mean()
    )
    theirs_grad = torch.autograd.grad(theirs, (hidden, weight))
    assert torch.allclose(ours, theirs)
    assert all(torch.allclose(one, other) for one, other in zip(ours_grad, theirs_grad, strict=True))
    with torch.no_grad():
        assert torch.allclose(linear_cross_entropy(hidden, weight, targets, 17, counted_n), theirs)


def test_two_backward_passes_both_give_the_gradients_of_one() -> None:
    """The zero-bubble pipeline does so, for the input and then for the weights. The first pass changes nothing kept."""
    hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    targets = torch.arange(6)
    expected = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets, 17), (hidden, weight))
    loss = linear_cross_entropy(hidden, weight, targets, 17)
    (first,) = torch.autograd.grad(loss, hidden, retain_graph=True)
    (second,) = torch.autograd.grad(loss, weight)
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])


def test_a_microbatch_of_much_padding_weighs_as_much_as_its_targets(model: GPT2) -> None:
    """Two microbatches with 2 and 11 targets: their shares make the mean over 13."""
    settings = changed(SETTINGS, context=12, documents="padded")
    rules = WindowRules.of(settings, EOT)
    windows = [packed(2, *[1] * 11), packed(11, 1, 1)]
    parts = [model.loss(w[:, :-1], w[:, 1:], counted_bt=rules.counted(w[:, :-1])) for w in windows]
    shares = [rules.counted_share(window[:, :-1]) for window in windows]
    assert [round(12 * float(share)) for share in shares] == [2, 11]
    losses = [-model.log_likelihood(window)[0] for window in windows]
    mean = (losses[0][:2].sum() + losses[1][:11].sum()) / 13
    assert (sum(parts) / sum(shares)).item() == pytest.approx(mean.item(), rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"documents": "masked"},
        *(pytest.param(change, marks=pytest.mark.slow) for change in ({}, {"documents": "padded"})),
    ],
)
def test_a_run_learns_how_documents_begin(
    change: dict[str, str], tmp_path: Path, token_set_of: Callable[..., str]
) -> None:
    """All documents begin with 7, and no other token is 7, so `train sample` draws it first."""
    random = np.random.default_rng(0)
    documents = [np.insert(random.integers(8, EOT, 20), 0, 7) for _ in range(60)]
    tokens = token_set_of(tmp_path / "tokens", documents, vocab_size=61)
    settings = changed(SETTINGS, steps=60, learning_rate=2e-2, **change)  # type: ignore[arg-type]
    train(tokens, tmp_path / "model", settings)
    with torch.no_grad():
        probability_v = load_model(tmp_path / "model")(torch.tensor([[EOT]]))[0, 0].softmax(-1)
    assert probability_v[7] > 0.5


@pytest.mark.parametrize("change", [{"documents": "padded"}, {"documents": "masked"}])
def test_a_run_of_such_windows_is_the_same_for_any_microbatch(
    tokens: str, tmp_path: Path, change: dict[str, str]
) -> None:
    """Documents of 81 tokens in windows of 32: every third is padded to a half. Gradients of microbatches, which have
    unequal numbers of targets, add up to the step's."""
    told = []
    for size in (1, 8):
        settings = changed(SETTINGS, microbatch_size=size, **change)  # type: ignore[arg-type]
        train(tokens, tmp_path / str(size), settings)
        told.append([(row["loss"], row["grad_norm"]) for row in rows(tmp_path / str(size)) if "loss" in row])
    assert len(told[0]) == 5
    assert np.allclose(told[0], told[1], atol=1e-5)


def test_a_run_with_masks_is_measured_with_masks(tokens: str, tmp_path: Path) -> None:
    settings = changed(SETTINGS, documents="masked", eval_windows=None)
    result = train(tokens, tmp_path / "model", settings)
    assert result.validation_loss is not None
    answer = evaluate_model(load_measured(str(tmp_path / "model")), tokens, EvalSettings(), Run.quiet())
    assert answer["documents"] == "masked"
    assert answer["perplexity"] == pytest.approx(np.exp(result.validation_loss), rel=1e-5)
    load_model(tmp_path / "model").to_huggingface(tmp_path / "export")
    plain = evaluate_model(load_measured(str(tmp_path / "export")), tokens, EvalSettings(), Run.quiet())
    assert "documents" not in plain
    assert plain["perplexity"] != pytest.approx(answer["perplexity"], rel=1e-5)
