"""Track 3: language models with verifiable rewards, on TRL.

``from llm_rlvr import TargetPolicyTrainer`` needs the ``[llm]`` extra.
"""

from llm_rlvr.trainer import TargetPolicyTrainer

__all__ = ["TargetPolicyTrainer"]
