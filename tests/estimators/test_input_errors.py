"""Arguments that cannot be used raise errors that name them; odd ones that can, work."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.estimators.inputs import location_and_scale

MODELS = {
    "mixture": BinaryTreeGPRegressor(n_members=3, n_candidates=4, max_iter=5, random_state=0),
    "forest": TrieGPRegressor(n_trees=4, max_iter=3, random_state=0),
}
N = 40
RNG = np.random.default_rng(0)
X = RNG.random((N, 2))
Y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(N)
ONE_MASKED = np.arange(N) == 3


@pytest.fixture(params=MODELS)
def model(request):
    return clone(MODELS[request.param])


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return clone(MODELS[request.param]).fit(X, Y)


@pytest.mark.parametrize("weight", [1e-300, 1e200])
@pytest.mark.parametrize("rows", [slice(None), slice(1)])
def test_weights_out_of_range(model, weight, rows):
    weights = np.ones(N)
    weights[rows] = weight
    with pytest.raises(ValueError, match=r"^sample_weight must be 0 or in \[.*\], got 1e.* row 0"):
        model.fit(X, Y, weights)


BAD_TARGETS = {
    "strings": Y.astype(str),
    "objects": Y.astype(str).astype(object),
    "words": np.array(["a"] * N, dtype=object),
    "matrix": scipy.sparse.csr_matrix(Y[:, None]),
    "array": scipy.sparse.csr_array(Y[:, None]),
    "masked": np.ma.array(Y, mask=ONE_MASKED),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_targets_that_are_not_numbers_within_range(fitted, name):
    y = BAD_TARGETS[name]
    for call in (clone(fitted).fit, fitted.partial_fit, fitted.log_density, fitted.score):
        with pytest.raises(ValueError, match=r"^y must "):
            call(X, y)


@pytest.mark.parametrize(
    "weight",
    ["a", np.array(["1"] * N), scipy.sparse.csr_matrix(np.ones((N, 1)))],
)
def test_weights_that_are_not_numbers(model, weight):
    with pytest.raises(ValueError, match=r"^sample_weight must "):
        model.fit(X, Y, weight)


def test_masked_entries_are_refused_by_name(fitted):
    model = clone(fitted)
    masked = np.ma.array(X, mask=np.stack([ONE_MASKED, ONE_MASKED], axis=1))
    with pytest.raises(ValueError, match=r"^X must not have masked entries, got one at row 3"):
        model.fit(masked, Y)
    with pytest.raises(ValueError, match=r"^X must not have masked entries"):
        fitted.predict(masked)
    ones = np.ma.array(np.ones(N), mask=ONE_MASKED)
    with pytest.raises(ValueError, match=r"^sample_weight must not have masked entries"):
        model.fit(X, Y, ones)
    with pytest.raises(ValueError, match=r"^known_noise must not have masked entries"):
        model.fit(X, Y, None, ones)


def test_masked_arrays_without_masked_entries_are_arrays(model):
    masked = model.fit(np.ma.array(X), np.ma.array(Y), np.ma.array(np.ones(N)))
    np.testing.assert_array_equal(
        masked.predict(X, return_std=True), clone(model).fit(X, Y).predict(X, return_std=True)
    )


@pytest.mark.parametrize("coverage", ["0.9", b"0.9", None, 0.0, 1.0])
def test_coverage_must_be_a_number_between_0_and_1(fitted, coverage):
    for predict in (fitted.predict_interval, fitted.predict_distribution(X).interval):
        args = (X, coverage) if predict == fitted.predict_interval else (coverage,)
        with pytest.raises(ValueError, match=r"^coverage must "):
            predict(*args)


def test_targets_near_the_largest_float(model):
    far = np.where(ONE_MASKED, -1.7e308, 1.7e308)
    with pytest.raises(ValueError, match=r"^y must differ from its mean by less than 1\.8e308"):
        model.fit(X, far)
    with pytest.raises(ValueError, match=r"^y must differ from its mean by less than 1\.8e308"):
        model.fit(X[:2], [-1.7e308, 1.7e308])
    model.fit(X, np.where(ONE_MASKED, 1.6e308, 1.7e308))
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_densities_of_targets_very_far_away(fitted):
    np.testing.assert_array_equal(fitted.log_density(X[:2], [1e300, -1e300]), [-np.inf, -np.inf])


def test_added_targets_very_far_away(model):
    model.fit(X, 1e-200 * Y)
    for size in (1e300, 1.7e308):
        with pytest.raises(ValueError, match=r"^y must "):
            model.partial_fit(X[:2], [size, 0.0])


def test_a_target_with_a_large_offset_is_not_constant(model):
    y = 1e12 + 0.01 * Y
    model.fit(X, y)
    assert model.target_scale_[0] == pytest.approx(np.std(y - 1e12, ddof=1), rel=1e-10)
    assert model.target_mean_[0] == pytest.approx(1e12 + 0.01 * Y.mean(), abs=2e-4)
    assert np.corrcoef(model.predict(X) - 1e12, Y)[0, 1] > 0.8


def test_location_and_scale_by_hand():
    ones, weight = np.ones(4), np.array([1.0, 2.0, 0.0, 1.0])
    y = np.array([[1e12 + 1.0, 0.1], [1e12 + 2.0, 0.1], [7.0, 3.0], [1e12 + 3.0, 0.1]])
    mean, scale = location_and_scale(y, weight)
    np.testing.assert_array_equal(mean, [1e12 + 2.0, 0.1])
    np.testing.assert_allclose(scale, [np.sqrt(2 / 3), 0.1 / (16 * np.sqrt(6))], rtol=1e-14)
    up = np.nextafter(0.3, 1)
    mean, scale = location_and_scale(np.array([[0.3], [up], [0.3], [up]]), ones)
    np.testing.assert_allclose(scale, up / (16 * np.sqrt(6)))  # rounding errors do not count
    mean, scale = location_and_scale(np.array([[1e300], [np.nextafter(1e300, 2e300)]]), ones[:2])
    assert scale == pytest.approx(0.125 * np.nextafter(1e300, 2e300))


@pytest.mark.filterwarnings("ignore:5 of the observations are copies of others:UserWarning")
def test_known_noise_of_zeros_is_no_known_noise(model):
    more, zeros = X[:5] + 0.0, np.zeros(N + 5)
    rows, y = np.r_[X, more], np.r_[Y, Y[:5]]
    plain = clone(model).fit(rows, y)
    model.fit(rows, y, known_noise=zeros)
    np.testing.assert_array_equal(model.predict(X, True), plain.predict(X, True))
    assert model.loo_score_ == plain.loo_score_
    assert repr(model) == repr(plain)
