"""skpro: its own checks, and every number against the distribution of the estimator."""

import numpy as np
import pytest

pytest.importorskip("skpro", reason="needs the extra skpro: make integrations-test")

import pandas as pd
from scipy.integrate import quad
from skpro.metrics import CRPS, LogLoss
from skpro.regression.adapters.sklearn import SklearnProbaReg
from skpro.utils import check_estimator

from tolerances import CHAINED, DENSE, HANDFUL, ROUNDING, SUMMED
from triegp import BinaryTreeGPRegressor, PredictiveDistribution, TrieGPRegressor
from triegp.metrics import crps, nll
from triegp.models.transformed import TransformedDistribution
from triegp.models.transforms import Log
from triegp.skpro import TrieDistribution, TrieProbaRegressor

QUICK = {"n_members": 3, "n_candidates": 4, "random_state": 0, "outside": "clip"}


def make_frames(n=300, n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.random((n, 2)), columns=["a", "b"], index=np.arange(n)[::-1] + 7)
    f = np.sin(6 * X["a"]) + X["b"]
    noise = (0.05 + 0.3 * X["b"]).to_numpy()[:, None] * rng.standard_t(4, (n, n_targets))
    y = pd.DataFrame(f.to_numpy()[:, None] + noise, index=X.index)
    return X, y.set_axis([f"y{k}" for k in range(n_targets)], axis=1)


def make_distribution(*, transformed=False):
    """Two columns and three rows, of components that differ in everything."""
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(2):
        weights = rng.dirichlet(np.ones(3), 3).T
        part = PredictiveDistribution(weights, rng.normal(size=(3, 3)), rng.uniform(0.1, 1, (3, 3)))
        parts.append(TransformedDistribution(part, Log(0.2)) if transformed else part)
    return TrieDistribution(parts, index=[3, 1, 2], columns=["p", "q"]), parts


@pytest.mark.parametrize("kind", [TrieDistribution, TrieProbaRegressor])
@pytest.mark.filterwarnings("ignore:.*numerically exact implementation of the 'pdfnorm'")
@pytest.mark.filterwarnings("ignore:.* of the rows lie outside the training box")
def test_skpros_own_checks(kind):
    np.random.seed(0)  # noqa: NPY002 - skpro draws by numpy's global state
    found = check_estimator(kind, raise_exceptions=True, verbose=False)
    assert len(found) > 50
    assert set(found.values()) == {"PASSED"}


@pytest.mark.parametrize("transformed", [False, True])
def test_entries_are_those_of_the_distributions(transformed):
    d, parts = make_distribution(transformed=transformed)
    x = pd.DataFrame([[0.3, 0.4], [0.5, 1.6], [1.7, 0.2]], index=d.index, columns=d.columns)
    for method, ours in (("pdf", "pdf"), ("log_pdf", "log_prob"), ("cdf", "cdf")):
        expected = np.column_stack(
            [getattr(part, ours)(x.to_numpy()[:, k]) for k, part in enumerate(parts)]
        )
        np.testing.assert_allclose(getattr(d, method)(x), expected, rtol=HANDFUL)
        # Rows and columns in another order are found by name, single entries, too.
        turned = x.iloc[[2, 0], [1]]
        found = getattr(d, method)(turned)
        np.testing.assert_allclose(found, expected[[2, 0]][:, [1]], rtol=HANDFUL)
        assert getattr(d.iat[1, 1], method)(1.6) == pytest.approx(expected[1, 1], rel=HANDFUL)
    np.testing.assert_array_equal(d.mean(), np.column_stack([part.mean() for part in parts]))
    np.testing.assert_array_equal(d.var(), np.column_stack([part.var() for part in parts]))


