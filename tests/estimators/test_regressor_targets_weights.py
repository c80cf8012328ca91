"""Several targets, sample weights, known noise."""

import numpy as np
import pytest

from regressor_problems import QUICK, by_hand, dense_members, make_data, new_rows
from tolerances import LOOSE, REORDERED, ROUNDING, STEPPED, VALUE
from triegp import BinaryTreeGPRegressor

# Several targets, weights, known noise.


@pytest.mark.parametrize("multi_target", ["own", "shared"])
def test_several_targets_have_a_last_axis(multi_target):
    X, y = make_data()
    Y = np.stack([y, 100 * X[:, 1]], axis=1)
    model = BinaryTreeGPRegressor(**QUICK, multi_target=multi_target).fit(X, Y)
    new = new_rows()
    mean, cov = model.predict(new, return_cov=True)
    assert (mean.shape, cov.shape) == ((9, 2), (9, 9, 2))
    assert model.predict(new, return_std=True)[1].shape == (9, 2)
    assert model.predict_quantiles(new, (0.1, 0.2, 0.3)).shape == (9, 3, 2)
    assert model.predict_interval(new).shape == (9, 2, 2)
    assert model.sample_y(new, 5).shape == (9, 2, 5)
    assert model.log_density(new, np.zeros((9, 2))).shape == (9, 2)
    assert [part.shape for part in model.loo_predict()] == [(40, 2), (40, 2)]
    assert model.log_marginal_likelihood_.shape == (2,)
    assert model.feature_importances_.shape == (2, 2)
    assert len(model.importances_) == len(model.predict_distribution(new)) == 2
    # Joint density of independent targets: the sum.
    assert model.loo_score_ == pytest.approx(
        (model.loo_log_density() - model.loo_optimism_).sum(axis=1).mean()
    )
    assert model.score(X, Y) > 0.5


def test_own_targets_are_trained_as_if_alone():
    X, y = make_data()
    Y = np.stack([y, 100 * X[:, 1]], axis=1)
    both = BinaryTreeGPRegressor(**QUICK).fit(X, Y)
    alone = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    assert len(both.ensembles_) == 2
    np.testing.assert_allclose(both.predict(X)[:, 0], alone.predict(X), rtol=1e-12)
    cov = alone.predict(X, return_cov=True)[1]
    np.testing.assert_allclose(
        both.predict(X, return_cov=True)[1][..., 0], cov, rtol=1e-9, atol=1e-12 * cov.max()
    )
    assert both.log_marginal_likelihood_[0] == pytest.approx(
        alone.log_marginal_likelihood_, rel=1e-9
    )


def test_shared_targets_have_one_set_of_orders_and_tries():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, multi_target="shared").fit(X, np.stack([y, -y], axis=1))
    (both,) = model.ensembles_
    for member in both.members:
        first, second = member.posteriors
        assert first.order is second.order
        assert first.trie is second.trie
    # A mirrored target asks for the same orders and weights as the target alone.
    alone = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(model.predict(X)[:, 0], alone.predict(X), **LOOSE)
    mirrored = 2 * model.target_mean_[1] - model.predict(X)[:, 1] + 2 * model.target_mean_[0]
    np.testing.assert_allclose(mirrored, model.predict(X)[:, 0], **LOOSE)


def test_one_column_is_one_target_in_a_table():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y[:, None])
    assert model.predict(X).shape == (40, 1)
    np.testing.assert_array_equal(
        model.predict(X)[:, 0], BinaryTreeGPRegressor(**QUICK).fit(X, y).predict(X)
    )


WEIGHTED = {
    "default": {},
    "ecdf": {"scaling": "ecdf", "mixture": "stacking"},
    "paper-bte": {"preset": "paper-bte", "noise": None, "n_candidates": 6},
    "paper-bt": {"preset": "paper-bt", "noise": None, "n_candidates": 6},
    "no scale": {"learn_scale": False, "shift": False, "precision": 3},
}


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("known", [False, True])
def test_an_integer_weight_is_that_many_copies(kind, known):
    X, y = make_data()
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 4, 40)
    X[weight == 0] *= 5  # must not reach the box
    noise = rng.exponential(size=40) if known else None
    options = QUICK | {"max_iter": 4} | WEIGHTED[kind]
    model = BinaryTreeGPRegressor(**options).fit(X, y, weight, noise)
    copies = BinaryTreeGPRegressor(**options).fit(
        np.repeat(X, weight, axis=0),
        np.repeat(y, weight),
        known_noise=None if noise is None else np.repeat(noise, weight),
    )
    for a, b in zip(model.encoders_, copies.encoders_, strict=True):
        np.testing.assert_array_equal(a.low_, b.low_)
        np.testing.assert_array_equal(a.high_, b.high_)
        np.testing.assert_array_equal(a.precision_, b.precision_)
        if a.knots_ is not None:
            np.testing.assert_allclose(a.knots_, b.knots_, rtol=ROUNDING)
    np.testing.assert_allclose(model.target_mean_, copies.target_mean_, rtol=REORDERED)
    np.testing.assert_allclose(model.target_scale_, copies.target_scale_, rtol=REORDERED)
    first, second = (m.ensembles_[0].members[0].posteriors[0] for m in (model, copies))
    assert first.noise == second.noise
    np.testing.assert_allclose(first.order.theta, second.order.theta, **LOOSE)
    np.testing.assert_allclose(
        model.predict(new_rows(), return_std=True),
        copies.predict(new_rows(), return_std=True),
        **LOOSE,
    )
    np.testing.assert_allclose(
        np.repeat(model.loo_predict(), weight, axis=1), copies.loo_predict(), **LOOSE
    )
    assert model.log_marginal_likelihood_ == pytest.approx(
        copies.log_marginal_likelihood_, rel=STEPPED
    )
    assert model.loo_score_ == pytest.approx(copies.loo_score_, rel=STEPPED)
    np.testing.assert_allclose(model.feature_importances_, copies.feature_importances_, **LOOSE)


def test_known_noise_is_dense_and_in_units_of_y_squared():
    X, y = make_data()
    known = np.random.default_rng(1).exponential(size=40)
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y, known_noise=known)
    *_, mean, cov = by_hand(model, dense_members(model, X, y, new_rows(), known), new_rows())
    np.testing.assert_allclose(model.predict(new_rows()), mean, **VALUE)
    np.testing.assert_allclose(model.predict(new_rows(), return_cov=True)[1], cov, **VALUE)
