"""Objectives by name: each pairs a signal with a loss and carries the paper's default options.

    objective = signal + loss

Defaults are those of arXiv 2604.06159. Gradient epochs, baselines and reductions belong to the experiment.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from torch import Tensor

from common.objectives.losses import ClippedSurrogate, CrossEntropy, DelightfulGradient, LossRule, PolicyGradient
from common.objectives.signals import Advantage, GroupAdvantage, Labels, SignalRule, Target


@dataclass(frozen=True)
class Objective:
    """What the update should do (``signal``) and how the parameters get there (``loss``)."""

    name: str
    title: str
    """As figures and tables call it."""
    signal: SignalRule
    loss: LossRule
    over_actions: bool = False
    """Where the actions can be enumerated (bandits): whether the group is all actions, with the samples' scores placed
    among them, rather than the samples themselves."""

    @property
    def grouped(self) -> bool:
        """Whether candidates are compared within groups on the last axis."""
        return self.signal.grouped

    @property
    def single_epoch(self) -> bool:
        """Whether the objective is meant for one gradient epoch per rollout only."""
        return self.loss.single_epoch

    @property
    def needs_labels(self) -> bool:
        """Whether the scores must mark the correct candidates of every group (a supervised oracle)."""
        return isinstance(self.signal, Labels)

    @property
    def options(self) -> dict[str, float | bool]:
        """The options of signal and loss with their values."""
        parts: tuple[Any, Any] = (self.signal, self.loss)
        return {field.name: getattr(part, field.name) for part in parts for field in fields(part)}

    def with_options(self, /, **options: float | bool) -> "Objective":
        """Return the objective with some options replaced.

        Raises:
            ValueError: an unknown option (naming the nearest), or a value that is not allowed.
        """
        for key, value in options.items():
            if key not in self.options:
                known = ", ".join(sorted(self.options)) or "none"
                raise ValueError(f"{key}: {self.name} has no such option{_nearest(key, self.options)}; it has {known}")
            if isinstance(value, bool) != isinstance(self.options[key], bool) or not isinstance(value, int | float):
                kind = "true or false" if isinstance(self.options[key], bool) else "a number"
                raise ValueError(f"{key}: {value!r} is not allowed; {self.name} takes {kind}")
        parts: tuple[Any, Any] = (self.signal, self.loss)
        signal, loss = (
            replace(part, **{field.name: options[field.name] for field in fields(part) if field.name in options})
            for part in parts
        )
        return replace(self, signal=signal, loss=loss)

    def zero_gradient(self, equal_scores: Tensor, identical: Tensor, *, snapshot: bool) -> Tensor:
        """Which groups provably leave the parameters alone and may be skipped.

        Identical candidates have p = 1/K whatever θ is, and Σ_i (p_i − q_i) = 0 in front of their one ∇ℓ. Equal scores
        mean q = p_old under an anchored target (zero on the snapshot), and A = 0 under group advantages: zero for good,
        unless a KL term pulls back once θ has moved; groups that the signal drops are zero whatever the loss is.

        Args:
            equal_scores: whether all scores of a group are equal, bool [...].
            identical: whether all candidates of a group are the same, bool [...].
            snapshot: whether θ is still that of the rollout (before the first step of the first epoch).
        """
        signal, loss = self.signal, self.loss
        if type(signal) is Target and type(loss) is CrossEntropy:
            return identical | equal_scores if signal.anchored and snapshot else identical.clone()
        if type(signal) is GroupAdvantage and (type(loss) is ClippedSurrogate or type(loss) is PolicyGradient):
            pulls_back = type(loss) is ClippedSurrogate and loss.beta > 0
            if signal.drop_zero_variance or snapshot or not pulls_back:
                return equal_scores.clone()
        return equal_scores & False

    def ignores_zero_advantages(self, *, snapshot: bool) -> bool:
        """Whether samples of advantage 0 provably leave the parameters alone; for objectives without groups.

        A·f(ℓ) has no gradient there, and a KL term has none on the snapshot. Rules of your own, subclasses of these
        included, are never taken for granted.

        Args:
            snapshot: whether θ is still that of the rollout (before the first step of the first epoch).
        """
        if type(self.signal) is not Advantage:
            return False
        if type(self.loss) is ClippedSurrogate:
            return snapshot or self.loss.beta == 0
        return type(self.loss) in (PolicyGradient, DelightfulGradient)


_REGISTRY: dict[str, Objective] = {}


def register(objective: Objective) -> Objective:
    """Add an objective under its name.

    Raises:
        ValueError: the name is taken, signal and loss do not fit together, or they share an option's name.
    """
    if objective.name in _REGISTRY:
        raise ValueError(f"objective {objective.name!r} is already registered; choose another name")
    _check_parts(objective)
    _REGISTRY[objective.name] = objective
    return objective


def names() -> list[str]:
    """Return the registered names, in the order of registration."""
    return list(_REGISTRY)


def get(name: str, options: Mapping[str, float | bool] | None = None) -> Objective:
    """Return the objective registered as ``name``, or the one that ``module:attribute`` names.

    Args:
        name: a registered name, or ``package.module:ATTRIBUTE`` for an ``Objective`` of your own.
        options: replacements for its default options.

    Raises:
        ValueError: no such objective (naming the nearest), or an option that does not exist or is not allowed.
    """
    objective = _imported(name) if ":" in name else _REGISTRY.get(name)
    if objective is None:
        raise ValueError(
            f"objective: {name!r} is unknown{_nearest(name, _REGISTRY)}; there are {', '.join(_REGISTRY)},"
            " or module:ATTRIBUTE for your own"
        )
    return objective.with_options(**(options or {}))


def _imported(path: str) -> Objective:
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # whatever a foreign module raises while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"objective: {path!r} cannot be imported ({reason}); expected module:ATTRIBUTE") from error
    if not isinstance(found, Objective):
        raise ValueError(f"objective: {path!r} is a {type(found).__name__}; expected a common.objectives.Objective")
    _check_parts(found)
    return found


def _check_parts(objective: Objective) -> None:
    if objective.loss.follows != objective.signal.makes:
        raise ValueError(
            f"objective {objective.name!r}: its loss follows the signal's {objective.loss.follows}, but its signal"
            f" makes the {objective.signal.makes}"
        )
    parts: tuple[Any, Any] = (objective.signal, objective.loss)
    shared = {field.name for field in fields(parts[0])} & {field.name for field in fields(parts[1])}
    if shared:
        raise ValueError(f"objective {objective.name!r}: signal and loss share the option {', '.join(sorted(shared))}")


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    matches = get_close_matches(word, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


_GRPO_EPSILON = 1e-8

for _objective in (
    Objective("pg", "PG", Advantage(), PolicyGradient()),
    Objective("dg", "DG", Advantage(), DelightfulGradient()),
    Objective("ppo", "PPO", Advantage(), ClippedSurrogate()),
    Objective("grpo", "GRPO", GroupAdvantage(_GRPO_EPSILON), ClippedSurrogate(beta=0.04)),
    Objective("grpo_no_kl", "GRPO (no KL)", GroupAdvantage(_GRPO_EPSILON), ClippedSurrogate()),
    Objective(
        "grpo_zv_masked",
        "GRPO (zv-masked)",
        GroupAdvantage(_GRPO_EPSILON, drop_zero_variance=True),
        ClippedSurrogate(beta=0.04),
    ),
    Objective("group_pg", "Group PG", GroupAdvantage(), PolicyGradient(), over_actions=True),
    Objective("tpo", "TPO", Target(), CrossEntropy(), over_actions=True),
    Objective("tpo_no_anchor", "TPO (no anchor)", Target(anchored=False), CrossEntropy(), over_actions=True),
    Objective("ce", "CE", Labels(), CrossEntropy(), over_actions=True),
):
    register(_objective)
