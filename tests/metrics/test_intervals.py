"""Pinball loss, interval score and coverage against their definitions, and what they refuse."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_pinball_loss

from naive_scores import naive_crps
from score_problems import random_mixture, targets
from tolerances import HANDFUL, MANY_QUANTILES, ROUNDING
from triegp.metrics import coverage, interval_score, pinball

LEVELS = np.array([0.1, 0.25, 0.5, 0.8])
M = 30


def quantiles():
    return random_mixture(m=M).quantile(LEVELS)


def intervals(level=0.8):
    return random_mixture(m=M).interval(level)


def test_pinball_is_scikit_learns_at_every_level():
    y, found, weight = targets(M), quantiles(), np.arange(M) % 4.0
    each = [
        mean_pinball_loss(y, found[:, k], alpha=level, sample_weight=weight)
        for k, level in enumerate(LEVELS)
    ]
    assert pinball(y, found, LEVELS, sample_weight=weight) == pytest.approx(np.mean(each))
    by_row = pinball(y, found, LEVELS, by_row=True)
    assert by_row.shape == (M,)
    assert by_row.mean() == pytest.approx(pinball(y, found, LEVELS), rel=HANDFUL)


def test_the_median_has_half_the_absolute_error():
    y, median = targets(M), quantiles()[:, 2]
    half = 0.5 * mean_absolute_error(y, median)
    assert pinball(y, median, 0.5) == pytest.approx(half, rel=ROUNDING)
    assert pinball(y, median[:, None], [0.5]) == pytest.approx(half, rel=ROUNDING)


def test_many_levels_approach_the_crps():
    found = random_mixture(m=M)
    y = targets(M)
    levels = (np.arange(1_000) + 0.5) / 1_000
    loss = pinball(y, found.quantile(levels), levels, by_row=True)
    np.testing.assert_allclose(2 * loss, naive_crps(y, found), rtol=MANY_QUANTILES)


def test_the_interval_score_is_the_pinball_loss_of_both_ends():
    y, found = targets(M), intervals(0.8)
    by_row = interval_score(y, found, 0.8, by_row=True)
    ends = pinball(y, found, [0.1, 0.9], by_row=True)
    np.testing.assert_allclose(by_row, 4 / 0.2 * ends, rtol=ROUNDING)
    assert interval_score(y, found, 0.8) == pytest.approx(by_row.mean(), rel=HANDFUL)


def test_a_single_interval():
    ends = np.array([[1.0, 3.0]] * 4)
    found = interval_score([0.0, 1.0, 3.0, 3.5], ends, 0.5, by_row=True)
    assert found.tolist() == [2.0 + 4.0, 2.0, 2.0, 2.0 + 2.0]


def test_coverage_counts_the_ends():
    ends = np.array([[1.0, 3.0]] * 5)
    y = [0.9, 1.0, 2.0, 3.0, 3.1]
    assert coverage(y, ends, by_row=True).tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert coverage(y, ends) == pytest.approx(0.6)
    assert coverage(y, ends, sample_weight=[1, 0, 0, 3, 0]) == pytest.approx(0.75)


def test_infinite_ends():
    ends = np.array([[-np.inf, 3.0], [1.0, np.inf], [np.inf, np.inf]])
    assert interval_score(np.zeros(3), ends, 0.5, by_row=True).tolist() == [np.inf] * 3
    assert coverage(np.zeros(3), ends, by_row=True).tolist() == [1.0, 0.0, 0.0]
    assert pinball([0.0], [[np.inf]], 0.5) == np.inf


def test_several_targets():
    y = np.stack([targets(M, 1), targets(M, 2)], axis=1)
    found = np.stack([intervals(), intervals() + 1.0], axis=2)
    each = [interval_score(y[:, t], found[:, :, t], 0.8) for t in range(2)]
    assert interval_score(y, found, 0.8) == pytest.approx(np.mean(each))
    assert coverage(y, found, by_row=True).shape == (M, 2)
    each = [pinball(y[:, t], found[:, :, t], [0.1, 0.9]) for t in range(2)]
    assert pinball(y, found, [0.1, 0.9]) == pytest.approx(np.mean(each))


def test_rows_of_weight_0_may_be_nan():
    y, found, weight = targets(M), intervals(), np.ones(M)
    rest = np.arange(M) != 4
    weight[4] = 0.0
    holes = found.copy()
    holes[4, 1] = np.nan
    calls = {
        "interval_score": lambda y, ends, **more: interval_score(y, ends, 0.8, **more),
        "coverage": coverage,
        "pinball": lambda y, ends, **more: pinball(y, ends, [0.1, 0.9], **more),
    }
    for name, call in calls.items():
        whole = call(y, holes, sample_weight=weight)
        assert whole == pytest.approx(call(y[rest], found[rest])), name
        by_row = call(y, holes, sample_weight=weight, by_row=True)
        assert np.isnan(by_row[4])
        assert np.isfinite(by_row[rest]).all()
        with pytest.raises(ValueError, match="must not be NaN, got NaN at row 4: only rows whose"):
            call(y, holes)


def test_what_cannot_be_scored():
    y, found = targets(M), intervals()
    with pytest.raises(ValueError, match=r"interval must have shape \(30, 2\), got \(30, 4\)"):
        coverage(y, quantiles())
    with pytest.raises(ValueError, match=r"quantiles must have shape \(30, 3\), got \(30, 4\)"):
        pinball(y, quantiles(), [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"must have shape \(30, 2, 1\), got \(30, 2\)"):
        coverage(y[:, None], found)
    with pytest.raises(ValueError, match=r"lower ends that do not exceed the upper ones, got"):
        interval_score(y, found[:, ::-1], 0.8)
    for level in (0.0, 1.0, -1, "x", None):
        with pytest.raises(ValueError, match="coverage must"):
            interval_score(y, found, level)
        with pytest.raises(ValueError, match="quantiles must"):
            pinball(y, found[:, 0], level)
