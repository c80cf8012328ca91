"""Importances against dense algebra, and what a fitted model's repr says."""

import numpy as np
import pytest

import oracle
from regressor_problems import QUICK, make_data
from tolerances import ROUNDING, VALUE
from triegp import BinaryTreeGPRegressor

# Importances and repr.


def test_importances_match_dense_algebra():
    X, y = make_data(n_features=3)
    options = QUICK | {"mixture": "softmax", "temperature": 1.0, "precision": [3, 2, 4]}
    model = BinaryTreeGPRegressor(**options).fit(X, y)
    (mixed,) = model.ensembles_[0].calibrations
    prior, explained = np.zeros((3, 5)), np.zeros((3, 5))
    for w, member in zip(mixed.weight, model.ensembles_[0].members, strict=True):
        order, precision = member.order, member.encoder.precision_
        assert precision.tolist() == [4, 3, 5]
        owner = [(j, depth) for j in range(3) for depth in range(precision[j])]
        bits = oracle.unpack_bits(member.encoder.encode(X), order.key_bits)
        level = order.weights[: order.n_levels] * order.scale
        parts = level[:, None, None] * oracle.level_matrices(bits)
        cov = parts.sum(axis=0) + member.posteriors[0].new_noise * np.eye(40)
        alpha = np.linalg.solve(cov, (y - model.target_mean_) / model.target_scale_)
        f = parts @ alpha  # (D, n)
        whole = f.sum(axis=0) - f.sum(axis=0).mean()
        shares = f @ whole / (whole @ whole)
        for bit, own, share in zip(order.key_bits, level / level.sum(), shares, strict=True):
            prior[owner[bit]] += w * own
            explained[owner[bit]] += w * share
    got = model.importances_
    np.testing.assert_allclose(got.prior_by_bit, prior, **VALUE)
    np.testing.assert_allclose(got.explained_by_bit, explained, **VALUE)
    np.testing.assert_allclose(got.prior, prior.sum(axis=1), **VALUE)
    np.testing.assert_allclose(got.explained, explained.sum(axis=1), **VALUE)
    np.testing.assert_array_equal(model.feature_importances_, got.explained)


def test_features_that_do_not_matter_have_no_importance():
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    y = np.sin(6 * X[:, 1])
    model = BinaryTreeGPRegressor(n_members=3, n_candidates=10, random_state=0).fit(X, y)
    for shares in (model.feature_importances_, model.importances_.prior):
        assert shares.sum() == pytest.approx(1.0, abs=ROUNDING)
        assert shares[1] > 0.9
    assert abs(model.feature_importances_[[0, 2]]).max() < 0.05


def test_a_fitted_repr_tells_the_story():
    X, y = make_data(1234)
    model = BinaryTreeGPRegressor(**(QUICK | {"noise": None, "mixture": "softmax"}))
    assert repr(model).startswith("BinaryTreeGPRegressor(max_iter=10, mixture='softmax', ")
    assert "rows" not in repr(model)
    model.fit(X, y)
    text = repr(model)
    noise = np.mean([m.posteriors[0].new_noise for m in model.ensembles_[0].members])
    assert "1,234 rows" in text
    assert f"{model.encoders_[0].n_bits_ + 2} bits" in text
    assert "3 members" in text
    assert f"noise {noise:.3g}" in text
