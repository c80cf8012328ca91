"""skore: what its reports show of our models, and how to have no importances by impurity."""

import numpy as np
import pytest

skore = pytest.importorskip("skore", reason="needs skore: make integrations-test")

import pandas as pd  # noqa: E402
from sklearn.compose import TransformedTargetRegressor  # noqa: E402

from triegp import BinaryTreeGPRegressor  # noqa: E402
from triegp.metrics import crps_scorer, nll_scorer  # noqa: E402


def make_frames(n=300):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((n, 3)), columns=["wave", "slope", "none"])
    y = np.sin(6 * X["wave"]) + 0.5 * X["slope"] + 0.1 * rng.standard_normal(n)
    return X, y


MODEL = BinaryTreeGPRegressor(n_members=3, n_candidates=4, random_state=0, outside="clip")


@pytest.fixture(scope="module")
def report():
    return skore.evaluate(MODEL, *make_frames(), splitter=0.3)


@pytest.fixture(scope="module")
def wrapped():
    hidden = TransformedTargetRegressor(MODEL, check_inverse=False)
    return skore.evaluate(hidden, *make_frames(), splitter=0.3)


def check(report, code, **options):
    found = report.checks.summarize(fast_mode=True, **options).frame(section="all")
    return found.set_index("code").loc[code, "section"]


def test_impurity_decrease_is_our_share_of_variance(report):
    """skore takes any `feature_importances_` for impurity decrease; the numbers are ours."""
    shown = report.inspection.impurity_decrease().frame().set_index("feature")["importance"]
    np.testing.assert_array_equal(shown, report.estimator_.feature_importances_)
    assert check(report, "SKD007") == "tip"
    assert check(report, "SKD007", ignore=["SKD007"]) == "ignored"


def test_a_wrapper_has_no_importances_by_impurity(report, wrapped):
    assert not hasattr(wrapped.inspection, "impurity_decrease")
    assert check(wrapped, "SKD007") == "not_applicable"
    ours = wrapped.estimator_.regressor_.importances_.explained
    np.testing.assert_array_equal(ours, report.estimator_.feature_importances_)
    assert wrapped.metrics.rmse() == pytest.approx(report.metrics.rmse(), rel=1e-12)


def test_permutation_importances(report):
    """By R2 and by CRPS, on test rows; each against scikit-learn's own."""
    from sklearn.inspection import permutation_importance

    for metric in ("r2", crps_scorer):
        shown = report.inspection.permutation_importance(metric=metric, seed=0).frame()
        exact = permutation_importance(
            report.estimator_, report.X_test, report.y_test, scoring=metric, random_state=0
        )
        np.testing.assert_allclose(shown["value_mean"], exact.importances_mean, rtol=1e-12)
        assert shown.set_index("feature")["value_mean"].idxmax() == "wave"


def test_our_scores_in_the_summary(report):
    report.metrics.add(crps_scorer, name="neg_crps")
    report.metrics.add(nll_scorer, name="neg_nll")
    shown = report.metrics.summarize().frame()
    for scorer, name in ((crps_scorer, "neg_crps"), (nll_scorer, "neg_nll")):
        own = scorer(report.estimator_, report.X_test, report.y_test)
        assert shown[name] == pytest.approx(own, rel=1e-12)
