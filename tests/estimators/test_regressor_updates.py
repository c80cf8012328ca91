"""More rows: `partial_fit` and `refresh` against a fit on all rows."""

import numpy as np
import pytest

from regressor_problems import QUICK, by_hand, dense_members, make_data, new_rows
from tolerances import CHAINED, VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

CONDITIONED = QUICK | {"refit": False}  # rows are added, nothing is fitted anew


def box_first(n=60):
    """Rows of which the first ones span the box of all."""
    X, y = make_data(n)
    border = np.unique(np.r_[X.argmin(axis=0), X.argmax(axis=0)])
    order = np.r_[border, np.setdiff1d(np.arange(n), border)]
    return X[order], y[order]


# More rows.


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_partial_fit_is_conditioning_on_all_rows(known, n_steps):
    X, y = box_first()
    noise = np.random.default_rng(5).exponential(size=60) if known else np.zeros(60)
    model = BinaryTreeGPRegressor(**CONDITIONED)
    model.fit(X[:30], y[:30], known_noise=noise[:30] if known else None)
    box, unit = model.encoders_[0].low_.copy(), model.target_scale_.copy()
    mixed = model.ensembles_[0].calibrations
    for part in np.array_split(np.arange(30, 60), n_steps):
        model.partial_fit(X[part], y[part], known_noise=noise[part] if known else None)
    *_, mean, cov = by_hand(model, dense_members(model, X, y, new_rows(), noise), new_rows())
    np.testing.assert_allclose(model.predict(new_rows()), mean, **VALUE)
    np.testing.assert_allclose(model.predict(new_rows(), return_cov=True)[1], cov, **VALUE)
    assert model.loo_predict()[0].shape == (60,)
    np.testing.assert_array_equal(model.encoders_[0].low_, box)
    np.testing.assert_array_equal(model.target_scale_, unit)
    assert model.ensembles_[0].calibrations is mixed


