"""Stores to build reports from: small, and with everything that a report must cope with."""

import numpy as np
import torch
from figure_runs import falling, put, put_sequence

from bandits.mnist.training import Mnist
from bandits.multi_context import MultiContext
from bandits.single_context import SingleContext
from common.runs.files import write_bytes, write_json
from common.runs.identity import RunSpec
from common.runs.store import RunStore, lock

OWN = "objective_of_my_own:MINE"
OWN_SOURCE = """
from common.objectives import Objective
from common.objectives.losses import PolicyGradient
from common.objectives.signals import Advantage

MINE = Objective("mine", "<b>Mine</b> & co", Advantage(), PolicyGradient())
"""


def bandit_metrics(seeds, steps, rate):
    noise = torch.from_numpy(np.random.default_rng(0).normal(1, 0.02, (seeds, 1)))
    error = 0.9 * torch.exp(-rate * noise * torch.arange(steps))
    return {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3}


def put_single_context(store, objective, seeds, rate, steps=30):
    settings = SingleContext(objective=objective, steps=steps)
    return put(store, "single_context", settings, seeds, bandit_metrics(seeds, steps, rate), torch.arange(steps))


def put_multi_context(store, objective, seeds, rate, steps=20):
    settings = MultiContext(objective=objective, steps=steps)
    return put(store, "multi_context", settings, seeds, bandit_metrics(seeds, steps, rate), torch.arange(steps))


def start_without_finishing(store, settings, experiment, *, error=None):
    """Leave a run as a killed process leaves it, or as a failed one does."""
    spec = RunSpec("bandits", experiment, settings)
    directory = store.directory(spec)
    with lock(directory):
        store.prepare(spec)
        if error is None:
            write_bytes(directory / "checkpoint-0-3.pt", b"half a run")
            write_json(directory / "progress.json", {"first_seed": 0, "last_seed": 3, "step": 1234})
        else:
            write_json(directory / "failure.json", {"error": error})
    return directory


def mixed_store(root):
    """Return a store with a seed short, a method missing, runs unfinished and failed, and an objective of its own."""
    store = RunStore(root)
    for objective, seeds, rate in (("tpo", 6, 0.3), ("dg", 5, 0.2), ("grpo", 6, 0.1)):
        put_single_context(store, objective, seeds, rate)
    for objective, seeds, rate in (("tpo", 4, 0.4), ("dg", 4, 0.3), (OWN, 4, 0.35)):
        put_multi_context(store, objective, seeds, rate)
    for objective, half_way in (("tpo", 8), ("grpo", 20), ("ppo", 15)):
        put_sequence(store, objective, falling(4, 40, half_way=half_way), length=10)
    start_without_finishing(store, Mnist(objective="tpo"), "mnist")
    start_without_finishing(store, Mnist(objective="dg"), "mnist", error="loss is not finite at step 7 <nan>")
    return store
