"""The tabular experiments at the paper's settings and 100 seeds, against what the author's artefact was measured to do.

Draws differ, so means are compared in units of their combined standard error.
"""

import math
from pathlib import Path

import pytest
import torch
import yaml

from bandits.multi_context import MultiContext, MultiContextTrainer
from bandits.single_context import SingleContext, SingleContextTrainer
from common.statistics import SeedCurves, mean_and_error, measure, resample, steps_to

SEEDS = range(100)
ARTEFACT = yaml.safe_load((Path(__file__).parent / "artefact_tabular.yaml").read_text())
TRAINERS = {
    "single_context": (SingleContext, SingleContextTrainer),
    "multi_context": (MultiContext, MultiContextTrainer),
}
CASES = [(experiment, objective) for experiment, rows in ARTEFACT.items() for objective in rows]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def case(request):
    """Metrics of one run, and what the artefact measured."""
    experiment, objective = request.param
    settings, trainer = TRAINERS[experiment]
    records = trainer(settings(objective=objective), SEEDS, torch.device("cpu")).advance(settings().steps)
    return experiment, objective, records, ARTEFACT[experiment][objective]


def test_final_error_is_within_four_standard_errors(case):
    _, _, records, artefact = case
    ours = mean_and_error(records.metrics["error"][:, -1].numpy())
    assert abs(ours.mean - artefact["final_error"]) < 4 * math.hypot(ours.se, artefact["final_error_se"])


def test_steps_to_one_percent_are_within_three_bootstrap_standard_errors(case):
    _, _, records, artefact = case
    curves = SeedCurves(tuple(SEEDS), records.steps.double().numpy(), records.metrics["error"].double().numpy())
    ours = measure(resample(curves), steps_to(0.01))
    # The artefact's seeds are as many and, we take it, as spread.
    assert abs(ours.estimate - artefact["steps_to_1pct"]) <= 3 * math.sqrt(2) * ours.se


def test_final_misalignments(case):
    experiment, objective, records, artefact = case
    with_epsilon, exact = (
        mean_and_error(records.metrics[name][:, -1].numpy()) for name in ("misalignment_epsilon", "misalignment")
    )
    if experiment == "multi_context" and objective in ("tpo", "ce"):
        assert with_epsilon.mean < 1e-6  # float32's resolution, where rounding decides
        assert artefact["misalignment"] < 1e-6
    else:
        combined = math.hypot(with_epsilon.se, artefact["misalignment_se"])
        assert abs(with_epsilon.mean - artefact["misalignment"]) < 4 * combined
    if (experiment, objective) == ("single_context", "tpo"):
        assert exact.mean < 1e-12
    if (experiment, objective) == ("single_context", "dg"):
        assert abs(exact.mean - 2.3e-4) < 4 * exact.se
