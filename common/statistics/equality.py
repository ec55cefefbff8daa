"""Could two sets of seeds come from the same distribution? A joint bootstrap test over several numbers of each seed."""

import numpy as np

from common.statistics.curves import Array

RESAMPLES = 20_000
_RNG_SEED = 2604_06159


def joint_bootstrap_test(ours: Array, theirs: Array, resamples: int = RESAMPLES, rng_seed: int = _RNG_SEED) -> float:
    """Return the p-value of equal means in all columns at once.

    The statistic is T = max_j |d_j| / s_j with d the difference of the column means and s_j² = v_j/n + v'_j/n', v the
    variances. Under the null its distribution is that of max_j |d*_j − d_j| / s*_j, where both sets are resampled from
    themselves (seeds with replacement, all columns of a seed together, s* of the resample): the bootstrap-t, which
    keeps to its level with skewed seeds and correlated columns. p = (1 + #{T* ≥ T}) / (1 + R).

    Args:
        ours: a row a seed, [n, J].
        theirs: [n', J].
        resamples: R.
        rng_seed: of the resampling.

    Raises:
        ValueError: fewer than two seeds in a set, or columns that do not match.
    """
    if min(len(ours), len(theirs)) < 2:
        raise ValueError(f"seeds: {len(ours)} and {len(theirs)} are not enough; each set needs at least 2")
    if ours.shape[1:] != theirs.shape[1:]:
        raise ValueError(f"columns: {ours.shape[1:]} and {theirs.shape[1:]} differ")
    difference, spread = _difference(ours[None], theirs[None])
    observed = _largest(difference, spread)[0]
    generator = np.random.default_rng(rng_seed)
    picks = [generator.integers(len(values), size=(resamples, len(values))) for values in (ours, theirs)]
    resampled, spreads = _difference(ours[picks[0]], theirs[picks[1]])
    extreme = _largest(resampled - difference, spreads) >= observed
    return float((1 + extreme.sum()) / (1 + resamples))


def _difference(ours: Array, theirs: Array) -> tuple[Array, Array]:
    """Return the difference of the means over seeds and its standard error, [R, J] each, from [R, n, J]."""
    mean = ours.mean(1) - theirs.mean(1)
    variance = ours.var(1, ddof=1) / ours.shape[1] + theirs.var(1, ddof=1) / theirs.shape[1]
    return mean, np.sqrt(variance)


def _largest(difference: Array, spread: Array) -> Array:
    """Return max_j |d_j| / s_j, [R]; a difference of 0 counts as 0 whatever its spread."""
    ratio = np.divide(np.abs(difference), spread, out=np.full_like(difference, np.inf), where=spread > 0)
    largest: Array = np.where(difference == 0, 0.0, ratio).max(1)
    return largest


def holm(p_values: dict[str, float], level: float) -> dict[str, bool]:
    """Return which hypotheses are rejected by Holm's step-down procedure, at a family-wise level."""
    rejected = dict.fromkeys(p_values, False)
    for done, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > level / (len(p_values) - done):
            break
        rejected[name] = True
    return rejected