@pytest.mark.parametrize("transformed", [False, True])
def test_quantiles_with_a_level_per_entry(transformed):
    d, _ = make_distribution(transformed=transformed)
    p = np.array([[0.1, 0.9], [0.1, 0.999], [0.5, 1e-6]])
    np.testing.assert_allclose(d.cdf(d.ppf(p)), p, rtol=DENSE)
    ends = d.ppf(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 1.5]])).to_numpy()
    low = 0.0 if transformed else -np.inf
    np.testing.assert_array_equal(ends[:2], [[low, np.inf], [np.inf, low]])
    assert np.isnan(ends[2, 1])
    found = d.quantile([0.2, 0.7])
    np.testing.assert_array_equal(found["q"][0.7], d.ppf(0.7)["q"])


def test_energy_by_quadrature():
    """E|X - x| and E|X - X'|, from the distribution function alone, summed over columns."""
    d, parts = make_distribution()
    x = np.array([[0.3, -0.4], [0.5, 1.6], [-1.7, 0.2]])
    for row in range(3):
        at, own = 0.0, 0.0
        for k, part in enumerate(parts):
            one = part.select([row])

            def below(t, one=one):
                return float(one.cdf(t)[0])

            at += quad(below, -12, x[row, k], limit=200)[0]
            at += quad(lambda t, f=below: 1 - f(t), x[row, k], 12, limit=200)[0]
            own += quad(lambda t, f=below: 2 * f(t) * (1 - f(t)), -12, 12, limit=200)[0]
        assert d.energy(x).iloc[row, 0] == pytest.approx(at, rel=SUMMED)
        assert d.energy().iloc[row, 0] == pytest.approx(own, rel=SUMMED)


def test_energy_of_transformed_targets_by_samples():
    """100,000 samples, within four standard errors, at rows without long tails."""
    part = PredictiveDistribution(
        np.array([0.4, 0.6]), np.array([[0.0], [0.5]]), np.full((2, 1), 0.02)
    )
    found = TransformedDistribution(part, Log(0.0))
    d = TrieDistribution([found])
    drawn = found.sample(200_000, random_state=0)[0]
    for exact, some in (
        (d.energy(1.3), np.abs(drawn - 1.3)),
        (d.energy(), np.abs(drawn[:100_000] - drawn[100_000:])),
    ):
        assert abs(exact - some.mean()) < 4 * some.std() / np.sqrt(some.size)


@pytest.mark.parametrize("transformed", [False, True])
def test_skpros_metrics_are_ours(transformed):
    d, parts = make_distribution(transformed=transformed)
    y = pd.DataFrame([[0.3, 0.4], [0.5, 1.6], [1.7, 0.2]], index=d.index, columns=d.columns)
    for k, name in enumerate(d.columns):
        own, given = d.loc[:, [name]], y[[name]]
        exact = crps(y[name].to_numpy(), parts[k])
        assert CRPS()(given, own) == pytest.approx(exact, rel=CHAINED)
        assert LogLoss()(given, own) == pytest.approx(
            nll(y[name].to_numpy(), parts[k]), rel=ROUNDING
        )


def test_samples_follow_numpys_seed_and_the_distribution():
    d, parts = make_distribution()
    np.random.seed(3)  # noqa: NPY002 - skpro draws by numpy's global state
    first = d.sample(4_000)
    np.random.seed(3)  # noqa: NPY002
    pd.testing.assert_frame_equal(first, d.sample(4_000))
    assert first.index.get_level_values(1)[:3].tolist() == [3, 1, 2]
    error = np.sqrt(d.var() / 4_000)
    mean = first.groupby(level=1, sort=False).mean()
    assert (np.abs(mean - d.mean()) < 4 * error).all(axis=None)
    assert first.loc[0].shape == d.sample().shape == (3, 2)
    assert parts[0].n_rows == 3


