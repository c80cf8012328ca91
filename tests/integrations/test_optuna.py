"""The sampler: Optuna's own checks, search spaces, pending and failed trials, seeds."""

import pickle

import numpy as np
import pytest

optuna = pytest.importorskip("optuna", reason="needs the extra optuna: make integrations-test")

from optuna.distributions import (  # noqa: E402
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial  # noqa: E402
from sklearn.base import clone  # noqa: E402

import triegp.optuna.sampler  # noqa: E402
from tolerances import ROUNDING  # noqa: E402
from triegp import BinaryTreeGPRegressor, TrieGPRegressor  # noqa: E402
from triegp.models.improvement import log_improvement  # noqa: E402
from triegp.optuna import TrieSampler  # noqa: E402
from triegp.optuna.space import decode, draw, encode, mutate  # noqa: E402

QUICK = {"n_trees": 2, "max_iter": 5, "calibrated": False}
SPACE = {
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "share": FloatDistribution(-0.2, 0.7),
    "grid": FloatDistribution(0.0, 0.5, step=0.05),
    "depth": IntDistribution(2, 11, step=3),
    "width": IntDistribution(1, 300, log=True),
    "kind": CategoricalDistribution(["a", None, 3]),
}


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def quick(**options):
    return TrieSampler(TrieGPRegressor(**QUICK), n_candidates=100, seed=0, **options)


def objective(trial):
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    grid = trial.suggest_float("grid", 0.0, 0.5, step=0.05)
    width = trial.suggest_int("width", 1, 300, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    loss = (np.log10(rate) + 2.5) ** 2 + 10 * (grid - 0.2) ** 2 + (np.log2(width) - 5) ** 2 / 4
    return loss + {"a": 1.0, "b": 0.0, "c": 2.0}[kind]


def test_optunas_own_checks():
    """Those of `optuna.testing` for samplers with a relative search space and one objective."""
    suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="older Optuna")
    cases = suite.BasicSamplerTestCase(), suite.SingleOnlySamplerTestCase()

    def make():
        return quick(n_startup_trials=1)

    for one in (FloatDistribution(-10, 10, step=0.1), FloatDistribution(1e-7, 1.0, log=True)):
        cases[0].test_float(make, one)
    cases[0].test_int(make, IntDistribution(1, 100, log=True))
    cases[0].test_categorical(make, (1, "a"))
    cases[0].test_conditional_sample_independent(make)
    cases[0].test_nan_objective_value(make)
    cases[0].test_partial_fixed_sampling(make)
    cases[0].test_sample_single_distribution(make)
    cases[0].test_conditional_parameter_objective(make)
    for low, high in ((0, 5), (0, 20), (20, 30)):
        cases[0].test_dynamic_range_objective(make, low, high)
    for suggest in (
        lambda t: t.suggest_float("x", 0, 10, step=0.5),
        lambda t: t.suggest_int("x", 1, 10, log=True),
        lambda t: t.suggest_categorical("x", [0, 1, 2]),
    ):
        cases[0].test_single_parameter_objective(make, suggest)
    cases[1].test_raise_error_for_samplers_during_multi_objectives(make)


def test_rows_are_inside_and_come_back():
    rng = np.random.default_rng(0)
    rows = draw(SPACE, 500, rng)
    rows = np.concatenate([rows, mutate(SPACE, rows[0], 500, rng)])
    params = [decode(SPACE, row) for row in rows]
    for name, one in SPACE.items():
        values = [own[name] for own in params]
        assert all(one._contains(one.to_internal_repr(value)) for value in values)
        if isinstance(one, IntDistribution):
            assert {type(value) for value in values} == {int}
            assert all((value - one.low) % one.step == 0 for value in values)
    np.testing.assert_allclose(encode(SPACE, params), rows, rtol=0, atol=ROUNDING)
    exact = [k for k, one in enumerate(SPACE.values()) if getattr(one, "step", 1) is not None]
    np.testing.assert_array_equal(encode(SPACE, params)[:, exact], rows[:, exact])
    assert {own["kind"] for own in params} == {"a", None, 3}
    assert {own["depth"] for own in params} == {2, 5, 8, 11}
    assert (rows[500:] != rows[0]).any(axis=1).mean() > 0.9


def test_draws_are_uniform_in_their_scale():
    rows = draw(SPACE, 20_000, np.random.default_rng(1))
    within = np.abs(rows[:, :2].mean(axis=0) - [np.log(1e-5) / 2, 0.25])
    assert (within < 4 * np.array([-np.log(1e-5), 0.9]) / np.sqrt(12 * 20_000)).all()
    ends = [np.mean(np.isclose(rows[:, 2], end)) for end in (0.0, 0.5)]
    assert np.abs(np.array(ends) - 1 / 11).max() < 4 * np.sqrt(1 / 11 / 20_000)


def test_finds_a_better_minimum_than_random_search():
    """Two seeds each; the default model."""
    found, random = [], []
    for seed in range(2):
        for sampler, best in (
            (TrieSampler(seed=seed), found),
            (optuna.samplers.RandomSampler(seed=seed), random),
        ):
            study = optuna.create_study(sampler=sampler)
            study.optimize(objective, n_trials=30)
            best.append(study.best_value)
    assert np.mean(found) < 0.5 * np.mean(random)


def test_both_directions_are_mirror_images():
    studies = [
        optuna.create_study(sampler=quick(), direction=direction)
        for direction in ("minimize", "maximize")
    ]
    studies[0].optimize(objective, n_trials=14)
    studies[1].optimize(lambda trial: -objective(trial), n_trials=14)
    assert [t.params for t in studies[0].trials] == [t.params for t in studies[1].trials]


def test_seeds():
    runs = []
    for seed in (0, 0, 1):
        sampler = TrieSampler(TrieGPRegressor(**QUICK), n_candidates=50, seed=seed)
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=12)
        runs.append([t.params for t in study.trials])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    sampler = pickle.loads(pickle.dumps(quick()))
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=11)
    sampler.reseed_rng()
    study.optimize(objective, n_trials=1)
    assert len(study.trials) == 12


