"""Rows and targets that break estimators: each gives a right answer or a clear error."""

import numpy as np
import pandas as pd
import pytest

import oracle
from tolerances import (
    CATEGORY_LEVEL,
    CHAINED,
    CONSTANT_COLUMNS,
    EXTREME_DENSITY,
    FITS,
    FITTED,
    OFFSET,
    ROUNDING,
    SAME_X_DEVIATION,
    SAME_X_MEAN,
)
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

QUICK = {"n_members": 3, "n_candidates": 3, "max_iter": 20, "random_state": 0}
KINDS = {
    "default": {},
    "one grid": {"shift": False, "learn_scale": False, "mixture": "stacking"},
    "paper-bte": {"preset": "paper-bte", "n_candidates": 6},
    "bit nugget": {"nugget": "bit"},
}


@pytest.fixture(params=KINDS)
def kind(request):
    return QUICK | KINDS[request.param]


def problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def check_all_finite(model, X, y):
    """All that a fitted model tells is a finite number, and its parts agree."""
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (len(X),)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(model.log_density(X, y)).all()
    assert np.isfinite(model.loo_predict()).all()
    assert np.isfinite(model.loo_log_density()).all()
    low, high = model.predict_interval(X).T
    assert (low <= high).all()
    assert (low <= mean + 5 * std).all()
    assert (high >= mean - 5 * std).all()
    assert np.isfinite(model.sample_y(X, 2)).all()
    assert np.isfinite(model.log_marginal_likelihood_)
    assert model.feature_importances_.sum() == pytest.approx(1.0, abs=CHAINED)
    return mean, std


def test_a_constant_column_changes_nothing_that_matters(kind):
    X, y = problem()
    model = BinaryTreeGPRegressor(**kind).fit(np.column_stack([X, np.full(60, 7.0)]), y)
    check_all_finite(model, np.column_stack([X, np.full(60, 7.0)]), y)
    assert model.score(np.column_stack([X, np.full(60, 7.0)]), y) > 0.5
    explained = model.feature_importances_
    assert abs(explained[2]) < 0.5  # its bits never part rows, but stand at some depth
    # Where there is nothing to tell from it, it tells nothing: clipped to where it always was.
    with pytest.warns(UserWarning, match="100 % of the rows lie outside .* in columns 2:"):
        elsewhere = model.predict(np.column_stack([X, np.full(60, -3.0)]), return_std=True)
    here = model.predict(np.column_stack([X, np.full(60, 7.0)]), return_std=True)
    np.testing.assert_array_equal(elsewhere, here)


@pytest.mark.parametrize("n_features", [1, 3])
def test_nothing_but_constant_columns_gives_the_mean(kind, n_features):
    _, y = problem()
    X = np.full((60, n_features), 2.5)
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, std = check_all_finite(model, X, y)
    np.testing.assert_allclose(mean, y.mean(), atol=CONSTANT_COLUMNS * y.std())
    if "nugget" not in kind:  # else the noise is the floor, which the user sets
        assert 0.5 * y.std() < std[0] < 2 * y.std()


@pytest.mark.parametrize("value", [5.0, 0.0, -3e8])
def test_one_row_is_its_own_mean(kind, value):
    X, y = np.array([[0.3, 4.0]]), np.array([value])
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, _ = check_all_finite(model, np.array([[0.3, 4.0]]), y)
    assert mean[0] == value
    assert model.predict([[1e9, -7.0]])[0] == pytest.approx(value)
    model.partial_fit([[0.3, 4.0]], [value + 1.0])
    assert value <= model.predict(X)[0] <= value + 1.0


def test_two_rows(kind):
    X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([10.0, 20.0])
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, _ = check_all_finite(model, X, y)
    assert 10 <= mean[0] <= mean[1] <= 20


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, -1e300])
def test_targets_all_equal_are_predicted(kind, value):
    X, _ = problem()
    y = np.full(60, value)
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, std = check_all_finite(model, X, y)
    np.testing.assert_allclose(mean, value, rtol=ROUNDING)
    size = abs(value) or 1.0
    assert std.max() < 1.1 * size / (60**2 * np.sqrt(62))  # the rule of succession
    if model.mixture in (None, "calibrated") and not (model.preset or "").startswith("paper"):
        assert std.min() > 0.9 * size / (60**2 * np.sqrt(62))


