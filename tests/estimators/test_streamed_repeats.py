"""Copies, weights and known noise that arrive by `partial_fit`, or are left out of a fold."""

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor, load

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copies of others"),
    pytest.mark.filterwarnings("ignore:.*outside the training box"),
]


def function(X):
    return np.sin(6 * X[:, 0]) + X[:, 1]


def draw(n, seed, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, function(X) + noise * rng.standard_normal(n)


def coverage(model, X, y):
    low, high = model.predict_interval(X, 0.9).T
    return float(np.mean((low <= y) & (y <= high)))


@pytest.fixture(scope="module")
def rows():
    return draw(1000, 0)


@pytest.mark.parametrize("old", [True, False])
def test_copies_that_are_added_do_not_teach_certainty(rows, old):
    """Rows of the fit once more, or new rows twice."""
    X, y = rows
    model = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y)
    more = (X[:400], y[:400]) if old else draw(200, 1)
    times = 1 if old else 2
    model.partial_fit(np.tile(more[0], (times, 1)), np.tile(more[1], times))
    assert model._stream.plan.n_fit == 1000  # calibrated again, not fitted again
    new = draw(4000, 2)
    assert 0.85 < coverage(model, *new) < 0.95


@pytest.mark.parametrize("options", [{}, {"weights": "precision"}])
def test_weights_mean_in_partial_fit_what_they_meant_in_fit(options, tmp_path):
    X, y = draw(200, 3)
    shared = {"random_state": 0, "n_members": 3, "refit": False, **options}
    first, rest = slice(0, 150), slice(150, 200)
    other = BinaryTreeGPRegressor(**shared).fit(X[first], y[first], np.full(150, 3.0))
    inner = X[rest][~other.outside_box(X[rest])]
    late = y[rest][~other.outside_box(X[rest])]
    other.partial_fit(inner, late, np.full(late.size, 3.0))
    model = BinaryTreeGPRegressor(**shared).fit(X[first], y[first], np.full(150, 7.0))
    model.save(tmp_path / "model")
    for one in (model, load(tmp_path / "model")):
        one.partial_fit(inner, late, np.full(late.size, 7.0))
        np.testing.assert_allclose(one.predict(inner), other.predict(inner), rtol=1e-9)


def test_rows_added_with_weight_0_have_no_leave_one_out(rows):
    X, y = rows
    model = BinaryTreeGPRegressor(random_state=0, n_members=2).fit(X[:100], y[:100])
    model.partial_fit(X[:5], y[:5], np.zeros(5))
    for values in (*model.loo_predict(), model.loo_log_density()):
        np.testing.assert_array_equal(np.isnan(values), np.arange(105) >= 100)


def test_known_noise_of_held_out_rows_is_not_the_noise_of_new_ones():
    """Below 1,000 rows calibration learns from held-out rows, which have their known noise."""
    X, f = draw(400, 4, noise=0.1)
    y = f + np.random.default_rng(5).standard_normal(400)
    model = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y, known_noise=np.ones(400))
    _, std = model.predict(X[:50], return_std=True)
    assert std.mean() < 0.6


def test_equal_rows_are_copies_also_if_weights_are_precisions(rows):
    X, y = rows
    once = X[:300]
    model = BinaryTreeGPRegressor(random_state=0, n_members=8, weights="precision")
    model.fit(np.vstack([once, once]), np.append(y[:300], y[:300]))
    assert model._stream.observations.copies
    again = function(once) + 0.3 * np.random.default_rng(6).standard_normal(300)
    assert 0.8 < coverage(model, once, again) < 0.98
