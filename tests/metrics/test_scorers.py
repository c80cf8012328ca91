"""Scorers in scikit-learn: cross-validation, searches, pipelines, metadata; what they refuse."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from triegp import BinaryTreeGPRegressor, TrieGPRegressor, metrics
from triegp.metrics import (
    CalibrationScorer,
    IntervalScorer,
    PinballScorer,
    calibration_scorer,
    crps_scorer,
    interval_scorer,
    nll_scorer,
    pinball_scorer,
)

rng = np.random.default_rng(0)
X = rng.random((120, 2))
Y = np.sin(5 * X[:, 0]) + 0.2 * rng.standard_normal(120)
Y2 = np.stack([Y, Y**2 + 0.1 * rng.standard_normal(120)], axis=1)
WEIGHT = rng.integers(0, 3, 120).astype(float)
SCORERS = {
    "nll": nll_scorer,
    "crps": crps_scorer,
    "pinball": pinball_scorer,
    "interval": interval_scorer,
    "calibration": calibration_scorer,
}


def small(**options):
    settings = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0, "n_jobs": 1}
    return BinaryTreeGPRegressor(**(settings | options))


@pytest.fixture(scope="module")
def model():
    return small().fit(X[:80], Y[:80])


def losses(found, y, weight=None):
    levels = (0.05, 0.5, 0.95)
    return {
        "nll": metrics.nll(y, found, sample_weight=weight),
        "crps": metrics.crps(y, found, sample_weight=weight),
        "pinball": metrics.pinball(y, found.quantile(levels), levels, sample_weight=weight),
        "interval": metrics.interval_score(y, found.interval(0.9), 0.9, sample_weight=weight),
        "calibration": metrics.calibration_error(y, found, sample_weight=weight),
    }


@pytest.mark.parametrize("weight", [None, WEIGHT[80:]], ids=["no weights", "weights"])
def test_scorers_are_minus_the_scores(model, weight):
    expected = losses(model.predict_distribution(X[80:]), Y[80:], weight)
    for name, scorer in SCORERS.items():
        assert scorer(model, X[80:], Y[80:], sample_weight=weight) == -expected[name]
        assert isinstance(scorer(model, X[80:], Y[80:]), float)


def test_both_estimators_and_transformed_targets():
    positive = np.exp(Y)
    for other in (
        small(target_transform="log"),
        TrieGPRegressor(n_trees=4, max_iter=3, random_state=0, n_jobs=1),
    ):
        other.fit(X[:80], positive[:80])
        expected = losses(other.predict_distribution(X[80:]), positive[80:])
        for name, scorer in SCORERS.items():
            assert scorer(other, X[80:], positive[80:]) == -expected[name]


def test_several_targets():
    model = small().fit(X[:80], Y2[:80])
    each = [losses(one, Y2[80:, t]) for t, one in enumerate(model.predict_distribution(X[80:]))]
    for name, scorer in SCORERS.items():
        mean = np.mean([part[name] for part in each])
        assert scorer(model, X[80:], Y2[80:]) == pytest.approx(-mean)


def test_parameters_of_scorers(model):
    found, y = model.predict_distribution(X[80:]), Y[80:]
    half = metrics.interval_score(y, found.interval(0.5), 0.5)
    assert IntervalScorer(coverage=0.5)(model, X[80:], y) == -half
    assert IntervalScorer(0.5)(model, X[80:], y) == -half
    median = metrics.pinball(y, found.quantile(0.5), 0.5)
    assert PinballScorer(levels=(0.5,))(model, X[80:], y) == pytest.approx(-median)
    error = metrics.calibration_error(y, found, levels=(0.5, 0.9))
    assert CalibrationScorer(levels=(0.5, 0.9))(model, X[80:], y) == -error
    with pytest.raises(ValueError, match="coverage must"):
        IntervalScorer(1.5)(model, X[80:], y)


# Scikit-learn


def test_cross_validation():
    found = cross_val_score(small(), X, Y, cv=3, scoring=nll_scorer, error_score="raise")
    assert found.shape == (3,)
    several = cross_validate(small(), X, Y, cv=3, scoring=SCORERS, error_score="raise")
    np.testing.assert_array_equal(several["test_nll"], found)
    assert all(np.isfinite(several[f"test_{name}"]).all() for name in SCORERS)


def test_searches_choose_by_the_score():
    grid = {"noise": [1e-5, 10.0]}
    search = GridSearchCV(small(mixture="stacking"), grid, scoring=nll_scorer, cv=3)
    search.fit(X, Y)
    table = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"noise": 1e-5}
    assert table[0] > table[1]
    assert nll_scorer(search, X, Y) == nll_scorer(search.best_estimator_, X, Y)
    several = GridSearchCV(small(), {"n_members": [1, 2]}, scoring=SCORERS, refit="crps", cv=3)
    several.fit(X, Y)
    assert several.best_index_ == int(np.argmax(several.cv_results_["mean_test_crps"]))


def test_pipelines_transform_their_rows():
    before = StandardScaler().fit(X[:80])
    alone = small().fit(before.transform(X[:80]), Y[:80])
    expected = crps_scorer(alone, before.transform(X[80:]), Y[80:])
    pipe = make_pipeline(StandardScaler(), small()).fit(X[:80], Y[:80])
    assert crps_scorer(pipe, X[80:], Y[80:]) == expected
    nested = make_pipeline(StandardScaler(), make_pipeline("passthrough", small()))
    assert crps_scorer(nested.fit(X[:80], Y[:80]), X[80:], Y[80:]) == expected
    single = make_pipeline(small()).fit(X[:80], Y[:80])
    assert crps_scorer(single, X[80:], Y[80:]) == crps_scorer(single[-1], X[80:], Y[80:])
    assert cross_val_score(clone(pipe), X, Y, cv=3, scoring=nll_scorer).shape == (3,)


def test_sample_weights_are_routed():
    asks = nll_scorer.set_score_request(sample_weight=True)
    assert nll_scorer.sample_weight_request is None
    with config_context(enable_metadata_routing=True):
        plain = small().set_fit_request(sample_weight=False)
        options = {"cv": 3, "params": {"sample_weight": WEIGHT}, "error_score": "raise"}
        routed = cross_validate(plain, X, Y, scoring=asks, **options)["test_score"]
        both = {"a": asks, "b": nll_scorer.set_score_request(sample_weight=False)}
        several = cross_validate(plain, X, Y, scoring=both, **options)
    np.testing.assert_array_equal(several["test_a"], routed)
    plainly = cross_validate(small(), X, Y, scoring=nll_scorer, cv=3)["test_score"]
    np.testing.assert_array_equal(several["test_b"], plainly)
    assert (plainly != routed).all()
    third = slice(0, 40)
    model = small().fit(X[40:], Y[40:])
    found = model.predict_distribution(X[third])
    weighted = -metrics.nll(Y[third], found, sample_weight=WEIGHT[third])
    assert routed[0] == pytest.approx(weighted)


def test_scorers_can_be_pickled_copied_and_shown(model):
    for scorer in (*SCORERS.values(), IntervalScorer(0.5)):
        again = pickle.loads(pickle.dumps(scorer))
        assert again == scorer
        assert again(model, X[80:], Y[80:]) == scorer(model, X[80:], Y[80:])
        assert eval(repr(scorer), vars(metrics)) == scorer
    assert repr(nll_scorer) == "NllScorer()"
    assert repr(IntervalScorer(0.5)) == "IntervalScorer(coverage=0.5)"
    assert [scorer.__name__ for scorer in SCORERS.values()] == [f"neg_{name}" for name in SCORERS]


# What is refused


def test_estimators_without_distributions():
    for other in (LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())):
        other.fit(X, Y)
        with pytest.raises(TypeError, match=r"predict_distribution, .* got LinearRegression"):
            nll_scorer(other, X, Y)
    with pytest.raises(TypeError, match="got StandardScaler"):
        crps_scorer(StandardScaler().fit(X), X, Y)
