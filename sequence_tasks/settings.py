"""Settings of the token sequence tasks; one class for all of the paper's experiments, so that they share runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common import objectives
from common.optim import MOMENTUM_FORMS
from common.runs.settings import FLOAT_TYPES, require, require_choice
from sequence_tasks.policy import Architecture
from sequence_tasks.task import REWARDS, TARGETS

LEVELS = ("sequence", "token")
GROUPINGS = ("artefact", "standard")


@dataclass(frozen=True)
class SequenceTask:
    """Settings; the defaults are those of the paper's terminal-reward task at H = 10, prompt-matched.

    Objectives over groups (TPO, GRPO, Group PG) compare K candidates: whole completions of a prompt
    (``level: sequence``, scored by their mean token reward) or next tokens at a prefix state of one trajectory
    (``level: token``). The others (PPO, DG, PG) see one trajectory a prompt, token by token.
    """

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    level: str = "sequence"
    target: str = "reverse_copy"
    reward: str = "terminal"
    length: int = 10
    """H, of the prompt and of the output."""
    vocabulary: int = 2
    batch: int = 100
    """B, prompts an episode."""
    candidates: int = 8
    """K, for objectives over groups."""
    epochs: int = 4
    """Gradient epochs an episode."""
    episodes: int = 2000
    learning_rate: float = 1e-3
    heads: int = 2
    grouping: str = "artefact"
    """Which parameters go to Muon."""
    momentum_form: str = "optax"
    allow_unstable: bool = False
    """Allow several gradient epochs for an objective meant for one."""
    dtype: str = "float32"
    compile: bool = False
    """Whether the static engine is compiled; its rounding differs a little."""
    experiment_seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError naming the first key whose value is not allowed."""
        objective = objectives.get(self.objective, self.options)
        require_choice("level", self.level, LEVELS)
        require_choice("target", self.target, TARGETS)
        require_choice("reward", self.reward, REWARDS)
        require_choice("grouping", self.grouping, GROUPINGS)
        require_choice("momentum_form", self.momentum_form, MOMENTUM_FORMS)
        require_choice("dtype", self.dtype, FLOAT_TYPES)
        require("length", self.length, at_least=1)
        require("vocabulary", self.vocabulary, at_least=2)
        for key in ("batch", "epochs", "episodes"):
            require(key, getattr(self, key), at_least=1)
        require("learning_rate", self.learning_rate, above=0)
        require("experiment_seed", self.experiment_seed, at_least=0)
        if objective.needs_labels:
            raise ValueError(f"objective: {self.objective!r} needs labels, which these tasks do not give")
        if objective.grouped:
            require("candidates", self.candidates, at_least=2)
        if objective.grouped and self.level == "token" and self.reward == "terminal":
            raise ValueError("level: 'token' is not allowed with reward=terminal, which single tokens do not have")
        if objective.single_epoch and self.epochs > 1 and not self.allow_unstable:
            raise ValueError(
                f"epochs: {self.epochs} is not allowed; {self.objective} is meant for 1 (allow_unstable=true permits)"
            )
        Architecture(self.vocabulary, 2 * self.length, heads=self.heads)

    @property
    def steps(self) -> int:
        """Episodes, under the name that the run store uses."""
        return self.episodes