def finished(values, states=None, name="x"):
    """Finished trials of one parameter in [0, 1], at equal distances."""
    one = FloatDistribution(0.0, 1.0)
    states = states or [TrialState.COMPLETE] * len(values)
    return [
        create_trial(
            params={name: float(x)},
            distributions={name: one},
            value=None if state == TrialState.FAIL else float(value),
            state=state,
        )
        for x, value, state in zip(np.linspace(0, 1, len(values)), values, states, strict=True)
    ]


def suggested(trials, sampler=None, ask=1):
    """Values that are suggested after these trials; earlier ones are pending."""
    study = optuna.create_study(sampler=sampler or quick(n_startup_trials=3))
    study.add_trials(trials)
    return [study.ask({"x": FloatDistribution(0.0, 1.0)}).params["x"] for _ in range(ask)]


def test_the_suggestion_has_the_largest_expected_improvement():
    """By hand: the same model, the same candidates."""
    values = np.square(np.linspace(0, 1, 12) - 0.3)
    estimator = TrieGPRegressor(n_trees=4)
    [found] = suggested(finished(values), TrieSampler(estimator, n_candidates=400, seed=3))
    rng = np.random.default_rng(3)
    X, y = np.linspace(0, 1, 12)[:, None], -values
    model = TrieGPRegressor(
        n_trees=4,
        outside="clip",
        categorical_features=[False],
        random_state=int(rng.integers(2**31)),
    ).fit(X, y)
    space = {"x": FloatDistribution(0.0, 1.0)}
    near = [mutate(space, X[k], 40, rng) for k in np.argsort(-y)[:5]]
    rows = np.concatenate([draw(space, 200, rng), *near])
    rows = rows[[row not in X for row in rows]]
    mean, std = model.predict(rows, return_std=True, latent=True)
    best = model.predict(X, latent=True).max()
    assert found == rows[np.argmax(log_improvement(mean, std, best)), 0]
    assert abs(found - 0.3) < 0.1


