"""``python -m figures.fidelity``: do our sequence runs behave as the author's public code does, where a CPU can tell?

Draws differ, so distributions over seeds are compared, never single curves.

* Terminal reward, H = 5: per method one joint test of equal means over all checkpoints, Holm-corrected at 1 %.
* Dense reward, V = 2: steps to 1 % of the mean over seeds within 25 % of the public code's (TPO at both levels, DG);
  GRPO and PPO are reported only. That code has 4 seeds there (12 of TPO at the token level), and the mean of few seeds
  reaches 1 % sooner than that of many, some of which stall. So two things stand beside it: the same number over sets of
  as few of our seeds, and a permutation test of the seeds' own steps to 1 % (mean of 5 episodes).

Fewer than 20 seeds of ours could not tell anything apart, so they are judged as *not run*. Exit status 1 where a judged
comparison fails or is not run.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from common.console import stdout_console
from common.errors import UserError
from common.runs.store import RunStore, StoredRun
from common.statistics import SeedCurves, steps_to
from common.statistics.curves import Array
from common.statistics.equality import holm, joint_bootstrap_test
from figures.sequences import DENSE, Panel, stored_runs

LEVEL = 0.01
TOLERANCE = 0.25
SEEDS = 20
"""Of ours that a judgement takes; with fewer nothing could be told apart."""
_CHECKPOINTS = Path(__file__).parent / "data" / "artefact_terminal_h5.csv"
_WINDOW = 5
"""Episodes up to a checkpoint over which the error is averaged."""
_TERMINAL = Panel("terminal", ("tpo", "grpo", "ppo", "dg"), {"length": 5})
_DENSE = Panel("dense_vocabulary", ("tpo_token", "tpo", "dg", "grpo_token", "ppo"), DENSE)
_PUBLIC_STEPS = {"tpo_token": 55, "tpo": 67, "dg": 186, "grpo_token": 114, "ppo": 188}
"""First episode, from 0, at which the mean over the public code's seeds is below 1 %."""
_PUBLIC_ASIDES = {"tpo_token": ", 48 over the first 4"}
_PUBLIC_SEEDS = Path(__file__).parent / "data" / "artefact_dense_h10_v2.csv"
_JUDGED = ("tpo_token", "tpo", "dg")


@dataclass(frozen=True)
class Check:
    """One comparison."""

    what: str
    method: str
    theirs: str
    ours: str
    seeds: int
    outcome: str
    """``passes``, ``fails``, ``not run``, or ``reported`` where nothing is asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return 0 where all judged comparisons pass, 1 where some do not, 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m figures.fidelity", description=__doc__, allow_abbrev=False)
    parser.add_argument("--store", default="runs", help="the run store (default: runs)")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    options = parser.parse_args(arguments)
    try:
        store = RunStore(options.store)
        checks = [*terminal(store), *dense(store)]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        stdout_console(markup=True).print(_table(checks))
    return int(any(check.outcome in ("fails", "not run") for check in checks))


def terminal(store: RunStore) -> list[Check]:
    """Test each method's errors at the checkpoints."""
    theirs = pd.read_csv(_CHECKPOINTS, comment="#")
    tables = {
        str(method): rows.pivot(index="seed", columns="checkpoint", values="error")
        for method, rows in theirs.groupby("method")
    }
    checks, p_values = [], {}
    for method in _TERMINAL.methods:
        table = tables[method]
        run = _longest(store, _TERMINAL, method)
        episodes = [int(checkpoint) for checkpoint in table.columns]
        ours = None if run is None else at_checkpoints(_curves(run), episodes)
        if ours is None or len(ours) < SEEDS:
            seeds = 0 if ours is None else len(ours)
            checks.append(Check(_TESTED, method, _row(table.to_numpy()), "–", seeds, "not run"))
            continue
        p_values[method] = joint_bootstrap_test(ours, table.to_numpy())
        words = f"{_row(ours)}; p = {p_values[method]:.3g}"
        checks.append(Check(_TESTED, method, _row(table.to_numpy()), words, len(ours), "passes"))
    rejected = holm(p_values, LEVEL)
    return [replace(check, outcome="fails") if rejected.get(check.method) else check for check in checks]


_TESTED = "terminal, H = 5: mean error at the checkpoints"


