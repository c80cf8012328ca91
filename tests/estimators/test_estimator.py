"""The base of the estimators serves anything fitted: here the simplest model there is."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import triegp
from tolerances import CHAINED, ROUNDING
from triegp.estimators import base
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.parameters import fit_encoders
from triegp.files.codec import RULES, VARIANTS, Rule
from triegp.files.container import ModelFileError
from triegp.mixture.members import Ensemble
from triegp.models.distribution import PredictiveDistribution
from triegp.models.interface import Fitted, Trained

Floats = npt.NDArray[np.float64]

NOISE = 0.25


@dataclass(frozen=True, eq=False)
class Constant:
    """y = c + noise, c of the prior N(0, 1). y: (n, k), weight: (n,) or None."""

    y: Floats
    weight: Floats | None

    on_host = True

    @property
    def n_targets(self):
        return self.y.shape[1]

    @property
    def n_rows(self):
        return self.y.shape[0]

    def count(self):
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def moments(self, column, count):
        precision = 1 + count.sum() / NOISE
        y = np.ascontiguousarray(self.y[:, column])  # sums depend on the layout
        return count @ y / NOISE / precision, 1 / precision

    @property
    def n_summed(self):
        return 0

    @property
    def n_observations(self):
        return self.n_rows

    def read(self, X, *, var):
        return X

    def predict(self, X, column, *, var, latent):
        mean, cov = self.moments(column, self.count())
        spread = var * (cov + (not latent) * NOISE)
        ones = np.ones((1, X.shape[0]))
        return PredictiveDistribution(np.ones(1), mean * ones, spread * ones)

    def predict_covariance(self, X, column, *, latent):
        mean, var = self.moments(column, self.count())
        m = X.shape[0]
        return np.full(m, mean), np.full((m, m), var) + (not latent) * NOISE * np.eye(m)

    def sample(self, X, column, n_samples, rng, *, latent):
        mean, cov = self.predict_covariance(X, column, latent=latent)
        return rng.multivariate_normal(mean, cov, size=n_samples, method="eigh").T

    def leave_one_out(self, column, observations=None):
        count = self.count()
        others = [np.where(np.arange(self.n_rows) == i, 0.0, count) for i in range(self.n_rows)]
        mean, var = np.transpose([self.moments(column, rest) for rest in others])
        if observations is not None:
            unused = np.where(observations.index < 0, np.nan, 0.0)
            mean, var = mean[observations.index] + unused, var[observations.index] + unused
        return PredictiveDistribution(np.ones(1), mean[None], var[None] + NOISE)

    def observed(self, column):
        return self.y[:, column], self.weight

    def log_evidence(self, column):
        cov = 1 + NOISE * np.eye(self.n_rows)
        return stats.multivariate_normal(cov=cov).logpdf(self.y[:, column])

    def check(self, rows):
        if np.abs(rows.y).max() > 100:
            raise ValueError("y must not be so large")

    def insert(self, rows):
        old, new = self.count(), rows.weight
        if self.weight is None and new is None:
            weight = None
        else:
            weight = np.append(old, np.ones(rows.n_rows) if new is None else new)
        return replace(self, y=np.concatenate([self.y, rows.y]), weight=weight)


RULES[Constant] = Rule("y:n,k weight:n")
VARIANTS[Fitted]["Constant"] = __name__


class ConstantRegressor(TreeGPRegressor):
    _by_var = False
    _by_folds = False
    _kind = "Constant"

    def __init__(
        self,
        n_steps=3,
        outside="clip",
        keep_rows=True,
        refit="auto",
        multi_target="own",
        weights="frequency",
        time_budget=None,
        on_interrupt="raise",
        engine="cpu",
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.n_steps = n_steps
        self.outside = outside
        self.keep_rows = keep_rows
        self.refit = refit
        self.multi_target = multi_target
        self.weights = weights
        self.time_budget = time_budget
        self.on_interrupt = on_interrupt
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _settings(self):
        if self.n_steps < 1:
            raise ValueError(f"n_steps must be 1 or more, got {self.n_steps}")
        return {"n_steps": self.n_steps}

    def _encoders(self, rows, settings, layout):
        options = {"scaling": "minmax", "precision": 4, "outside": self.outside}
        return fit_encoders(rows.features, rows.weight, **options)

    def _variants(self, settings):
        return []

    def _shares(self, fitted, column):
        raise NotImplementedError  # only calibration asks for them

    def _train(self, encoders, rows, settings, run, whole=None):
        assert whole is None
        done = 0
        while done < settings["n_steps"] and not run.watch.stop:
            done += 1
            run.progress("fits", done, settings["n_steps"])
        stopped = done < settings["n_steps"]
        return Trained(Constant(rows.y, rows.weight), stopped, done)


rng = np.random.default_rng(0)
X = rng.random((40, 2))
Y = 5 + 3 * rng.standard_normal((40, 2))
WEIGHT = rng.integers(0, 3, 40).astype(float)
NEW = rng.random((7, 2))
MANY = [{"multi_target": "own"}, {"multi_target": "shared"}]


def by_hand(y, mean, scale):
    """Mean, and variance of a new observation, in units of y."""
    precision = 1 + y.size / NOISE
    return mean + scale * ((y - mean) / scale).sum() / NOISE / precision, scale**2 * (
        1 / precision + NOISE
    )


@pytest.mark.parametrize("options", MANY)
def test_every_question_is_answered_in_the_units_of_y(options):
    model = ConstantRegressor(**options).fit(X, Y)
    assert len(model._stream.fitted) == (2 if options["multi_target"] == "own" else 1)
    hand = [by_hand(y, y.mean(), y.std(ddof=1)) for y in Y.T]
    means, variances = np.array(hand).T
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, np.tile(means, (7, 1)), rtol=ROUNDING)
    np.testing.assert_allclose(std**2, np.tile(variances, (7, 1)), rtol=ROUNDING)
    np.testing.assert_array_equal(model.predict(NEW), mean)
    _, cov = model.predict(NEW, return_cov=True)
    np.testing.assert_allclose(cov[0, 0], variances, rtol=ROUNDING)
    low_high = model.predict_interval(NEW, 0.8)
    normal = stats.norm(means, np.sqrt(variances))
    np.testing.assert_allclose(low_high[0], [normal.ppf(0.1), normal.ppf(0.9)], rtol=CHAINED)
    np.testing.assert_allclose(model.log_density(X, Y), normal.logpdf(Y), rtol=CHAINED)
    samples = model.sample_y(NEW, 20_000)
    assert samples.shape == (7, 2, 20_000)
    error = np.sqrt(variances / 20_000)
    assert (np.abs(samples.mean(axis=-1) - means) < 5 * error).all()
    assert [part.means.shape for part in model.predict_distribution(NEW)] == [(1, 7)] * 2


@pytest.mark.parametrize("options", MANY)
def test_leave_one_out_and_evidence_in_the_units_of_y(options):
    model = ConstantRegressor(**options).fit(X, Y)
    scale, centre = Y.std(axis=0, ddof=1), Y.mean(axis=0)
    hand = [by_hand(np.delete(Y[:, t], 3), centre[t], scale[t]) for t in range(2)]
    mean, std = model.loo_predict()
    np.testing.assert_allclose(np.stack([mean[3], std[3] ** 2], axis=1), hand, rtol=ROUNDING)
    density = stats.norm(mean, std).logpdf(Y)
    np.testing.assert_allclose(model.loo_log_density(), density, rtol=CHAINED)
    assert model.loo_score_ == pytest.approx(density.sum(axis=1).mean(), rel=CHAINED)
    cov = 1 + NOISE * np.eye(40)
    evidence = [
        stats.multivariate_normal(np.full(40, centre[t]), scale[t] ** 2 * cov).logpdf(Y[:, t])
        for t in range(2)
    ]
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=CHAINED)


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_rows_are_added_when_asked_for_and_checked_before(weight):
    model = ConstantRegressor().fit(X, Y, weight)
    for k in range(3):
        model.partial_fit(X[k : k + 1], Y[k : k + 1])
    assert len(model._stream.waiting) == 3
    with pytest.raises(ValueError, match="so large"):
        model.partial_fit(X[:1], 1e9 * Y[:1])
    n_rows = 43 if weight is None else np.count_nonzero(weight) + 3
    assert [part.n_rows for part in model._inserted().fitted] == [n_rows, n_rows]
    assert model.loo_predict()[0].shape == (43, 2)
    assert model.rows_.X.shape == (43, 2)
    weight = np.ones(40) if weight is None else weight
    both = np.concatenate([Y, Y[:3]])
    # Weights above 1 without repeats that differ are relative: their mean is 1.
    count = np.append(weight, np.ones(3)) / weight[weight > 0].mean()
    standard = (both - model.target_mean_) / model.target_scale_
    expected = count @ standard / NOISE / (1 + count.sum() / NOISE)
    got = (model.predict(NEW[:1])[0] - model.target_mean_) / model.target_scale_
    np.testing.assert_allclose(got, expected, rtol=CHAINED, atol=ROUNDING)
    model.refresh()
    again = ConstantRegressor().fit(np.concatenate([X, X[:3]]), both, np.append(weight, np.ones(3)))
    np.testing.assert_allclose(model.predict(NEW), again.predict(NEW), rtol=ROUNDING)


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("options", MANY)
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_files(options, weight, tmp_path, monkeypatch):
    model = ConstantRegressor(**options, random_state=3).fit(X, Y, weight)
    model.partial_fit(X[:2], Y[:2])
    with pytest.raises(TypeError, match="got ConstantRegressor"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with monkeypatch.context() as known:
        known.setitem(base.ESTIMATORS, "ConstantRegressor", __name__)
        model.save(tmp_path / "m", training_data=True)
    with pytest.raises(ModelFileError, match="BinaryTreeGPRegressor"):
        triegp.load(tmp_path / "m")
    monkeypatch.setitem(base.ESTIMATORS, "ConstantRegressor", __name__)
    loaded = triegp.load(tmp_path / "m")
    assert type(loaded) is ConstantRegressor
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    assert loaded.loo_score_ == model.loo_score_
    assert loaded.n_evaluations_ == model.n_evaluations_
    np.testing.assert_array_equal(loaded.rows_.X, model.rows_.X)


def test_the_number_of_fits_and_what_ended_them():
    assert ConstantRegressor(n_steps=4).fit(X, Y).n_evaluations_ == 8
    hurried = ConstantRegressor(time_budget=1e-9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hurried.fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert caught[0].filename == __file__
    assert "time_budget of 1e-09 s" in str(caught[0].message)
    assert hurried.stopped_early_
    assert hurried.n_evaluations_ == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"outside": "nowhere"}, "outside"),
        ({"keep_rows": 1}, "keep_rows"),
        ({"refit": True}, "refit"),
        ({"multi_target": "all"}, "multi_target"),
        ({"weights": "many"}, "weights"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_are_checked_by_fit_and_nothing_is_set(options, match):
    model = ConstantRegressor(**options)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y)
    assert set(vars(model)) == set(clone(model).get_params())
    with pytest.raises(NotFittedError):
        model.predict(NEW)


def test_the_base_is_no_estimator():
    with pytest.raises(TypeError, match="abstract"):
        TreeGPRegressor()


def test_an_ensemble_says_what_it_has_seen():
    quick = {"n_members": 2, "n_candidates": 2, "max_iter": 2, "random_state": 0}
    weight = 0.5 * WEIGHT  # at most 1: fractions of observations, not copies
    model = triegp.BinaryTreeGPRegressor(**quick, multi_target="shared").fit(X, Y, weight)
    (ensemble,) = model.partial_fit(X[:5], Y[:5]).ensembles_
    assert isinstance(ensemble, Ensemble)
    kept = np.flatnonzero(WEIGHT)
    assert (ensemble.n_targets, ensemble.n_rows) == (2, kept.size + 5)
    index = model._stream.observations.index
    assert (index[:40] >= 0).tolist() == (WEIGHT > 0).tolist()
    for column in range(2):
        y, weight = ensemble.observed(column)
        seen = np.append(Y[kept, column], Y[:5, column])
        unit = model.target_mean_[column], model.target_scale_[column]
        where = index[np.append(kept, 40 + np.arange(5))]
        np.testing.assert_allclose(unit[0] + unit[1] * y[where], seen, rtol=ROUNDING)
        np.testing.assert_array_equal(weight[where], np.append(0.5 * WEIGHT[kept], np.ones(5)))