@pytest.mark.parametrize("estimator", [BinaryTreeGPRegressor, TrieGPRegressor])
def test_one_row_says_little(estimator):
    """Its deviation is in units of y, and of the size of y."""
    for unit in (1e-3, 1.0, 1e6):
        model = estimator(random_state=0).fit([[0.5]], [5.0 * unit])
        mean, std = model.predict([[0.5], [0.1]], return_std=True)
        np.testing.assert_allclose(mean, 5.0 * unit)
        np.testing.assert_allclose(std, 5.0 * unit / np.sqrt(3.0))


def test_duplicates_with_different_targets_share_a_mean(kind):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 40, axis=0)
    y = np.repeat([-1.0, 0.0, 4.0], 40) + 0.5 * rng.standard_normal(120)
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, std = check_all_finite(model, X, y)
    averages = y.reshape(3, 40).mean(axis=1)
    np.testing.assert_allclose(
        mean.reshape(3, 40), np.repeat(averages, 40).reshape(3, 40), atol=SAME_X_MEAN
    )
    assert len(np.unique(mean)) == 3
    if "nugget" not in kind:  # else the noise is the floor, which the user sets
        np.testing.assert_allclose(std, 0.5, rtol=SAME_X_DEVIATION)


def test_a_hundred_thousand_bits():
    rng = np.random.default_rng(0)
    X = rng.random((40, 3125))
    y = X[:, 0]
    options = QUICK | {"n_members": 2, "n_candidates": 2, "max_iter": 3, "precision": 31}
    model = BinaryTreeGPRegressor(**options).fit(X, y)
    assert model.ensembles_[0].members[0].order.n_bits == 100_000
    check_all_finite(model, X, y)
    member = model.ensembles_[0].members[0]
    bits = oracle.unpack_bits(member.encoder.encode(X), member.order.key_bits[:2000])
    assert len(np.unique(bits, axis=0)) == 40  # so that deeper levels are each row's own
    level = member.order.weights[:-1] * member.order.scale
    kernel = oracle.kernel(bits, bits, level[:2000]) + level[2000:].sum() * np.eye(40)
    standard = (y - y.mean()) / y.std(ddof=1)
    expected = -oracle.nll(kernel + member.posteriors[0].new_noise * np.eye(40), standard)
    one = BinaryTreeGPRegressor(**(options | {"n_members": 1})).fit(X, y)
    assert one.ensembles_[0].members[0].order == member.order
    assert one.log_marginal_likelihood_ == pytest.approx(expected - 40 * np.log(y.std(ddof=1)))
    with pytest.raises(ValueError, match=r"optimizer 'bfgs'.* at most 5000 bits, got 100000"):
        BinaryTreeGPRegressor(**options, optimizer="bfgs").fit(X, y)
    with pytest.raises(ValueError, match="precision"):
        BinaryTreeGPRegressor(**(options | {"precision": 32}), shift=False).fit(
            rng.random((3, 3126)), y[:3]
        )


def test_bfgs_takes_5000_bits_and_no_more():
    rng = np.random.default_rng(0)
    options = QUICK | {"optimizer": "bfgs", "precision": 1, "shift": False, "max_iter": 1}
    y = np.arange(6.0)
    with pytest.raises(ValueError, match="5001"):
        BinaryTreeGPRegressor(**options).fit(rng.random((6, 5001)), y)
    with pytest.raises(ValueError, match="5002"):  # the bit that a shift adds counts
        BinaryTreeGPRegressor(**(options | {"shift": True})).fit(rng.random((6, 2501)), y)


def test_categories_as_integers_are_told_apart(kind):
    rng = np.random.default_rng(1)
    category = rng.integers(0, 8, 400)
    level = np.array([3.0, -2.0, 5.0, 0.0, -4.0, 1.0, 9.0, -7.0])
    y = level[category] + 0.1 * rng.standard_normal(400)
    for X in (category[:, None], category[:, None].astype(np.uint8)):
        model = BinaryTreeGPRegressor(**kind).fit(X, y)
        mean, _ = check_all_finite(model, X, y)
        np.testing.assert_allclose(mean, level[category], atol=CATEGORY_LEVEL)


