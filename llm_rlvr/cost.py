"""What an update costs on a CPU, before the store knows better."""

from llm_rlvr.models import MODELS
from llm_rlvr.settings import LanguageTask

_FLOP_PER_MILLISECOND = 5e7
"""Of one thread with AVX2, measured with SmolLM2 in float32."""
_PROMPT_TOKENS = 50
_UNKNOWN_PARAMETERS = 1e9


def cpu_milliseconds(settings: LanguageTask) -> float:
    """Estimate the CPU-milliseconds of an update and seed: 8 FLOP a parameter and token, 2 to sample and 6 to train.

    Held-out problems are answered every ``eval_every`` updates. Loading the model is not counted.
    """
    known = MODELS.get(settings.model)
    parameters = known.parameters if known else _UNKNOWN_PARAMETERS
    length = settings.max_tokens + _PROMPT_TOKENS
    trained = settings.batch * settings.candidates * length
    evaluated = settings.eval_problems * length / settings.eval_every
    return parameters * (8 * trained + 2 * evaluated) / _FLOP_PER_MILLISECOND