def test_failed_and_pruned_trials_are_not_used():
    values = np.square(np.linspace(0, 1, 13) - 0.6)
    good = finished(values)
    bad = finished([-100.0] * 4, [TrialState.FAIL, TrialState.PRUNED] * 2)
    assert suggested(good) == suggested([*bad, *good])


def test_trials_that_do_not_return_numbers():
    """Infinite values count as the worst finite one; if all are infinite, the model is not used."""
    values = np.square(np.linspace(0, 1, 13) - 0.6)
    bad, worst = values.copy(), values.copy()
    bad[0], worst[0] = np.inf, values[1:].max()
    assert suggested(finished(bad)) == suggested(finished(worst))
    [found] = suggested(finished([np.inf] * 5))
    assert 0.0 <= found <= 1.0
    [found] = suggested(finished([1.0] * 5))  # all the same
    assert 0.0 <= found <= 1.0


def test_pending_trials_count_as_observed(monkeypatch):
    """With the mean that the model of the finished trials predicts for them."""
    fits = []

    def fit(model, X, y):
        plain(model, X, y)
        fits.append((X, y, clone(model).fit(X, y)))

    plain = triegp.optuna.sampler._fit
    monkeypatch.setattr(triegp.optuna.sampler, "_fit", fit)
    values = np.square(np.linspace(0, 1, 13) - 0.6)
    sampler = TrieSampler(TrieGPRegressor(n_trees=4), n_candidates=200, seed=0)
    found = suggested(finished(values), sampler, ask=3)
    assert len(set(found)) == 3
    assert [X.shape[0] for X, _, _ in fits] == [13, 13, 14, 13, 15]
    for first, second, n_pending in ((1, 2, 1), (3, 4, 2)):
        (X, y, alone), (rows, targets, _) = fits[first], fits[second]
        waiting = np.array(found[:n_pending])[:, None]
        np.testing.assert_array_equal(rows, np.concatenate([X, waiting]))
        np.testing.assert_array_equal(targets[:13], y)
        np.testing.assert_allclose(targets[13:], alone.predict(waiting, latent=True), rtol=ROUNDING)


def test_nothing_is_tried_twice_until_all_was_tried():
    study = optuna.create_study(sampler=quick(n_startup_trials=2))
    study.optimize(lambda t: abs(t.suggest_int("x", 0, 5) - 3.2), n_trials=2)
    study.optimize(lambda t: abs(t.suggest_int("x", 0, 5) - 3.2), n_trials=6)
    first = [t.params["x"] for t in study.trials]
    assert set(first) == set(range(6))
    study.optimize(lambda t: abs(t.suggest_int("x", 0, 5) - 3.2), n_trials=1)
    assert study.trials[-1].params["x"] in range(6)


def test_threads_share_a_sampler():
    study = optuna.create_study(sampler=quick(n_startup_trials=4))
    study.optimize(objective, n_trials=12, n_jobs=3)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 12


def test_the_mixture_works_too():
    sampler = TrieSampler(BinaryTreeGPRegressor(n_members=2, n_candidates=2), seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=12)
    assert len(study.trials) == 12


def test_bad_arguments():
    for call, said in (
        (lambda: TrieSampler(3.0), "one of triegp, got float"),
        (lambda: TrieSampler(n_startup_trials=0), "n_startup_trials"),
        (lambda: TrieSampler(n_candidates=9), "n_candidates"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=TrieSampler())
    with pytest.raises(ValueError, match="one objective, got a study with 2"):
        study.ask({"x": FloatDistribution(0.0, 1.0)})
