"""Weights of an average of members, against scipy's minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from threadpoolctl import threadpool_info, threadpool_limits

from tolerances import AVERAGE_OF_COPIES, SLSQP, STACKED, VALUE
from triegp.mixture import weights
from triegp.mixture.weights import SMALLEST_WEIGHT, average


def views(n=200, n_members=4, seed=0):
    """Views of a truth with errors of several sizes, two of them alike."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(n)
    mean = truth + np.array([0.3, 0.5, 0.8, 2.0])[:n_members, None] * rng.standard_normal(
        (n_members, n)
    )
    mean[1] = 0.7 * mean[0] + 0.3 * mean[1]
    return mean, rng.uniform(0.5, 2.0, (n_members, n)), truth + 0.1 * rng.standard_normal(n)


def loss(weight, mean, var, y, count):
    """Squared errors of the average in units of the mean variance, and the ridge."""
    share = count / var.mean(axis=0)
    ridge = np.mean(share * np.square(mean - y)) * share.size / y.size
    return share @ np.square(weight @ mean - y) + ridge * weight @ weight


@pytest.mark.parametrize("weighted", [False, True])
def test_the_average_has_the_least_squared_error(weighted):
    mean, var, y = views()
    count = np.random.default_rng(1).integers(0, 4, 200) if weighted else np.ones(200)
    found = average(mean, var, y, count.astype(float) if weighted else None)
    best = minimize(
        loss,
        np.full(4, 0.25),
        args=(mean, var, y, count),
        method="SLSQP",
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14},
    )
    expected = np.where(best.x < SMALLEST_WEIGHT, 0.0, best.x)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=SLSQP)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0).all()


def test_equal_members_share_the_weight():
    mean, var, y = views(n_members=2)
    found = average(np.repeat(mean[:1], 3, axis=0), np.repeat(var[:1], 3, axis=0), y)
    np.testing.assert_allclose(found, 1 / 3, rtol=STACKED)


def test_a_weight_is_that_many_rows():
    mean, var, y = views(n=50)
    count = np.random.default_rng(1).integers(1, 4, 50)
    rows = np.repeat(np.arange(50), count)
    # The ridge is 1 / n of the mean diagonal: n counts rows that differ.
    weighted = average(mean, var, y, count.astype(float))
    even = average(mean, var, y, 3.0 * count)
    np.testing.assert_allclose(weighted, even, **VALUE)
    repeated = average(mean[:, rows], var[:, rows], y[rows])
    np.testing.assert_allclose(weighted, repeated, atol=AVERAGE_OF_COPIES)


@pytest.mark.parametrize("case", ["one row", "one member", "perfect", "weight of one"])
def test_where_nothing_can_be_told_weights_are_even(case):
    mean, var, y = views(n=20)
    count = None
    if case == "one row":
        mean, var, y = mean[:, :1], var[:, :1], y[:1]
    elif case == "one member":
        mean, var = mean[:1], var[:1]
    elif case == "perfect":
        mean = np.tile(y, (4, 1))
    else:
        count = np.append(1.0, np.zeros(19))
    np.testing.assert_array_equal(average(mean, var, y, count), 1 / mean.shape[0])


def test_a_useless_member_is_left_out():
    mean, var, y = views()
    mean[3] = 100.0 * np.random.default_rng(2).standard_normal(200)
    assert average(mean, var, y)[3] == 0.0


def test_blas_has_one_thread(monkeypatch):
    """Its sums, and with them the steps of stacking, depend on the number of threads."""
    seen, real = [], weights._newton_weight

    def note(*given):
        blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
        seen.extend(library["num_threads"] for library in blas)
        return real(*given)

    monkeypatch.setattr(weights, "_newton_weight", note)
    with threadpool_limits(2, "blas"):
        weights.stack(np.random.default_rng(0).normal(size=(4, 100)))
    assert seen
    assert set(seen) == {1}
