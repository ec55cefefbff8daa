"""Optimisers over parameters stacked on a leading seed axis: S seeds make S independent updates in one tensor program.

optimiser = StackedMuon(parameters, matrices={"embedding", "feed_forward.0"}, learning_rate=1e-3)
gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
update_norm = optimiser.step(gradients)                # parameters change in place; [S]
"""

from common.optim.newton_schulz import newton_schulz
from common.optim.stacked_muon import MOMENTUM_FORMS, StackedMuon

__all__ = ["MOMENTUM_FORMS", "StackedMuon", "newton_schulz"]
