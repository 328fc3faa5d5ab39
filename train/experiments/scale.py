"""`train scale`: held-out loss over the size of the model, the line that it lies on, and what that predicts one size up.

The GPT-2 paper finds that quality grows log-linearly with capacity (Radford et al. 2019, abstract): the loss is fitted as
a - b log10(parameters). The power law of Kaplan et al. 2020 (equation 1.1), loss = c parameters^-b, stands beside it; within a
small range of sizes the two hardly differ, and the residuals of both are told. The size predicted is trained by the same rule.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.errors import DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.experiments.fit import LineFit, fit_line
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.side_by_side import refuse_torchrun
from webtext.train.experiments.sizes import Size, budgets, family, run_settings
from webtext.train.experiments.sweep import need_held_out
from webtext.train.experiments.trials import Trial, run_trials
from webtext.train.plan import flops_per_token
from webtext.train.schedule import total_tokens
from webtext.train.settings import TrainSettings
from webtext.train.sources import Source, open_sources, source_uses

BITS, NATS = "bits per byte", "nats a token"


@dataclass(frozen=True, slots=True)
class Measured:
    """One size under one budget: `values` of its seeds, in the unit of the whole answer."""

    size: Size
    tokens: int
    passes: float
    learning_rate: float
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """What is fitted."""
        return statistics.fmean(self.values)


@dataclass(frozen=True, slots=True)
class Table:
    """One budget: the sizes that were fitted, from the smallest on, both fits, and the size that they predict."""

    budget: str
    rows: Sequence[Measured]
    check: Measured | None
    linear: LineFit
    power: LineFit

    def predicted(self, size: Size) -> tuple[float, float]:
        """What a - b log10(N) says of a size, and half of its 95 % interval."""
        x = math.log10(size.parameters)
        return self.linear.at(x), self.linear.margin(x)

    def predicted_by_power(self, size: Size) -> float:
        """What the power law says."""
        return math.exp(self.power.at(math.log10(size.parameters)))

    @property
    def power_residuals(self) -> list[float]:
        """Measured less what the power law says, in the unit of the losses."""
        return [row.mean - self.predicted_by_power(row.size) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Scale:
    """All budgets; `rule` says how the rate follows the size."""

    unit: str
    rule: str
    seeds: int
    tables: Sequence[Table]

    def to_json(self) -> dict[str, Any]:
        """Parameters, tokens and losses as plain numbers."""
        return {
            "unit": self.unit,
            "rule": self.rule,
            "seeds": self.seeds,
            "tables": [_table_json(table) for table in self.tables],
        }


def make_table(budget: str, rows: Sequence[Measured], check: Measured | None) -> Table:
    """The rows with both fits; the check is no part of them."""
    xs = [math.log10(row.size.parameters) for row in rows]
    linear = fit_line(xs, [row.mean for row in rows])
    return Table(budget, rows, check, linear, fit_line(xs, [math.log(row.mean) for row in rows]))


def run_scale(
    tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run, *, tokenizer: str | None = None
) -> Scale:
    """Train every size under every budget in `out`, fit, predict, and compare; scale.json is left there.

    With the `tokenizer` that packed the tokens losses are bits per byte of the windows that are measured, else nats a token.
    """
    refuse_torchrun()
    sources = open_sources(tokens)
    need_held_out(sources)
    (source,) = sources
    vocab_size = source.train.vocab_size
    sizes, check = family(settings, scale, vocab_size)
    everyone = [*sizes, check] if check else sizes
    unit, factor = _unit(source, settings, tokenizer)
    chosen = {
        (budget, size): run_settings(size, sizes[0], n_tokens, settings, scale)
        for budget, of_sizes in budgets(scale, everyone).items()
        for size, n_tokens in zip(everyone, of_sizes, strict=True)
    }
    passes = {key: source_uses(sources, each, total_tokens(each))[0].passes for key, each in chosen.items()}
    for line in _cost_lines(chosen, passes, scale, vocab_size):
        run.console.say(line)
    if run.dry_run:
        raise DryRun
    trials = {
        (key, seed): _trial(tokens, out, key, replace(each, seed=seed))
        for key, each in chosen.items()
        for seed in range(settings.seed, settings.seed + scale.seeds)
    }
    with Folder(out).held():
        results = run_trials(list(trials.values()), run, label="scale", side_by_side=scale.side_by_side)
        losses = dict(zip(trials, (result.held_out_loss() * factor for result in results), strict=True))
        measured = {
            key: Measured(
                key[1],
                total_tokens(each),
                passes[key],
                each.learning_rate,
                tuple(loss for (of, _), loss in losses.items() if of == key),
            )
            for key, each in chosen.items()
        }
        tables = [
            make_table(budget, [measured[budget, size] for size in sizes], measured[budget, check] if check else None)
            for budget in dict.fromkeys(budget for budget, _ in chosen)
        ]
        rule = (
            f"learning rate {settings.learning_rate:g} at width {sizes[0].n_embd}, "
            f"times ({sizes[0].n_embd} / width)^{scale.rate_exponent:g}: a rule, not tuned for each size"
        )
        found = Scale(unit, rule, scale.seeds, tables)
        Folder(out).write_bytes("scale.json", json.dumps(found.to_json(), indent=1).encode() + b"\n")
    return found


def _trial(tokens: str, out: str, key: tuple[str, Size], settings: TrainSettings) -> Trial:
    budget, size = key
    folder = Path(out) / "runs" / budget.replace(",", "").replace(" ", "-") / size.name / f"seed-{settings.seed}"
    name = f"{size.name}, {budget}, seed {settings.seed}"
    return Trial(name=name, tokens=(tokens,), settings=settings, folder=str(folder))


def _unit(source: Source, settings: TrainSettings, tokenizer_path: str | None) -> tuple[str, float]:
    """What losses are told in, and what nats a token are multiplied by for it."""
    if tokenizer_path is None:
        return NATS, 1.0
    from webtext.tokenizer import Tokenizer
    from webtext.train.evaluate.perplexity import token_bytes
    from webtext.train.evaluate.windows import Windows

    tokenizer = Tokenizer.load(tokenizer_path)
    source.validation.check_tokenizer(tokenizer)
    held = source.validation
    windows = Windows(
        held.streams(), eot_id=held.eot_id, context=settings.context, stride=None, limit=settings.eval_windows
    )
    sizes = token_bytes(tokenizer)
    counts = [(len(after), int(sizes[after].sum())) for _, after in windows.pairs()]
    n_tokens, n_bytes = (sum(column) for column in zip(*counts, strict=True))
    if not n_bytes:
        raise InputError(f"what '{source.name}' holds out has no bytes of text", "leave --tokenizer out")
    return BITS, n_tokens / n_bytes / math.log(2)


def _cost_lines(
    chosen: dict[tuple[str, Size], TrainSettings],
    passes: dict[tuple[str, Size], float],
    scale: ScaleSettings,
    vocab_size: int,
) -> list[str]:
    n_tokens = {key: total_tokens(each) for key, each in chosen.items()}
    flops = sum(n_tokens[key] * flops_per_token(each.config(vocab_size)) for key, each in chosen.items()) * scale.seeds
    lines = [
        f"scale: {len(chosen) * scale.seeds} runs, {sum(n_tokens.values()) * scale.seeds:,} tokens, {flops:.3g} FLOP in all"
    ]
    for key, each in chosen.items():
        beyond = "; more than one pass, and text read again teaches less" if passes[key] > 1 else ""
        lines.append(
            f"  {key[1].name}, {key[0]}: {key[1].parameters:,} parameters, {each.steps:,} steps, {n_tokens[key]:,} tokens, "
            f"{passes[key]:.2f} passes, rate {each.learning_rate:.3g}{beyond}"
        )
    return lines


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
