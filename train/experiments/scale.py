"""`train scale`: held-out loss over the size of the model, a fitted line, and its prediction one size up.

The GPT-2 paper finds that quality grows log-linearly with capacity (Radford et al. 2019, abstract), so the loss is
fitted as a - b log10(parameters). The power law of Kaplan et al. 2020 (equation 1.1), loss = c parameters^-b, is fitted
too. Within a small range of sizes the two hardly differ; the residuals of both are reported. The predicted size is
trained by the same rule.

GPT-2's rates were tuned for each size (section 2.3): with `learning_rates`, short runs of each size choose its rate.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.errors import DryRun, InputError, RunFailed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import Source, open_sources, source_uses
from webtext.train.experiments.cost import cost_of
from webtext.train.experiments.fit import LineFit, fit_line
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.side_by_side import refuse_torchrun
from webtext.train.experiments.sizes import Size, budgets, family, run_settings
from webtext.train.experiments.sweep import need_held_out
from webtext.train.experiments.trials import Trial, run_trials, trial_losses
from webtext.train.experiments.winner import Edge, edge_of
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

BITS, NATS = "bits per byte", "nats per token"
_Key = tuple[str, Size]
"""Name of a budget, and one of its sizes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One size under one budget; `values` has a loss for each seed, in `Scale.unit`."""

    size: Size
    tokens: int
    passes: float
    learning_rate: float
    values: tuple[float, ...]
    tried: tuple[tuple[float, float | None], ...] = ()
    """Rates with the losses of their short runs, in the same unit; None for a failed one."""

    @property
    def mean(self) -> float:
        """The mean over seeds, which is fitted."""
        return statistics.fmean(self.values)

    @property
    def edge(self) -> Edge | None:
        """The edge, if its rate is the lowest or highest of those tried."""
        return edge_of(f"the rate of {self.size.name},", self.learning_rate, [rate for rate, _ in self.tried])


@dataclass(frozen=True, slots=True)
class Table:
    """One budget: the fitted sizes from the smallest up, both fits, and the size that they predict."""

    budget: str
    rows: Sequence[Measured]
    check: Measured | None
    linear: LineFit
    power: LineFit

    def predicted(self, size: Size) -> tuple[float, float]:
        """Return the prediction of a - b log10(N) for a size, and half of its 95 % interval."""
        x = math.log10(size.parameters)
        return self.linear.at(x), self.linear.margin(x)

    def predicted_by_power(self, size: Size) -> float:
        """Return the power law's prediction for a size."""
        return math.exp(self.power.at(math.log10(size.parameters)))

    @property
    def power_residuals(self) -> list[float]:
        """Measured losses minus the power law's."""
        return [row.mean - self.predicted_by_power(row.size) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Scale:
    """All budgets; `rule` says how each size got its learning rate."""

    unit: str
    rule: str
    seeds: int
    tables: Sequence[Table]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for scale.json."""
        return {
            "unit": self.unit,
            "rule": self.rule,
            "seeds": self.seeds,
            "tables": [_table_json(table) for table in self.tables],
        }


def make_table(budget: str, rows: Sequence[Measured], check: Measured | None) -> Table:
    """Fit the rows by both laws; the check is not part of the fits."""
    xs = [math.log10(row.size.parameters) for row in rows]
    linear = fit_line(xs, [row.mean for row in rows])
    return Table(budget, rows, check, linear, fit_line(xs, [math.log(row.mean) for row in rows]))


def run_scale(
    tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run, *, tokenizer: str | None = None
) -> Scale:
    """Train every size under every budget in `out`, fit, predict and check; write scale.json there.

    With the `tokenizer` that packed the tokens, losses are bits per byte of the measured windows, otherwise nats per
    token.
    """
    refuse_torchrun()
    sources = open_sources(tokens)
    need_held_out(sources)
    (source,) = sources
    sizes, check = family(settings, scale, source.train.vocab_size)
    everyone = [*sizes, check] if check else sizes
    unit, factor = _unit(source, settings, tokenizer)
    n_tokens = {
        (budget, size): n
        for budget, of_sizes in budgets(scale, everyone).items()
        for size, n in zip(everyone, of_sizes, strict=True)
    }

    def trial(key: _Key, rate: float | None, *, seed: int = settings.seed, ratio: float = 1.0) -> Trial:
        made = run_settings(key[1], sizes[0], n_tokens[key] * ratio, settings, scale, rate)
        return _trial(tokens, out, key, replace(made, seed=seed))

    tuning = {
        key: {rate: trial(key, rate, ratio=scale.tuning_ratio) for rate in scale.learning_rates} for key in n_tokens
    }
    seeds = range(settings.seed, settings.seed + scale.seeds)
    whole = [trial(key, next(iter(scale.learning_rates), None), seed=seed) for key in n_tokens for seed in seeds]
    planned = dict(zip(n_tokens, (each.settings for each in whole[:: scale.seeds]), strict=True))
    passes = {key: source_uses(sources, each, total_tokens(each))[0].passes for key, each in planned.items()}
    for line in _plan_lines(planned, tuning, passes):
        run.console.say(line)
    short = [each for of_rates in tuning.values() for each in of_rates.values()]
    run.console.say(f"scale: {cost_of([*whole, *short], run, scale)}")
    if run.dry_run:
        raise DryRun
    with Folder(out).held():
        tried = _tried(tuning, run, scale)
        rates = {key: _best(key, each) if each else None for key, each in tried.items()}
        trials = [trial(key, rates[key], seed=seed) for key in n_tokens for seed in seeds]
        results = iter(run_trials(trials, run, label="scale", side_by_side=scale.side_by_side))
        measured = {}
        for key in n_tokens:
            values = tuple(next(results).held_out_loss() * factor for _ in seeds)
            of_rates = tuple((rate, None if loss is None else loss * factor) for rate, loss in tried[key].items())
            rate = rates[key] or planned[key].learning_rate
            measured[key] = Measured(key[1], total_tokens(planned[key]), passes[key], rate, values, of_rates)
        tables = [
            make_table(budget, [measured[budget, size] for size in sizes], measured[budget, check] if check else None)
            for budget in dict.fromkeys(budget for budget, _ in n_tokens)
        ]
        found = Scale(unit, _rule(settings, scale, sizes[0]), scale.seeds, tables)
        Folder(out).write_bytes("scale.json", json.dumps(found.to_json(), indent=1).encode() + b"\n")
    return found


def _trial(tokens: str, out: str, key: _Key, settings: TrainSettings) -> Trial:
    """Return a run, whose folder names its rate and steps, so that short and complete runs don't share a folder."""
    budget, size = key
    of_rate = f"rate-{settings.learning_rate:.4g}-steps-{settings.steps}"
    place = Path(out) / "runs" / budget.replace(",", "").replace(" ", "-") / size.name / of_rate
    name = f"{size.name}, {budget}, rate {settings.learning_rate:.4g}, seed {settings.seed}"
    return Trial(name=name, tokens=(tokens,), settings=settings, folder=str(place / f"seed-{settings.seed}"))


def _tried(
    tuning: Mapping[_Key, Mapping[float, Trial]], run: Run, scale: ScaleSettings
) -> dict[_Key, dict[float, float | None]]:
    """Return the held-out loss of each rate's short run, in nats per token."""
    trials = [trial for of_rates in tuning.values() for trial in of_rates.values()]
    losses = iter(trial_losses(trials, run, label="rates", side_by_side=scale.side_by_side) if trials else ())
    return {key: {rate: next(losses) for rate in of_rates} for key, of_rates in tuning.items()}


def _best(key: _Key, losses: Mapping[float, float | None]) -> float:
    known = {rate: loss for rate, loss in losses.items() if loss is not None}
    if not known:
        raise RunFailed(f"{key[1].name}, {key[0]}: all rates failed", "give lower ones: --learning-rates RATE,RATE")
    return min(known, key=lambda rate: known[rate])


def _rule(settings: TrainSettings, scale: ScaleSettings, smallest: Size) -> str:
    if scale.learning_rates:
        return (
            f"learning rate: each size's best of {', '.join(f'{rate:g}' for rate in scale.learning_rates)}, by runs of "
            f"{scale.tuning_ratio:.0%} of its tokens with seed {settings.seed}"
        )
    return (
        f"learning rate {settings.learning_rate:g} at width {smallest.n_embd}, "
        f"times ({smallest.n_embd} / width)^{scale.rate_exponent:g}: a rule, not tuned for each size"
    )


def _unit(source: Source, settings: TrainSettings, tokenizer_path: str | None) -> tuple[str, float]:
    """Return the unit of losses, and the factor that converts nats per token into it."""
    if tokenizer_path is None:
        return NATS, 1.0
    from webtext.tokenizer import Tokenizer
    from webtext.train.data.windows import Windows
    from webtext.train.evaluate.perplexity import token_bytes

    tokenizer = Tokenizer.load(tokenizer_path)
    source.validation.check_tokenizer(tokenizer)
    held = source.validation
    windows = Windows(held.streams(), context=settings.context, stride=None, limit=settings.monitor.eval_windows)
    sizes = token_bytes(tokenizer)
    counts = [(len(after), int(sizes[after].sum())) for _, after in windows.pairs()]
    n_tokens, n_bytes = (sum(column) for column in zip(*counts, strict=True))
    if not n_bytes:
        raise InputError(f"the held-out tokens of '{source.name}' have no bytes of text", "leave --tokenizer out")
    return BITS, n_tokens / n_bytes / math.log(2)


def _plan_lines(
    planned: Mapping[_Key, TrainSettings], tuning: Mapping[_Key, Mapping[float, Trial]], passes: Mapping[_Key, float]
) -> Iterator[str]:
    for key, each in planned.items():
        beyond = "; more than one pass, and repeated text teaches less" if passes[key] > 1 else ""
        short_runs = next((f"after {of.settings.steps:,} steps for each rate" for of in tuning[key].values()), None)
        yield (
            f"scale: {key[1].name}, {key[0]}: {key[1].parameters:,} parameters, {each.steps:,} steps, "
            f"{total_tokens(each):,} tokens, {passes[key]:.2f} passes, {short_runs or f'rate {each.learning_rate:.3g}'}{beyond}"
        )


def _table_json(table: Table) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "budget": table.budget,
        "rows": [asdict(row) | {"mean": row.mean} for row in table.rows],
        "log_linear": {
            "a": table.linear.intercept,
            "b": -table.linear.slope,
            "residuals": list(table.linear.residuals),
        },
        "power_law": {
            "c": math.exp(table.power.intercept),
            "exponent": -table.power.slope / math.log(10),
            "residuals": table.power_residuals,
        },
    }
    if table.check is not None:
        predicted, margin = table.predicted(table.check.size)
        answer["check"] = asdict(table.check) | {
            "mean": table.check.mean,
            "predicted": predicted,
            "margin": margin,
            "predicted_by_power_law": table.predicted_by_power(table.check.size),
        }
    return answer