def test_bad_distributions():
    _, parts = make_distribution()
    for call, said in (
        (lambda: TrieDistribution([3.0]), "one per column, got float"),
        (lambda: TrieDistribution([]), "got nothing"),
        (lambda: TrieDistribution([parts[0], parts[1].select([0])]), "same rows"),
        (lambda: TrieDistribution(parts, index=[1, 2]), "lengths"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("transform", ["identity", "yeo-johnson"])
def test_regressor_against_the_estimator(n_targets, transform):
    X, y = make_frames(200, n_targets)
    estimator = BinaryTreeGPRegressor(**QUICK, target_transform=transform)
    model = TrieProbaRegressor(estimator).fit(X, y)
    new = X.iloc[:20] * 0.9 + 0.05
    own = estimator.fit(X, y.to_numpy()[:, 0] if n_targets == 1 else y)
    mean, std = (part.reshape(20, -1) for part in own.predict(new, return_std=True))
    np.testing.assert_array_equal(model.predict(new), mean)
    np.testing.assert_array_equal(model.predict_var(new), std**2)
    d = model.predict_proba(new)
    np.testing.assert_allclose(d.mean(), mean, rtol=ROUNDING)
    assert d.columns.tolist() == y.columns.tolist()
    assert d.index.tolist() == new.index.tolist()
    ends = own.predict_interval(new, 0.8).reshape(20, 2, -1)
    found = model.predict_interval(new, 0.8)
    for k, name in enumerate(y.columns):
        np.testing.assert_allclose(found[name][0.8], ends[:, :, k], rtol=ROUNDING)


def test_update_inserts_rows():
    X, y = make_frames(200)
    model = TrieProbaRegressor(BinaryTreeGPRegressor(**QUICK, refit=False)).fit(X[:150], y[:150])
    model.update(X[150:], y[150:])
    own = BinaryTreeGPRegressor(**QUICK, refit=False).fit(X[:150], y["y0"][:150])
    own.partial_fit(X[150:], y["y0"][150:])
    np.testing.assert_array_equal(model.predict(X)["y0"], own.predict(X))
    assert model.estimator_.n_rows_ == 200


def test_other_estimators_are_refused():
    X, y = make_frames(20)
    with pytest.raises(ValueError, match="one of triegp, got Other"):
        TrieProbaRegressor(type("Other", (), {})()).fit(X, y)


def test_forests_and_arrays():
    X, y = make_frames(60)
    forest = TrieGPRegressor(n_trees=4, max_iter=5, random_state=0)
    model = TrieProbaRegressor(forest).fit(X.to_numpy(), y.to_numpy())
    assert model.predict_proba(X.to_numpy()[:4]).shape == (4, 1)


def test_gaps_and_categories():
    X, y = make_frames(120)
    kinds = np.arange(120) % 3
    X["kind"] = pd.Categorical(np.array(["r", "g", "b"])[kinds])
    X.iloc[3, 0] = np.nan
    y["y0"] += 5.0 * kinds
    model = TrieProbaRegressor(BinaryTreeGPRegressor(**QUICK)).fit(X, y)
    own = BinaryTreeGPRegressor(**QUICK).fit(X, y["y0"])
    np.testing.assert_array_equal(model.predict(X)["y0"], own.predict(X))
    assert np.corrcoef(model.predict(X)["y0"], kinds)[0, 1] > 0.9


def test_skpros_adapter_has_the_two_moments():
    """SklearnProbaReg: a Gaussian with our mean and deviation, without the tails."""
    X, y = make_frames()
    estimator = BinaryTreeGPRegressor(**QUICK)
    model = SklearnProbaReg(estimator).fit(X, y)
    normal = model.predict_proba(X.iloc[:10])
    mean, std = estimator.fit(X, y["y0"]).predict(X.iloc[:10], return_std=True)
    np.testing.assert_allclose(normal.mean()["y0"], mean, rtol=ROUNDING)
    np.testing.assert_allclose(np.sqrt(normal.var()["y0"]), std, rtol=ROUNDING)
    whole = TrieProbaRegressor(estimator).fit(X, y).predict_proba(X.iloc[:10])
    assert (np.abs(whole.ppf(0.999) - normal.ppf(0.999)) > 0.05 * std[:, None]).all(axis=None)
