"""Objectives as pure tensor functions on groups of scored candidates; needs torch alone.

    objective = objectives.get("tpo", {"eta": 1.0})
    signal = objective.signal(scores, logp_old)            # once per rollout: a target q, or advantages A
    terms = objective.loss(logp, logp_old, signal)         # every gradient step, differentiable
    loss = reduce(terms, signal.weights, dims=(-2, -1), normaliser=groups)

Shapes: any leading axes (seeds S, prompts B), candidates K last. Source: arXiv 2604.06159.
"""

from common.objectives.diagnostics import clipped, score_diagnostics, target_diagnostics
from common.objectives.groups import standardise
from common.objectives.losses import (
    ClippedSurrogate,
    CrossEntropy,
    DelightfulGradient,
    HasSnapshotGradient,
    LossRule,
    PolicyGradient,
    has_snapshot_gradient,
)
from common.objectives.reductions import reduce, sequence_logp
from common.objectives.registry import Objective, get, names, register
from common.objectives.signals import Advantage, GroupAdvantage, Labels, Signal, SignalRule, Target

__all__ = [
    "Advantage",
    "ClippedSurrogate",
    "CrossEntropy",
    "DelightfulGradient",
    "GroupAdvantage",
    "HasSnapshotGradient",
    "Labels",
    "LossRule",
    "Objective",
    "PolicyGradient",
    "Signal",
    "SignalRule",
    "Target",
    "clipped",
    "get",
    "has_snapshot_gradient",
    "names",
    "reduce",
    "register",
    "score_diagnostics",
    "sequence_logp",
    "standardise",
    "target_diagnostics",
]
