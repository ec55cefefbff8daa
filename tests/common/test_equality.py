"""Tests of equal distributions keep to their level and see a shift."""

import numpy as np
import pytest

from common.statistics.equality import holm, joint_bootstrap_test


def errors(generator, seeds, shift=0.0):
    """Skewed, correlated errors at four checkpoints, some seeds stalling: as training curves are."""
    level = generator.exponential(0.1, (seeds, 1)) + 0.6 * (generator.random((seeds, 1)) < 0.2) + shift
    return level + 0.05 * generator.standard_normal((seeds, 4)).cumsum(1)


def test_equal_distributions_are_rarely_rejected():
    generator = np.random.default_rng(0)
    p_values = [
        joint_bootstrap_test(errors(generator, 20), errors(generator, 20), resamples=400, rng_seed=trial)
        for trial in range(300)
    ]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.08
    assert np.mean(np.array(p_values) <= 0.5) == pytest.approx(0.5, abs=0.12)


def test_a_shift_is_seen():
    generator = np.random.default_rng(1)
    assert joint_bootstrap_test(errors(generator, 20), errors(generator, 20, shift=0.5), resamples=2000) < 0.01


def test_one_shifted_checkpoint_is_enough():
    generator = np.random.default_rng(2)
    ours, theirs = 0.01 * generator.standard_normal((2, 20, 4))
    theirs[:, 2] += 0.05
    assert joint_bootstrap_test(ours, theirs, resamples=2000) < 0.01


def test_what_never_varies():
    same = np.full((5, 3), 0.25)
    assert joint_bootstrap_test(same, same, resamples=100) == 1
    assert joint_bootstrap_test(same, same + np.array([0, 0, 1]), resamples=100) < 0.05


def test_bad_input():
    with pytest.raises(ValueError, match=r"^seeds: 1 and 5 are not enough; each set needs at least 2$"):
        joint_bootstrap_test(np.ones((1, 2)), np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"^columns: "):
        joint_bootstrap_test(np.ones((4, 2)), np.ones((5, 3)))


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ({"a": 0.001, "b": 0.004, "c": 0.5}, {"a", "b"}),
        ({"a": 0.004, "b": 0.004, "c": 0.5}, set()),  # the smallest is above 0.01 / 3
        ({"a": 0.001, "b": 0.006, "c": 0.009}, {"a"}),  # 0.006 > 0.01 / 2, and so 0.009 is not looked at
        ({"a": 0.009}, {"a"}),
        ({}, set()),
    ],
)
def test_holm(p_values, rejected):
    found = holm(p_values, 0.01)
    assert {name for name, yes in found.items() if yes} == rejected
    assert found.keys() == p_values.keys()