@pytest.mark.parametrize("n_each", [2, 3, 5])
def test_a_trend_does_not_blur_categories_observed_a_few_times(n_each):
    level = np.array([3.0, -2.0, 5.0, 0.0, -4.0, 1.0, 9.0, -7.0])
    X = np.repeat(np.arange(8.0), n_each)[:, None]
    y = np.repeat(level, n_each) + 0.1 * np.random.default_rng(1).standard_normal(len(X))
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    (found,) = model._stream.fitted
    assert found.stages[0].trend is None
    for mean in (model.predict(X), model.predict(X, return_cov=True)[0]):
        np.testing.assert_allclose(mean, np.repeat(level, n_each), atol=CATEGORY_LEVEL)
    left = found.base.leave_one_out(0, model._stream.observations).mean()
    expected = model.target_mean_ + model.target_scale_ * left
    np.testing.assert_allclose(model.loo_predict()[0], expected, rtol=ROUNDING)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_extreme_columns_are_only_columns(kind, size):
    X, y = problem()
    kind = kind | {"precision": 6}
    model = BinaryTreeGPRegressor(**kind).fit(X * [size, 1.0], y)
    plain = BinaryTreeGPRegressor(**kind).fit(X, y)
    check_all_finite(model, X * [size, 1.0], y)
    if kind.get("preset") == "paper-bte" and size < 1:
        return  # the paper adds 1e-6 to the width of a box, which hides so small a column
    np.testing.assert_allclose(model.predict(X * [size, 1.0]), plain.predict(X), **FITS)