def dense(store: RunStore) -> list[Check]:
    """Compare the steps to 1 % of the mean curves."""
    checks = []
    seeds = pd.read_csv(_PUBLIC_SEEDS, comment="#").fillna(np.inf).groupby("method")["steps"]
    for method in _DENSE.methods:
        public, theirs = _PUBLIC_STEPS[method], seeds.get_group(method).to_numpy()
        run = _longest(store, _DENSE, method)
        what = "dense, V = 2: steps to 1 %"
        public_words = f"{public} ({len(theirs)} seeds{_PUBLIC_ASIDES.get(method, '')})"
        if run is None:
            outcome = "not run" if method in _JUDGED else "reported"
            checks.append(Check(what, method, public_words, "–", 0, outcome))
            continue
        curves = _curves(run)
        steps = float(steps_to(0.01).of(curves.steps, curves.mean().mean))
        low, middle, high = steps_of_few(curves, len(theirs))
        p = permutation_test(steps_by_seed(curves), theirs)
        words = (
            f"{_number(steps)}; sets of {len(theirs)} seeds: median {_number(middle)}, 95 %"
            f" {_number(low)}–{_number(high)}; seed by seed p = {p:.2g}"
        )
        outcome = "reported"
        if method in _JUDGED:
            close = abs(steps - public) <= TOLERANCE * public
            outcome = "not run" if len(curves.seeds) < SEEDS else "passes" if close else "fails"
        checks.append(Check(what, method, public_words, words, len(curves.seeds), outcome))
    return checks


def at_checkpoints(curves: SeedCurves, checkpoints: Sequence[int]) -> Array | None:
    """Return each seed's mean error over the five episodes up to each checkpoint, [S, J]; None if runs end before."""
    if curves.values.shape[1] < max(checkpoints):
        return None
    return np.stack([curves.values[:, end - _WINDOW : end].mean(1) for end in checkpoints], 1)


def steps_by_seed(curves: SeedCurves) -> Array:
    """Return each seed's first step at which the mean of the five episodes up to it is below 1 %, inf if none, [S]."""
    means = np.lib.stride_tricks.sliding_window_view(curves.values, _WINDOW, axis=1).mean(-1)
    return steps_to(0.01).of(curves.steps[_WINDOW - 1 :], means)


def permutation_test(ours: Array, theirs: Array, permutations: int = 20_000) -> float:
    """Return the two-sided p-value of equal distributions: of the mean rank, seeds dealt anew to the two sets."""
    order = np.concatenate([ours, theirs])
    ranks = np.array([(order < value).sum() + ((order == value).sum() + 1) / 2 for value in order])
    middle = (len(order) + 1) / 2
    observed = abs(ranks[len(ours) :].mean() - middle)
    generator = np.random.default_rng(0)
    dealt = np.array([generator.permutation(ranks)[: len(theirs)].mean() for _ in range(permutations)])
    return float((1 + (abs(dealt - middle) >= observed - 1e-9).sum()) / (1 + permutations))


def steps_of_few(curves: SeedCurves, few: int, sets: int = 5000) -> tuple[float, float, float]:
    """Return the 2.5 %, 50 % and 97.5 % points of the steps to 1 % of the mean over sets of a few seeds."""
    generator = np.random.default_rng(0)
    number = len(curves.seeds)
    means = np.stack(
        [curves.values[generator.choice(number, min(few, number), replace=False)].mean(0) for _ in range(sets)]
    )
    steps = steps_to(0.01).of(curves.steps, means)
    low, middle, high = np.quantile(steps, [0.025, 0.5, 0.975], method="inverted_cdf")
    return float(low), float(middle), float(high)


def _longest(store: RunStore, panel: Panel, method: str) -> StoredRun | None:
    """Return the run with the most seeds, and of those the longest, that has a panel's settings but the episodes."""
    stored = stored_runs(store)
    _, *size = panel.paper_size
    lengths = {int(run.settings["episodes"]) for run in stored.values()}
    keys = [panel.run_key(method, (episodes, *size)) for episodes in lengths]
    found = [stored[key] for key in keys if key is not None and key in stored]
    return max(found, key=lambda run: (len(run.seeds), run.settings["episodes"]), default=None)


def _curves(run: StoredRun) -> SeedCurves:
    return SeedCurves.from_frame(run.metrics(), "error")


def _row(values: Array) -> str:
    errors = values.std(0) / math.sqrt(len(values))
    return ", ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in zip(values.mean(0), errors, strict=True))


def _number(steps: float) -> str:
    return "not reached" if math.isinf(steps) else f"{steps:.0f}"


def _table(checks: Sequence[Check]) -> Table:
    table = Table(
        "comparison", "method", "public code", "ours", "seeds", "outcome", title="Fidelity", title_justify="left"
    )
    for check in checks:
        table.add_row(check.what, check.method, check.theirs, check.ours, str(check.seeds), check.outcome)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