def test_partial_fit_with_weights_is_partial_fit_with_copies():
    X, y = box_first()
    weight = np.random.default_rng(2).integers(0, 4, 30)
    model = BinaryTreeGPRegressor(**CONDITIONED).fit(X[:30], y[:30])
    copies = BinaryTreeGPRegressor(**CONDITIONED).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:], sample_weight=weight)
    copies.partial_fit(np.repeat(X[30:], weight, axis=0), np.repeat(y[30:], weight))
    for a, b in zip(
        model.predict(new_rows(), return_cov=True),
        copies.predict(new_rows(), return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, **VALUE)
    assert model.log_marginal_likelihood_ == pytest.approx(
        copies.log_marginal_likelihood_, rel=CHAINED
    )
    # Leave-one-out leaves out a row with its weight, as if it had not been added.
    i = int(np.argmax(weight))
    rest = np.delete(np.arange(30), i)
    without = BinaryTreeGPRegressor(**CONDITIONED).fit(X[:30], y[:30])
    without.partial_fit(X[30:][rest], y[30:][rest], sample_weight=weight[rest])
    left = np.stack(model.loo_predict())[:, 30 + i]
    expected = np.ravel(without.predict(X[30 + i : 31 + i], return_std=True))
    np.testing.assert_allclose(left, expected, **VALUE)


@pytest.mark.parametrize("n_rows", [40, 600])
@pytest.mark.parametrize("estimator", [BinaryTreeGPRegressor, TrieGPRegressor])
def test_added_rows_of_weight_0_are_dropped(estimator, n_rows):
    """Also at the place of a row that was observed once, whose run counts as noise."""
    X, y = box_first(n_rows)
    options = {"random_state": 0, "max_iter": 3, "refit": False}
    options |= {"n_trees": 2} if estimator is TrieGPRegressor else {"n_members": 2}
    model, other = (estimator(**options).fit(X, y) for _ in range(2))
    again, weight = np.arange(8, 12), np.array([0.0, 0.0, 1.0, 0.0])
    model.partial_fit(X[again], y[again] + 3.0, sample_weight=weight)
    other.partial_fit(X[[10]], y[[10]] + 3.0)
    asked = np.concatenate([X[5:15], new_rows()])
    for _ in ("looking ahead", "inserted"):
        pairs = zip(*(one.predict(asked, return_std=True) for one in (model, other)), strict=True)
        for got, expected in pairs:
            np.testing.assert_array_equal(got, expected)
        left, expected = model.loo_predict()[0], other.loo_predict()[0]
        np.testing.assert_array_equal(left[:n_rows], expected[:n_rows])
        np.testing.assert_array_equal(left[n_rows:], [np.nan, np.nan, expected[-1], np.nan])
    assert model.n_rows_ == n_rows + 4


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_partial_fit_adds_rows_to_every_target(multi_target):
    X, y = box_first()
    Y = np.stack([y, 3 * X[:, 1] ** 2], axis=1)
    model = BinaryTreeGPRegressor(**CONDITIONED, multi_target=multi_target).fit(X[:30], Y[:30])
    model.partial_fit(X[30:], Y[30:])
    got_mean, got_cov = model.predict(new_rows(), return_cov=True)
    for t in range(2):
        column = t if multi_target == "shared" else 0
        members = dense_members(model, X, Y[:, t], new_rows(), target=t, column=column)
        *_, mean, cov = by_hand(model, members, new_rows(), target=t, column=column)
        np.testing.assert_allclose(got_mean[:, t], mean, **VALUE)
        np.testing.assert_allclose(got_cov[:, :, t], cov, **VALUE)
    for member in model.ensembles_[0].members:
        assert all(part.trie is member.posteriors[0].trie for part in member.posteriors)


def test_partial_fit_of_an_unfitted_model_fits():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).partial_fit(X, y)
    np.testing.assert_array_equal(
        model.predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )
    with pytest.raises(ValueError, match="targets"):
        model.partial_fit(X, np.stack([y, y], axis=1))


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_refresh_is_a_fit_on_all_rows(multi_target):
    X, y = make_data(60)
    Y = np.stack([y, 3 * X[:, 1] ** 2], axis=1)
    weight, known = np.full(60, 1.5), np.linspace(0, 1, 60)
    options = CONDITIONED | {"multi_target": multi_target}
    model = BinaryTreeGPRegressor(**options).fit(X[:30], Y[:30], weight[:30], known[:30])
    with pytest.warns(UserWarning, match="30 added rows lie outside the training box"):
        model.partial_fit(3 * X[30:], Y[30:], weight[30:], known[30:])
    assert model.encoders_[0].high_.max() < 1.0
    model.refresh()
    assert model.encoders_[0].high_.max() > 2.0
    whole = np.concatenate([X[:30], 3 * X[30:]])
    fresh = BinaryTreeGPRegressor(**options).fit(whole, Y, weight, known)
    np.testing.assert_array_equal(
        model.predict(whole, return_std=True), fresh.predict(whole, return_std=True)
    )


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_refresh_fills_in_weights_and_noise_that_were_not_given():
    X, y = box_first()
    model = BinaryTreeGPRegressor(**CONDITIONED).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:], np.full(30, 2.0), np.full(30, 0.5)).refresh()
    fresh = BinaryTreeGPRegressor(**QUICK).fit(
        X, y, np.repeat([1.0, 2.0], 30), np.repeat([0.0, 0.5], 30)
    )
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


def test_refresh_without_rows_says_what_to_do():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**CONDITIONED, keep_rows=False).fit(X, y).partial_fit(X, y)
    assert model.rows_ is None
    with pytest.raises(ValueError, match="keep_rows=True"):
        model.refresh()


def test_the_model_does_not_look_at_its_training_arrays_again():
    X, y = make_data()
    mine, targets = X.copy(), y.copy()
    model = BinaryTreeGPRegressor(**QUICK).fit(mine, targets)
    before = model.predict(X), model.loo_log_density()
    mine[:], targets[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.predict(X), before[0])
    np.testing.assert_array_equal(model.loo_log_density(), before[1])
    np.testing.assert_array_equal(
        model.refresh().predict(X), BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )
