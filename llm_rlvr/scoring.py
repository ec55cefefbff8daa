"""Verifiable rewards: what a completion is worth, whatever its text is."""

import functools
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from llm_rlvr.answers import final_number, is_formatted

log = logging.getLogger(__name__)
P = ParamSpec("P")
NativeScorer = Callable[[str, dict[str, Any]], Any]

OPEN, CLOSE = "<answer>", "</answer>"
LONGEST_ANSWER = 10_000
"""Characters that are given to a scorer of Reasoning Gym. A longer answer is a wrong one."""


@dataclass(frozen=True)
class Score:
    """What a completion is worth.

    Attributes:
        reward: in [0, 1]; None if unscorable: the completion leaves its group.
        correct: whether the answer is right in full.
        formatted: whether the answer stands where and how it was asked for.
    """

    reward: float | None
    correct: bool
    formatted: bool


UNSCORABLE = Score(None, correct=False, formatted=False)


def guarded(scorer: Callable[P, Score]) -> Callable[P, Score]:
    """The scorer, but unscorable is what it fails on, and what gets no number in [0, 1] for a reward (NaN too)."""

    @functools.wraps(scorer)
    def score(*args: P.args, **kwargs: P.kwargs) -> Score:
        try:
            result = scorer(*args, **kwargs)
            if result.reward is None:
                return UNSCORABLE
            reward = float(result.reward)
            if 0 <= reward <= 1:
                return Score(reward, bool(result.correct), bool(result.formatted))
            log.warning("unscorable: a reward of %r", reward)
        except Exception as error:
            log.warning("unscorable: %s", type(error).__name__)
            log.debug("unscorable", exc_info=True)
        return UNSCORABLE

    return score


@guarded
def gsm8k_score(completion: str, answer: str) -> Score:
    """1 if the completion ends up with the reference's number, exactly, and 0 if not; formatted or not.

    Args:
        completion: any text, read by ``answers.final_number``.
        answer: the data set's whole answer, which ends in ``#### N``. One without a number is unscorable.
    """
    reference = final_number(answer)
    if reference is None:
        return UNSCORABLE
    correct = final_number(completion) == reference
    return Score(float(correct), correct, is_formatted(completion))


def gym_score(
    dataset_name: str, completion: str, entry: Mapping[str, Any], *, binary: bool, tagged: bool = True
) -> Score:
    """The score that Reasoning Gym itself gives to a completion's answer.

    Partial credit is what the task makes of it. ``chain_sum`` pays len(reference)/len(answer) for an answer that
    contains the reference (14 instead of 4: 0.5), ``graph_color`` 0.01 for JSON that colours nothing (``{}``), and
    ``knights_knaves`` 0.3 + 0.7·(share that is right) for as many pairs of name and role as there are people, also
    where one person gets both roles.

    Args:
        dataset_name: a registered task. The scorers of the three named here take time linear in the answer; those of
            other tasks may not.
        completion: any text. An answer of more than ``LONGEST_ANSWER`` characters is wrong and not looked at.
        entry: the task's item, as the data set made it.
        binary: 1 where the native score is 1, else 0: no partial credit.
        tagged: the answer is the text in the last closed ``<answer>…</answer>``, or the whole completion if there is
            none, and formatted are those with tags. Otherwise a bare answer is asked for: it is the whole completion,
            and formatted if it has the shape of the task's answers (of a task without a known shape: if not empty).

    Raises:
        ValueError: an unknown task.
    """
    return _gym_score(_native_scorer(dataset_name), dataset_name, completion, entry, binary, tagged)


@guarded
def _gym_score(
    native: NativeScorer, dataset_name: str, completion: str, entry: Mapping[str, Any], binary: bool, tagged: bool
) -> Score:
    inside = _tagged_answer(completion) if tagged else None
    answer = completion.strip() if inside is None else inside
    if len(answer) > LONGEST_ANSWER:
        return Score(0.0, correct=False, formatted=inside is not None)
    value = native(answer, dict(entry))
    if value is None:
        return UNSCORABLE
    correct = bool(value >= 1)
    formatted = inside is not None if tagged else _SHAPES.get(dataset_name, bool)(answer)
    return Score(float(correct) if binary and 0 <= value <= 1 else value, correct, formatted)


def _tagged_answer(completion: str) -> str | None:
    """In linear time, which Reasoning Gym's own ``extract_answer`` does not take for many open tags."""
    start = completion.rfind(OPEN, 0, max(completion.rfind(CLOSE), 0))
    if start < 0:
        return None
    start += len(OPEN)
    return completion[start : completion.find(CLOSE, start)].strip()


@functools.cache
def _native_scorer(dataset_name: str) -> NativeScorer:
    import reasoning_gym  # takes seconds

    scorer: NativeScorer = reasoning_gym.get_score_answer_fn(dataset_name)
    return scorer


def _is_colouring(answer: str) -> bool:
    try:
        colouring = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(colouring, dict) and all(isinstance(colour, int) for colour in colouring.values())


_ROLE = r"\w+ is an? \w+"
_SHAPES: dict[str, Callable[[str], bool]] = {
    "chain_sum": lambda answer: re.fullmatch(r"-?\d+", answer, re.ASCII) is not None,
    "graph_color": _is_colouring,
    "knights_knaves": lambda answer: re.fullmatch(rf"{_ROLE}(?:,? and {_ROLE}|, {_ROLE})*\.?", answer) is not None,
}
