"""What a curve in a figure is: an objective, and the settings in which it differs from its panel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from common import objectives

EPOCHS = (1, 2, 4, 8, 16)
GROUP_SIZES = (4, 8, 16, 32, 64)
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Variant:
    """An objective under settings of its own."""

    objective: str
    words: str
    """What tells it from the objective's other variants."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What figures call it."""
        return f"{objectives.get(self.objective).title} ({self.words})"


def epochs_label(objective: str, epochs: int) -> str:
    """Return the label of an objective with so many gradient epochs, e.g. ``tpo_1_epoch``."""
    return f"{objective}_{epochs}_epoch{'s' if epochs > 1 else ''}"


def group_label(objective: str, candidates: int) -> str:
    """Return the label of an objective with so many candidates a group, e.g. ``tpo_k32``."""
    return f"{objective}_k{candidates}"


def temperature_label(eta: float) -> str:
    """Return the label of TPO at a temperature, e.g. ``tpo_eta_0.25``."""
    return f"tpo_eta_{eta:g}"


VARIANTS: dict[str, Variant] = {
    **{f"{name}_token": Variant(name, "token level", {"level": "token"}) for name in ("tpo", "grpo")},
    **{
        epochs_label(name, count): Variant(name, f"{count} epoch{'s' if count > 1 else ''}", {"epochs": count})
        for name in ("tpo", "grpo", "dg")
        for count in EPOCHS
    },
    **{
        group_label(name, count): Variant(name, f"K = {count}", {"candidates": count})
        for name in ("tpo", "grpo")
        for count in GROUP_SIZES
    },
    **{
        f"tpo_{aggregate}": Variant("tpo", f"{aggregate} of token log π", {"candidate_logprob": aggregate})
        for aggregate in ("mean", "sum")
    },
    **{temperature_label(eta): Variant("tpo", f"η = {eta:g}", {"options": {"eta": eta}}) for eta in TEMPERATURES},
}
"""By label; an objective's own name is the label of the objective as the panel has it."""


def variant(label: str) -> Variant:
    """Return what a label stands for."""
    return VARIANTS.get(label) or Variant(label, "")


def title(label: str) -> str:
    """Return what figures call a method."""
    return VARIANTS[label].title if label in VARIANTS else objectives.get(label).title


def titles(labels: Iterable[str]) -> str:
    """Return the methods' names in a row: ``A``, ``A and B``, ``A, B and C``."""
    return in_a_row([title(label) for label in labels])


def in_a_row(words: Iterable[str]) -> str:
    """Return words in a row: ``A``, ``A and B``, ``A, B and C``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def common_words(commands: Iterable[str]) -> str:
    """Return the words with which all the commands begin."""
    columns = zip(*(command.split() for command in commands), strict=False)
    return " ".join(words[0] for words in takewhile(lambda words: len(set(words)) == 1, columns))
