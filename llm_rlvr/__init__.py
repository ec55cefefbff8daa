"""Track 3: language models with verifiable rewards, on TRL.

``from llm_rlvr import TargetPolicyTrainer`` needs the ``[llm]`` extra.
"""

from typing import Any

__all__ = ["TargetPolicyTrainer"]


def __getattr__(name: str) -> Any:
    """Import the trainer when it is asked for: TRL takes seconds, and planning does without it."""
    if name == "TargetPolicyTrainer":
        from llm_rlvr.trainer import TargetPolicyTrainer

        return TargetPolicyTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