@pytest.mark.parametrize("name", ["one far", "log-normal"])
def test_one_wide_feature_is_fitted(name):
    """To tell its rows apart takes 32 bits and more; grids have room for one more, the shift."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 1)) if name == "one far" else np.exp(5 * rng.standard_normal((300, 1)))
    if name == "one far":
        X[7] = 1e6
        X[8] = X[9] + 1e-4
    y = np.sin(np.log(X[:, 0])) + 0.1 * rng.standard_normal(300)
    model = BinaryTreeGPRegressor(**QUICK, scaling="minmax").fit(X, y)
    check_all_finite(model, X, y)
    assert model.encoders_[0].precision_[0] == 31


def test_a_column_over_all_of_float64():
    X, y = problem()
    top = np.finfo(np.float64).max
    wide = np.column_stack([(2 * X[:, 0] - 1) * top, X[:, 1]])
    wide[0, 0], wide[1, 0] = -top, top
    model = BinaryTreeGPRegressor(**QUICK).fit(wide, y)
    check_all_finite(model, wide, y)
    assert model.score(wide, y) > 0.5


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_extreme_targets_come_back_in_their_units(kind, size):
    X, y = problem()
    model = BinaryTreeGPRegressor(**kind).fit(X, y * size)
    plain = BinaryTreeGPRegressor(**kind).fit(X, y)
    check_all_finite(model, X, y * size)
    mean, std = model.predict(X, return_std=True)
    expected_mean, expected_std = plain.predict(X, return_std=True)
    np.testing.assert_allclose(mean / size, expected_mean, **FITS)
    np.testing.assert_allclose(std / size, expected_std, rtol=FITTED)
    np.testing.assert_allclose(
        model.predict_quantiles(X) / size, plain.predict_quantiles(X), **FITS
    )
    np.testing.assert_allclose(
        model.log_density(X, y * size), plain.log_density(X, y) - np.log(size), atol=EXTREME_DENSITY
    )
    for call in (lambda: model.predict(X, return_cov=True), lambda: model.predict_distribution(X)):
        with pytest.raises(ValueError, match="variances of y must lie within float64"):
            call()


def test_targets_of_both_extremes():
    X, y = problem()
    y = y / np.abs(y).max() * 1.7e308
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    plain = BinaryTreeGPRegressor(**QUICK).fit(X, y / 2.0**1000)
    np.testing.assert_allclose(mean / 2.0**1000, plain.predict(X), rtol=FITTED)


def test_a_large_offset_does_not_drown_the_targets(kind):
    X, y = problem()
    shifted = BinaryTreeGPRegressor(**kind).fit(X, y + 1e9)
    plain = BinaryTreeGPRegressor(**kind).fit(X, y)
    np.testing.assert_allclose(shifted.predict(X) - 1e9, plain.predict(X), atol=OFFSET)


def test_bool_and_object_columns_are_numbers():
    X, y = problem()
    flag = X[:, 0] > 0.5
    target = y + 3 * flag
    numbers = np.column_stack([flag.astype(float), X[:, 1]])
    expected = BinaryTreeGPRegressor(**QUICK).fit(numbers, target).predict(numbers)
    mixed = np.empty((60, 2), dtype=object)
    mixed[:, 0], mixed[:, 1] = flag, X[:, 1]
    table = pd.DataFrame({"flag": flag, "x": X[:, 1]})
    for rows in (mixed, table):
        model = BinaryTreeGPRegressor(**QUICK).fit(rows, target)
        np.testing.assert_array_equal(model.predict(rows), expected)
    only = BinaryTreeGPRegressor(**QUICK).fit(flag[:, None], target)
    assert only.predict([[True]])[0] - only.predict([[False]])[0] > 1.0


def test_a_bool_target_is_zero_and_one():
    X, _ = problem()
    y = X[:, 0] > 0.5
    a, b = (BinaryTreeGPRegressor(**QUICK).fit(X, z).predict(X) for z in (y, y.astype(float)))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bad", ["red", 1 + 2j, pd.Timestamp("2020-01-01"), {}])
def test_cells_that_are_no_numbers_are_named(bad):
    X, y = problem()
    rows = X.astype(object)
    rows[3, 1] = bad
    model = BinaryTreeGPRegressor(**QUICK)
    with pytest.raises((ValueError, TypeError), match=r"X must hold .* column 1|omplex"):
        model.fit(rows, y)
    model.fit(X, y)
    with pytest.raises((ValueError, TypeError), match=r"X must hold real numbers.* column 1"):
        model.predict(rows)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_place(bad):
    X, y = problem()
    holes = X.copy()
    holes[5, 1] = bad
    target = y.copy()
    target[7] = bad
    model = BinaryTreeGPRegressor(**QUICK)
    with pytest.raises(ValueError, match=r"X must be finite.*column 1 at row 5"):
        model.fit(holes, y)
    with pytest.raises(ValueError, match=r"'width' \(1\) at row 5"):
        model.fit(pd.DataFrame(holes, columns=["length", "width"]), y)
    with pytest.raises(ValueError, match=r"y must be finite.* at row 7"):
        model.fit(X, target)
    model.fit(X, y)
    before = model.predict(X)
    for call in (model.predict, model.sample_y, lambda rows: model.partial_fit(rows, y)):
        with pytest.raises(ValueError, match=r"X must be finite.*column 1 at row 5"):
            call(holes)
    for call in (model.partial_fit, model.log_density):
        with pytest.raises(ValueError, match=r"y must be finite.* at row 7"):
            call(X, target)
    named = BinaryTreeGPRegressor(**QUICK).fit(pd.DataFrame(X, columns=["length", "width"]), y)
    with pytest.raises(ValueError, match=r"'width' \(1\) at row 5"):
        named.predict(pd.DataFrame(holes, columns=["length", "width"]))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.filterwarnings("ignore:y is .* at row 17:UserWarning")
@pytest.mark.parametrize("size", [1e3, 1e12, 1e200])
def test_one_gross_outlier_does_not_break_the_rest(kind, size):
    X, y = problem(200)
    y[17] = size
    model = BinaryTreeGPRegressor(**kind).fit(X, y)
    mean, std = check_all_finite(model, X, y)
    # Nothing is claimed that the data do not bear: the rest lies well within its intervals.
    others = np.arange(200) != 17
    error = np.abs(mean - y)[others]
    assert (error < 4 * std[others]).mean() > 0.95
    assert mean.max() <= size


@pytest.mark.parametrize("size", [1e3, 1e12])
def test_an_outlier_in_a_column_leaves_the_rest_apart(size):
    X, y = problem(200)
    X[17, 0] = size
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    check_all_finite(model, X, y)
    assert model.score(X, y) > 0.5  # by its percentiles, and by precision where tied


def test_empty_and_misshapen_input_is_refused():
    X, y = problem()
    model = BinaryTreeGPRegressor(**QUICK)
    for bad_X, bad_y, text in (
        (X[:0], y[:0], "minimum of 1 is required"),
        (X[:, :0], y, "minimum of 1 is required"),
        (X[:, 0], y, "2D array"),
        (X, y[:-1], "same number of rows, got 60 and 59"),
        (X, y.reshape(-1, 1, 1), "shape"),
        (X, ["a"] * 60, "y must"),
    ):
        with pytest.raises(ValueError, match=text):
            model.fit(bad_X, bad_y)
    model.fit(X, y)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(np.ones((2, 3)))
