"""A reduced guard of the fidelity to the public code: terminal reward, H = 5, the first 50 episodes.

There, over 20 seeds, TPO is at 0.31, PPO at 0.58, GRPO at 0.82, DG at 0.91 (mean of 5 episodes). Six of our seeds show
the same order and rough gaps. `make fidelity` is the full comparison.
"""

import pytest
import torch

from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer

SEEDS = range(6)
EPISODES = 50


def error_after(objective, **changes):
    """Return the mean error of the last five of 50 episodes, over seeds."""
    settings = SequenceTask(objective=objective, length=5, episodes=EPISODES, **changes)
    records = SequenceTrainer(settings, SEEDS, torch.device("cpu")).advance(EPISODES)
    return float(records.metrics["error"][:, -5:].mean())


@pytest.fixture(scope="module")
def errors():
    return {name: error_after(name) for name in ("tpo", "ppo", "grpo")} | {"dg": error_after("dg", epochs=1)}


def test_the_gaps_have_the_right_sign_and_size(errors):
    assert 0.3 < errors["grpo"] - errors["tpo"] < 0.75  # 0.51
    assert 0.05 < errors["ppo"] - errors["tpo"] < 0.55  # 0.27
    assert 0.05 < errors["dg"] - errors["ppo"] < 0.5  # 0.33


def test_the_levels_are_roughly_right(errors):
    for name, expected, reach in (("tpo", 0.31, 0.25), ("ppo", 0.58, 0.15), ("grpo", 0.82, 0.17), ("dg", 0.91, 0.03)):
        assert errors[name] == pytest.approx(expected, abs=reach), name


def test_a_broken_objective_would_be_seen():
    """TPO without its anchor is another objective: by episode 50 it is nowhere near."""
    assert error_after("tpo_no_anchor") > 0.31 + 0.25
